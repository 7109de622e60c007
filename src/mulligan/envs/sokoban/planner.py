"""Scripted players of Sokoban, good and mediocre."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from mulligan.envs.sokoban import memory, solver
from mulligan.envs.sokoban.moves import after, names_of, say, usual_replies
from mulligan.types import Completion, Episode, Step

if TYPE_CHECKING:
    from mulligan.envs.sokoban.env import Sokoban

_AT_RANDOM = 0.1
"""Of a hasty player's thoughtless turns, the share that is random all the same: it is to be seen in odd places too."""
_DOUBTFUL = 0.5
"""Of the advice in doubtful notes, the share that loses the level as well."""
_TRIES = 16
"""Other moves that are looked at until some are found that lose it."""


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
        self.noted: dict[str, list[str]] = {}
        """What notes say of a position: moves that lost the level there, and last what to play instead."""
        self.errs = False
        """Whether the last note's advice loses the level as well."""

    def act(self) -> str:
        here = self.world.key()
        if here != self.position:
            self.position, self.plan = here, solver.solve(self.world.cols, here).moves
        careful = here in self.lost_from and self.rng.random() < self.recall
        if careful and here in self.noted:
            self.follows = False
            return f"<action>{self.noted[here][-1]}</action>"
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

    def reflect(self, episode: Episode) -> Completion:
        """The world's reflection; where advice is to be doubtful, with this player's, which it heeds when it remembers.

        It thinks anew each time, and gives no advice that has lost the level.
        """
        self.errs = False
        text = memory.reflect(self.world, episode, self._advise if self.world.doubted else None)
        return Completion(text, mistaken=self.errs)

    def _advise(self, place: str, said: str, turn: int) -> str:
        lost = [*self.noted.get(place, [""])[:-1], said]
        instead = self._other_way_to_lose(place, lost, turn) if self.rng.random() < _DOUBTFUL else ""
        self.errs = bool(instead)
        instead = instead or names_of((solver.solve(self.world.cols, place).moves or "")[: self.world.moves])
        self.noted[place] = [*lost, instead]
        return instead

    def _other_way_to_lose(self, place: str, lost: Sequence[str], turn: int) -> str:
        """Moves that lose the level there, other than those; empty where none are soon found."""
        world = self.world
        ways = list(usual_replies(world.cols, world.moves).values())
        for _ in range(_TRIES):
            deltas, names = ways[int(self.rng.random() * len(ways))]
            if (other := ", ".join(names)) not in lost and world.is_lost(after(place, deltas, world.boxes), turn):
                return other
        return ""


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
