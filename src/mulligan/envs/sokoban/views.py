"""How the agent sees a level: as a board, or as the names of cells.

board  the board after every turn; later episodes are told the moves of an earlier one and its last board
cells  walls and goals once, then boxes and player after every turn, as ``boxes b3 c2*`` and ``you d1``: a quarter of
       the tokens, and each cell has a name; in memory, the position where a level was lost is told in the same words
"""

from __future__ import annotations

from functools import lru_cache

from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.moves import number_of_moves, say

VIEWS = ("board", "cells")
MOST_COLUMNS = 26
"""For which cells have names."""


def rules(view: str, rows: int, cols: int, moves: int, ends: str) -> str:
    """The rules of the game, with what the view shows; the game ends where no way to win … `ends`, if that is said."""
    if view == "cells":
        size = f"{rows - 2} rows and {cols - 2} columns with walls around them"
        shown = "A cell is a letter and a number: b1 is right of a1, a2 below it. A box with a * is on a goal."
    else:
        size = f"{rows} rows and {cols} columns"
        shown = "The board shows {}.".format(", ".join(f"{glyph} {name}" for glyph, name in solver.GLYPHS.items()))
    return (
        f"Sokoban on a board of {size}. Push every box onto a goal; you win as soon as all boxes are on goals."
        f"{f' The game ends where no way to win {ends}.' if ends else ''}\n"
        f"{shown}\n"
        "You move up, down, left or right, one cell a move. Moving into a box pushes it one cell on, if the cell "
        "behind it is free; you can never pull a box. A move into a wall, or into a box with a wall or another box "
        "behind it, does nothing.\n"
        f"Answer with {number_of_moves(moves)}, played in order: {say(('up', 'left', 'left')[:moves])}"
    )


def cells_at_first(cells: str, cols: int) -> str:
    """A whole level in the view of cells; `cells` is the board row by row."""
    names, terrain = names_of(len(cells) // cols, cols), solver.terrain_of(cells)
    walls = [name for name, glyph in zip(names, terrain, strict=True) if name and glyph == solver.WALL]
    goals = [name for name, glyph in zip(names, terrain, strict=True) if glyph == solver.GOAL]
    return f"walls {' '.join(walls) or 'none'}\ngoals {' '.join(goals)}\n{cells_later(cells, cols)}"


def cells_later(cells: str, cols: int) -> str:
    """What can move, in the view of cells."""
    names = names_of(len(cells) // cols, cols)
    marks = {solver.BOX: "", solver.BOX_ON_GOAL: "*"}
    boxes = [name + marks[glyph] for name, glyph in zip(names, cells, strict=True) if glyph in marks]
    return f"boxes {' '.join(boxes)}\nyou {player_at(cells, cols)}"


def player_at(cells: str, cols: int) -> str:
    """The name of the player's cell."""
    return names_of(len(cells) // cols, cols)[solver.locate(cells)[0]]


@lru_cache(maxsize=64)
def names_of(rows: int, cols: int) -> tuple[str, ...]:
    """The name of each cell, row by row; cells of the outer wall have none."""
    return tuple(
        f"{chr(96 + col)}{row}" if 0 < row < rows - 1 and 0 < col < cols - 1 else ""
        for row in range(rows)
        for col in range(cols)
    )
