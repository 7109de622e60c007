"""The ALFWorld expert: searches like one who does not know the house, and goes straight for what it has seen."""

from __future__ import annotations

import random

from mulligan.envs.alfworld.env import ALFWorld
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.plan import plan
from mulligan.errors import UnknownName
from mulligan.types import PLAYERS, Step


class Searcher:
    """Plays one world for a whole trial.

    It plans with the receptacles it has seen in this episode; with recall, also with those of earlier episodes. While
    that is not enough it looks into the others, in the order in which the game lists them, from one drawn anew for each
    episode. The omniscient player has seen everything.
    """

    def __init__(self, env: ALFWorld, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        if kind not in PLAYERS:
            raise UnknownName("player", kind, PLAYERS)
        self.env, self.rng, self.skill, self.recall = env, rng, skill, recall
        self.omniscient = kind == "omniscient"
        self.remembered: set[int] = set()
        """Receptacles seen in any episode of the trial: at the start of each they hold the same."""
        self.begun = -1
        self.first = 0

    def act(self) -> str:
        env, rng = self.env, self.rng
        if env.begun != self.begun:
            self.begun, self.first = env.begun, int(rng.random() * len(env.world.locations))
        if rng.random() < self.skill:
            command = self._choose()
            if command is not None:
                return f"<action>{env.view.write(env.game, command)}</action>"
        return rng.choice(env.legal())

    def see(self, step: Step) -> None:
        self.remembered |= self.env.game.seen

    def _choose(self) -> str | None:
        game = self.env.game
        if self.omniscient:
            steps = plan(game)
            return steps[0] if steps else None
        seen = game.seen | self.remembered if self.rng.random() < self.recall else game.seen
        steps = plan(game, seen)
        return steps[0] if steps else _explore(game, seen, self.first)


def _explore(game: Game, seen: set[int], first: int) -> str | None:
    """The next command that shows what an unseen receptacle holds; None when all have been seen."""
    world = game.world
    for receptacle in world.receptacles_at[game.at]:
        if receptacle not in seen:
            return f"{'examine' if game.accessible(receptacle) else 'open'} {world.r_names[receptacle]}"
    count = len(world.locations)
    for receptacle in (number % count for number in range(first, first + count)):
        if receptacle not in seen and world.locations[receptacle] >= 0:
            return f"go to {world.r_names[receptacle]}"
    return None
