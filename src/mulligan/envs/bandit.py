"""K arms, one of which pays: the smallest world in which a second attempt can profit from the first.

Parameter (`--env.NAME`): arms, how many there are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mulligan.envs.base import Player, action_text
from mulligan.envs.model import Belief, Outcome
from mulligan.errors import ParameterError
from mulligan.seeding import derive
from mulligan.types import Episode, ParamValue, Step, Task


class Bandit:
    """Find the one arm of K that pays; one pull an episode by default."""

    defaults: ClassVar[dict[str, ParamValue]] = {"arms": 4}
    turns: ClassVar[int] = 1

    def __init__(self, task: Task) -> None:
        self.task = task
        self.arms = task.integer("arms")
        self.paying = 1 + derive(task.seed, "bandit") % self.arms
        self.pulled: list[int] = []

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        if int(params["arms"]) < 2:
            raise ParameterError(f"bandit: arms must be >= 2 (got {params['arms']})")
        return params

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"bandit/{params['arms']}"

    def rules(self) -> str:
        return (
            f"There are {self.arms} arms, numbered 1 to {self.arms}. One of them pays 1, the others pay nothing.\n"
            "Answer with the arm you pull: <action>3</action>"
        )

    def reset(self, chance: int = 0) -> str:
        self.pulled = []
        return self._observe()

    def step(self, reply: str) -> Step:
        action = action_text(reply)
        if action is None or not action.isdecimal() or len(action) > 9 or not 1 <= int(action) <= self.arms:
            return Step(self._observe(), valid=False, state_key=self._key(), feedback=f"Name an arm, 1 to {self.arms}.")
        self.pulled.append(int(action))
        won = int(action) == self.paying
        return Step(self._observe(), reward=float(won), done=won, won=won, state_key=self._key())

    def legal(self) -> Sequence[str]:
        return [f"<action>{arm}</action>" for arm in range(1, self.arms + 1)]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return _Player(self, kind, rng, skill, recall)

    def model(self) -> BanditModel:
        return BanditModel(self.arms)

    def digest(self, episode: Episode) -> str:
        return episode.final

    def _key(self) -> str:
        return ",".join(map(str, self.pulled))

    def _observe(self) -> str:
        lines = [f"Arm {arm} paid {int(arm == self.paying)}." for arm in self.pulled]
        return "\n".join(lines) or "No arm pulled yet."


@dataclass(frozen=True)
class BanditModel:
    """The bandit as a model: a world is the arm that pays."""

    arms: int

    def worlds(self) -> list[tuple[float, int]]:
        return [(1 / self.arms, arm) for arm in self._all()]

    def begin(self, world: int) -> None:
        """Nothing that is done changes what can be done."""

    def actions(self, state: None) -> range:
        return self._all()

    def outcomes(self, world: int, state: None, action: int) -> list[Outcome]:
        won = action == world
        return [Outcome(1.0, None, won, float(won), done=won, won=won)]

    def canonical(self, belief: Belief) -> int:
        """How many arms may pay, all with the same chance."""
        return len(belief)

    def reply(self, action: int) -> str:
        return f"<action>{action}</action>"

    def told(self, step: Step) -> bool:
        return step.won

    def _all(self) -> range:
        return range(1, self.arms + 1)


class _Player:
    """Tries arms it has not seen fail; with recall, in earlier episodes too."""

    def __init__(self, world: Bandit, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.failed: set[int] = set()

    def act(self) -> str:
        arms = list(range(1, self.world.arms + 1))
        if self.rng.random() < self.skill:
            if self.kind == "omniscient":
                arms = [self.world.paying]
            else:
                failed = self.failed if self.rng.random() < self.recall else set(self.world.pulled)
                arms = [arm for arm in arms if arm not in failed] or arms
        return f"<action>{self.rng.choice(arms)}</action>"

    def see(self, step: Step) -> None:
        self.failed |= {arm for arm in self.world.pulled if arm != self.world.paying}

    def reflect(self, episode: Episode) -> str:
        return f"<reflection>{episode.final}</reflection>"
