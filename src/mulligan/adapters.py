"""Mulligan's environments for other people's code: any task as an environment of Gymnasium.

The other way round, environments of other libraries are played here by name: ``gymnasium:ID``, ``textarena:ID``,
``openspiel:GAME`` (see `mulligan.envs.adapters`).
"""

from __future__ import annotations

import string
from typing import Any

from mulligan.envs import registry
from mulligan.errors import MissingExtra
from mulligan.types import Task

LONGEST = 100_000
"""Characters of an observation or a reply."""


def as_gymnasium(task: Task) -> Any:
    """A `gymnasium.Env` that plays `task`: replies in, observations out, both text.

    The first observation is the first one of the episode; the rules are in ``info["rules"]`` of every reset. A reply
    that is not valid costs a turn, as in a trial. ``reset(options={"chance": 1})`` redraws chance where there is any;
    the seed of `reset` is not used, since the task has its own.
    """
    try:
        import gymnasium
        from gymnasium.spaces import Text
    except ImportError:
        raise MissingExtra("as_gymnasium", "gymnasium") from None

    class AnyText(Text):
        """Whatever the characters."""

        def contains(self, x: Any) -> bool:
            return isinstance(x, str) and len(x) <= LONGEST

    class TaskEnv(gymnasium.Env):
        """One task of Mulligan."""

        observation_space = action_space = AnyText(min_length=0, max_length=LONGEST, charset=string.printable)

        def __init__(self) -> None:
            self.task, self.world, self.left = task, registry.build(task), 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            self.left = task.turns
            return self.world.reset(int((options or {}).get("chance", 0))), {"rules": self.world.rules()}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            if self.left <= 0:
                raise gymnasium.error.ResetNeeded("the episode is over; call reset()")
            found = self.world.step(action)
            self.left = 0 if found.done else self.left - 1
            late = not found.done and self.left == 0
            reward = found.reward + (registry.spec(task.env).timeout_reward if late else 0.0)
            info = {"won": found.won, "valid": found.valid, "feedback": found.feedback, "state_key": found.state_key}
            return found.observation, reward, found.done, late, info

    return TaskEnv()
