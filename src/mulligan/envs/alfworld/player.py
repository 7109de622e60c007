"""The ALFWorld expert: searches like one who does not know the house, and goes straight for what it has seen."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.plan import plan
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.alfworld.env import ALFWorld


class Searcher:
    """Plays one world for a whole trial.

    It plans with the receptacles it has seen in this episode; with recall, also with those of earlier episodes. While
    that is not enough it looks into the others, in the order in which the game lists them, from a place drawn anew for
    each episode. The omniscient player has seen everything.
    """

    def __init__(self, env: ALFWorld, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.env, self.rng, self.skill, self.recall = env, rng, skill, recall
        self.omniscient = kind == "omniscient"
        self.remembered: set[int] = set()
        """Receptacles seen in any episode of the trial: at the start of each they hold the same."""
        self.begun = -1
        self.first = 0

    def act(self) -> str:
        env, rng = self.env, self.rng
        if env.begun != self.begun:
            self.begun, self.first = env.begun, int(rng.random() * len(env.world.places))
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
            known = None
        else:
            known = game.seen | self.remembered if self.rng.random() < self.recall else game.seen
        steps = plan(game, known)
        if steps:
            return steps[0]
        return None if known is None else explore(game, known, self.first)


def explore(game: Game, known: set[int], first: int) -> str | None:
    """The next command that shows what an unknown receptacle holds; None when all are known."""
    world = game.world
    for here in world.r_places[game.at]:
        if here not in known:
            return f"{'examine' if game.accessible(here) else 'open'} {world.r_names[here]}"
    count = len(world.places)
    for number in range(first, first + count):
        receptacle = number % count
        if receptacle not in known and world.places[receptacle] >= 0:
            return f"go to {world.r_names[receptacle]}"
    return None
