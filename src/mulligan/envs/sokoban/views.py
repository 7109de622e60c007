"""Sokoban positions in words: the board as text, and the view that names cells."""

from __future__ import annotations

from functools import cache

from mulligan.envs.sokoban import solver


def spaced(cells: str, cols: int) -> str:
    """The board as text, row by row."""
    return "\n".join(" ".join(cells[row : row + cols]) for row in range(0, len(cells), cols))


def walls_and_goals(cells: str, cols: int) -> str:
    """What never moves, in the view of cells; the outer walls have no names."""
    names, terrain = names_of(len(cells) // cols, cols), solver.terrain_of(cells)
    walls, goals = (
        " ".join(name for name, glyph in zip(names, terrain, strict=True) if name and glyph == kind)
        for kind in (solver.WALL, solver.GOAL)
    )
    return f"walls {walls or 'none'}\ngoals {goals or 'none'}"


def boxes_view(cells: str, cols: int) -> str:
    names = names_of(len(cells) // cols, cols)
    marks = {solver.BOX: "", solver.BOX_ON_GOAL: "*"}
    boxes = [name + marks[glyph] for name, glyph in zip(names, cells, strict=True) if glyph in marks]
    return f"boxes {' '.join(boxes) or 'none'}"


def cells_view(cells: str, cols: int) -> str:
    """What can move, in the view of cells."""
    return f"{boxes_view(cells, cols)}\nyou {player_at(cells, cols)}"


def player_at(cells: str, cols: int) -> str:
    return names_of(len(cells) // cols, cols)[solver.locate(cells)[0]]


@cache
def names_of(rows: int, cols: int) -> tuple[str, ...]:
    """The name of each cell, row by row; cells of the outer wall have none."""
    return tuple(
        f"{chr(96 + col)}{row}" if 0 < row < rows - 1 and 0 < col < cols - 1 else ""
        for row in range(rows)
        for col in range(cols)
    )
