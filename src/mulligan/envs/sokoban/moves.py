"""Moves: how a reply says them, and what they do to the board.

The board is kept as the text the agent sees, one byte a cell and one between cells, and a move patches the two or three
cells that change; so cell number n of the board stands at byte 2n.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

from mulligan.envs.base import action_text
from mulligan.envs.sokoban import solver

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = map(ord, solver.GLYPHS)
_PUSHED = (BOX, BOX_ON_GOAL)
NAMES = ("up", "down", "left", "right")
_NAMED = {word: name for name in NAMES for word in (name, name[0])}
_LISTED = 3
"""Longest combination that `legal` lists: longer ones would be hundreds."""


def push(
    cells: bytearray, cols: int, player: int, names: Sequence[str], home: int, boxes: int
) -> tuple[int, int, list[str]]:
    """Play moves on `cells` until all `boxes` are home.

    Returns the player's offset, the number of boxes on goals, and the moves that were blocked: ``move 2 (left)``.
    """
    blocked: list[str] = []
    for number, name in enumerate(names, start=1):
        delta = _offsets(cols)[name]
        ahead = player + delta
        target = cells[ahead]
        if target in _PUSHED:
            beyond = cells[ahead + delta]
            if beyond == FLOOR:
                cells[ahead + delta] = BOX
            elif beyond == GOAL:
                cells[ahead + delta] = BOX_ON_GOAL
                home += 1
            else:
                target = WALL  # a box that cannot move is as good as one
            if target == BOX:
                target = FLOOR
            elif target == BOX_ON_GOAL:
                target = GOAL
                home -= 1
        if target == WALL:
            blocked.append(f"move {number} ({name})")
            continue
        cells[ahead] = PLAYER if target == FLOOR else PLAYER_ON_GOAL
        cells[player] = FLOOR if cells[player] == PLAYER else GOAL
        player = ahead
        if home == boxes:
            break
    return player, home, blocked


@cache
def _offsets(cols: int) -> dict[str, int]:
    """What each move adds to the player's offset in the text of the board."""
    return {name: 2 * delta for name, delta in zip(NAMES, solver.deltas(cols), strict=True)}


def after(cells: str, cols: int, names: Sequence[str], boxes: int) -> str:
    """The position that moves lead to from another, both row by row."""
    board = bytearray(" ".join(cells), "ascii")
    push(board, cols, 2 * solver.locate(cells)[0], names, cells.count(solver.BOX_ON_GOAL), boxes)
    return board[::2].decode()


def names_of(moves: Sequence[str]) -> str:
    """Moves as they are said: ``up, left``; given as names or letters."""
    return ", ".join(_NAMED[move] for move in moves)


def say(moves: Sequence[str]) -> str:
    """Moves as a reply, given as names or letters."""
    return f"<action>{names_of(moves)}</action>"


@cache
def usual_replies(moves: int) -> dict[str, tuple[str, ...]]:
    """Replies as this environment writes them, shortest first; looked up before anything is parsed."""
    lengths = range(1, min(moves, _LISTED) + 1)
    return {say(names): names for length in lengths for names in product(NAMES, repeat=length)}


def read(text: str, moves: int) -> tuple[str, ...] | str:
    """The moves that a reply says, or what is wrong with it."""
    action = action_text(text)
    if action is None:
        return f"No moves could be read from the answer; give them as in {say(NAMES[: min(moves, 2)])}."
    words = action.replace(",", " ").lower().split()
    unknown = next((word for word in words if word not in _NAMED), None)
    if unknown is not None:
        return f"{unknown[:20]!r} is not a move; use up, down, left or right."
    if not 1 <= len(words) <= moves:
        return f"{len(words)} moves are not allowed; give {number_of_moves(moves)}."
    return tuple(_NAMED[word] for word in words)


def number_of_moves(moves: int) -> str:
    return "1 move" if moves == 1 else f"1 to {moves} moves"
