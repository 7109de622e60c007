"""The tasks of an update, and the groups of trials played on them.

Everything is derived from (seed, update): a run that is resumed asks for the same tasks and plays the same trials.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mulligan.calls import described
from mulligan.envs import registry
from mulligan.errors import MulliganError, ParameterError
from mulligan.policy.base import Policy
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.tasksets import BROKEN, FIRST_SEED, belongs, world_key
from mulligan.seeding import derive, generator
from mulligan.trial.settings import TrialSettings
from mulligan.types import Group, Task, Trial

SEEDS = 1_000_000_000
"""Seeds of each set."""
_TRIES = 10_000
_PATIENCE = 100
"""Draws after which a related task may be in a world that was drawn already."""
_LOOKED_AT = 3.3
"""Numbers that a draw takes from the generator: one for the environment, and one for each world that it looks at, of
which 45 % are for training."""


@dataclass(frozen=True)
class Mixture:
    """Environments with weights, and the parameters of each."""

    weights: tuple[tuple[str, float], ...]
    params: Mapping[str, Any]
    membership: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    """(environment, seed) -> whether that world belongs to the set, for worlds that were looked at before: a draw is
    faster with it and gives the same tasks."""
    env_timeout: float | None = None
    """Seconds that building a world, or naming it, may take."""

    @classmethod
    def parse(cls, text: str, params: Mapping[str, Any]) -> Mixture:
        """``minesweeper`` or ``minesweeper:2,sokoban:1``; a parameter goes to every environment that knows it.

        An environment may be there several times, as games: ``expedition(world=camp):2,expedition(world=toolbox)``. A
        parameter in brackets is the game's own. Commas and colons in brackets belong to a name:
        ``openspiel:hex(num_cols=3,num_rows=4):2,kuhn``.
        """
        weights: list[tuple[str, float]] = []
        for part in _parts(text):
            name, colon, weight = part.rpartition(":")
            if not colon or not _is_number(weight):  # no weight: a name, or path/to/file.py:Class
                name, weight = part, "1"
            if not name:
                raise ParameterError(f"{text!r}: an environment has no name; write NAME:WEIGHT,NAME:WEIGHT")
            if not 0 < float(weight) < float("inf"):
                raise ParameterError(f"the weight of an environment must be > 0 (got {part!r})")
            if name in [other for other, _ in weights]:
                raise ParameterError(f"{text!r} names {name} twice; give it one weight")
            weights.append((name, float(weight)))
        names = {key for name, _ in weights for key in [*registry.spec(name).defaults, "turns"]}
        for key in params.keys() - names:
            registry.task_of(weights[0][0], 0, {key: params[key]})  # raises UnknownName with the nearest name
        return cls(tuple(weights), dict(params))

    def own_params(self, name: str) -> dict[str, Any]:
        taken = {*registry.spec(name).defaults, "turns"} - registry.game_of(name)[1].keys()
        return {key: value for key, value in self.params.items() if key in taken}

    def draw(self, rng: random.Random) -> Task:
        """One task of the training set."""
        names, weights = zip(*self.weights, strict=True)
        name = rng.choices(names, weights)[0]
        params, broken = self.own_params(name), 0
        for _ in range(_TRIES):
            seed = _seed(rng)
            task = registry.task_of(name, seed, params)
            try:
                is_member = self.membership.get((name, seed))
                if belongs(task, "train", self.env_timeout) if is_member is None else is_member:
                    return task
            except MulliganError:
                raise
            except Exception as error:  # a world that cannot be built belongs to no set; a few are skipped
                broken += 1
                if broken == BROKEN:
                    reason = f"{name}, seed {task.seed}: the world cannot be built: {described(error)}"
                    raise MulliganError(reason) from error
        raise ParameterError(f"{name}: no world of the training set in {_TRIES} tries; use a larger world")

    def candidates(self, count: int, *, seed: int, update: int, name: str = "") -> list[tuple[str, int]]:
        """The worlds that `draw_tasks` will look at for `count` tasks, and some more, for `look_at` beforehand: every
        number that it takes from the generator, as if it were a seed."""
        rng = generator(seed, "tasks", update, name)
        seeds = [_seed(rng) for _ in range(round(_LOOKED_AT * count))]
        return [(env, each) for each in seeds for env, _ in self.weights]

    def look_at(self, worlds: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bool]:
        """Which of these worlds belong to the set; those that cannot be built are left out."""
        membership: dict[tuple[str, int], bool] = {}
        for name, seed in worlds:
            with contextlib.suppress(Exception):  # `draw` raises it
                task = registry.task_of(name, seed, self.own_params(name))
                membership[name, seed] = belongs(task, "train", self.env_timeout)
        return membership


def _seed(rng: random.Random) -> int:
    return FIRST_SEED["train"] + int(rng.random() * SEEDS)


def _parts(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth = max(0, depth + (character == "(") - (character == ")"))
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise ParameterError(f"{text!r}: a bracket is not closed; write NAME(KEY=VALUE,KEY=VALUE):WEIGHT")
    return [part.strip() for part in parts]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Draw(NamedTuple):
    """The task of a group, and the tasks of its later episodes where they are related ones."""

    task: Task
    related: tuple[Task, ...] = ()


def draw_tasks(mixture: Mixture, count: int, *, seed: int, update: int, related: int = 0, name: str = "") -> list[Draw]:
    """The tasks of an update; `related` more of the same class for each."""
    rng = generator(seed, "tasks", update, name)
    draws = []
    for _ in range(count):
        first = mixture.draw(rng)
        draws.append(Draw(first, tuple(_alike(mixture, first, related, rng))))
    return draws


def _alike(mixture: Mixture, first: Task, count: int, rng: random.Random) -> list[Task]:
    """`count` more tasks of the class of `first`, each in another world where there are enough."""
    tasks: list[Task] = []
    worlds = {world_key(first)} - {None} if count else set()
    for tried in range(_TRIES):
        if len(tasks) == count:
            return tasks
        other = mixture.draw(rng)
        if (other.env, other.task_class) != (first.env, first.task_class):
            continue
        world = world_key(other)
        if world not in worlds or tried >= _PATIENCE:
            tasks.append(other)
            worlds |= {world} - {None}
    raise ParameterError(f"{first.task_class}: too few other tasks of this class for related episodes; give same ones")


async def play_groups(
    draws: Sequence[Draw],
    group: int,
    policy: Policy,
    settings: TrialSettings,
    *,
    seed: int,
    update: int,
    stand_in: Policy | None = None,
    stand_in_trials: int = 0,
    numbers: Sequence[int] | None = None,
    **options: Any,
) -> list[Group]:
    """`group` trials of each task, all at once; `options` are those of `collect`.

    `stand_in` plays episodes of the first `stand_in_trials` of a task. `numbers` are the tasks' among all of the
    update, where others play the rest.
    """
    numbers = range(len(draws)) if numbers is None else numbers
    jobs = [
        Job(
            draw.task,
            derive(seed, "trial", update, number),
            index,
            related=draw.related,
            stand_in=stand_in if index < stand_in_trials else None,
        )
        for number, draw in zip(numbers, draws, strict=True)
        for index in range(group)
    ]
    trials: dict[int, Trial] = {}
    await collect(jobs, policy, settings, on_trial=trials.__setitem__, **options)
    in_order = iter([trials[number] for number in range(len(jobs))])
    return [Group(draw.task, tuple(itertools.islice(in_order, group))) for draw in draws]
