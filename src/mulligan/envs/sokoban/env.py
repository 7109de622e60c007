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
from functools import lru_cache
from typing import ClassVar, NamedTuple

from mulligan.envs.base import Player
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.moves import number_of_moves, push, read, say, usual_replies
from mulligan.envs.symmetry import least_image
from mulligan.errors import ParameterError, StopReason
from mulligan.types import Episode, ParamValue, Step, Task

_MOST_BOXES, _MOST_MOVES, _LONGEST_SOLUTION = 8, 20, 200
_SIDES = (5, 16)
LOST, TOO_SLOW = "No way to win is left.", "No way to win is left in time."
_CHOICES = {
    "view": ("board", "cells"),
    "lost": ("runs", "ends", "hopeless"),
    "advice": ("solver", "doubtful", "none"),
}
_WITHOUT_PLAYER = str.maketrans({solver.PLAYER: solver.FLOOR, solver.PLAYER_ON_GOAL: solver.GOAL})


class PlayedTurn(NamedTuple):
    """One turn as it was played."""

    number: int
    """1 for the first turn."""
    moves: str
    """As they are said: ``up, left``."""
    key: str
    """The position they led to."""


class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, so a wrong push can lose the level."""

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
        self.level = _level(task)
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
        _check_between("moves", int(params["moves"]), 1, _MOST_MOVES)
        for name, choices in _CHOICES.items():
            if params[name] not in choices:
                raise ParameterError(f"sokoban: {name} must be {' or '.join(choices)} (got {params[name]!r})")
        if params["levels"] == "generated":
            _check_generated(params)
            return params
        number, level = level_source.pick(str(params["levels"]), int(params["level"]), seed)
        return {**params, "level": number, "rows": level.rows, "cols": level.cols, "boxes": level.boxes, "solution": 0}

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A level must be solvable within the turns the task was asked for with."""
        moves, solution = int(params["moves"]), int(params["solution"])
        if solution > turns * moves:
            raise ParameterError(
                f"sokoban: solution={solution} moves do not fit into turns={turns} of moves={moves}; "
                f"give turns={-(-solution // moves)} or solution={turns * moves}"
            )

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
            f"Answer with {number_of_moves(self.moves)}, played in order: {say(('up', 'left', 'left')[: self.moves])}"
        )

    def reset(self, chance: int = 0) -> str:
        board, self._player, self._home = self.start
        self._over = False
        self.turn = 0
        """Turns that were played; the runner counts also those lost to replies that cannot be read."""
        self._cells = bytearray(board, "ascii")
        return _terrain(self.level) + cells_view(self.level.cells, self.cols) if self.view == "cells" else board

    def step(self, reply: str) -> Step:
        home_before, boxes = self._home, self.boxes
        if self._over:
            return Step(self._seen(), valid=False, state_key=self.key(), feedback="The game is over.")
        parsed = self._usual.get(reply) or read(reply, self.moves)
        if isinstance(parsed, str):
            return Step(self._seen(), valid=False, state_key=self.key(), feedback=parsed)
        self.turn += 1
        self._player, self._home, blocked = push(self._cells, self.cols, self._player, parsed, home_before, boxes)
        won, key = self._home == boxes, self.key()
        feedback = f"Blocked: {', '.join(blocked)}." if blocked else ""
        lost = not won and self.lost_rule != "runs" and self.is_lost(key, self.turn)
        self._over = won or lost
        if lost:
            feedback = f"{feedback} {LOST if solver.solve(self.cols, key).dead else TOO_SLOW}".lstrip()
        progress = (self._home - home_before) / boxes
        return Step(self._seen(), 1.0 if won else 0.0, self._over, won, True, key, feedback, progress)

    def is_lost(self, key: str, turn: int) -> bool:
        """Whether the level counts as lost at `key` after so many turns: where nothing can win it any more and, if
        levels end when they are hopeless, where no solution fits into the turns that are left."""
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
            text = turn.reply.text
            if "<action>" not in text.lower():  # valid all the same: the tags were understood (style "bare")
                text = f"<action>{text}</action>"
            parsed = read(text, self.moves)
            if isinstance(parsed, str) or not turn.valid:
                continue
            names: list[str] = []
            for name in parsed:
                if home < self.boxes:
                    player, home, _ = push(cells, self.cols, player, [name], home, self.boxes)
                    names.append(name)
            if names:
                played.append(PlayedTurn(number, ", ".join(names), cells[::2].decode()))
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


def _terrain(level: level_source.Level) -> str:
    """Walls and goals in the view of cells."""
    names, terrain = names_of(level.rows, level.cols), solver.terrain_of(level.cells)
    walls = [name for name, glyph in zip(names, terrain, strict=True) if name and glyph == solver.WALL]
    goals = [name for name, glyph in zip(names, terrain, strict=True) if glyph == solver.GOAL]
    return f"walls {' '.join(walls) or 'none'}\ngoals {' '.join(goals)}\n"


def cells_view(cells: str, cols: int) -> str:
    """What can move, in the view of cells."""
    names = names_of(len(cells) // cols, cols)
    marks = {solver.BOX: "", solver.BOX_ON_GOAL: "*"}
    boxes = [name + marks[glyph] for name, glyph in zip(names, cells, strict=True) if glyph in marks]
    return f"boxes {' '.join(boxes)}\nyou {player_at(cells, cols)}"


def player_at(cells: str, cols: int) -> str:
    """The name of the player's cell."""
    return names_of(len(cells) // cols, cols)[solver.locate(cells)[0]]


@lru_cache(maxsize=64)
def names_of(rows: int, cols: int) -> tuple[str, ...]:
    """The name of each cell, row by row; cells of the outer wall have none."""
    return tuple(
        f"{chr(96 + col)}{row}" if 0 < row < rows - 1 and 0 < col < cols - 1 else ""
        for row in range(rows)
        for col in range(cols)
    )


def _level(task: Task) -> level_source.Level:
    if task.text("levels") != "generated":
        return level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
    return level_source.generate(task.seed, *map(task.integer, ("rows", "cols", "boxes", "solution")))


def _check_generated(params: Mapping[str, ParamValue]) -> None:
    rows, cols, boxes, solution = (int(params[name]) for name in ("rows", "cols", "boxes", "solution"))
    _check_between("rows", rows, *_SIDES)
    _check_between("cols", cols, *_SIDES)
    _check_between("boxes", boxes, 1, min(_MOST_BOXES, (rows - 2) * (cols - 2) // 4))
    _check_between("solution", solution, 3 * boxes + 2, _LONGEST_SOLUTION)  # shorter ones are not found on some boards
    _check_between("level", int(params["level"]), -1, -1)


def _check_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        allowed = f"{least} to {most}" if least < most else least
        raise ParameterError(f"sokoban: {name} must be {allowed} with the other parameters (got {value})")
