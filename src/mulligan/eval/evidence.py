"""Evidence: the outcome of every attempt at every task, kept so that any difference can be computed later.

Results are paired by task, so that each names its list of tasks; intervals resample worlds, so that tasks which are
one world (a board and its mirror image) share a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mulligan.eval.passk import Summary
from mulligan.rollout.tasksets import task_key, world_key
from mulligan.seeding import derive
from mulligan.types import Task, Trial

FIELDS = ("outcomes", "worlds", "tasks_digest")
"""The fields of a `Summary` that hold evidence."""


class TaskNames:
    """The names of a list of tasks, which environments have to be built for: each is looked up once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        first: dict[str, int] = {}
        self._worlds: dict[Task, int] = {}
        self._keys: dict[Task, str] = {}
        for number, task in enumerate(tasks):
            world = world_key(task)
            self._worlds[task] = number if world is None else first.setdefault(world, number)
            self._keys[task] = task_key(task) or f"{task.seed} {task.params}"

    def evidence(self, summary: Summary, trials: Sequence[Trial], episodes: int, *, versus: bool) -> Summary:
        """The summary with the outcomes of its trials, which are in the order of the tasks."""
        return replace(
            summary,
            outcomes=[(returns_of if versus else wins_of)(trial, episodes) for trial in trials],
            worlds=[self._worlds[trial.task] for trial in trials],
            tasks_digest=f"{derive(*(self._keys[trial.task] for trial in trials)):016x}",
        )


def wins_of(trial: Trial, episodes: int) -> list[float | None]:
    """1 for each episode that was won, else 0, also where the trial had ended before."""
    won = [int(episode.won) for episode in trial.episodes[:episodes]]
    return [*won, *[0] * (episodes - len(won))]


def returns_of(trial: Trial, episodes: int) -> list[float | None]:
    """The return of each episode; None where it was not played to its end: in a game, 0 would be a draw."""
    ended = [None if episode.stop.is_infrastructure else episode.reward for episode in trial.episodes[:episodes]]
    return [*ended, *[None] * (episodes - len(ended))]


def without_evidence(data: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain data for a terminal: without its hundreds of outcomes."""
    return {
        name: without_evidence(value) if isinstance(value, Mapping) else value
        for name, value in data.items()
        if name not in FIELDS
    }
