"""Agent-specific normalisation: two agents whose rewards differ in scale both learn by their own spread, and by the
population's only the one whose rewards are large.

Slow tests: twelve runs of some seconds each. Each agent has an optimiser of its own, and AdamW does not mind how large
a loss is. What the scale decides is the balance with everything that has one of its own: here the entropy bonus, which
keeps a policy with small advantages at chance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import mulligan
from mulligan.envs.bandit import Bandit
from mulligan.population import agents as members
from mulligan.population.loop import train
from mulligan.seeding import generator
from mulligan.training.config import AlgoConfig, OptimConfig, PopulationConfig, RunConfig, TaskConfig, WarmstartConfig
from mulligan.types import ParamValue, Step
from small_runs import metrics, small


class Levers(Bandit):
    """Two arms of which the first one pays, in a currency of one's own, with luck."""

    defaults: ClassVar[dict[str, ParamValue]] = {"arms": 2, "worth": 1.0, "luck": 0.0}

    def __init__(self, task) -> None:
        super().__init__(task)
        self.paying = 1

    def reset(self, chance: int = 0) -> str:
        self.rng = generator(self.task.seed, "luck", chance)
        return super().reset(chance)

    def step(self, reply: str) -> Step:
        step = super().step(reply)
        luck = float(self.task["luck"]) * self.rng.gauss(0.0, 1.0) * (1 if step.won else -1) if step.valid else 0.0
        return step._replace(reward=float(self.task["worth"]) * step.reward + luck)


CONFIG = small(
    run=RunConfig(updates=24, tasks=8, group=8, threads=1, checkpoint_every=24, save_trials_every=0),
    warmstart=WarmstartConfig(steps=40, trials=40, batch=16, lr=2e-2, warmup=1, skill=0.0),
    algo=AlgoConfig(estimator="grpo", entropy_weight=0.1),
    optim=OptimConfig(lr=3e-3, lr_end=1.0, warmup=1, epochs=2),
    population=PopulationConfig(agents=2, vary=""),
)


def learned(run: Path, monkeypatch, scale: str, seed: int, *params: dict[str, float]) -> list[float]:
    """How often each agent pulls the arm that pays, in the last three updates."""
    if "Levers" not in mulligan.envs.registry.REGISTERED:
        mulligan.register(Levers)
    made = members.agent_configs

    def with_params(config):
        return [replace(c, task=TaskConfig(env="Levers", params=p)) for c, p in zip(made(config), params, strict=True)]

    monkeypatch.setattr(members, "agent_configs", with_params)
    monkeypatch.setattr(members, "LOOPS", 100)  # who learns nothing is not replaced here
    config = replace(
        CONFIG,
        task=TaskConfig(env="Levers"),
        trial=replace(CONFIG.trial, episodes=1),
        run=replace(CONFIG.run, seed=seed),
        algo=replace(CONFIG.algo, scale=scale),
    )
    train(config, run)
    return [sum(line.get("won/1", 0.0) for line in metrics(run / f"agent-{agent}")[-3:]) / 3 for agent in range(2)]


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.seeds) for n in (1, 2))]
)
def test_rewards_that_differ_by_a_factor_of_100(tmp_path, monkeypatch, seed):
    params = {"worth": 1.0}, {"worth": 100.0}
    own = learned(tmp_path / "own", monkeypatch, "agent", seed, *params)
    assert min(own) > 0.8
    monkeypatch.undo()
    small_one, large_one = learned(tmp_path / "together", monkeypatch, "population", seed, *params)
    assert large_one > 0.75
    assert small_one < 0.6


@pytest.mark.seeds
def test_an_opponent_that_is_ten_times_as_noisy(tmp_path, monkeypatch):
    """The noise of the one holds back the other. The noisy one itself learns little in so few updates, by either."""
    params = {"worth": 1.0, "luck": 0.5}, {"worth": 1.0, "luck": 5.0}
    quiet: dict[str, list[float]] = {"agent": [], "population": []}
    for scale, reached in quiet.items():
        for seed in range(3):
            reached.append(learned(tmp_path / f"{scale}-{seed}", monkeypatch, scale, seed, *params)[0])
            monkeypatch.undo()
    assert min(quiet["agent"]) > 0.8
    assert sum(quiet["population"]) < sum(quiet["agent"]) - 0.3
