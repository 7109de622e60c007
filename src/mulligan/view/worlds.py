"""Live worlds for pages: of environments that are installed, and of nothing that only a run folder names.

A task in a run folder may be somebody else's. It may name Python files, level files or servers; none is opened here,
unless the command line says ``--trust``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mulligan.calls import call_within, described, text_of
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.envs.opponents import asks_policy
from mulligan.errors import MulliganError, UsageError
from mulligan.trusted import trusts_everything
from mulligan.types import ParamValue, Step, Task, Trial

SECONDS = 10.0
"""That a world may take for an answer."""
MOST_MOVES = 256
"""Legal moves that are looked at."""


def refuse_others(task: Task) -> None:
    """`UsageError` where building the task's world would open what the task alone names."""
    if task.env.partition(":")[0] in registry.ADAPTERS or task.env not in registry.names():
        raise UsageError(f"{task.env} is not an environment of this installation; mulligan play plays it by name")
    if asks_policy(task):
        raise UsageError(f"its opponent {task.opponent} is a policy; mulligan play plays against it by name")
    defaults = registry.spec(task.env).defaults
    paths = [f"{key}={value}" for key, value in task.params if value != defaults.get(key) and _names_file(value)]
    if paths and not trusts_everything():
        raise UsageError(f"the task names a file ({paths[0][:100]}); add --trust to mulligan view to open it")


def world_of(task: Task) -> Env:
    """The world of a task, built; see `refuse_others`."""
    refuse_others(task)
    try:
        return call_within(SECONDS, registry.build, task)
    except MulliganError:
        raise
    except Exception as error:
        raise UsageError(f"the world of {task.env}, seed {task.seed}, cannot be built: {described(error)}") from error


def _names_file(value: ParamValue) -> bool:
    """Whether an environment could open it: it has a slash, or something is called so here."""
    if not isinstance(value, str) or not value:
        return False
    return bool(set(value) & {"/", "\\"}) or value.startswith("~") or os.path.lexists(value)


def first_observation(world: Env, chance: int) -> str:
    """Begin an episode, with its draw of luck."""
    try:
        return text_of("reset()", call_within(SECONDS, world.reset, chance))
    except MulliganError:
        raise
    except Exception as error:
        raise UsageError(f"{world.task.env} cannot begin: {described(error)}") from error


def step(world: Env, reply: str) -> Step:
    try:
        return call_within(SECONDS, world.step, reply)
    except MulliganError:
        raise
    except Exception as error:
        raise UsageError(f"{world.task.env} cannot go on: {described(error)}") from error


def legal_replies(world: Env) -> list[str]:
    """The replies that the world takes now; empty where it does not say."""
    legal = getattr(world, "legal", None)
    return [] if legal is None else list(call_within(SECONDS, legal))[:MOST_MOVES]


def moves_at(trial: Trial, episode: int, turn: int, chance: int, actions: Sequence[str]) -> list[str]:
    """The legal replies at a turn of a stored trial, found by playing its episode again up to there.

    `actions` are the replies before that turn, as the environment reads them.
    """
    task = trial.related[episode - 1] if 0 < episode <= len(trial.related) else trial.task
    world = world_of(task)
    seen = first_observation(world, chance)
    turns = trial.episodes[episode].turns
    for number in range(turn + 1):
        if seen != turns[number].observation:
            raise UsageError(f"turn {number + 1} of the stored episode is not what {task.env} shows today")
        if number < turn:
            seen = step(world, actions[number]).observation
    return legal_replies(world)
