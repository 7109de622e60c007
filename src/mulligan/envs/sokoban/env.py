"""Sokoban: push every box onto a goal, with several moves in one reply.

Levels come from a generator, from Boxoban's files or from your own file (`mulligan.envs.sokoban.levels`).

Parameters (`--env.NAME`):

rows, cols  of the board, outer walls included; a level from a file brings its own
boxes       to push home, each with a goal of its own
moves       the most moves in one reply
solution    a generated level can be solved in at most this many moves
levels      ``generated``, ``boxoban`` (the folder that `BOXOBAN_DATA` names), or the path of a file
level       the number of the level in the files; -1 lets the task's seed choose
view        ``board`` or ``cells``, see `mulligan.envs.sokoban.views`
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
from typing import ClassVar, NamedTuple

from mulligan.envs.base import Player
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban import solver, views
from mulligan.envs.sokoban.moves import blocked_feedback, listed_replies, push, read, usual_replies
from mulligan.envs.symmetry import least_image
from mulligan.errors import ParameterError, StopReason
from mulligan.types import Episode, ParamValue, Step, Task

_MOST_BOXES, _MOST_MOVES, _LONGEST_SOLUTION = 8, 20, 200
_SIDES = (5, 16)
LOST, TOO_SLOW = "No way to win is left.", "No way to win is left in time."
_CHOICES = {
    "view": views.VIEWS, "lost": ("runs", "ends", "hopeless"), "advice": ("solver", "doubtful", "none"),
}  # fmt: skip
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
        self._usual, self._listed = usual_replies(self.cols, self.moves), listed_replies(self.cols, self.moves)
        cells, cols = self.level.cells, self.cols
        board = "\n".join(" ".join(cells[row : row + cols]) for row in range(0, len(cells), cols))
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
        if params["view"] == "cells" and level.cols - 2 > views.MOST_COLUMNS:
            raise ParameterError(
                f"sokoban: view=cells has names for {views.MOST_COLUMNS} columns, level {number} has {level.cols - 2}; "
                "give view=board"
            )
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
        ends = {"runs": "", "ends": "is left", "hopeless": "is left in time"}[self.lost_rule]
        return views.rules(self.view, self.level.rows, self.cols, self.moves, ends)

    def reset(self, chance: int = 0) -> str:
        board, self._player, self._home = self.start
        self._over = False
        self.turn = 0
        """Turns that were played; the runner counts also those lost to replies that cannot be read."""
        self._cells = bytearray(board, "ascii")
        return views.cells_at_first(self.level.cells, self.cols) if self.view == "cells" else board

    def step(self, reply: str) -> Step:
        home_before, boxes = self._home, self.boxes
        if self._over:
            return Step(self._seen(), valid=False, state_key=self.key(), feedback="The game is over.")
        parsed = self._usual.get(reply) or read(reply, self.cols, self.moves)
        if isinstance(parsed, str):
            return Step(self._seen(), valid=False, state_key=self.key(), feedback=parsed)
        self.turn += 1
        self._player, self._home, blocked = push(self._cells, self._player, parsed.deltas, home_before, boxes)
        won, key = self._home == boxes, self.key()
        feedback = blocked_feedback(parsed.names, blocked) if blocked else ""
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
        return views.cells_later(self.key(), self.cols) if self.view == "cells" else self._cells.decode()

    def key(self) -> str:
        """The position as the solver reads it: row by row, one character a cell."""
        return self._cells[::2].decode()

    def legal(self) -> Sequence[str]:
        """Every combination of up to three moves, shortest first: a blocked move is legal too. None once it is over."""
        return () if self._over else self._listed

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.sokoban.planner import Planner

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
            parsed = read(text, self.cols, self.moves) if turn.valid else ""
            if isinstance(parsed, str):
                continue
            names: list[str] = []
            for delta, name in zip(parsed.deltas, parsed.names, strict=True):
                if home < self.boxes:
                    player, home, _ = push(cells, player, (delta,), home, self.boxes)
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
            starts = [views.player_at(key, self.cols) for key in keys]
            lines = [f"{start}: {turn.moves}" for start, turn in zip(starts, played, strict=False)]
            return "\n".join([*lines, "lost" if episode.stop is StopReason.LOST else ending])
        moves = " | ".join(turn.moves for turn in played) or "none"
        return f"moves {moves}\n{ending}; the board at the end:\n{episode.final}"


def _level(task: Task) -> level_source.Level:
    if task.text("levels") != "generated":
        return level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
    size = (task.integer("rows"), task.integer("cols"), task.integer("boxes"))
    return level_source.generate(task.seed, *size, task.integer("solution"))


def _check_generated(params: Mapping[str, ParamValue]) -> None:
    rows, cols, boxes, solution = (int(params[name]) for name in ("rows", "cols", "boxes", "solution"))
    _check_between("rows", rows, *_SIDES)
    _check_between("cols", cols, *_SIDES)
    _check_between("boxes", boxes, 1, min(_MOST_BOXES, (rows - 2) * (cols - 2) // 4))
    _check_between("solution", solution, 3 * boxes + 2, _LONGEST_SOLUTION)  # shorter ones are not found on some boards
    if int(params["level"]) != -1:
        raise ParameterError(f"sokoban: level must be -1 for generated levels (got {params['level']})")


def _check_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ParameterError(f"sokoban: {name} must be {least} to {most} with the other parameters (got {value})")
