"""The MineSweeper expert: opens the cell least likely to be a mine, by exact count over all boards that fit.

Among equally safe cells it takes the one most likely to show a 0, which opens most. Where mines have a price it ends
the game when even the safest cell is not worth its risk. `mine_risks` counts, for every
connected group of unknown cells beside numbers, the ways to lay k mines in it, and joins the groups with the binomial
count of the cells that touch no number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache

from mulligan.envs.base import reflection_text
from mulligan.envs.minesweeper.env import END, Grid, MineSweeper, cascade, grid, moves
from mulligan.types import Episode, Step

MINE, UNKNOWN = 9, 10
"""Codes of cells, beside 0 to 8 for an open one."""
SEARCH_LIMIT = 50_000
"""Nodes of one group's enumeration; beyond it the risk is the plain share of the tightest number."""
DEEPEST = 500
"""Cells of a group that is enumerated, one call inside another: Python allows about 1,000."""
KEPT_CELLS = 100
"""Risks are cached for boards of at most so many cells; those of larger boards would fill the memory."""

Ways = dict[int, tuple[int, list[int]]]
"""Mines in a group -> (ways to lay them, for each cell of the group the ways in which it is a mine)."""
Limit = tuple[list[int], int]
"""Unknown cells around an open one, and how many of them are mines."""


class Sweeper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient.

    It remembers the cells that an agent's memory tells of: in the compact view its own moves, otherwise every open one;
    and, unlike the compact memory, the number each showed. Where mines have a price, the mixed player ends every other
    game before its first move: a warm start then shows both, and leaves it to training whether to play.
    """

    def __init__(self, world: MineSweeper, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.remembered = bytearray([UNKNOWN]) * len(world.counts)
        self.moved: int | None = 0
        """The cell of the last move; None if it ended the game."""

    def act(self) -> str:
        world = self.world
        closed = [cell for cell, opened in enumerate(world.opened) if not opened]
        if self.rng.random() >= self.skill:
            cell = self.rng.choice([*closed, None] if world.price else closed)
        elif self.kind == "mixed" and world.price and not any(world.opened) and self.rng.random() < 0.5:
            cell = None
        elif self.kind == "omniscient":
            cell = fewest_clicks(world.board, world.counts, world.opened)[0]
        else:
            recalls = self.rng.random() < self.recall
            cell = self._safest(closed, self.remembered if recalls else bytearray([UNKNOWN]) * len(world.counts))
        self.moved = cell
        return END if cell is None else world.replies[cell]

    def see(self, step: Step) -> None:
        for cell, opened in enumerate(self.world.opened):
            if cell == self.moved if self.world.compact else opened:
                self.remembered[cell] = self.world.counts[cell]

    def reflect(self, episode: Episode) -> str:
        if self.world.compact:  # short contexts: the facts alone, the mine first, since it matters most
            facts = sorted(moves(episode), key=lambda fact: not fact.endswith("*"))
            return f"<reflection>{' '.join(facts) or 'nothing'}</reflection>"
        won, hit = episode.won, not episode.won and "*" in episode.final
        unfinished, category = ("ended the game", "other") if self.moved is None else ("out of turns", "out-of-turns")
        return reflection_text(
            outcome="won" if won else "opened a mine" if hit else unfinished,
            reward=f"{episode.reward:g}",
            env_answer=self.world.digest(episode).replace("\n", "; ") or "nothing opened",
            error_category="none" if won else "wrong-move" if hit else category,
            plan="open the safe cells again, never the mine",
        )

    def _safest(self, closed: list[int], remembered: bytearray) -> int | None:
        world, board = self.world, self.world.board
        seen = zip(world.counts, world.opened, remembered, strict=True)
        codes = bytes(count if opened else memory for count, opened, memory in seen)
        risks = mine_risks(board.rows, board.cols, codes, len(world.mines))
        least = min(risks[cell] for cell in closed)
        if world.price * least > 1.0 - least:
            return None
        safest = [cell for cell in closed if risks[cell] <= least + 1e-9]
        zero = {cell: _chance_of_zero(board, codes, risks, cell) for cell in safest}
        best = max(zero.values()) - 1e-9
        return self.rng.choice([cell for cell in safest if zero[cell] >= best])


def _chance_of_zero(board: Grid, codes: bytes, risks: Sequence[float], cell: int) -> float:
    """Chance that `cell` shows a 0, taking its neighbours as independent."""
    if codes[cell] < MINE:
        return float(codes[cell] == 0)
    return math.prod(1.0 - risks[near] for near in board.neighbours[cell])


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


def mine_risks(rows: int, cols: int, codes: bytes, mines: int) -> tuple[float, ...]:
    """For each cell the chance of a mine, over all boards with `mines` mines that fit `codes`, all equally likely."""
    return (_kept_risks if rows * cols <= KEPT_CELLS else _risks)(rows, cols, codes, mines)


def _risks(rows: int, cols: int, codes: bytes, mines: int) -> tuple[float, ...]:
    board = grid(rows, cols)
    mines_left = mines - codes.count(MINE)
    groups = _groups(board, codes)
    grouped = {cell for cells, _ in groups for cell in cells}
    others = [cell for cell, code in enumerate(codes) if code == UNKNOWN and cell not in grouped]
    ways = [_count_ways(cells, limits, mines_left) for cells, limits in groups]
    total = _join(ways, len(others), mines_left)
    risks = [1.0 if code == MINE else 0.0 for code in codes]
    if not total:
        return tuple(0.5 if code == UNKNOWN else risk for code, risk in zip(codes, risks, strict=True))
    for index, (cells, _) in enumerate(groups):
        other_ways = ways[:index] + ways[index + 1 :]
        for used, (_, mine_ways) in ways[index].items():
            rest = _join(other_ways, len(others), mines_left - used)
            for cell, count in zip(cells, mine_ways, strict=True):
                risks[cell] += count * rest / total
    expected = mines_left - sum(risks[cell] for cell in grouped)
    for cell in others:  # equally
        risks[cell] = expected / len(others)
    return tuple(risks)


_kept_risks = lru_cache(maxsize=1 << 16)(_risks)


def _join(ways: list[Ways], others: int, mines: int) -> int:
    """Ways to lay exactly `mines` mines over all groups and the `others`, cells that touch no number."""
    sums = {0: 1}
    for group in ways:
        joined: dict[int, int] = {}
        for before, count in sums.items():
            for used, (number, _) in group.items():
                joined[before + used] = joined.get(before + used, 0) + count * number
        sums = joined
    return sum(count * math.comb(others, mines - used) for used, count in sums.items() if used <= mines)


def _groups(board: Grid, codes: bytes) -> list[tuple[list[int], list[Limit]]]:
    """Unknown cells that numbers tie together: for each group its cells and its limits."""
    groups: list[tuple[list[int], list[Limit]]] = []
    for cell, code in enumerate(codes):
        near = board.neighbours[cell]
        unknown = [each for each in near if codes[each] == UNKNOWN] if code < MINE else []
        if not unknown:
            continue
        limits = [(unknown, code - sum(codes[each] == MINE for each in near))]
        cells, separate = list(unknown), []
        for group in groups:
            if set(group[0]) & set(cells):
                cells = list(dict.fromkeys(group[0] + cells))
                limits = group[1] + limits
            else:
                separate.append(group)
        groups = [*separate, (cells, limits)]
    return groups


def _count_ways(cells: list[int], limits: list[Limit], most: int) -> Ways:
    """Every way to lay at most `most` mines on `cells` so that each limit is met exactly, by depth-first search."""
    if len(cells) > DEEPEST:
        return _rough_ways(cells, limits)
    of_cell = [[number for number, (inside, _) in enumerate(limits) if cell in inside] for cell in cells]
    need = [mines for _, mines in limits]
    room = [len(inside) for inside, _ in limits]
    laid, ways, nodes = [0] * len(cells), Ways(), 0

    def search(index: int, used: int) -> None:
        nonlocal nodes
        nodes += 1
        if nodes > SEARCH_LIMIT:
            return
        if index == len(cells):
            number, mine_ways = ways.get(used, (0, [0] * len(cells)))
            ways[used] = (number + 1, [old + new for old, new in zip(mine_ways, laid, strict=True)])
            return
        for mine in (0, 1):
            for limit in of_cell[index]:
                need[limit] -= mine
                room[limit] -= 1
            if used + mine <= most and all(0 <= need[limit] <= room[limit] for limit in of_cell[index]):
                laid[index] = mine
                search(index + 1, used + mine)
            laid[index] = 0
            for limit in of_cell[index]:
                need[limit] += mine
                room[limit] += 1

    search(0, 0)
    return ways if nodes <= SEARCH_LIMIT else _rough_ways(cells, limits)


def _rough_ways(cells: list[int], limits: list[Limit]) -> Ways:
    """A stand-in where exact counting is too long: each cell as risky as the tightest number beside it says."""
    shares = [max(mines / len(inside) for inside, mines in limits if cell in inside) for cell in cells]
    return {round(sum(shares)): (1_000, [round(1_000 * share) for share in shares])}
