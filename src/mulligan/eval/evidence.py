"""Evidence: the outcome of every attempt at every task, kept so that any difference can be computed later.

Results are paired by task, so that each has a digest of its list of tasks. Intervals are over worlds, so that tasks of
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
Outcomes = list[float | None]
"""An entry for each attempt at a task."""


class TaskNames:
    """The names of a list of tasks, each looked up once, since an environment has to be built for it."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        first: dict[str, int] = {}
        self._worlds: dict[Task, int] = {}
        self._keys: dict[Task, str] = {}
        for number, task in enumerate(tasks):
            world = world_key(task)
            self._worlds[task] = number if world is None else first.setdefault(world, number)
            self._keys[task] = task_key(task) or f"{task.seed} {task.params}"

    def worlds(self, trials: Sequence[Trial]) -> list[int]:
        """The number of each trial's world."""
        return [self._worlds[trial.task] for trial in trials]

    def evidence(self, summary: Summary, trials: Sequence[Trial], episodes: int, *, versus: bool) -> Summary:
        """The summary with its trials' outcomes, in the order of the tasks, and intervals over worlds."""
        from mulligan.eval.intervals import share_interval, solved_within  # numpy, which a command's help does without

        worlds = self.worlds(trials)
        wins = [_wins(trial, episodes) for trial in trials]
        solved = [solved_within(wins, k)[None] for k in range(1, episodes + 1)]
        intervals = [
            share_interval(each, worlds, effect=summary.trials / effective)
            for each, effective in zip(solved, summary.effective, strict=True)
            if trials
        ]
        return replace(
            summary,
            outcomes=[_returns(trial, episodes) for trial in trials] if versus else wins,
            worlds=worlds,
            ci=intervals or summary.ci,
            tasks_digest=f"{derive(*(self._keys[trial.task] for trial in trials)):016x}",
        )


def _wins(trial: Trial, episodes: int) -> Outcomes:
    """1 for each episode that was won, else 0, also where the trial had ended before."""
    won = [int(episode.won) for episode in trial.episodes]
    return [*won, *[0] * (episodes - len(won))]


def _returns(trial: Trial, episodes: int) -> Outcomes:
    """The return of each episode; None where it was not played to its end: in a game, 0 would be a draw."""
    ended = [None if episode.stop.is_infrastructure else episode.reward for episode in trial.episodes]
    return [*ended, *[None] * (episodes - len(ended))]


def without_evidence(data: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain data for a terminal: without its hundreds of outcomes."""
    return {
        name: without_evidence(value) if isinstance(value, Mapping) else value
        for name, value in data.items()
        if name not in FIELDS
    }
