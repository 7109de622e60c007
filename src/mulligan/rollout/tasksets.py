"""Frozen lists of tasks: the same for every method, and disjoint between training, validation and evaluation.

Seeds come from ranges that do not meet. Two seeds may still draw the same board, or its mirror image, so where an
environment names its worlds (`world_key`, canonical), these are split: each key belongs to exactly one set. A list
holds each task once (`task_key`, or the world's key where the environment has no finer one).

A survey tells whether the worlds of training and of evaluation are separate, as far as that can be known:

split   the environment names its worlds (`world_key`) or has a split of its own (`seed_set`): no set shares any
seeds   it does neither, and its tasks begin differently: worlds are told apart by their seeds alone
shared  it does neither, and its tasks begin alike (FrozenLake has one map): evaluation plays what training played
game    a game against an opponent has one world: only the opponent may be unseen
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mulligan.calls import call_within, described, text_of
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import ContractBroken, FaultyWorld, MulliganError, ParameterError, UnknownName
from mulligan.seeding import derive
from mulligan.types import Task, whole

FIRST_SEED = {"train": 0, "validation": 1_000_000_000, "eval": 3_000_000_000}
"""Where each set's seeds begin; each has 10^9 of them. Settings were chosen on seeds from 2 * 10^9 on, so that
evaluation leaves those out."""
SHARES = {"eval": range(45), "validation": range(45, 55), "train": range(55, 100)}
"""Percent of all worlds that belong to each set."""
_PATIENCE, _PATIENCE_EACH = 20_000, 20
"""A set counts as exhausted after so many seeds in a row without a new world, and so many more for each world."""
BROKEN = 20
"""Worlds in a row that cannot be built, after which their error is raised."""
Separation = Literal["split", "seeds", "shared", "game"]
_ALIKE = 0.5
"""Worlds count as shared when at least this share of tasks begin as another task does. A task of evaluation then begins
as one of equally many training tasks about as often."""
_FEW = 4
"""Worlds are few when there are that many tasks, or more, to each."""
SAMPLED = 64
"""Tasks of a survey."""


def tasks_of(
    env: str,
    tasks: int,
    seed_set: str,
    params: Mapping[str, Any],
    *,
    or_fewer: bool = False,
    env_timeout: float | None = None,
) -> list[Task]:
    """The first `tasks` tasks of a set; where the environment names its worlds, each task once.

    An evaluation set that has fewer is an error; a validation set, or any set with `or_fewer`, gives what it has.
    """
    if whole("tasks", tasks) < 1:
        raise ParameterError(f"tasks must be >= 1 (got {tasks})")
    chosen: list[Task] = []
    keys: set[str | None] = set()
    in_vain = 0
    for task in stream(env, seed_set, params, env_timeout):
        if in_vain >= _PATIENCE + _PATIENCE_EACH * len(chosen):
            if or_fewer or (chosen and seed_set == "validation"):
                break
            way_out = "ask for no more" if chosen else "choose parameters that name worlds of it"
            raise ParameterError(
                f"{env}: the {seed_set} set has only about {len(chosen)} different tasks with these parameters (asked "
                f"for {tasks}); {way_out}"
            )
        in_vain += 1
        if task is None or (key := task_key(task, env_timeout)) in keys:
            continue
        keys |= {key} - {None}
        chosen.append(task)
        in_vain = 0
        if len(chosen) == tasks:
            break
    return chosen


def stream(
    env: str, seed_set: str, params: Mapping[str, Any], env_timeout: float | None = None
) -> Iterator[Task | None]:
    """One entry for each seed of the set, in order: its task, or None where the world belongs to another set."""
    if seed_set not in FIRST_SEED:
        raise UnknownName("seed set", seed_set, FIRST_SEED)
    broken, has_warned = 0, False
    for seed in itertools.count(FIRST_SEED[seed_set]):
        task = registry.task_of(env, seed, params)
        try:
            is_member = belongs(task, seed_set, env_timeout) and (task_key(task, env_timeout) or True)
            broken = 0
        except MulliganError:
            raise
        except Exception as error:  # a world that cannot be built or named belongs to no set
            is_member, broken = False, broken + 1
            reason = f"{env}, seed {seed}: the world cannot be built: {described(error)}"
            if broken == BROKEN:
                raise MulliganError(reason) from error
            if not has_warned:
                warnings.warn(f"{reason}; such worlds are left out", FaultyWorld, stacklevel=2)
                has_warned = True
        yield task if is_member else None


def next_alike(task: Task, tasks: Sequence[Task], count: int) -> tuple[Task, ...]:
    """The `count` tasks that follow `task` among those of its class; after the last comes the first."""
    alike = [other for other in tasks if other.task_class == task.task_class] if count else []
    return tuple(alike[(alike.index(task) + n) % len(alike)] for n in range(1, count + 1))


def belongs(task: Task, seed_set: str, env_timeout: float | None = None) -> bool:
    """Whether a task's world is one of the set's; an environment with a split of its own says so itself."""
    set_of_world = _named_by(task, "seed_set", env_timeout)
    if set_of_world is not None:
        return set_of_world == seed_set
    world = _named_by(task, "world_key", env_timeout)
    return world is None or derive(world, "split") % 100 in SHARES[seed_set]


def world_key(task: Task, env_timeout: float | None = None) -> str | None:
    """The canonical name of a task's hidden world, where the environment gives one."""
    return _named_by(task, "world_key", env_timeout)


def task_key(task: Task, env_timeout: float | None = None) -> str | None:
    """The exact name of a task's world: of those that share a `world_key`, which one it is."""
    return _named_by(task, "task_key", env_timeout) or _named_by(task, "world_key", env_timeout)


def _named_by(task: Task, method: str, env_timeout: float | None = None) -> str | None:
    env_class = registry.spec(task.env).build
    return _name(env_class, task, method, env_timeout) if hasattr(env_class, method) else None


@lru_cache(maxsize=3)  # the names of one world, each of which is asked for several times
def _name(env_class: type[Env], task: Task, method: str, env_timeout: float | None) -> str | None:
    name = call_within(env_timeout, getattr(_world(env_class, task, env_timeout), method))
    return None if name is None else text_of(f"{method}()", name)


@lru_cache(maxsize=1)  # each of its names is asked for in turn
def _world(env_class: type[Env], task: Task, env_timeout: float | None) -> Env:
    return call_within(env_timeout, registry.build, task)


class Survey(NamedTuple):
    """Worlds of some tasks of an environment: half of training, half of evaluation."""

    separation: Separation
    tasks: int
    worlds: int
    """Different ones: by `world_key`, otherwise by rules and first observation."""

    @property
    def few(self) -> bool:
        """Whether a task hardly ever brings a new world."""
        return self.worlds * _FEW <= self.tasks


def names_world(task: Task, env_timeout: float | None = None) -> bool:
    """Whether a task's world has a name, or belongs to a set, by which it is kept apart."""
    return any(_named_by(task, method, env_timeout) is not None for method in ("world_key", "seed_set"))


def separation(env: str, beginnings: Sequence[str], *, named: bool) -> Separation:
    """How the worlds of `env` are kept apart. beginnings: [task] rules and first observation of each. named: as
    `names_world` says of them."""
    about = registry.spec(env)
    if named:
        return "split"
    if about.kind == "versus":
        return "game"
    counts = Counter(beginnings)
    alike = sum(count for count in counts.values() if count > 1)
    return "shared" if beginnings and alike >= _ALIKE * len(beginnings) else "seeds"


def survey(env: str, params: Mapping[str, Any], env_timeout: float | None = None) -> Survey:
    firsts = (FIRST_SEED["train"], FIRST_SEED["eval"])
    tasks = [registry.task_of(env, first + number, params) for first in firsts for number in range(SAMPLED // 2)]
    beginnings, worlds = [], set()
    for task in tasks:
        try:
            world = call_within(env_timeout, registry.build, task)
            texts = [call_within(env_timeout, method) for method in (world.rules, world.reset)]
            beginnings.append("\n".join(texts))
            worlds.add(_named_by(task, "world_key", env_timeout) or beginnings[-1])
        except MulliganError:
            raise
        except Exception as error:
            raise ContractBroken(f"{env}, seed {task.seed}: {described(error)}") from error
    named = names_world(tasks[0], env_timeout)
    return Survey(separation(env, beginnings, named=named), len(tasks), len(worlds))
