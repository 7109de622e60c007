"""Sokoban positions as strings, and a solver that finds short solutions or proves that there is none.

A position is the board read row by row, one character a cell (see `GLYPHS`), with its number of columns. The search is
A* over pushes: a node is the player's cell after a push and the set of boxes, an edge is the walk to the next push and
the push itself, and its cost is counted in moves. With weight 1 the solution is a shortest one in moves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "#", "_", "O", "X", "*", "P", "+"
GLYPHS = {
    WALL: "wall", FLOOR: "floor", GOAL: "goal", BOX: "box", BOX_ON_GOAL: "box on a goal", PLAYER: "you",
    PLAYER_ON_GOAL: "you on a goal",
}  # fmt: skip
DIRECTIONS = "udlr"
NODES = 20_000
"""Positions the solver looks at before it gives up."""
EXACT_CELLS = 64
"""Boards up to this many cells are solved with weight 1."""
HEAVY = 3
"""Weight of the estimate on bigger boards: solutions are found far sooner and are somewhat longer than the shortest."""

_TERRAIN = str.maketrans({BOX: FLOOR, PLAYER: FLOOR, BOX_ON_GOAL: GOAL, PLAYER_ON_GOAL: GOAL})
_FAR = 1 << 20
_MATCHED_BOXES, _MATCHED_GOALS = 6, 8
"""Up to so many the estimate assigns each box a goal of its own; beyond, the exact assignment costs too much."""


class Verdict(NamedTuple):
    """What the solver can say about a position."""

    moves: str | None
    """A solution, as letters of `DIRECTIONS`; empty where nothing is left to do; None where none was found."""
    dead: bool
    """True when it is proven that no solution exists."""


class Terrain(NamedTuple):
    """What never moves on a board, as tables over its cells."""

    steps: tuple[tuple[int, ...], ...]
    """Cells one step away."""
    pushes: tuple[tuple[tuple[int, int], ...], ...]
    """For a box in this cell: where the player stands and where the box goes, if a goal can be reached from there."""
    cols: int
    walls: int
    """Bit set of the walls."""
    goals: int
    """Bit set of the goals."""
    far: tuple[tuple[int, ...], ...]
    """For each cell, pushes to each goal if no other box stood in the way; `_FAR` where it cannot get there."""


def deltas(cols: int) -> tuple[int, int, int, int]:
    """What one move adds to the cell number, in the order of `DIRECTIONS`."""
    return (-cols, cols, -1, 1)


def terrain_of(cells: str) -> str:
    """The board without player and boxes."""
    return cells.translate(_TERRAIN)


def locate(cells: str) -> tuple[int, int]:
    """The player's cell and the bit set of the boxes."""
    player = max(cells.find(PLAYER), cells.find(PLAYER_ON_GOAL))
    return player, sum(1 << cell for cell, glyph in enumerate(cells) if glyph in (BOX, BOX_ON_GOAL))


def bits(mask: int) -> Iterator[int]:
    """The cells of a bit set, in rising order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


@lru_cache(maxsize=32)
def survey(cols: int, terrain: str) -> Terrain:
    """The tables of a board; `terrain` as `terrain_of` gives it, closed by walls wherever a box or player can go."""
    size, around = len(terrain), deltas(cols)
    is_open = [glyph != WALL for glyph in terrain]
    # Only from inside can all four neighbours be asked for.
    inside = [is_open[cell] and cols <= cell < size - cols and 0 < cell % cols < cols - 1 for cell in range(size)]
    goals = [cell for cell in range(size) if terrain[cell] == GOAL]
    by_goal = [_push_distances(goal, around, is_open, inside) for goal in goals]
    far = tuple(tuple(distances[cell] for distances in by_goal) for cell in range(size))
    alive = [min(row, default=_FAR) < _FAR for row in far]
    steps: list[tuple[int, ...]] = [()] * size
    pushes: list[tuple[tuple[int, int], ...]] = [()] * size
    for cell in (cell for cell in range(size) if inside[cell]):
        steps[cell] = tuple(cell + delta for delta in around if is_open[cell + delta])
        ways = ((cell - delta, cell + delta) for delta in around)
        pushes[cell] = tuple((stand, target) for stand, target in ways if is_open[stand] and alive[target])
    walls, goal_set = (sum(1 << cell for cell in range(size) if terrain[cell] == glyph) for glyph in (WALL, GOAL))
    return Terrain(tuple(steps), tuple(pushes), cols, walls, goal_set, far)


def _push_distances(goal: int, around: tuple[int, ...], is_open: list[bool], inside: list[bool]) -> list[int]:
    """Pushes from every cell to `goal`, found by pulling a lone box away from it."""
    distances = [_FAR] * len(is_open)
    distances[goal] = 0
    frontier = [goal] if inside[goal] else []
    for cell in frontier:  # grows while it is walked
        for delta in around:
            before = cell + delta  # the box stood here, the player one further on
            if inside[before] and distances[before] == _FAR and is_open[before + delta]:
                distances[before] = distances[cell] + 1
                frontier.append(before)
    return distances


@lru_cache(maxsize=1024)
def solve(cols: int, cells: str, nodes: int = NODES) -> Verdict:
    """Solve a position: shortest in moves on small boards, somewhat longer on big ones. Goals may be left over."""
    weight = 1 if len(cells) <= EXACT_CELLS else HEAVY
    land = survey(cols, terrain_of(cells))
    player, boxes = locate(cells)
    estimates: dict[int, int] = {boxes: pushes_needed(land, boxes)}
    if estimates[boxes] >= _FAR:
        return Verdict(None, dead=True)
    cost = {(player, boxes): 0}
    came: dict[tuple[int, int], tuple[int, int]] = {}
    queue = [(weight * estimates[boxes], 0, player, boxes)]
    while queue:
        _, so_far, player, boxes = heapq.heappop(queue)
        if cost[player, boxes] < -so_far:
            continue  # found again by a shorter way
        if not boxes & ~land.goals:
            return Verdict(_moves(land, cols, came, (player, boxes)), dead=False)
        if len(cost) > nodes:
            return Verdict(None, dead=False)
        walk = _distances(land, player, boxes)
        for box in bits(boxes):
            for stand, target in land.pushes[box]:
                if stand not in walk or boxes >> target & 1:
                    continue
                pushed = boxes ^ 1 << box ^ 1 << target
                estimate = estimates.get(pushed, -1)
                if estimate < 0:
                    stuck = _is_stuck(land, pushed, target)
                    estimate = estimates[pushed] = _FAR if stuck else pushes_needed(land, pushed)
                moves = walk[stand] + 1 - so_far
                if estimate < _FAR and moves < cost.get((box, pushed), _FAR):
                    cost[box, pushed] = moves
                    came[box, pushed] = (player, boxes)
                    # of equally promising positions the deepest first, which is why the cost stands there negated
                    heapq.heappush(queue, (moves + weight * estimate, -moves, box, pushed))
    return Verdict(None, dead=True)


def _distances(land: Terrain, player: int, boxes: int) -> dict[int, int]:
    """Steps to every cell the player can walk to."""
    distances = {player: 0}
    frontier = [player]
    steps = land.steps
    for cell in frontier:  # grows while it is walked
        further = distances[cell] + 1
        for near in steps[cell]:
            if near not in distances and not boxes >> near & 1:
                distances[near] = further
                frontier.append(near)
    return distances


def _is_stuck(land: Terrain, boxes: int, moved: int) -> bool:
    """Whether the box just moved fills a 2×2 square of walls and boxes, not all on goals: nothing moves there again."""
    filled, cols = boxes | land.walls, land.cols
    square = 3 | 3 << cols
    corners = (moved - cols - 1, moved - cols, moved - 1, moved)
    return any(filled >> at & square == square and boxes & ~land.goals & square << at for at in corners)


def pushes_needed(land: Terrain, boxes: int) -> int:
    """Pushes needed at least: the cheapest way to give each box a goal; `_FAR` where there is none."""
    rows = [land.far[box] for box in bits(boxes)]
    if len(rows) > _MATCHED_BOXES or land.goals.bit_count() > _MATCHED_GOALS:
        return min(_FAR, sum(min(row) for row in rows))
    cheapest = {0: 0}  # goals taken so far -> pushes
    for row in rows:
        taken_next: dict[int, int] = {}
        for taken, pushes in cheapest.items():
            for goal, distance in enumerate(row):
                if distance < _FAR and not taken >> goal & 1:
                    key = taken | 1 << goal
                    taken_next[key] = min(taken_next.get(key, _FAR), pushes + distance)
        cheapest = taken_next
    return min(cheapest.values(), default=_FAR)


def _moves(land: Terrain, cols: int, came: dict[tuple[int, int], tuple[int, int]], end: tuple[int, int]) -> str:
    """The moves that lead to `end`, walks included."""
    letter = dict(zip(deltas(cols), DIRECTIONS, strict=True))
    parts: list[str] = []
    while end in came:
        (box, pushed), (player, boxes) = end, came[end]
        target = (pushed & ~boxes).bit_length() - 1
        stand = 2 * box - target
        walk = _distances(land, player, boxes)
        path = [letter[target - box]]
        while stand != player:
            before = next(near for near in land.steps[stand] if walk.get(near, _FAR) == walk[stand] - 1)
            path.append(letter[stand - before])
            stand = before
        parts.append("".join(reversed(path)))
        end = came[end]
    return "".join(reversed(parts))
