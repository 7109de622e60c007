"""Trials a minute of a slow environment: held by this process, by one worker of Ray, and by eight.

A step takes 50 ms, which the environment sleeps: that costs no processor, so that two cores show what more would.
The agent answers at once. All counts come from one process, one after another, after a trial in each worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from mulligan.app.bench import Cell, Report
from mulligan.envs import registry
from mulligan.policy.base import as_policy
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.ray_worlds import RayWorlds
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Step, Task, Trial

STEP = 0.05
TURNS = 5
CONCURRENCY = 32
WORKERS = 8
_TRIALS = {0: 24, 1: 24, WORKERS: 192}
"""Trials that are timed, by the number of workers: about as long for each."""
_SETTINGS = TrialSettings(episodes=2, memory="none", stop="never")


class SlowRoom:
    """A room in which each step takes 50 ms."""

    turns = TURNS

    def __init__(self, task: Task) -> None:
        self.task = task

    def rules(self) -> str:
        return "Wait."

    def reset(self, chance: int = 0) -> str:
        return "A room."

    def step(self, reply: str) -> Step:
        time.sleep(STEP)
        return Step("A room.")


def run() -> Report:
    registry.register(SlowRoom)
    speeds = [_trials_a_minute(run_trial, _TRIALS[0])]
    rows: list[dict[str, Cell]] = [{"worlds": "in this process"}]
    for workers in (1, WORKERS):
        worlds = RayWorlds(workers)
        try:
            _trials_a_minute(worlds.play, CONCURRENCY // 2)  # the workers have started, and loaded what they need
            speeds.append(_trials_a_minute(worlds.play, _TRIALS[workers]))
        finally:
            worlds.close()
        rows.append({"worlds": f"in {workers} of Ray"})
    one = speeds[1]
    for row, speed in zip(rows, speeds, strict=True):
        row |= {"trials a minute": speed, "times one worker": speed / one}
    return Report(
        f"Trials of {_SETTINGS.episodes} × {TURNS} steps of {STEP * 1000:g} ms, {CONCURRENCY} at a time", rows
    )


def _trials_a_minute(play: Callable[..., Awaitable[Trial]], count: int) -> float:
    jobs = [Job(registry.task_of("SlowRoom", seed, {}), seed) for seed in range(count)]
    policy = as_policy(lambda messages: "wait")
    ended: dict[int, Trial] = {}
    began = time.perf_counter()
    asyncio.run(collect(jobs, policy, _SETTINGS, concurrency=CONCURRENCY, on_trial=ended.__setitem__, play=play))
    took = time.perf_counter() - began
    assert not any(trial.failed for trial in ended.values()), next(iter(ended.values())).episodes[-1].error
    return 60 * len(ended) / took
