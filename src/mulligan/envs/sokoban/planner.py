"""Scripted players of Sokoban, good and mediocre."""

from __future__ import annotations

import itertools
import random
from functools import lru_cache
from typing import TYPE_CHECKING

from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.moves import say
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.sokoban.env import Sokoban

_AT_RANDOM = 0.1
"""Of a hasty player's thoughtless turns, the share that is random all the same: it is to be seen in odd places too."""


class Planner:
    """Follows the solver's plan, and plans anew wherever other moves led; in a lost position all moves are random.

    skill   share of its turns on which it follows the plan
    recall  share of the turns on which it takes care where other moves have lost the level before: there it plays its
            plan whatever its skill. At skill 1 there is nothing to remember.
    hasty   on its other turns it plays `one_box` rather than random moves, mostly: mistakes of a kind, made again in
            every episode, where random ones are hardly ever the same twice
    """

    def __init__(self, world: Sokoban, rng: random.Random, skill: float, recall: float, *, hasty: bool = False) -> None:
        self.world, self.rng, self.skill, self.recall, self.hasty = world, rng, skill, recall, hasty
        self.plan: str | None = None
        """The moves still to play from `position`; None where there is no way to win."""
        self.position = ""
        self.follows = False
        """Whether the last reply was the plan's."""
        self.lost_from: set[str] = set()
        """Positions from which other moves lost the level, in any episode of the trial."""

    def act(self) -> str:
        here = self.world.key()
        if here != self.position:
            self.position, self.plan = here, solver.solve(self.world.cols, here).moves
        careful = here in self.lost_from and self.rng.random() < self.recall
        self.follows = bool(self.plan) and (careful or self.rng.random() < self.skill)
        if self.follows and self.plan:
            return say(self.plan[: self.world.moves])
        if self.hasty and self.rng.random() >= _AT_RANDOM and (moves := one_box(self.world.cols, here)):
            return say(moves[: self.world.moves])
        return self.rng.choice(self.world.legal())

    def see(self, step: Step) -> None:
        if self.follows and self.plan:
            self.position, self.plan = step.state_key, self.plan[self.world.moves :]
        elif self.plan and self.world.is_lost(step.state_key, self.world.turn):
            self.lost_from.add(self.position)


@lru_cache(maxsize=1024)
def one_box(cols: int, cells: str) -> str:
    """The fewest moves that bring one box home, without a thought for the others; empty where there are none.

    The others are walls or, where that leaves no way, not there at all.
    """
    boxes = [cell for cell, glyph in enumerate(cells) if glyph == solver.BOX]
    goals = [cell for cell, glyph in enumerate(cells) if glyph in (solver.GOAL, solver.PLAYER_ON_GOAL)]
    ways: list[str] = []
    for box, goal in itertools.product(boxes, goals):
        ways += next(filter(None, (_way(cols, cells, box, goal, other) for other in (solver.WALL, solver.FLOOR))), ())
    return min(ways, key=len, default="")


def _way(cols: int, cells: str, box: int, goal: int, other: str) -> tuple[str, ...]:
    """The fewest moves from `box` to `goal` with `other` where other boxes stand, if there is a way."""
    player = solver.locate(cells)[0]
    board = [
        solver.WALL if glyph == solver.WALL else other if glyph in (solver.BOX, solver.BOX_ON_GOAL) else solver.FLOOR
        for glyph in cells
    ]
    board[box], board[goal] = solver.BOX, solver.GOAL
    board[player] = solver.PLAYER_ON_GOAL if player == goal else solver.PLAYER
    moves = solver.solve(cols, "".join(board)).moves
    return (moves,) if moves else ()
