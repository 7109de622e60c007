"""Settings, trials and rows for updates of a tiny model, for the tests of the learner."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import cache

import torch

import mulligan
from mulligan.engine.slots import SlotEngine
from mulligan.models.load import load
from mulligan.policy.local import LocalPolicy
from mulligan.training.config import AlgoConfig, Config, ModelConfig, OptimConfig, RunConfig
from mulligan.training.rows import rows_of
from mulligan.training.step import Learner, UpdateData
from mulligan.types import Group, Sampling

TINY = "nano:hidden=32,layers=2"


def config(**sections) -> Config:
    base = Config(
        run=RunConfig(updates=4),
        model=ModelConfig(name=TINY),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, lr_end=1.0),
        algo=AlgoConfig(),
    )
    return replace(base, **sections)


def play(loaded, *, memory="both", trials=4, temperature=1.0, style="plain", env="minesweeper", **options):
    """A group of trials of a random model, through the engine."""
    policy = LocalPolicy(SlotEngine(loaded.model, slots=8), loaded.renderer)
    params = options.pop("params", {"rows": 3, "cols": 3, "mines": 2, "turns": 3})
    task = mulligan.make_task(env, 5, params=params)

    async def all_of_them():
        return await asyncio.gather(
            *(
                mulligan.run_trial(
                    task,
                    policy,
                    seed=n,
                    index=n,
                    memory=memory,
                    style=style,
                    sampling=Sampling(temperature, 1.0, 6),
                    reflection_tokens=5,
                    stop="never",
                    **options,
                )
                for n in range(trials)
            )
        )

    return Group(task, tuple(asyncio.run(all_of_them())))


@cache
def _reflective_trials():
    return play(load(TINY), trials=3, memory="reflection", episodes=2).trials


def hand_made_rows(loaded=None):
    """Rows of `loaded`, or of an untrained model: those of a name all reply alike, so that it plays once."""
    played = _reflective_trials() if loaded is None else play(loaded, trials=3, memory="reflection", episodes=2).trials
    rows, steps = rows_of(played)
    rng = random.Random(0)
    return rows, torch.tensor([rng.uniform(-1, 1) for _ in range(steps)])


def good_update(learner: Learner, data: UpdateData, *, update: int) -> dict[str, float]:
    """The metrics of an update of which no step was skipped."""
    metrics = learner.update(data, update=update)
    assert not metrics["skipped"]
    return metrics
