"""Sokoban in the dark: what a player has seen of a level, as sets of cells and as boards with unknown cells.

A board with unknown cells is a position as the solver writes it, with a ``?`` for each cell that was not seen. What is
known of a board never goes stale: only the player moves boxes, and it sees every cell beside it.
"""

from __future__ import annotations

from functools import cache

from mulligan.envs.sokoban import solver

UNKNOWN = "?"


@cache
def cells_in_sight(rows: int, cols: int, sight: int) -> tuple[int, ...]:
    """For each cell the bit set of the cells within `sight` steps of it, diagonals included; walls hide nothing."""
    cells = [(row, col) for row in range(rows) for col in range(cols)]
    return tuple(
        sum(1 << y * cols + x for y, x in cells if abs(y - row) <= sight and abs(x - col) <= sight)
        for row, col in cells
    )


class Sight:
    """The cells that the player of one level has seen in an episode."""

    def __init__(self, rows: int, cols: int, sight: int) -> None:
        self.in_sight = cells_in_sight(rows, cols, sight)
        self.seen = 0
        """Bit set."""

    def enter(self, cell: int) -> None:
        """The player is in this cell."""
        self.seen |= self.in_sight[cell]

    def feel(self, cell: int) -> None:
        """A box could not be pushed into this cell."""
        self.seen |= 1 << cell


def masked(cells: str, seen: int) -> str:
    """The board with every cell unknown that is not in the bit set `seen`."""
    return "".join(glyph if seen >> cell & 1 else UNKNOWN for cell, glyph in enumerate(cells))


def hopeful(cols: int, cells: str, boxes: int) -> str:
    """The kindest position that fits what was seen: what it loses is lost whatever is hidden.

    Unknown cells are goals while fewer than `boxes` goals have been seen, and floor otherwise; the outermost are walls.
    Boxes that were not seen are left out. Whatever moves win the true level bring home the boxes here too.
    """
    if UNKNOWN not in cells:
        return cells
    rows = len(cells) // cols
    inside = solver.FLOOR if goals_seen(cells) == boxes else solver.GOAL

    def cell(number: int, glyph: str) -> str:
        if glyph != UNKNOWN:
            return glyph
        return inside if 0 < number // cols < rows - 1 and 0 < number % cols < cols - 1 else solver.WALL

    return "".join(cell(*each) for each in enumerate(cells))


def goals_seen(cells: str) -> int:
    return sum(map(cells.count, (solver.GOAL, solver.BOX_ON_GOAL, solver.PLAYER_ON_GOAL)))


def boxes_seen(cells: str) -> int:
    return cells.count(solver.BOX) + cells.count(solver.BOX_ON_GOAL)
