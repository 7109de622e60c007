"""Sokoban: push every box onto a goal, with several moves in one reply.

Levels come from a generator, from Boxoban's files or from your own file (`mulligan.envs.sokoban.levels`).

Parameters (`--env.NAME`):

rows, cols  of the board, outer walls included; a level from a file brings its own
boxes       to push home, each with a goal of its own
moves       the most moves in one reply
solution    a generated level can be solved in at most this many moves
levels      ``generated``, ``boxoban`` (the folder that `BOXOBAN_DATA` names), or the path of a file
level       the number of the level in the files; -1 lets the task's seed choose
view        ``board`` shows the board after every turn; ``cells`` names walls and goals once, and every turn boxes and
            player, as ``boxes b3 c2*`` and ``you d1``: a quarter of the tokens
lost        what happens to a level that cannot be won any more: it ``runs`` to the last turn, as in the papers; it
            ``ends`` as soon as the solver proves it lost; or it ends also when it is ``hopeless``: when the turns left
            are too few (boards of up to 64 cells, whose shortest solutions are known; only played turns count). The
            wins are the same in all three.
advice      what a scripted player's reflection advises: the ``solver`` moves; ``none``; or ``doubtful`` moves (view
            ``cells``), half of which lose as well where such moves are soon found. A warm start shows doubtful advice
            and does not imitate it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import ClassVar, NamedTuple

from mulligan.envs import drawing
from mulligan.envs.base import Player, action_text, check_choices, check_range, least_image, tagged
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban import solver
from mulligan.errors import ParameterError, StopReason
from mulligan.types import Episode, ParamValue, Step, Task

_MOST_BOXES, _MOST_MOVES, _LONGEST_SOLUTION = 8, 20, 200
_SIDES = (5, 16)
_CHOICES = {"view": ("board", "cells"), "lost": ("runs", "ends", "hopeless"), "advice": ("solver", "doubtful", "none")}
_WITHOUT_PLAYER = str.maketrans({solver.PLAYER: solver.FLOOR, solver.PLAYER_ON_GOAL: solver.GOAL})
_, _FLOOR, _GOAL, _BOX, _BOX_ON_GOAL, _PLAYER, _PLAYER_ON_GOAL = map(ord, solver.GLYPHS)
_WITH_BOX, _WITH_PLAYER = {_FLOOR: _BOX, _GOAL: _BOX_ON_GOAL}, {_FLOOR: _PLAYER, _GOAL: _PLAYER_ON_GOAL}
"""A free cell -> the same cell once a box, or the player, has come."""
_LEFT = {_BOX: _FLOOR, _PLAYER: _FLOOR, _BOX_ON_GOAL: _GOAL, _PLAYER_ON_GOAL: _GOAL}
"""A cell with a box or the player -> the same cell without."""
NAMES = ("up", "down", "left", "right")
_NAMED = {word: name for name in NAMES for word in (name, name[0])}
_LISTED = 3
"""Longest combination that `legal` lists: longer ones would be hundreds."""


class PlayedTurn(NamedTuple):
    """One turn as it was played: its number from 1, its moves as they are said, the position they led to."""

    number: int
    moves: str
    key: str


class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, so a wrong push can lose the level."""

    draw = staticmethod(drawing.sokoban)
    defaults: ClassVar[dict[str, ParamValue]] = {
        "rows": 6, "cols": 6, "boxes": 2, "moves": 3, "solution": 15, "levels": "generated", "level": -1,
        "view": "board", "lost": "runs", "advice": "solver",
    }  # fmt: skip
    turns: ClassVar[int] = 7
    players: ClassVar[tuple[str, ...]] = ("expert", "hasty", "omniscient")
    glyphs: ClassVar[dict[str, str]] = {
        "#": "bright_black", "_": "dim", "O": "yellow", "X": "bold red", "*": "bold green", "P": "bold cyan",
        "+": "bold cyan",
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.moves, self.view, self.lost_rule = task.integer("moves"), task.text("view"), task.text("lost")
        if task.text("levels") == "generated":
            self.level = level_source.generate(task.seed, *map(task.integer, ("rows", "cols", "boxes", "solution")))
        else:
            self.level = level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
        self.cols, self.boxes = self.level.cols, self.level.boxes
        self._usual = usual_replies(self.moves)
        cells = self.level.cells
        board = "\n".join(" ".join(cells[row : row + self.cols]) for row in range(0, len(cells), self.cols))
        self.start = (board, 2 * solver.locate(cells)[0], cells.count(solver.BOX_ON_GOAL))
        """The first board as text, the player's offset in it, and the number of boxes that are home."""
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters; a level from a file gives its own rows, cols, boxes and number."""
        check_range("sokoban", params, "moves", 1, _MOST_MOVES)
        check_choices("sokoban", params, _CHOICES)
        if params["levels"] != "generated":
            number, level = level_source.pick(str(params["levels"]), int(params["level"]), seed)
            sizes = {"rows": level.rows, "cols": level.cols, "boxes": level.boxes}
            return {**params, **sizes, "level": number, "solution": 0}
        check_range("sokoban", params, "rows", *_SIDES)
        check_range("sokoban", params, "cols", *_SIDES)
        rows, cols, boxes = (int(params[name]) for name in ("rows", "cols", "boxes"))
        check_range("sokoban", params, "boxes", 1, min(_MOST_BOXES, (rows - 2) * (cols - 2) // 4))
        # shorter solutions are not found on some boards
        check_range("sokoban", params, "solution", 3 * boxes + 2, _LONGEST_SOLUTION)
        check_range("sokoban", params, "level", -1, -1)
        return params

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A level must be solvable within the turns the task was asked for with."""
        moves, solution = int(params["moves"]), int(params["solution"])
        if solution > turns * moves:
            way_out = f"give turns={-(-solution // moves)} or solution={turns * moves}"
            raise ParameterError(f"sokoban: turns={turns} x moves={moves} must be >= solution={solution}; {way_out}")

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        size = f"sokoban/{params['rows']}x{params['cols']}/{params['boxes']}"
        levels = str(params["levels"])
        return size if levels == "generated" else f"{size}/{'boxoban' if levels == 'boxoban' else 'file'}"

    def rules(self) -> str:
        rows, cols = self.level.rows, self.cols
        ends = {"runs": "", "ends": "is left", "hopeless": "is left in time"}[self.lost_rule]
        if self.view == "cells":
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
            f"Answer with {_number_of_moves(self.moves)}, played in order: {say(('up', 'left', 'left')[: self.moves])}"
        )

    def reset(self, chance: int = 0) -> str:
        board, self._player, self._home = self.start
        self._over = False
        self.turn = 0
        """Turns that were played; the runner counts also those lost to replies that cannot be read."""
        self._cells = bytearray(board, "ascii")
        if self.view == "board":
            return board
        names, terrain = names_of(self.level.rows, self.cols), solver.terrain_of(self.level.cells)
        walls, goals = (
            " ".join(name for name, glyph in zip(names, terrain, strict=True) if name and glyph == kind)
            for kind in (solver.WALL, solver.GOAL)
        )
        return f"walls {walls or 'none'}\ngoals {goals}\n{self._seen()}"

    def step(self, reply: str) -> Step:
        home_before, boxes = self._home, self.boxes
        if self._over:
            return Step(self._seen(), valid=False, state_key=self.key(), feedback="The game is over.")
        parsed = self._usual.get(reply) or read(reply, self.moves)
        if isinstance(parsed, str):
            return Step(self._seen(), valid=False, state_key=self.key(), feedback=parsed)
        self.turn += 1
        self._player, self._home, blocked, _ = push(self._cells, self.cols, self._player, parsed, home_before, boxes)
        won, key = self._home == boxes, self.key()
        feedback = f"Blocked: {', '.join(blocked)}." if blocked else ""
        lost = not won and self.lost_rule != "runs" and self.is_lost(key, self.turn)
        self._over = won or lost
        if lost:
            in_time = "" if solver.solve(self.cols, key).dead else " in time"
            feedback = f"{feedback} No way to win is left{in_time}.".lstrip()
        progress = (self._home - home_before) / boxes
        return Step(self._seen(), float(won), self._over, won, True, key, feedback, progress)

    def is_lost(self, key: str, turn: int) -> bool:
        """Whether nothing can win the level any more at `key`; if it ends when hopeless, within the turns left."""
        verdict = solver.solve(self.cols, key)
        if verdict.moves is None or len(key) > solver.EXACT_CELLS or self.lost_rule != "hopeless":
            return verdict.dead
        return -(-len(verdict.moves) // self.moves) > self.task.turns - turn

    def _seen(self) -> str:
        return cells_view(self.key(), self.cols) if self.view == "cells" else self._cells.decode()

    def key(self) -> str:
        """The position as the solver reads it: row by row, one character a cell."""
        return self._cells[::2].decode()

    def legal(self) -> Sequence[str]:
        """Every combination of up to three moves, shortest first: a blocked move is legal too. None once it is over."""
        return () if self._over else tuple(self._usual)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.sokoban.player import Planner

        return Planner(self, kind, rng, skill, recall)

    def world_key(self) -> str:
        """Walls, goals and boxes up to rotation and reflection; where the player starts makes no new level."""
        return least_image(self.cols, self.level.cells.translate(_WITHOUT_PLAYER))

    def replay(self, episode: Episode) -> list[PlayedTurn]:
        """What the episode's replies did, without the moves that a win left unplayed."""
        board, player, home = self.start
        cells, played = bytearray(board, "ascii"), list[PlayedTurn]()
        for number, turn in enumerate(episode.turns, start=1):
            parsed = read(tagged(turn.reply.text), self.moves)
            if turn.valid and not isinstance(parsed, str):
                player, home, _, count = push(cells, self.cols, player, parsed, home, self.boxes)
                played.append(PlayedTurn(number, ", ".join(parsed[:count]), cells[::2].decode()))
        return played

    def digest(self, episode: Episode) -> str:
        """The moves and how it ended, as the view tells things."""
        played = self.replay(episode)
        keys = [self.level.cells, *(turn.key for turn in played)]
        ending = f"{keys[-1].count(solver.BOX_ON_GOAL)} of {self.boxes} boxes on goals"
        if self.view == "cells":
            lines = [f"{player_at(key, self.cols)}: {turn.moves}" for key, turn in zip(keys, played, strict=False)]
            return "\n".join([*lines, "lost" if episode.stop is StopReason.LOST else ending])
        moves = " | ".join(turn.moves for turn in played) or "none"
        return f"moves {moves}\n{ending}; the board at the end:\n{episode.final}"


def push(
    cells: bytearray, cols: int, player: int, names: Sequence[str], home: int, boxes: int
) -> tuple[int, int, list[str], int]:
    """Play moves on `cells`, the text of the board, until all `boxes` are home. Cell number n stands at byte 2n.

    Returns the player's offset, the number of boxes on goals, the moves that were blocked (``move 2 (left)``), and how
    many were played.
    """
    blocked: list[str] = []
    number = 0
    for number, name in enumerate(names, start=1):
        delta = _offsets(cols)[name]
        ahead = player + delta
        target = cells[ahead]
        if target in _LEFT and (pushed := _WITH_BOX.get(cells[ahead + delta])):
            home += (pushed == _BOX_ON_GOAL) - (target == _BOX_ON_GOAL)
            cells[ahead + delta], target = pushed, _LEFT[target]
        if target not in _WITH_PLAYER:  # a wall, or a box that cannot move
            blocked.append(f"move {number} ({name})")
            continue
        cells[ahead], cells[player] = _WITH_PLAYER[target], _LEFT[cells[player]]
        player = ahead
        if home == boxes:
            break
    return player, home, blocked, number


@cache
def _offsets(cols: int) -> dict[str, int]:
    """What each move adds to the player's offset in the text of the board."""
    return {name: 2 * delta for name, delta in zip(NAMES, solver.deltas(cols), strict=True)}


def after(cells: str, cols: int, names: Sequence[str], boxes: int) -> str:
    """The position that moves lead to from another, both row by row."""
    board = bytearray(" ".join(cells), "ascii")
    push(board, cols, 2 * solver.locate(cells)[0], names, cells.count(solver.BOX_ON_GOAL), boxes)
    return board[::2].decode()


def move_names(moves: Sequence[str]) -> str:
    """Moves as they are said: ``up, left``; given as names or letters."""
    return ", ".join(_NAMED[move] for move in moves)


def say(moves: Sequence[str]) -> str:
    """Moves as a reply, given as names or letters."""
    return f"<action>{move_names(moves)}</action>"


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
        return f"{len(words)} moves are not allowed; give {_number_of_moves(moves)}."
    return tuple(_NAMED[word] for word in words)


def _number_of_moves(moves: int) -> str:
    return "1 move" if moves == 1 else f"1 to {moves} moves"


def cells_view(cells: str, cols: int) -> str:
    """What can move, in the view of cells."""
    names = names_of(len(cells) // cols, cols)
    marks = {solver.BOX: "", solver.BOX_ON_GOAL: "*"}
    boxes = [name + marks[glyph] for name, glyph in zip(names, cells, strict=True) if glyph in marks]
    return f"boxes {' '.join(boxes)}\nyou {player_at(cells, cols)}"


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
