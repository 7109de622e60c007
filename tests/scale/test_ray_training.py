"""A training run whose environments are in workers of Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.training.loop import train
from mulligan.training.metrics import MetricsFile
from mulligan.training.resolve import resolve

pytestmark = pytest.mark.scale
SMALL = {
    "task.env": "bandit",
    "model.name": "nano:hidden=32,layers=1",
    "run.updates": "2",
    "run.tasks": "2",
    "run.group": "2",
    "run.validate_every": "2",
    "run.validation_tasks": "2",
    "warmstart.steps": "0",
}


PLAYED = ("reward", "won", "played", "valid", "turns", "stop", "replies", "tokens", "validation")


def played(run: Path) -> list[dict[str, object]]:
    """What the metrics tell of the trials. The last bits of a loss depend on who is sampled beside whom."""
    lines = MetricsFile(run / "metrics.jsonl").read()
    return [{name: value for name, value in line.items() if name.startswith(PLAYED)} for line in lines]


def test_training_with_workers_plays_the_same_trials(tmp_path):
    here = train(resolve("cpu", None, SMALL), tmp_path / "here")
    elsewhere = train(resolve("cpu", None, {**SMALL, "ray.workers": "2"}), tmp_path / "elsewhere")
    assert played(here) == played(elsewhere)
    assert played(here)[-1]["replies"] == 12
