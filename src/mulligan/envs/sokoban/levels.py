"""Sokoban levels: made by reverse play, or read from level files.

A generated level starts from its end: the boxes stand on the goals and are pulled away, move by move. Whatever can be
reached by n such moves can be solved in n moves. The solver then checks the level, and only levels that it solves
within the bound are handed out.

Level files are plain text (``.txt``, ``.txt.gz``), as Boxoban has them: levels between ``; name`` lines or empty lines,
``#`` wall, space floor, ``.`` goal, ``$`` box, ``*`` box on a goal, ``@`` player, ``+`` player on a goal.
"""

from __future__ import annotations

import gzip
import os
import random
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.solver import BOX, BOX_ON_GOAL, FLOOR, GOAL, PLAYER, PLAYER_ON_GOAL, WALL
from mulligan.errors import ParameterError, UsageError
from mulligan.seeding import generator

BOXOBAN = "BOXOBAN_DATA"
"""Environment variable that names a folder or file of Boxoban levels."""
_FROM_FILE = str.maketrans({" ": FLOOR, ".": GOAL, "$": BOX, "@": PLAYER})
_IN_FILE = frozenset("# .$*@+")
_ATTEMPTS = 400
_WALLS = (0.06, 0.30)
"""Inner walls, as a share of the cells inside the outer wall: least and most."""
_LAYER = 150
"""Positions kept at each distance from the end; small boards have fewer, so that for them nothing is left out."""

Item = TypeVar("Item")


class Level(NamedTuple):
    """A board with its start position."""

    cols: int
    cells: str
    """The start, row by row: see `mulligan.envs.sokoban.solver.GLYPHS`."""

    @property
    def rows(self) -> int:
        return len(self.cells) // self.cols

    @property
    def boxes(self) -> int:
        return self.cells.count(BOX) + self.cells.count(BOX_ON_GOAL)


@lru_cache(maxsize=1024)
def generate(seed: int, rows: int, cols: int, boxes: int, solution: int) -> Level:
    """The level of a seed: no box starts on a goal, and the solver needs at most `solution` moves.

    It needs more pushes than boxes, and a third of `solution` at least: less after attempts that find none. The later
    attempts leave out the inner walls.
    """
    rng = generator(seed, "sokoban", rows, cols, boxes, solution)
    for attempt in range(_ATTEMPTS):
        walls = _WALLS[0] + (_WALLS[1] - _WALLS[0]) * rng.random() if attempt < _ATTEMPTS // 2 else 0.0
        terrain = _carve(rng, rows, cols, boxes, walls)
        if terrain is None:
            continue
        least = solution // 3 - max(attempt // 8, solution // 3 * (2 * attempt - _ATTEMPTS) // _ATTEMPTS)
        cells = _pull_apart(rng, cols, terrain, boxes, max(boxes, least), solution)
        if cells is not None:
            return Level(cols, cells)
    size = f"{rows}x{cols} level with boxes={boxes} and solution={solution}"
    raise ParameterError(f"sokoban: found no {size}; give fewer boxes, a bigger board or more moves")


def _draw(rng: random.Random, items: list[Item], count: int) -> list[Item]:
    """`count` of `items`, in random order.

    Only `Random.random` is promised to give the same numbers in every version of Python, so levels rest on it alone.
    """
    items = list(items)
    for index in range(count):
        other = index + int(rng.random() * (len(items) - index))
        items[index], items[other] = items[other], items[index]
    return items[:count]


def _reachable(cols: int, start: int, room: set[int]) -> set[int]:
    """The cells of `room` that can be walked to from `start`."""
    seen, frontier = {start}, [start]
    for cell in frontier:  # grows while it is walked
        near = {cell + delta for delta in solver.deltas(cols)} & room - seen
        seen |= near
        frontier.extend(near)
    return seen


def _carve(rng: random.Random, rows: int, cols: int, boxes: int, walls: float) -> str | None:
    """A connected room with goals; None where the walls leave too little of it."""
    inner = [row * cols + col for row in range(1, rows - 1) for col in range(1, cols - 1)]
    blocked = set(_draw(rng, inner, round(walls * len(inner))))
    room = [cell for cell in inner if cell not in blocked]
    if len(room) < 2 * boxes + 1 or len(_reachable(cols, room[0], set(room))) < len(room):
        return None
    glyphs = dict.fromkeys(room, FLOOR) | dict.fromkeys(_draw(rng, room, boxes), GOAL)
    return "".join(glyphs.get(cell, WALL) for cell in range(rows * cols))


def _pull_apart(rng: random.Random, cols: int, terrain: str, boxes: int, least: int, most: int) -> str | None:
    """A start position `least` to `most` moves from the end, each distance equally likely; None if there is none."""
    land = solver.survey(cols, terrain)
    layers = _unwind(rng, land, most)
    distances = _draw(rng, list(range(least, len(layers))), max(0, len(layers) - least))
    for distance in distances[:4]:
        for player, boxed in _draw(rng, layers[distance], min(8, len(layers[distance]))):
            if boxed & land.goals or solver.pushes_needed(land, boxed) <= boxes:
                continue
            cells = _place(terrain, player, boxed)
            moves = solver.solve(cols, cells).moves
            if moves is not None and len(moves) <= most:
                return cells
    return None


def _unwind(rng: random.Random, land: solver.Terrain, most: int) -> list[list[tuple[int, int]]]:
    """Positions (player, boxes) by distance from the end, in moves backwards: a step, or a step that pulls a box."""
    steps = land.steps
    layer = [(cell, land.goals) for cell in range(len(steps)) if steps[cell] and not land.goals >> cell & 1]
    layers, seen = [layer], set(layer)
    for _ in range(most):
        following: list[tuple[int, int]] = []
        for player, boxes in layer:
            for near in steps[player]:
                if boxes >> near & 1:
                    continue
                step = (near, boxes)
                if step not in seen:
                    seen.add(step)
                    following.append(step)
                behind = 2 * player - near
                if boxes >> behind & 1 and (pull := (near, boxes ^ 1 << behind ^ 1 << player)) not in seen:
                    seen.add(pull)
                    following.append(pull)
        if not following:
            break
        layer = following if len(following) <= _LAYER else _thin(rng, following, land.goals)
        layers.append(layer)
    return layers


def _thin(rng: random.Random, layer: list[tuple[int, int]], goals: int) -> list[tuple[int, int]]:
    """Part of a layer: half of it random, half those with the most boxes off their goals, which many boxes need."""
    layer = _draw(rng, layer, len(layer))
    half = _LAYER // 2
    return layer[:half] + sorted(layer[half:], key=lambda state: (state[1] & goals).bit_count())[:half]


def _place(terrain: str, player: int, boxes: int) -> str:
    cells = list(terrain)
    for box in solver.bits(boxes):
        cells[box] = BOX_ON_GOAL if cells[box] == GOAL else BOX
    cells[player] = PLAYER_ON_GOAL if cells[player] == GOAL else PLAYER
    return "".join(cells)


def pick(levels: str, level: int, seed: int) -> tuple[int, Level]:
    """Level number `level` of the files that `levels` names, or the one the seed falls on where `level` is negative.

    `levels` is ``boxoban`` (the files under BOXOBAN_DATA) or the path of a file or folder. Files are taken in the order
    of their paths. A level that is malformed, solved already or proven unsolvable is a `ParameterError`.
    """
    files = _files(levels)
    counts = [_count(file, _stamp(file)) for file in files]
    total = sum(counts)
    if not total:
        raise ParameterError(f"sokoban: levels={levels!r} holds no level; give a text file in the form Boxoban has")
    if level >= total:
        raise ParameterError(f"sokoban: level must be 0 to {total - 1} for levels={levels!r} (got {level})")
    number = index = level if level >= 0 else seed % total
    which = 0
    while index >= counts[which]:
        index, which = index - counts[which], which + 1
    file = files[which]
    name, text = _blocks(file, _stamp(file))[index]
    parsed, problem = parse(text)
    if problem:
        raise ParameterError(f"sokoban: level {name} of {str(file)!r} {problem}; mend it or choose another")
    return number, parsed


def _files(levels: str) -> list[Path]:
    """The files behind the parameter `levels`, sorted."""
    path_text = os.environ.get(BOXOBAN, "") if levels == "boxoban" else levels
    path = Path(path_text)
    if path_text and path.is_file():
        return [path]
    if not path_text or not path.is_dir():
        source = f"{BOXOBAN}={path_text!r}" if levels == "boxoban" else f"levels={levels!r}"
        raise UsageError(f"sokoban: {source} is no file or folder; name one, or use levels='generated'")
    return sorted(file for file in path.rglob("*.txt*") if file.name.endswith((".txt", ".txt.gz")) and file.is_file())


def _stamp(file: Path) -> tuple[int, int]:
    """Changes with the file, so that no cached text outlives it."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4096)
def _count(file: Path, stamp: tuple[int, int]) -> int:
    """How many levels a file has; remembered for many files, whose text would be too much to keep."""
    return len(_blocks(file, stamp))


@lru_cache(maxsize=8)
def _blocks(file: Path, stamp: tuple[int, int]) -> list[tuple[str, str]]:
    """Name and text of each level of a file, unchecked."""
    try:
        content = file.read_bytes()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParameterError(f"sokoban: {str(file)!r} cannot be read as levels: {reason}") from None
    blocks: list[tuple[str, str]] = []
    name, rows = "", list[str]()
    for line in [*text.splitlines(), ""]:
        if line.strip() and not line.startswith(";"):
            rows.append(line)
            continue
        if rows:
            blocks.append((name or str(len(blocks)), "\n".join(rows)))
            name, rows = "", []
        name = line.lstrip("; ").strip() or name
    return blocks


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[Level, str]:
    """The level that `text` draws, and what is wrong with it (nothing, if empty)."""
    lines = text.split("\n")
    level = Level(len(lines[0]), "".join(lines).translate(_FROM_FILE))
    if strange := set(text) - _IN_FILE - {"\n"}:
        return level, f"has the character {min(strange)!r}"
    if len({len(line) for line in lines}) > 1:
        return level, "has rows of different lengths"
    players, boxes, goals = (sum(map(text.count, glyphs)) for glyphs in ("@+", "$*", ".*+"))
    if players != 1:
        return level, f"has {players} players instead of 1"
    if not boxes or boxes != goals:
        return level, f"has {boxes} boxes and {goals} goals"
    if BOX not in level.cells:
        return level, "is solved already"
    cols, room = level.cols, {cell for cell, glyph in enumerate(level.cells) if glyph != WALL}
    reached = _reachable(cols, solver.locate(level.cells)[0], room)
    if any(not cols <= cell < len(level.cells) - cols or cell % cols in (0, cols - 1) for cell in reached):
        return level, "is not closed by walls"  # the player could walk off the board, boxes put aside
    if solver.solve(level.cols, level.cells).dead:
        return level, "cannot be solved"
    return level, ""
