"""What a worker hands on: how an arm samples is how it is evaluated."""

from __future__ import annotations

import json

import pytest

import mulligan
from mulligan.app.sweep.compare import compare
from mulligan.app.sweep.rows import read_rows
from mulligan.app.sweep.worker import _evaluate, work
from mulligan.engine import choose
from mulligan.eval import run as evaluation
from mulligan.models.load import load
from mulligan.report.run import RunFolder
from mulligan.training import checkpoint
from mulligan.training.metrics import MetricsFile
from mulligan.training.resolve import resolve, to_tree


def test_an_arm_is_evaluated_on_its_device_with_its_engine(tmp_path, monkeypatch):
    asked: dict[str, object] = {}

    def load_model(run, device="cpu", checkpoint=""):
        asked["device"] = device
        return load("nano:hidden=32,layers=1", device="cpu")

    def make_engine(model, **options):
        asked.update(options)

    class Played(Exception):
        pass

    def run_plan(*_, **__):
        raise Played

    monkeypatch.setattr(checkpoint, "load_model", load_model)
    monkeypatch.setattr(choose, "make_engine", make_engine)
    monkeypatch.setattr(evaluation, "run_plan", run_plan)
    wanted = {"tasks": 2, "seed_set": "eval", "seed": 0, "controls": []}
    settings = {"model.device": "cuda:1", "engine.slots": "7", "engine.context": "96"}
    config = resolve("test", None, settings)
    RunFolder.create(tmp_path / "arm", {"kind": "train", **to_tree(config)})
    with pytest.raises(Played):
        _evaluate(config, tmp_path / "arm", wanted, lambda progress: None)
    assert (asked["device"], asked["slots"], asked["context"]) == ("cuda:1", 7, 96)


@pytest.mark.parametrize("memory", ["reflection", "none"])
def test_as_many_trials_are_announced_as_are_played(tmp_path, memory):
    """One control needs donors, whom nobody named; without memory no control is played at all."""
    wanted = {"tasks": 4, "seed_set": "eval", "controls": ["independent", "other-trial"], "seed": 0, "episodes": 4}
    settings = {"task.env": "bandit", "run.updates": "1", "warmstart.steps": "0", "trial.memory": memory}
    settings |= {"run.tasks": "1", "run.group": "2", "trial.reflection_tokens": "4"}
    order = {"name": "a", "folder": str(tmp_path / "arm"), "preset": "test", "settings": settings}
    said: list[dict[str, object]] = []
    work({**order, "evaluation": wanted}, said.append)
    folder = RunFolder(tmp_path / "arm" / "evaluation")
    played = [place for arm in folder.arms() for place in folder.trials(arm)]
    assert len(json.loads((folder.path.parent / "arm.json").read_text())["main"]["p"]) == 4
    assert said[-1]["total"] == len(played) == 4 * (4 if memory == "reflection" else 1)


def test_an_arm_is_compared_on_games_that_it_never_trained_on(tmp_path):
    also = {"larger": {"env": "bandit(arms=6)", "controls": ["independent"]}, "throws": {"env": "rps", "throws": 2}}
    wanted = {"tasks": 4, "seed_set": "validation", "controls": [], "seed": 0, "env": "bandit(arms=3)", "also": also}
    settings = {"task.env": "bandit(arms=2):1,bandit(arms=4):1", "run.updates": "1", "warmstart.steps": "0"}
    settings |= {"run.tasks": "4", "run.group": "2", "run.seed": "1", "env.turns": "1"}
    order = {"name": "a", "folder": str(tmp_path / "arm"), "preset": "test", "settings": settings}
    work({**order, "evaluation": wanted}, lambda progress: None)
    line = MetricsFile(tmp_path / "arm" / "metrics.jsonl").read()[0]
    assert {"bandit/2/p@1", "bandit/4/p@1"} <= line.keys()
    played = {
        name: {trial.task.task_class for trial in mulligan.load_trials(tmp_path / "arm" / name, "main")}
        for name in ("evaluation", "evaluation-larger", "evaluation-throws")
    }
    assert played["evaluation"] == {"bandit/3"}
    assert played["evaluation-larger"] == {"bandit/6"}
    assert all(name.startswith("rps") for name in played["evaluation-throws"])
    comparison = compare(read_rows([tmp_path / "arm"]), show_all=True)
    sections = [(section["title"], section["kind"]) for section in comparison["sections"]]
    assert sections == [("bandit(arms=3)", "solve"), ("larger", "solve"), ("throws", "versus")]
