"""Moves: how a reply says them, and what they do to the board.

The board is kept as the text the agent sees, one byte a cell and one between cells, and a move patches the two or three
cells that change; so cell number n of the board stands at byte 2n.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from mulligan.envs.base import action_text
from mulligan.envs.sokoban import solver

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = map(ord, solver.GLYPHS)
_PUSHED = (BOX, BOX_ON_GOAL)
NAMES = ("up", "down", "left", "right")
INDEX = {word: index for index, name in enumerate(NAMES) for word in (name, name[0])}
_LISTED = 3
"""Longest combination that `legal` lists: longer ones would be hundreds."""


class Reply(NamedTuple):
    """A reply that was understood."""

    deltas: tuple[int, ...]
    """What each move adds to the player's offset in the rendered board."""
    names: tuple[str, ...]


def push(cells: bytearray, player: int, deltas: tuple[int, ...], home: int, boxes: int) -> tuple[int, int, int]:
    """Play moves on `cells` until all `boxes` are home.

    Returns the player's offset, the number of boxes on goals, and the bit set of the moves that were blocked.
    """
    blocked, bit = 0, 1
    for delta in deltas:
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
            blocked |= bit
        else:
            cells[ahead] = PLAYER if target == FLOOR else PLAYER_ON_GOAL
            cells[player] = FLOOR if cells[player] == PLAYER else GOAL
            player = ahead
            if home == boxes:
                break
        bit <<= 1
    return player, home, blocked


def after(cells: str, deltas: tuple[int, ...], boxes: int) -> str:
    """The position that moves lead to from another, both row by row."""
    board = bytearray(" ".join(cells), "ascii")
    push(board, 2 * solver.locate(cells)[0], deltas, cells.count(solver.BOX_ON_GOAL), boxes)
    return board[::2].decode()


def names_of(moves: Sequence[str]) -> str:
    """Moves as they are said: ``up, left``; given as names or letters."""
    return ", ".join(NAMES[INDEX[move]] for move in moves)


def say(moves: Sequence[str]) -> str:
    """Moves as a reply, given as names or letters."""
    return f"<action>{names_of(moves)}</action>"


@lru_cache(maxsize=64)
def usual_replies(cols: int, moves: int) -> dict[str, Reply]:
    """Replies as this environment writes them, shortest first; looked up before anything is parsed."""
    longest = min(moves, _LISTED)
    choices = [names for length in range(1, longest + 1) for names in product(NAMES, repeat=length)]
    return {say(names): _reply(cols, names) for names in choices}


@lru_cache(maxsize=64)
def listed_replies(cols: int, moves: int) -> tuple[str, ...]:
    return tuple(usual_replies(cols, moves))


def _reply(cols: int, names: tuple[str, ...]) -> Reply:
    deltas = solver.deltas(cols)
    return Reply(tuple(2 * deltas[INDEX[name]] for name in names), names)


def read(text: str, cols: int, moves: int) -> Reply | str:
    """What a reply says, or what is wrong with it."""
    action = action_text(text)
    if action is None:
        return f"No moves could be read from the answer; give them as in {say(NAMES[: min(moves, 2)])}."
    words = action.replace(",", " ").lower().split()
    unknown = next((word for word in words if word not in INDEX), None)
    if unknown is not None:
        return f"{unknown[:20]!r} is not a move; use up, down, left or right."
    if not 1 <= len(words) <= moves:
        return f"{len(words)} moves are not allowed; give {number_of_moves(moves)}."
    return _reply(cols, tuple(NAMES[INDEX[word]] for word in words))


def number_of_moves(moves: int) -> str:
    return "1 move" if moves == 1 else f"1 to {moves} moves"


@lru_cache(maxsize=1024)
def blocked_feedback(names: tuple[str, ...], blocked: int) -> str:
    listed = [f"move {index + 1} ({name})" for index, name in enumerate(names) if blocked >> index & 1]
    return f"Blocked: {', '.join(listed)}."
