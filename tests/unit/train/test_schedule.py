"""Schedules of a run: by hand, and without a jump when a run is resumed with another length."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mulligan.errors import UsageError
from mulligan.report.run import to_toml
from mulligan.training.config import AlgoConfig, Config, OptimConfig
from mulligan.training.loop import train
from mulligan.training.optimisers import Schedule
from small_runs import metrics, small, weights


def test_the_plan_by_hand():
    # 81 updates: 1 at update 0, 0.2 at update 80, so 0.01 less each; the first four rise by quarters.
    optim, plan = OptimConfig(lr_end=0.2, warmup=4), Schedule(81)
    assert [plan.rate(update, optim) for update in (0, 1, 3)] == pytest.approx([0.25, 0.5 * 0.99, 0.97])
    assert [plan.rate(update, optim) for update in (40, 60, 80, 81, 500)] == pytest.approx([0.6, 0.4, 0.2, 0.2, 0.2])
    falling = AlgoConfig(entropy_weight=0.04, entropy_end=0.0)
    assert [plan.entropy_weight(update, falling) for update in (0, 40, 80, 500)] == pytest.approx([0.04, 0.02, 0, 0])
    assert plan.entropy_weight(70, AlgoConfig(entropy_weight=0.04)) == 0.04


def learns(updates: int, **optim: float) -> Config:
    """A tiny run without a warm start."""
    return small(
        run=replace(small().run, updates=updates, tasks=1, checkpoint_every=1, save_trials_every=0),
        warmstart=replace(small().warmstart, steps=0),
        optim=replace(OptimConfig(lr=1e-3, warmup=1, epochs=1, lr_end=0.2), **optim),
    )


def interrupted(config: Config, run: Path, after: int) -> Path:
    played: list[dict] = []
    return train(config, run, on_update=played.append, stop=lambda: len(played) >= after - 1)


def set_updates(run: Path, updates: int) -> None:
    """Edit the run's file as a user would."""
    file = run / "config.toml"
    tree = tomllib.loads(file.read_text())
    tree["run"]["updates"] = updates
    file.write_text(to_toml(tree))


def rates(run: Path) -> list[float]:
    return [line["loss/lr"] for line in metrics(run) if line["update"]]


@pytest.mark.parametrize("updates", [9, 4])
def test_a_run_resumed_with_another_length_keeps_its_learning_rates(tmp_path, updates):
    # 5 planned updates from 1 to 0.2: 0.2 less each, and never more than that at once.
    run = interrupted(learns(5), tmp_path / "run", after=2)
    assert len(rates(run)) == 2
    set_updates(run, updates)
    train(None, run, resume=True)
    planned = [1e-3, 0.8e-3, 0.6e-3, 0.4e-3, 0.2e-3, 0.2e-3, 0.2e-3, 0.2e-3, 0.2e-3]
    assert rates(run) == pytest.approx(planned[:updates])
    set_updates(run, updates + 1)
    train(None, run, resume=True)  # the plan is that of the beginning, however often the run is made longer
    assert rates(run) == pytest.approx([*planned, 0.2e-3][: updates + 1])


def test_a_longer_run_does_not_depend_on_when_it_was_made_longer(tmp_path):
    early, late = (interrupted(learns(3), tmp_path / name, after) for name, after in (("early", 1), ("late", 3)))
    for run in (early, late):
        set_updates(run, 5)
        train(None, run, resume=True)
    assert metrics(early) == metrics(late)
    assert torch.equal(weights(early), weights(late))


def test_the_length_may_change_before_the_first_update(tmp_path):
    warm = replace(learns(1), warmstart=replace(small().warmstart, steps=1))
    run = train(replace(warm, run=replace(warm.run, updates=0, validation_tasks=2)), tmp_path / "run")
    set_updates(run, 3)
    train(None, run, resume=True)
    assert rates(run) == pytest.approx([1e-3, 0.6e-3, 0.2e-3])


def test_a_run_whose_rate_ends_at_nothing_cannot_be_made_longer(tmp_path):
    run = interrupted(learns(3, lr_end=0.0), tmp_path / "run", after=2)
    set_updates(run, 4)
    with pytest.raises(UsageError, match=r"run\.updates must be <= 3 \(got 4\)"):
        train(None, run, resume=True)
    set_updates(run, 3)
    train(None, run, resume=True)
    assert rates(run)[-1] == 0.0
