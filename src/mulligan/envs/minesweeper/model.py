"""MineSweeper as a model: all boards with so many mines are equally likely, and a belief is those that fit.

The agent remembers every number that it has seen in any attempt; a lost game shows the mine that was opened.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mulligan.envs.minesweeper.env import END, GLYPHS, Grid, cascade, count_neighbours, grid
from mulligan.envs.model import Belief, Outcome
from mulligan.types import Step

_CODES = {"?": 0, **{chr(glyph): count + 1 for count, glyph in enumerate(GLYPHS)}}
"""Character of the board -> what `visible` has for it."""
_END = -1
"""The action that ends a game with a price."""
_PLUS_ONE = bytes((count + 1) % 256 for count in range(256))


@dataclass(frozen=True)
class MineModel:
    """A world is its counts (9 for a mine), a state the cells that are open, 1 or 0 each."""

    rows: int
    cols: int
    mines: int
    view: str = "board"
    price: float = 0.0

    @cached_property
    def board(self) -> Grid:
        return grid(self.rows, self.cols)

    @cached_property
    def images(self) -> list[bytes]:
        """The rotations and reflections of the board: its cells in another order."""
        rows = [[row * self.cols + col for col in range(self.cols)] for row in range(self.rows)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        turned = [rows, columns] if self.rows == self.cols else [rows]
        ways = itertools.product(turned, (1, -1), (1, -1))
        return [bytes(cell for line in lines[::down] for cell in line[::across]) for lines, down, across in ways]

    def worlds(self) -> Iterator[tuple[float, bytes]]:
        cells = self.rows * self.cols
        chance = 1 / math.comb(cells, self.mines)
        return (
            (chance, count_neighbours(self.board, mines)) for mines in itertools.combinations(range(cells), self.mines)
        )

    def begin(self, world: bytes) -> bytes:
        return bytes(len(world))

    def actions(self, state: bytes) -> list[int]:
        cells = [cell for cell, opened in enumerate(state) if not opened]
        return [*cells, _END] if self.price else cells

    def outcomes(self, world: bytes, state: bytes, action: int) -> list[Outcome]:
        if action == _END:
            return [Outcome(1.0, state, visible(world, state), done=True)]
        opened = bytearray(state)
        cascade(self.board, world, opened, action)
        lost = world[action] == 9
        won = not lost and sum(opened) == len(world) - self.mines
        reward = 0.0 - self.price if lost else float(won)
        return [Outcome(1.0, bytes(opened), visible(world, opened), reward, lost or won, won)]

    def canonical(self, belief: Belief) -> bytes:
        """The least image of the open cells and of the cells that are alike in all boards of the belief.

        That names the belief: the boards that agree with those cells are the boards that agree with all that was seen.
        """
        columns = zip(*(world for world, _, _ in belief), strict=True)
        certain = (column[0] + 1 if len(set(column)) == 1 else 0 for column in columns)
        codes = bytes(11 * opened + code for opened, code in zip(belief[0][1], certain, strict=True))
        table = codes.ljust(256)
        return min(image.translate(table) for image in self.images)

    def reply(self, action: int) -> str:
        return END if action == _END else self.board.replies[self.view][action]

    def told(self, step: Step) -> bytes:
        """Read from the state key, which is the board as text in either view."""
        glyphs = (step.state_key[offset] for offset in self.board.offsets)
        return bytes(_CODES[glyph] for glyph in glyphs)


def visible(counts: bytes, opened: bytes | bytearray) -> bytes:
    """What is seen of a board: 0 for a closed cell, otherwise its count plus 1."""
    return bytes(map(operator.mul, counts.translate(_PLUS_ONE), opened))
