"""Mulligan's environments for other people's code: any task as an environment of Gymnasium."""

from __future__ import annotations

import string
from typing import Any

from mulligan.envs import registry
from mulligan.envs.adapters import library
from mulligan.types import Task

LONGEST = 100_000
"""Characters of an observation or a reply."""


def as_gymnasium(task: Task) -> Any:
    """A `gymnasium.Env` that plays `task`: replies in, observations out, both text.

    The first observation is the first one of the episode; the rules are in ``info["rules"]`` of every reset. A reply
    that is not valid costs a turn, as in a trial. ``reset(options={"chance": 1})`` redraws chance where there is any;
    the seed of `reset` is not used, since the task has its own.
    """
    gymnasium = library("gymnasium", "as_gymnasium")
    spaces: Any = gymnasium.spaces
    base: Any = gymnasium.Env

    class AnyText(spaces.Text):  # type: ignore[misc]
        """Whatever the characters."""

        def contains(self, x: Any) -> bool:
            return isinstance(x, str) and len(x) <= LONGEST

    class TaskEnv(base):  # type: ignore[misc]
        """One task of Mulligan."""

        observation_space = action_space = AnyText(min_length=0, max_length=LONGEST, charset=string.printable)

        def __init__(self) -> None:
            self.task, self.world, self.turns_left = task, registry.build(task), 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            self.turns_left = task.turns
            return self.world.reset(int((options or {}).get("chance", 0))), {"rules": self.world.rules()}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            if self.turns_left <= 0:
                raise gymnasium.error.ResetNeeded("the episode is over; call reset()")
            step = self.world.step(action)
            self.turns_left = 0 if step.done else self.turns_left - 1
            truncated = not step.done and self.turns_left == 0
            reward = step.reward + (registry.spec(task.env).timeout_reward if truncated else 0.0)
            info = {name: getattr(step, name) for name in ("won", "valid", "feedback", "state_key")}
            return step.observation, reward, step.done, truncated, info

    return TaskEnv()
