"""Players that are programs: random, expert with a skill knob, a fixed list of replies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mulligan.calls import call
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.policy.base import Conversation, Player, World
from mulligan.seeding import generator
from mulligan.text import storable
from mulligan.types import PLAYERS, Completion, Episode, Message, Sampling, Step, Task


class RandomPolicy:
    """Plays legal moves with equal chances; `otherwise` is its reply where an environment lists none."""

    name = "random"

    def __init__(self, stream: str = "random", otherwise: str = "") -> None:
        self.stream, self.otherwise = stream, otherwise

    def start(self, task: Task, seed: int) -> Conversation:
        return Beside(task, generator(seed, self.stream), kind="random", otherwise=self.otherwise)


class ExpertPolicy:
    """Plays as one of the environment's scripted players.

    skill       share of the player's own moves; the others are random legal ones
    recall      share of its moves that use earlier episodes of the trial, if they were of the same task
    omniscient  sees what is hidden: the ceiling, not a player to compare with
    kind        another of the environment's players: Sokoban has a ``hasty`` one; of several, ``mixed,expert``, the
                first that the environment has
    """

    def __init__(
        self, skill: float = 1.0, recall: float = 0.0, *, omniscient: bool = False, kind: str = "expert"
    ) -> None:
        for label, value in (("skill", skill), ("recall", recall)):
            if not 0.0 <= value <= 1.0:
                raise ParameterError(f"expert: {label} must be a share from 0 to 1 (got {value})")
        self.skill, self.recall = skill, recall
        self.kind = "omniscient" if omniscient else kind
        self.name = self.kind if (skill, recall) == (1.0, 0.0) else f"{self.kind}:{skill:g}:{recall:g}"

    def start(self, task: Task, seed: int) -> Conversation:
        return Beside(task, generator(seed, "expert"), kind=self.kind, skill=self.skill, recall=self.recall)


@dataclass
class Beside:
    """A conversation that looks at the world, not at the messages."""

    task: Task
    rng: random.Random
    kind: str
    skill: float = 0.0
    recall: float = 0.0
    otherwise: str = ""
    world: World | None = None
    player: Player | None = None
    ended_episode: Episode | None = None

    def watch(self, world: World) -> None:
        method = "legal" if self.kind == "random" else "player"
        if not hasattr(world, method) and not self.otherwise:
            raise UsageError(f"{self.task.env} offers no {method}(), which the {self.kind} player needs")
        self.world = world
        kinds = ("random", *getattr(world, "players", PLAYERS))
        kind = next((each for each in self.kind.split(",") if each in kinds), None)
        if kind is None:
            raise UnknownName(f"player of {self.task.env}", self.kind, kinds)
        if kind != "random":
            self.player = call(world.player, kind, self.rng, self.skill, self.recall)

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        if timeout_reward is not None:
            step = step._replace(done=True, reward=step.reward + timeout_reward)
        if self.player is not None:
            call(self.player.see, step)

    def ended(self, episode: Episode) -> None:
        self.ended_episode = episode

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.ended_episode is not None:
            episode, self.ended_episode = self.ended_episode, None
            reflect: Any = getattr(self.player, "reflect", None) or getattr(self.world, "reflect", plain_reflection)
            reflection = call(reflect, episode)
            return reflection if isinstance(reflection, Completion) else Completion(storable(str(reflection)))
        if self.player is not None:
            return Completion(storable(call(self.player.act)))
        moves: Sequence[str] = call(getattr(self.world, "legal", list))
        return Completion(storable(self.rng.choice(moves)) if moves or not self.otherwise else self.otherwise)

    def close(self) -> None:
        pass


def plain_reflection(episode: Episode) -> str:
    """A reflection from the bare facts, for environments that define no `reflect`."""
    last = episode.turns[-1].reply.text.strip() if episode.turns else "nothing"
    category = "none" if episode.won else "out-of-turns" if episode.stop == "turn_limit" else "wrong-move"
    return (
        "<reflection>\n"
        "strategy: scripted play\n"
        f"outcome: {'won' if episode.won else 'not won'}\n"
        f"reward: {episode.reward:g}\n"
        f"failed_at: turn {len(episode.turns)}, {last}\n"
        f"error_category: {category}\n"
        "plan: play on, avoiding what failed\n"
        "</reflection>"
    )
