"""MineSweeper: reveal with cascade, on a board that the seed fixes before the first click.

Two views of the same game. ``board`` shows the whole board each turn, as the papers do. ``compact`` shows only what
changed, one word for each newly opened cell (``b3=2``), for short contexts; there a bare ``b3`` is a reply too.

A lost game shows its mine for free, so that somebody who plays for the present attempt alone learns what the next one
needs. With a price, a cell that is too risky for one attempt may still be worth opening for those that follow.

Parameters (`--env.NAME`):

rows, cols  of the board
mines       hidden on it
view        ``board`` or ``compact``
price       that opening a mine costs; where there is one, ``end`` is a reply too: it ends the game at no cost
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from mulligan.envs import drawing
from mulligan.envs.base import Player, action_text, check_choices, check_range, least_image
from mulligan.envs.model import Model
from mulligan.errors import ParameterError
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

GLYPHS = b"012345678*"
"""Cells by their number of mines around them, 9 for a mine."""
END = "<action>end</action>"
"""The reply that ends a game with a price, before a mine does."""
_PAIR = re.compile(r"\(?\s*(\d{1,4})\s*[,;\s]\s*(\d{1,4})\s*\)?")
_WORD = re.compile(r"([a-zA-Z])(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Grid:
    """What all boards of one size share: neighbours, names, and where each cell stands in the rendered board."""

    rows: int
    cols: int
    neighbours: tuple[tuple[int, ...], ...]
    blank: bytes
    """The rendered board with every cell closed."""
    offsets: tuple[int, ...]
    """Index into `blank` of each cell."""
    names: Mapping[str, tuple[str, ...]]
    """View -> each cell's name in it: ``(row, col)``, or column letter and row number."""
    replies: Mapping[str, tuple[str, ...]]
    """View -> each cell as a reply."""


@lru_cache(maxsize=64)
def grid(rows: int, cols: int) -> Grid:
    """The grid of `rows` × `cols`; cells are numbered row by row from 0, and named from 1."""
    cells = [(row, col) for row in range(rows) for col in range(cols)]
    near = tuple(
        tuple(
            y * cols + x
            for y in range(max(0, row - 1), min(rows, row + 2))
            for x in range(max(0, col - 1), min(cols, col + 2))
            if (y, x) != (row, col)
        )
        for row, col in cells
    )
    width = len(str(max(rows, cols)))
    header = " " * width + "".join(f" {col:>{width}}" for col in range(1, cols + 1))
    blank = "\n".join([header, *(f"{row:>{width}}" + (" " * width + "?") * cols for row in range(1, rows + 1))])
    offsets = tuple(offset for offset, glyph in enumerate(blank) if glyph == "?")
    names = {
        "board": tuple(f"({row + 1}, {col + 1})" for row, col in cells),
        "compact": tuple(f"{chr(ord('a') + col)}{row + 1}" for row, col in cells),
    }
    replies = {view: tuple(f"<action>{name}</action>" for name in names[view]) for view in names}
    return Grid(rows, cols, near, blank.encode(), offsets, names, replies)


def count_neighbours(board: Grid, mines: Sequence[int]) -> bytes:
    """For each cell the number of mines around it, or 9 for a mine."""
    counts = bytearray(board.rows * board.cols)
    for mine in mines:
        for cell in board.neighbours[mine]:
            counts[cell] += 1
    for mine in mines:
        counts[mine] = 9
    return bytes(counts)


def cascade(board: Grid, counts: bytes, opened: bytearray, cell: int) -> list[int]:
    """Open `cell` and, around every 0, its neighbours. Marks them in `opened` and returns them, `cell` first."""
    opened[cell] = 1
    fresh = [cell]
    for blank in fresh:  # grows while it is walked
        if not counts[blank]:
            for near in board.neighbours[blank]:
                if not opened[near]:
                    opened[near] = 1
                    fresh.append(near)
    return fresh


class MineSweeper:
    """Open every safe cell of a board with hidden mines; the first click may be a mine."""

    draw = staticmethod(drawing.minesweeper)
    defaults: ClassVar[dict[str, ParamValue]] = {
        "rows": 6, "cols": 6, "mines": 3, "view": "board", "price": 0.0,
    }  # fmt: skip
    turns: ClassVar[int] = 7
    players: ClassVar[tuple[str, ...]] = ("expert", "omniscient", "mixed")
    glyphs: ClassVar[dict[str, str]] = {
        "?": "dim", "*": "bold red", "0": "bright_black", "1": "blue", "2": "green", "3": "red", "4": "magenta",
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.board = grid(task.integer("rows"), task.integer("cols"))
        cells = range(self.board.rows * self.board.cols)
        self.mines = tuple(sorted(generator(task.seed, "minesweeper").sample(cells, task.integer("mines"))))
        self.counts = count_neighbours(self.board, self.mines)
        self.price = float(task["price"])
        view = task.text("view")
        self.compact, self.names, self.replies = view == "compact", self.board.names[view], self.board.replies[view]
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        rows, cols = int(params["rows"]), int(params["cols"])
        check_choices("minesweeper", params, {"view": ("board", "compact")})
        check_range("minesweeper", params, "rows", 1, 99)
        check_range("minesweeper", params, "cols", 2 if rows == 1 else 1, 26 if params["view"] == "compact" else 99)
        check_range("minesweeper", params, "mines", 1, rows * cols - 1)
        if not 0 <= float(params["price"]) <= 100:
            raise ParameterError(f"minesweeper: price must be 0 to 100 (got {params['price']})")
        return params

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"minesweeper/{params['rows']}x{params['cols']}/{params['mines']}"

    def rules(self) -> str:
        size, mines = f"{self.board.rows} rows and {self.board.cols} columns", len(self.mines)
        about = (
            f"MineSweeper on a board of {size} with {mines} hidden mine{'s' if mines > 1 else ''}. Each turn you open "
            "one cell. A mine ends the game; a safe cell shows how many of its up to eight neighbours are mines, and "
            "a 0 opens its neighbours too. You win when every safe cell is open."
        )
        about += f" Stepping on a mine costs {self.price:g}; {END} ends the game at no cost.\n" if self.price else "\n"
        if self.compact:
            return about + (
                "Cells are named by column letter and row number: b3 is column b, row 3. Each turn shows only what is "
                "new: b3=2 means that b3 is open and has 2 mines around it; b3=* is a mine. Of earlier episodes, b3=ok "
                "means that opening b3 was safe.\n"
                "Answer with one closed cell: <action>b3</action>"
            )
        return about + (
            "The board shows ? for a closed cell, 0 to 8 for an open one and * for a mine. Rows and columns are "
            "numbered from 1; the top left cell is (1, 1).\n"
            "Answer with one closed cell as (row, col): <action>(2, 3)</action>"
        )

    def reset(self, chance: int = 0) -> str:
        self.text = bytearray(self.board.blank)
        self.opened = bytearray(len(self.counts))
        self.closed_safe = len(self.counts) - len(self.mines)
        self.ended = False
        return "all closed" if self.compact else self.text.decode()

    def step(self, reply: str) -> Step:
        action = self._action(reply)
        if (action or "").lower() == "end" and self.price and not self._over():
            self.ended = True
            return Step("ended" if self.compact else self.text.decode(), done=True, state_key=self.text.decode())
        cell = self._cell(action)
        if cell is None:
            return self._invalid("No cell could be read from the answer; name one closed cell inside <action> tags.")
        if cell < 0:
            return self._invalid(f"That is not on the board of {self.board.rows} rows and {self.board.cols} columns.")
        if self.opened[cell]:
            return self._invalid(f"{self.names[cell]} is open already.")
        if self._over():
            return self._invalid("The game is over.")
        fresh, text, offsets = cascade(self.board, self.counts, self.opened, cell), self.text, self.board.offsets
        for each in fresh:
            text[offsets[each]] = GLYPHS[self.counts[each]]
        board = text.decode()
        shown = " ".join(f"{self.names[each]}={board[offsets[each]]}" for each in fresh) if self.compact else board
        if self.counts[cell] == 9:
            self.ended = True
            return Step(shown, 0.0 - self.price, done=True, state_key=board)
        self.closed_safe -= len(fresh)
        won = not self.closed_safe
        return Step(shown, float(won), won, won, True, board, "", len(fresh) / (len(self.counts) - len(self.mines)))

    def legal(self) -> Sequence[str]:
        cells = [reply for reply, opened in zip(self.replies, self.opened, strict=True) if not opened]
        return [*cells, END] if self.price else cells

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.minesweeper.player import Sweeper

        return Sweeper(self, kind, rng, skill, recall)

    def model(self) -> Model:
        from mulligan.envs.minesweeper.model import MineModel

        return MineModel(self.board.rows, self.board.cols, len(self.mines), self.task.text("view"), self.price)

    def digest(self, episode: Episode) -> str:
        if self.compact:
            return " ".join(moves(episode))
        offsets = zip(self.names, self.board.offsets, strict=True)
        seen = [(name, episode.final[offset]) for name, offset in offsets if offset < len(episode.final)]
        safe, mine = ([name for name, glyph in seen if glyph in glyphs] for glyphs in ("012345678", "*"))
        return "\n".join(f"{kind} {' '.join(names)}" for kind, names in (("safe", safe), ("mine", mine)) if names)

    def world_key(self) -> str:
        """Where the mines are, up to rotation and reflection of the board."""
        return least_image(self.board.cols, self._layout())

    def task_key(self) -> str:
        return f"{self.board.cols}:{self._layout()}"

    def _layout(self) -> str:
        return "".join("*" if count == 9 else "." for count in self.counts)

    def _over(self) -> bool:
        return self.ended or not self.closed_safe

    def _action(self, reply: str) -> str | None:
        action = action_text(reply)
        if action is None and self.compact and len(reply) < 16:
            action = reply.strip()
        return action

    def _cell(self, action: str | None) -> int | None:
        """The cell that an action names; None if it names none, -1 if it lies outside the board."""
        if action is None or len(action) > 32:  # the patterns are slow on long runs of spaces
            return None
        word, pair = _WORD.fullmatch(action) if self.compact else None, _PAIR.fullmatch(action)
        if word is not None:
            row, col = int(word[2]), ord(word[1].lower()) - ord("a") + 1
        elif pair is not None:
            row, col = int(pair[1]), int(pair[2])
        else:
            return None
        rows, cols = self.board.rows, self.board.cols
        return (row - 1) * cols + col - 1 if 1 <= row <= rows and 1 <= col <= cols else -1

    def _invalid(self, why: str) -> Step:
        board = self.text.decode()
        return Step("nothing new" if self.compact else board, valid=False, state_key=board, feedback=why)


def moves(episode: Episode) -> list[str]:
    """What each move of an episode in the compact view led to, in order: ``b3=ok``, or ``c1=*`` for the mine.

    One word a fact, and not the word of the observation: `b3=ok` was safe then, `b3=2` is open now. Cells that a 0
    opened are left out: the same move opens them again.
    """
    shown = [turn.observation for turn in episode.turns[1:]] + [episode.final]
    facts = [text.split()[0] for text in shown if "=" in text]
    return [fact if fact.endswith("*") else f"{fact.split('=')[0]}=ok" for fact in facts]
