"""Whether the worlds of training and of evaluation are separate, as far as that can be told.

split   the environment names its worlds (`world_key`) or has a split of its own (`seed_set`): no set shares any
seeds   it does neither, and its tasks begin differently: worlds are told apart by their seeds alone
shared  it does neither, and its tasks begin alike (FrozenLake has one map): evaluation plays what training played
game    a game against an opponent has one world: only the opponent may be unseen
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mulligan.envs import registry
from mulligan.rollout.tasksets import FIRST_SEED, world_key

Separation = Literal["split", "seeds", "shared", "game"]
_ALIKE = 0.5
"""Worlds count as shared when at least this share of tasks begin as another task does. A task of evaluation then begins
as one of equally many training tasks about as often."""
_FEW = 4
"""Worlds are few when there are that many tasks, or more, to each."""
SAMPLED = 64
"""Tasks of a survey."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Worlds of some tasks of an environment."""

    separation: Separation
    tasks: int
    """Tasks that were looked at: half of them of training, half of evaluation."""
    worlds: int
    """Different worlds among them: by `world_key`, otherwise by rules and first observation."""

    @property
    def few(self) -> bool:
        """Whether a task hardly ever brings a new world."""
        return self.worlds * _FEW <= self.tasks


def separation(env: str, beginnings: Sequence[str]) -> Separation:
    """How the worlds of `env` are kept apart. beginnings: [task] rules and first observation of each."""
    about = registry.spec(env)
    if hasattr(about.build, "world_key") or hasattr(about.build, "seed_set"):
        return "split"
    if about.kind == "versus":
        return "game"
    counts = Counter(beginnings)
    alike = sum(count for count in counts.values() if count > 1)
    return "shared" if beginnings and alike >= _ALIKE * len(beginnings) else "seeds"


def survey(env: str, params: Mapping[str, Any]) -> Survey:
    """Look at some tasks of training and of evaluation."""
    firsts = (FIRST_SEED["train"], FIRST_SEED["eval"])
    tasks = [registry.task_of(env, first + number, params) for first in firsts for number in range(SAMPLED // 2)]
    beginnings, worlds = [], set()
    for task in tasks:
        world = registry.build(task)
        beginnings.append(f"{world.rules()}\n{world.reset()}")
        worlds.add(world_key(task) or beginnings[-1])
    return Survey(separation(env, beginnings), len(tasks), len(worlds))
