"""Scripted players of Sokoban, good and mediocre."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache

from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.moves import after, names_of, say, usual_replies
from mulligan.envs.sokoban.reflection import reflect
from mulligan.errors import UnknownName
from mulligan.types import Completion, Episode, Step

_AT_RANDOM = 0.1
"""Share of a hasty player's thoughtless turns that is random all the same, so that it is seen in odd positions too."""
_DOUBTFUL = 0.5
"""Share of the advice in doubtful notes that loses the level as well."""
_TRIES = 16
"""Other moves that are looked at until some are found that lose it."""


class Planner:
    """Follows the solver's plan, and plans anew wherever other moves led; in a lost position all moves are random.

    kind    ``expert`` makes random moves where it does not follow the plan. ``hasty`` mostly plays `one_box` there:
            mistakes of a kind, made again in every episode, where random ones are hardly ever the same twice. The board
            hides nothing, so ``omniscient`` is the expert at skill 1.
    skill   share of its turns on which it follows the plan
    recall  share of the turns on which it takes care where other moves have lost the level before: there it plays its
            plan whatever its skill. At skill 1 there is nothing to remember.
    """

    def __init__(self, world: Sokoban, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        if kind not in world.players:
            raise UnknownName("player", kind, world.players)
        self.world, self.rng, self.recall, self.hasty = world, rng, recall, kind == "hasty"
        self.skill = 1.0 if kind == "omniscient" else skill
        self.plan: str | None = None
        """The moves still to play from `position`; None where there is no way to win."""
        self.position = ""
        self.follows = False
        """Whether the last reply was the plan's."""
        self.lost_from: set[str] = set()
        """Positions from which other moves lost the level, in any episode of the trial."""
        self.notes: dict[str, list[str]] = {}
        """Position -> moves that lost the level there, and last what to play instead."""
        self.errs = False
        """Whether the last note's advice loses the level as well."""

    def act(self) -> str:
        world, position = self.world, self.world.key()
        if position != self.position:
            self.position, self.plan = position, solver.solve(world.cols, position).moves
        careful = position in self.lost_from and self.rng.random() < self.recall
        if careful and position in self.notes:
            self.follows = False
            return f"<action>{self.notes[position][-1]}</action>"
        self.follows = bool(self.plan) and (careful or self.rng.random() < self.skill)
        if self.follows and self.plan:
            return say(self.plan[: world.moves])
        if self.hasty and self.rng.random() >= _AT_RANDOM and (moves := one_box(world.cols, position)):
            return say(moves[: world.moves])
        return self.rng.choice(world.legal())

    def see(self, step: Step) -> None:
        if self.follows and self.plan:
            self.position, self.plan = step.state_key, self.plan[self.world.moves :]
        elif self.plan and self.world.is_lost(step.state_key, self.world.turn):
            self.lost_from.add(self.position)

    def reflect(self, episode: Episode) -> Completion:
        """Where the level was lost. Doubtful advice is the player's own: it heeds it when it remembers.

        It thinks anew each time, and gives no advice that has lost the level.
        """
        self.errs = False
        doubtful = self.world.task.text("advice") == "doubtful"
        return Completion(reflect(self.world, episode, self._advise if doubtful else None), mistaken=self.errs)

    def _advise(self, position: str, moves: str, turn: int) -> str:
        lost = [*self.notes.get(position, [""])[:-1], moves]
        instead = self._other_way_to_lose(position, lost, turn) if self.rng.random() < _DOUBTFUL else ""
        self.errs = bool(instead)
        solution = solver.solve(self.world.cols, position).moves or ""
        instead = instead or names_of(solution[: self.world.moves])
        self.notes[position] = [*lost, instead]
        return instead

    def _other_way_to_lose(self, position: str, lost: Sequence[str], turn: int) -> str:
        """Moves that lose the level there, other than those; empty where none are soon found."""
        world = self.world
        replies = list(usual_replies(world.cols, world.moves).values())
        for _ in range(_TRIES):
            deltas, names = replies[int(self.rng.random() * len(replies))]
            moves = ", ".join(names)
            if moves not in lost and world.is_lost(after(position, deltas, world.boxes), turn):
                return moves
        return ""


@lru_cache(maxsize=1024)
def one_box(cols: int, cells: str) -> str:
    """The fewest moves that bring one box home, without a thought for the others; empty where there are none.

    The other boxes count as walls or, where that leaves no way, as floor.
    """
    boxes = [cell for cell, glyph in enumerate(cells) if glyph == solver.BOX]
    goals = [cell for cell, glyph in enumerate(cells) if glyph in (solver.GOAL, solver.PLAYER_ON_GOAL)]
    ways = [
        _way(cols, cells, box, goal, solver.WALL) or _way(cols, cells, box, goal, solver.FLOOR)
        for box, goal in itertools.product(boxes, goals)
    ]
    return min(filter(None, ways), key=len, default="")


def _way(cols: int, cells: str, box: int, goal: int, other: str) -> str:
    """The fewest moves from `box` to `goal` with `other` where other boxes stand; empty where there is no way."""
    player = solver.locate(cells)[0]
    glyphs = {solver.WALL: solver.WALL, solver.BOX: other, solver.BOX_ON_GOAL: other}
    board = [glyphs.get(glyph, solver.FLOOR) for glyph in cells]
    board[box], board[goal] = solver.BOX, solver.GOAL
    board[player] = solver.PLAYER_ON_GOAL if player == goal else solver.PLAYER
    return solver.solve(cols, "".join(board)).moves or ""
