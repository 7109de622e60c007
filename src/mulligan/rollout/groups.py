"""The tasks of an update, and the groups of trials played on them.

Everything is derived from (seed, update): a run that is resumed asks for the same tasks and plays the same trials.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mulligan.envs import registry
from mulligan.errors import MulliganError, ParameterError
from mulligan.policy.base import Policy
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.tasksets import FIRST_SEED, belongs, world_key
from mulligan.seeding import derive, generator
from mulligan.trial.settings import TrialSettings
from mulligan.types import Group, Task, Trial

SEEDS = 1_000_000_000
_TRIES = 10_000
_PATIENCE = 100
"""So many draws, and a related task may be in a world that was there already."""
_BROKEN = 20
"""So many worlds that cannot be built while one is looked for, and it is said."""
_LOOKED_AT = 3.3
"""Numbers that a draw takes from the generator: one for the environment, and one for each world that it looks at, of
which 45 % are for training."""

Known = Mapping[tuple[str, int], bool]
"""By environment and seed, whether a world belongs to the set: looked up rather than found out, where it is there."""


@dataclass(frozen=True)
class Mixture:
    """Environments with weights, and the parameters of each."""

    weights: tuple[tuple[str, float], ...]
    params: Mapping[str, Any]
    seed_set: str = "train"

    @classmethod
    def parse(cls, text: str, params: Mapping[str, Any], seed_set: str = "train") -> Mixture:
        """``minesweeper`` or ``minesweeper:2,sokoban:1``; a parameter goes to every environment that knows it.

        Commas and colons in brackets belong to a name: ``openspiel:hex(num_cols=3,num_rows=4):2,kuhn``.
        """
        weights: list[tuple[str, float]] = []
        for part in _parts(text):
            name, colon, weight = part.rpartition(":")
            if not colon or not _is_number(weight):  # no weight: a name, or path/to/file.py:Class
                name, weight = part, "1"
            if not name:
                raise ParameterError(f"{text!r}: an environment has no name; write NAME:WEIGHT,NAME:WEIGHT")
            if not 0 < float(weight) < float("inf"):
                raise ParameterError(f"{part!r}: the weight of an environment must be more than 0")
            if name in [other for other, _ in weights]:
                raise ParameterError(f"{text!r} names {name} twice; give it one weight")
            weights.append((name, float(weight)))
        known = {key for name, _ in weights for key in [*registry.spec(name).defaults, "turns"]}
        for key in params:
            if key not in known:
                registry.task_of(weights[0][0], 0, {key: params[key]})  # raises, naming the nearest
        return cls(tuple(weights), dict(params), seed_set)

    def own_params(self, name: str) -> dict[str, Any]:
        """The parameters that environment `name` knows."""
        defaults = registry.spec(name).defaults
        return {key: value for key, value in self.params.items() if key in defaults or key == "turns"}

    def draw(self, rng: random.Random, known: Known | None = None) -> Task:
        """One task of the set."""
        names = [name for name, _ in self.weights]
        name = rng.choices(names, [weight for _, weight in self.weights])[0]
        own, broken, known = self.own_params(name), 0, known or {}
        for _ in range(_TRIES):
            seed = self._seed(rng)
            task = registry.task_of(name, seed, own)
            try:
                if known[name, seed] if (name, seed) in known else belongs(task, self.seed_set):
                    return task
            except MulliganError:
                raise
            except Exception as error:  # a world that cannot be built belongs to nobody; one of many is passed over
                broken += 1
                if broken == _BROKEN:
                    said = f"{type(error).__name__}: {error}"
                    raise MulliganError(f"{name}, seed {task.seed}: the world cannot be built: {said}") from error
        raise ParameterError(
            f"{name}: no world of the {self.seed_set} set in {_TRIES} tries; use a larger world, or one that is not "
            "kept for another set"
        )

    def _seed(self, rng: random.Random) -> int:
        return FIRST_SEED[self.seed_set] + int(rng.random() * SEEDS)

    def candidates(self, count: int, *, seed: int, update: int, name: str = "") -> list[tuple[str, int]]:
        """The worlds that `draw_tasks` will look at for `count` tasks, and some that it will not: every number that it
        takes from the generator, as if it were a seed. So others can find out beforehand which belong to the set."""
        rng = generator(seed, "tasks", update, name)
        seeds = [self._seed(rng) for _ in range(round(_LOOKED_AT * count))]
        return [(env, each) for each in seeds for env, _ in self.weights]

    def known(self, worlds: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bool]:
        """Which of these worlds belong to the set; those that cannot be built are left out."""
        found: dict[tuple[str, int], bool] = {}
        params = {name: self.own_params(name) for name, _ in self.weights}
        for name, seed in worlds:
            with contextlib.suppress(Exception):  # said where it is drawn
                found[name, seed] = belongs(registry.task_of(name, seed, params[name]), self.seed_set)
        return found


def _parts(text: str) -> list[str]:
    """What stands between commas, but for commas in brackets."""
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


@dataclass(frozen=True)
class Draw:
    """What one update plays: a task for each group, with the tasks of later episodes where they are related ones."""

    task: Task
    related: tuple[Task, ...] = ()


def draw_tasks(
    mixture: Mixture,
    count: int,
    *,
    seed: int,
    update: int,
    related: int = 0,
    name: str = "",
    known: Known | None = None,
) -> list[Draw]:
    """The tasks of an update; `related` more of the same class for each.

    They are the same whether or not it is `known` of some worlds that they belong to the set.
    """
    rng = generator(seed, "tasks", update, name)
    draws = []
    for _ in range(count):
        first = mixture.draw(rng, known)
        others = _alike(mixture, first, related, rng, known)
        draws.append(Draw(first, tuple(others)))
    return draws


def _alike(mixture: Mixture, first: Task, count: int, rng: random.Random, known: Known | None) -> list[Task]:
    """`count` more tasks of the class of `first`, in worlds of their own where there are enough."""
    found: list[Task] = []
    worlds = {world_key(first)} - {None} if count else set()
    for tried in range(_TRIES):
        if len(found) == count:
            return found
        other = mixture.draw(rng, known)
        if (other.env, other.task_class) != (first.env, first.task_class):
            continue
        world = world_key(other)
        if world not in worlds or tried >= _PATIENCE:
            found.append(other)
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
    concurrency: int,
    retries: int,
    on_failure: Callable[[Trial], None] = lambda trial: None,
    on_last: Callable[[], None] = lambda: None,
) -> list[Group]:
    """`group` trials of each task, all at once; failed ones played again with the same seed, up to `retries` times.

    `on_failure` gets every failed attempt, also those that a retry mends; `on_last` is called when all have begun.
    """
    jobs = [
        Job(draw.task, derive(seed, "trial", update, place), index, related=draw.related)
        for place, draw in enumerate(draws)
        for index in range(group)
    ]
    found: dict[int, Trial] = {}
    await collect(
        jobs,
        policy,
        settings,
        concurrency=concurrency,
        on_trial=found.__setitem__,
        retries=retries,
        on_failure=on_failure,
        on_last=on_last,
    )
    return [
        Group(draw.task, tuple(found[place * group + index] for index in range(group)))
        for place, draw in enumerate(draws)
    ]


def all_failed(groups: Sequence[Group]) -> bool:
    """Whether no trial of `groups` can be learned from: something outside agent and task went wrong in each."""
    return all(trial.failed for group in groups for trial in group.trials)
