"""Selection by how well agents generalise: on tasks, or against opponents, that none of them trains on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from mulligan.envs import registry
from mulligan.envs.opponents import chances_of
from mulligan.envs.registry import named_params
from mulligan.errors import MulliganError, ParameterError
from mulligan.eval.passk import solved_within
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import tasks_of
from mulligan.training.config import Config, Params, evaluated_params
from mulligan.training.loop import Trainer
from mulligan.training.validation import RETRIES, TRIALS_AT_A_TIME
from mulligan.trial.settings import evaluated_episodes
from mulligan.types import Task, Trial

SHARE = 0.25
"""Of the agents, the worst and the best at a selection: truncation selection, as in Jaderberg et al. 2017."""
_SAMPLED = 256
"""Tasks that are looked at for who plays in them."""


class Score(NamedTuple):
    """What an agent reached on the held-out tasks."""

    of_task: tuple[float | None, ...]
    """None where the trial failed."""
    episodes: tuple[float, ...]
    """Of games the mean return of each episode, else p@1, p@2 …"""

    @property
    def value(self) -> float:
        return _mean_and_error([value for value in self.of_task if value is not None])[0]

    @property
    def error(self) -> float:
        """Standard error over tasks."""
        return _mean_and_error([value for value in self.of_task if value is not None])[1]


class HeldOut:
    """The tasks of selection: worlds of validation, and opponents that nobody trains with."""

    def __init__(self, config: Config) -> None:
        self.kind = config.population.score
        params = {**config.task.params, **named_params(config.population.held_out, "population.held_out")}
        mixture = Mixture.parse(config.task.env, params)
        self.tasks = [task for name, _ in mixture.weights for task in _tasks(name, mixture, config)]
        _check_opponents(config, self.tasks)

    def score(self, trainer: Trainer) -> Score:
        """Play the tasks with an agent as it is now; always with the same luck."""
        config, trials = trainer.config, dict[int, Trial]()
        episodes = evaluated_episodes(config.trial.episodes)
        settings = replace(trainer.trial, episodes=episodes, announced=episodes)
        jobs = [Job(task, number) for number, task in enumerate(self.tasks)]
        trainer.loaded.model.eval()
        playing = partial(collect, jobs, trainer.policy, settings, concurrency=TRIALS_AT_A_TIME, retries=RETRIES)
        trainer.loop.run(partial(playing, on_trial=trials.__setitem__))
        return scored([trials[number] for number in sorted(trials)], episodes, self.kind)


def scored(trials: Sequence[Trial], episodes: int, kind: str) -> Score:
    """The score of an agent from its trials: of the "last" episode, its "gain" over the first, or the "mean" of all."""
    rows = [None if trial.failed else _values(trial, episodes) for trial in trials]
    played = [row for row in rows if row is not None]
    if not played:
        raise MulliganError(f"all {len(trials)} held-out trials failed; the first: {trials[0].episodes[-1].error}")
    by_episode = tuple(sum(column) / len(played) for column in zip(*played, strict=True))
    return Score(tuple(None if row is None else _value(row, kind) for row in rows), by_episode)


def _value(row: Sequence[float], kind: str) -> float:
    if kind == "mean":
        return sum(row) / len(row)
    return row[-1] - (row[0] if kind == "gain" else 0.0)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def _values(trial: Trial, episodes: int) -> list[float]:
    """Of a game the return of each episode, without luck where it is known; else whether it was solved within 1, 2 …
    episodes."""
    if registry.spec(trial.task.env).kind == "solve":
        return [float(solved_within([trial], k)) for k in range(1, episodes + 1)]
    returns = [episode.value - sum(turn.luck for turn in episode.turns) for episode in trial.episodes]
    return [*returns, *returns[-1:] * (episodes - len(returns))]


def copies(scores: Mapping[int, Score]) -> list[tuple[int, int]]:
    """Who is copied to whom at a selection, (from, to): the best quarter in turn to the worst one, where it is better
    by more than the standard error of the difference: less may be luck. All play the same tasks with the same luck, so
    that it is the error of the differences task by task."""
    order = sorted(scores, key=lambda agent: (-scores[agent].value, agent))
    count = min(max(1, int(SHARE * len(order))), len(order) // 2)
    pairs = zip(order[:count], reversed(order[-count:]), strict=True)
    return [(best, worst) for best, worst in pairs if _is_better(scores[best], scores[worst])]


def _is_better(one: Score, other: Score) -> bool:
    pairs = zip(one.of_task, other.of_task, strict=True)
    differences = [mine - its for mine, its in pairs if mine is not None and its is not None]
    if not differences:
        return False
    mean, error = _mean_and_error(differences)
    return mean > error


def _tasks(name: str, mixture: Mixture, config: Config) -> list[Task]:
    count, limit = config.population.held_out_tasks, config.trial.env_timeout
    return tasks_of(name, count, "validation", mixture.own_params(name), or_fewer=True, env_timeout=limit)


def _check_opponents(config: Config, tasks: Sequence[Task]) -> None:
    """Raise where agents would be selected by opponents that they train with, or that evaluations are to measure."""
    held_out = {task.opponent for task in tasks if task.opponent}
    for purpose, params in {"training": {}, **evaluated_params(config)}.items():
        if met := sorted(held_out & _opponents(config, params)):
            raise ParameterError(
                f"population.held_out must name other opponents than {purpose}, such as opponent=… "
                f"(got {config.population.held_out!r}, and {met[0]} is in both)"
            )


def _opponents(config: Config, params: Params) -> set[str]:
    """Whom tasks may be played against: all that a world names, however rare they are, and those of a sample."""
    mixture = Mixture.parse(config.task.env, {**config.task.params, **params})
    names = {draw.task.opponent for draw in draw_tasks(mixture, _SAMPLED, seed=0, update=0)}
    for env, _ in mixture.weights:
        if "pool" in registry.spec(env).defaults:  # a pool given by hand is what agents expect, not who plays
            task = registry.task_of(env, 0, {**mixture.own_params(env), "pool": ""})
            world: Any = registry.build(task)
            if hasattr(world, "expected"):
                names.update(world.expected())
            elif hasattr(world, "check_opponent"):
                names.update(chances_of(env, task.text("pool"), world.check_opponent))
    return {name for name in names if name}
