"""The MineSweeper expert: opens the cell least likely to be a mine, by exact count over all boards that fit.

Among equally safe cells it takes the one most likely to show a 0, which opens most. `mine_risks` counts, for every
connected group of unknown cells beside numbers, the ways to lay k mines in it, and joins the groups with the binomial
count of the cells that touch no number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from mulligan.envs.minesweeper.env import Grid, cascade, grid
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.minesweeper.env import MineSweeper

MINE, UNKNOWN = 9, 10
"""Codes in a knowledge string, beside 0 to 8 for an open cell."""
SEARCH_LIMIT = 50_000
"""Nodes of one group's enumeration; beyond it the risk is the plain share of the tightest number."""
DEEPEST = 500
"""Cells of a group that is enumerated, one call inside another: Python allows about 1,000."""

KEPT_CELLS = 100
"""Boards of at most so many cells come again, and their risks are kept; those of large ones would fill the memory."""

Ways = dict[int, tuple[int, list[int]]]
"""Mines in a group -> (ways to lay them, for each cell of the group the ways in which it is a mine)."""


class Sweeper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient.

    It remembers the cells that an agent's memory tells of: in the compact view its own moves, otherwise every open one;
    and, unlike the compact memory, the number each showed.
    """

    def __init__(self, world: MineSweeper, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.remembered = bytearray([UNKNOWN]) * len(world.counts)
        self.moved = 0

    def act(self) -> str:
        world = self.world
        closed = [cell for cell, opened in enumerate(world.opened) if not opened]
        if self.rng.random() >= self.skill:
            cell = self.rng.choice(closed)
        elif self.kind == "omniscient":
            cell = fewest_clicks(world.board, world.counts, world.opened)[0]
        else:
            known = self.remembered if self.rng.random() < self.recall else bytearray([UNKNOWN]) * len(world.counts)
            cell = self._safest(closed, known)
        self.moved = cell
        return f"<action>{world.board.words[cell] if world.compact else world.board.pairs[cell]}</action>"

    def see(self, step: Step) -> None:
        opened = self.world.opened
        for cell in [self.moved] if self.world.compact else [cell for cell in range(len(opened)) if opened[cell]]:
            self.remembered[cell] = self.world.counts[cell]

    def _safest(self, closed: list[int], remembered: bytearray) -> int:
        world = self.world
        known = bytes(
            world.counts[cell] if world.opened[cell] else remembered[cell] for cell in range(len(world.counts))
        )
        board = world.board
        risks = mine_risks(board.rows, board.cols, known, len(world.mines))
        least = min(risks[cell] for cell in closed) + 1e-9
        safest = [cell for cell in closed if risks[cell] <= least]
        zero = {cell: _chance_of_zero(board, known, risks, cell) for cell in safest}
        best = max(zero.values()) - 1e-9
        return self.rng.choice([cell for cell in safest if zero[cell] >= best])


def _chance_of_zero(board: Grid, known: bytes, risks: Sequence[float], cell: int) -> float:
    """Chance that `cell` shows a 0, taking its neighbours as independent."""
    if known[cell] < MINE:
        return float(known[cell] == 0)
    return math.prod(1.0 - risks[beside] for beside in board.neighbours[cell])


def fewest_clicks(board: Grid, counts: bytes, opened: bytearray) -> list[int]:
    """The shortest list of cells whose opening clears the board: one for each region of zeros, then the rest."""
    done, clicks = bytearray(opened), []
    zeros = [cell for cell, count in enumerate(counts) if count == 0 and not done[cell]]
    others = [cell for cell, count in enumerate(counts) if 0 < count < MINE]
    for cell in [*zeros, *others]:
        if not done[cell]:
            clicks.append(cell)
            cascade(board, counts, done, cell)
    return clicks


def mine_risks(rows: int, cols: int, known: bytes, mines: int) -> tuple[float, ...]:
    """For each cell the chance of a mine, over all boards with `mines` mines that fit `known`, all equally likely."""
    return (_kept_risks if rows * cols <= KEPT_CELLS else _risks)(rows, cols, known, mines)


def _risks(rows: int, cols: int, known: bytes, mines: int) -> tuple[float, ...]:
    board = grid(rows, cols)
    left = mines - known.count(MINE)
    groups = _groups(board, known)
    beside = {cell for cells, _ in groups for cell in cells}
    apart = [cell for cell, code in enumerate(known) if code == UNKNOWN and cell not in beside]
    ways = [_count_ways(cells, limits, left) for cells, limits in groups]
    total = _join(ways, len(apart), left)
    risks = [1.0 if code == MINE else 0.0 for code in known]
    if not total:
        return tuple(0.5 if code == UNKNOWN else risk for code, risk in zip(known, risks, strict=True))
    for index, (cells, _) in enumerate(groups):
        others = ways[:index] + ways[index + 1 :]
        for used, (_, mine_ways) in ways[index].items():
            rest = _join(others, len(apart), left - used)
            for cell, count in zip(cells, mine_ways, strict=True):
                risks[cell] += count * rest / total
    if apart:
        # Expected mines outside the groups, shared equally.
        expected = left - sum(risks[cell] for cell in beside)
        for cell in apart:
            risks[cell] = expected / len(apart)
    return tuple(risks)


_kept_risks = lru_cache(maxsize=1 << 16)(_risks)


def _join(ways: list[Ways], apart: int, mines: int) -> int:
    """Ways to lay exactly `mines` mines over all groups and the `apart` cells that touch no number."""
    sums = {0: 1}
    for group in ways:
        joined: dict[int, int] = {}
        for before, count in sums.items():
            for used, (number, _) in group.items():
                joined[before + used] = joined.get(before + used, 0) + count * number
        sums = joined
    return sum(count * math.comb(apart, mines - used) for used, count in sums.items() if used <= mines)


def _groups(board: Grid, known: bytes) -> list[tuple[list[int], list[tuple[list[int], int]]]]:
    """Unknown cells that numbers tie together: for each group its cells and its (cells, mines among them)."""
    limits: list[tuple[list[int], int]] = []
    for cell, code in enumerate(known):
        if code < MINE:
            unknown = [beside for beside in board.neighbours[cell] if known[beside] == UNKNOWN]
            if unknown:
                limits.append((unknown, code - sum(known[beside] == MINE for beside in board.neighbours[cell])))
    groups: list[tuple[list[int], list[tuple[list[int], int]]]] = []
    for limit in limits:
        cells, own = list(limit[0]), [limit]
        apart = []
        for group in groups:
            if set(group[0]) & set(cells):
                cells = list(dict.fromkeys(group[0] + cells))
                own = group[1] + own
            else:
                apart.append(group)
        groups = [*apart, (cells, own)]
    return groups


def _count_ways(cells: list[int], limits: list[tuple[list[int], int]], most: int) -> Ways:
    """Every way to lay at most `most` mines on `cells` so that each limit is met exactly, by depth-first search."""
    if len(cells) > DEEPEST:
        return _rough_ways(cells, limits)
    place = {cell: index for index, cell in enumerate(cells)}
    of_cell: list[list[int]] = [[] for _ in cells]
    for number, (inside, _) in enumerate(limits):
        for cell in inside:
            of_cell[place[cell]].append(number)
    need = [mines for _, mines in limits]
    room = [len(inside) for inside, _ in limits]
    laid, ways, nodes = [0] * len(cells), dict[int, tuple[int, list[int]]](), 0

    def search(at: int, used: int) -> None:
        nonlocal nodes
        nodes += 1
        if nodes > SEARCH_LIMIT:
            return
        if at == len(cells):
            number, mine_ways = ways.get(used, (0, [0] * len(cells)))
            ways[used] = (number + 1, [old + new for old, new in zip(mine_ways, laid, strict=True)])
            return
        for mine in (0, 1):
            for limit in of_cell[at]:
                need[limit] -= mine
                room[limit] -= 1
            if used + mine <= most and all(0 <= need[limit] <= room[limit] for limit in of_cell[at]):
                laid[at] = mine
                search(at + 1, used + mine)
            laid[at] = 0
            for limit in of_cell[at]:
                need[limit] += mine
                room[limit] += 1

    search(0, 0)
    return ways if nodes <= SEARCH_LIMIT else _rough_ways(cells, limits)


def _rough_ways(cells: list[int], limits: list[tuple[list[int], int]]) -> Ways:
    """A stand-in where exact counting is too long: each cell as risky as the tightest number beside it says."""
    scale = 1_000
    share = {cell: max(mines / len(inside) for inside, mines in limits if cell in inside) for cell in cells}
    expected = round(sum(share.values()))
    return {expected: (scale, [round(scale * share[cell]) for cell in cells])}
