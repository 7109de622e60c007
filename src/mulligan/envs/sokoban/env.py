"""Sokoban: push every box onto a goal, with several moves in one reply.

Levels come from a generator, from Boxoban's files or from a file of one's own (`mulligan.envs.sokoban.levels`).

Parameters (`--env.NAME`):

rows, cols  of the board, outer walls included; a level from a file brings its own
boxes       to push home, each with a goal of its own
moves       at most so many in one reply
solution    a generated level can be solved in so many moves
levels      ``generated``, ``boxoban`` (the folder that `BOXOBAN_DATA` names), or the path of a file
level       the number of a level there; -1 lets the seed of the task choose
view        ``board``, ``compact`` or ``cells``, see `mulligan.envs.sokoban.views`
lost        a level that cannot be won any more ``runs`` on to the last turn, as in the papers, or ``ends`` there: where
            the solver proves it, whatever turns are left; ``hopeless`` ends it also where the turns that are left are
            too few, on boards of up to 64 cells, whose shortest solutions are known; turns lost to replies that cannot
            be read do not count there. What is won is the same in all three; how soon a loss is seen is not.
advice      ``solver``: a scripted player's reflection also says what the solver would have played; ``none``: only what
            was seen; ``doubtful`` (in cells): of what it says to play instead, half loses as well where such moves are
            soon found, and what has lost is not said again. Such advice is shown in a warm start and not imitated. An
            agent writes its own reflections, but may have learned to from a scripted player's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mulligan.envs.base import Player
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban import memory, solver, views
from mulligan.envs.sokoban.moves import blocked_feedback, listed, push, read, usual_replies
from mulligan.envs.sokoban.planner import Planner
from mulligan.envs.symmetry import least_image
from mulligan.errors import ParameterError, UnknownName
from mulligan.types import Episode, ParamValue, Step, Task

_MOST_BOXES, _MOST_MOVES, _LONGEST_SOLUTION = 8, 20, 200
_SIDES = (5, 16)
LOST, TOO_SLOW = "No way to win is left.", "No way to win is left in time."
_RUNS, _ENDS, _HOPELESS = "runs", "ends", "hopeless"
_SOLVER, _DOUBTFUL, _NONE = "solver", "doubtful", "none"
_WITHOUT_PLAYER = str.maketrans({solver.PLAYER: solver.FLOOR, solver.PLAYER_ON_GOAL: solver.GOAL})


class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, so a wrong push can lose the level."""

    __slots__ = (
        "_cells", "_home", "_listed", "_lost", "_over", "_place", "_usual", "advised", "boxes", "cols", "doubted",
        "level", "moves", "start", "task", "turn", "view",
    )  # fmt: skip

    defaults: ClassVar[dict[str, ParamValue]] = {
        "rows": 6, "cols": 6, "boxes": 2, "moves": 3, "solution": 15, "levels": "generated", "level": -1,
        "view": "board", "lost": _RUNS, "advice": _SOLVER,
    }  # fmt: skip
    turns: ClassVar[int] = 7
    kind: ClassVar[str] = "solve"
    players: ClassVar[tuple[str, ...]] = ("expert", "hasty", "omniscient")
    glyphs: ClassVar[dict[str, str]] = {
        "#": "bright_black", "_": "dim", "O": "yellow", "X": "bold red", "*": "bold green", "P": "bold cyan",
        "+": "bold cyan",
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.moves = task.integer("moves")
        self.level = _level(task)
        self.cols, self.boxes = self.level.cols, self.level.boxes
        self._usual, self._listed = usual_replies(self.cols, self.moves), listed(self.cols, self.moves)
        cells, cols = self.level.cells, self.cols
        board = "\n".join(" ".join(cells[row : row + cols]) for row in range(0, len(cells), cols))
        self.start = (board, 2 * solver.locate(cells)[0], cells.count("*"))
        """The board at first as text, the player's place in it, and the boxes that are home."""
        self.view, self._lost = task.text("view"), task.text("lost")
        self.advised = task.text("advice") != _NONE
        """Whether a scripted reflection says what should have been played."""
        self.doubted = task.text("advice") == _DOUBTFUL
        """Whether that is the player's advice, which may be wrong, rather than the solver's."""
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters; a level from a file gives its own rows, cols, boxes and number."""
        moves, level, levels = int(params["moves"]), int(params["level"]), str(params["levels"])
        if not 1 <= moves <= _MOST_MOVES:
            raise ParameterError(f"sokoban: moves={moves} a turn cannot be; give 1 to {_MOST_MOVES}")
        words = {"view": views.VIEWS, "lost": (_RUNS, _ENDS, _HOPELESS), "advice": (_SOLVER, _DOUBTFUL, _NONE)}
        for name, known in words.items():
            if params[name] not in known:
                raise ParameterError(f"sokoban: {name}={params[name]!r} is unknown; choose {' or '.join(known)}")
        if levels == "generated":
            _check_generated(params)
            return params
        number, found = level_source.pick(levels, level, seed)
        if params["view"] == "cells" and found.cols - 2 > views.MOST_COLUMNS:
            raise ParameterError(
                f"sokoban: view=cells has names for {views.MOST_COLUMNS} columns, level {number} has {found.cols - 2}; "
                "give view=compact"
            )
        return {**params, "level": number, "rows": found.rows, "cols": found.cols, "boxes": found.boxes, "solution": 0}

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
        ends = {_RUNS: "", _ENDS: "is left", _HOPELESS: "is left in time"}[self._lost]
        return views.rules(self.view, self.level.rows, self.cols, self.moves, ends)

    def reset(self, chance: int = 0) -> str:
        board, self._place, self._home = self.start
        self._over = False
        self.turn = 0
        """Turns that were played; those lost to replies that cannot be read are the runner's to count."""
        self._cells = bytearray(board, "ascii")
        return views.cells_at_first(self.level.cells, self.cols) if self.view == "cells" else board

    def step(self, reply: str) -> Step:
        cells, before, boxes = self._cells, self._home, self.boxes
        if self._over:
            return Step(self._seen(), valid=False, state_key=self.key(), feedback="The game is over.")
        understood = self._usual.get(reply) or read(reply, self.cols, self.moves)
        if isinstance(understood, str):
            return Step(self._seen(), valid=False, state_key=self.key(), feedback=understood)
        self.turn += 1
        deltas, names = understood
        self._place, home, blocked = push(cells, self._place, deltas, before, boxes)
        self._home = home
        won, key = home == boxes, self.key()
        feedback = blocked_feedback(names, blocked) if blocked else ""
        lost = not won and self._lost != _RUNS and self.is_lost(key, self.turn)
        self._over = won or lost
        if lost:
            said = LOST if solver.solve(self.cols, key).dead else TOO_SLOW
            feedback = f"{feedback} {said}".lstrip()
        reward, progress = 1.0 if won else 0.0, (home - before) / boxes
        return Step(self._seen(), reward, self._over, won, True, key, feedback, progress)

    def is_lost(self, key: str, turn: int) -> bool:
        """Whether the level counts as lost at `key` after so many turns: where nothing can win it any more and, if
        levels end when they are hopeless, where no solution fits into the turns that are left."""
        found = solver.solve(self.cols, key)
        if found.dead or self._lost != _HOPELESS or found.moves is None or len(key) > solver.EXACT_CELLS:
            return found.dead
        return -(-len(found.moves) // self.moves) > self.task.turns - turn

    def _seen(self) -> str:
        return views.cells_later(self.key(), self.cols) if self.view == "cells" else self._cells.decode()

    def key(self) -> str:
        """The position as the solver reads it: row by row, one character a cell."""
        return self._cells[::2].decode()

    def legal(self) -> Sequence[str]:
        """Every combination of up to three moves, shortest first: a blocked move is legal too. None once it is over."""
        return () if self._over else self._listed

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        """A player with the solver's plans; the board hides nothing, so "omniscient" is the expert at skill 1.

        kind  ``expert`` makes random moves on its other turns, ``hasty`` such as bring the next box home
        """
        if kind not in self.players:
            raise UnknownName("player", kind, self.players)
        return Planner(self, rng, 1.0 if kind == "omniscient" else skill, recall, hasty=kind == "hasty")

    def world_key(self) -> str:
        """Walls, goals and boxes up to rotation and reflection; where the player starts makes no new level."""
        return least_image(self.cols, self.level.cells.translate(_WITHOUT_PLAYER))

    def digest(self, episode: Episode) -> str:
        return memory.digest(self, episode)

    def reflect(self, episode: Episode) -> str:
        return memory.reflect(self, episode)


def _level(task: Task) -> level_source.Level:
    if task.text("levels") != "generated":
        return level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
    size = (task.integer("rows"), task.integer("cols"), task.integer("boxes"))
    return level_source.generate(task.seed, *size, task.integer("solution"))


def _check_generated(params: Mapping[str, ParamValue]) -> None:
    rows, cols, boxes, solution = (int(params[name]) for name in ("rows", "cols", "boxes", "solution"))
    for name, side in (("rows", rows), ("cols", cols)):
        if not _SIDES[0] <= side <= _SIDES[1]:
            raise ParameterError(f"sokoban: {name}={side}, outer walls included, must be {_SIDES[0]} to {_SIDES[1]}")
    most = min(_MOST_BOXES, (rows - 2) * (cols - 2) // 4)
    if not 1 <= boxes <= most:
        raise ParameterError(f"sokoban: boxes={boxes} on {rows}x{cols} cannot be; give 1 to {most}, or a bigger board")
    least = 3 * boxes + 2  # below, the generator finds no level on some boards
    if not least <= solution <= _LONGEST_SOLUTION:
        raise ParameterError(
            f"sokoban: solution={solution} moves for boxes={boxes} cannot be; give {least} to {_LONGEST_SOLUTION}"
        )
    if int(params["level"]) != -1:
        raise ParameterError(f"sokoban: level={params['level']} counts levels of a file; generated ones go by the seed")
