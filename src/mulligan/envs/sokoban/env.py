"""Sokoban: push every box onto a goal, with several moves in one reply.

Levels come from a generator, from Boxoban's files or from your own file (`mulligan.envs.sokoban.levels`).

Parameters (`--env.NAME`):

rows, cols  of the board, outer walls included; a level from a file brings its own
boxes       to push home, each with a goal of its own
moves       the most moves in one reply
solution    a generated level can be solved in at most this many moves
levels      ``generated``, ``boxoban`` (the folder that `BOXOBAN_DATA` names), or the path of a file
level       the number of the level in the files; -1 lets the task's seed choose
sight       0 shows the whole level. n > 0 shows only the cells within n steps, diagonals included, of any cell that the
            player has been in during this episode; the next episode begins in the dark again
view        ``board`` shows the board after every turn; ``cells`` names walls and goals once, and every turn boxes and
            player, as ``boxes b3 c2*`` and ``you d1``: a quarter of the tokens. In the dark a board has ``?`` for what
            was not seen, and ``cells`` names at every turn all walls, goals and boxes that were seen
lost        what happens to a level that cannot be won any more: it ``runs`` to the last turn, as in the papers; it
            ``ends`` as soon as the solver proves it lost; or it ends also when it is ``hopeless``: when the turns left
            are too few (boards of up to 64 cells, whose shortest solutions are known; only played turns count). The
            wins are the same in all three. An ending tells the player something, so in the dark it rests on what the
            player has seen: a level ends only where nothing that may be hidden could still win it.
advice      what a scripted player's reflection advises: the ``solver`` moves; ``none``; or ``doubtful`` moves (view
            ``cells``, sight 0), half of which lose as well where such moves are soon found. A warm start shows doubtful
            advice and does not imitate it. In the dark the solver's advice waits until every box and goal was seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import ClassVar, NamedTuple

from mulligan.envs import drawing
from mulligan.envs.base import Player, action_text, check_choices, check_range, least_image, tagged
from mulligan.envs.sokoban import dark, solver
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban.views import boxes_view, cells_view, player_at, spaced, walls_and_goals
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
    """One turn as it was played: its number from 1, its moves as they are said, the position they led to as far as it
    was seen."""

    number: int
    moves: str
    key: str


class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, so a wrong push can lose the level."""

    draw = staticmethod(drawing.sokoban)
    defaults: ClassVar[dict[str, ParamValue]] = {
        "rows": 6, "cols": 6, "boxes": 2, "moves": 3, "solution": 15, "levels": "generated", "level": -1,
        "view": "board", "lost": "runs", "advice": "solver", "sight": 0,
    }  # fmt: skip
    turns: ClassVar[int] = 7
    players: ClassVar[tuple[str, ...]] = ("expert", "hasty", "omniscient")
    glyphs: ClassVar[dict[str, str]] = {
        "#": "bright_black", "_": "dim", "O": "yellow", "X": "bold red", "*": "bold green", "P": "bold cyan",
        "+": "bold cyan", dark.UNKNOWN: "bright_black",
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.moves, self.view, self.lost_rule = task.integer("moves"), task.text("view"), task.text("lost")
        if task.text("levels") == "generated":
            self.level = level_source.generate(task.seed, *map(task.integer, ("rows", "cols", "boxes", "solution")))
        else:
            self.level = level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
        self.cols, self.boxes, self.sight = self.level.cols, self.level.boxes, task.integer("sight")
        self._usual = usual_replies(self.moves)
        cells = self.level.cells
        self.start = (spaced(cells, self.cols), 2 * solver.locate(cells)[0], cells.count(solver.BOX_ON_GOAL))
        """The first board as text, the player's offset in it, and the number of boxes that are home."""
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters; a level from a file gives its own rows, cols, boxes and number."""
        check_range("sokoban", params, "moves", 1, _MOST_MOVES)
        check_range("sokoban", params, "sight", 0, _SIDES[1])
        check_choices("sokoban", params, _CHOICES)
        if params["sight"] and params["advice"] == "doubtful":
            raise ParameterError("sokoban: advice='doubtful' needs sight=0; in the dark give 'solver' or 'none'")
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
        size += f"/sight{params['sight']}" if params["sight"] else ""
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
        if self.sight:
            shown += f" {self._rules_of_sight()}"
        return (
            f"Sokoban on a board of {size}. Push every box onto a goal; you win as soon as all boxes are on goals."
            f"{f' The game ends where no way to win {ends}.' if ends else ''}\n"
            f"{shown}\n"
            "You move up, down, left or right, one cell a move. Moving into a box pushes it one cell on, if the cell "
            "behind it is free; you can never pull a box. A move into a wall, or into a box with a wall or another box "
            "behind it, does nothing.\n"
            f"Answer with {_number_of_moves(self.moves)}, played in order: {say(('up', 'left', 'left')[: self.moves])}"
        )

    def _rules_of_sight(self) -> str:
        unseen = f" {dark.UNKNOWN} is a cell that you have not seen yet; the outermost cells are walls."
        return (
            f"You see only the cells within {self.sight} step{'s' if self.sight > 1 else ''} of yourself, diagonals "
            f"included, and are shown what you have seen so far.{unseen if self.view == 'board' else ''} A box that "
            f"cannot be pushed shows what is behind it. There are {self.boxes} boxes and {self.boxes} goals."
        )

    def reset(self, chance: int = 0) -> str:
        board, self._player, self._home = self.start
        self._over = False
        self.turn = 0
        """Turns that were played; the runner counts also those lost to replies that cannot be read."""
        self._cells = bytearray(board, "ascii")
        self._eyes = self._new_eyes()
        if self.view == "board" or self.sight:
            return self._seen()
        return f"{walls_and_goals(self.level.cells, self.cols)}\n{self._seen()}"

    def _new_eyes(self) -> dark.Sight | None:
        """What the player sees at the start of an episode; None where the whole level is shown."""
        if not self.sight:
            return None
        eyes = dark.Sight(self.level.rows, self.cols, self.sight)
        eyes.enter(self.start[1] // 2)
        return eyes

    def step(self, reply: str) -> Step:
        home_before, boxes = self._home, self.boxes
        if self._over:
            return Step(self._seen(), valid=False, state_key=self.known(), feedback="The game is over.")
        parsed = self._usual.get(reply) or read(reply, self.moves)
        if isinstance(parsed, str):
            return Step(self._seen(), valid=False, state_key=self.known(), feedback=parsed)
        self.turn += 1
        self._player, self._home, blocked, _ = push(
            self._cells, self.cols, self._player, parsed, home_before, boxes, self._eyes
        )
        won, key = self._home == boxes, self.known()
        feedback = f"Blocked: {', '.join(blocked)}." if blocked else ""
        lost = not won and self.lost_rule != "runs" and self.is_lost(key, self.turn)
        self._over = won or lost
        if lost:
            in_time = "" if self.verdict(key).dead else " in time"
            feedback = f"{feedback} No way to win is left{in_time}.".lstrip()
        progress = (self._home - home_before) / boxes
        return Step(self._seen(), float(won), self._over, won, True, key, feedback, progress)

    def is_lost(self, key: str, turn: int) -> bool:
        """Whether nothing can win the level any more at `key`, as far as it was seen; if it ends when hopeless, within
        the turns left."""
        verdict = self.verdict(key)
        if verdict.moves is None or len(key) > solver.EXACT_CELLS or self.lost_rule != "hopeless":
            return verdict.dead
        return -(-len(verdict.moves) // self.moves) > self.task.turns - turn

    def verdict(self, key: str) -> solver.Verdict:
        """What the solver says of a position; where cells are unknown, of the kindest that they allow."""
        return solver.solve(self.cols, dark.hopeful(self.cols, key, self.boxes))

    def _seen(self) -> str:
        if self._eyes is None:
            return cells_view(self.key(), self.cols) if self.view == "cells" else self._cells.decode()
        if self.view == "cells":
            return f"{walls_and_goals(self.known(), self.cols)}\n{cells_view(self.known(), self.cols)}"
        return spaced(self.known(), self.cols)

    def key(self) -> str:
        """The position as the solver reads it: row by row, one character a cell; nothing is hidden."""
        return self._cells[::2].decode()

    def known(self) -> str:
        """The position as far as the player has seen it: the same as `key` where the whole level is shown."""
        return self.key() if self._eyes is None else dark.masked(self.key(), self._eyes.seen)

    def known_at_start(self) -> str:
        """What `known` is before the first move."""
        eyes = self._new_eyes()
        return self.level.cells if eyes is None else dark.masked(self.level.cells, eyes.seen)

    @property
    def seen_cells(self) -> int:
        """Bit set of the cells that were seen in this episode."""
        return (1 << len(self.level.cells)) - 1 if self._eyes is None else self._eyes.seen

    def legal(self) -> Sequence[str]:
        """Every combination of up to three moves, shortest first: a blocked move is legal too. None once it is over."""
        return () if self._over else tuple(self._usual)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.sokoban.explorer import Explorer
        from mulligan.envs.sokoban.player import Planner

        return (Explorer if self.sight else Planner)(self, kind, rng, skill, recall)

    def world_key(self) -> str:
        """Walls, goals and boxes up to rotation and reflection; where the player starts makes no new level."""
        return least_image(self.cols, self.level.cells.translate(_WITHOUT_PLAYER))

    def replay(self, episode: Episode) -> list[PlayedTurn]:
        """What the episode's replies did, without the moves that a win left unplayed."""
        return self._replay(episode)[0]

    def map_seen(self, episode: Episode) -> int:
        """Bit set of the cells that the player had seen at the end of an episode in the dark."""
        return self._replay(episode)[1]

    def _replay(self, episode: Episode) -> tuple[list[PlayedTurn], int]:
        """The turns as they were played, and the bit set of the cells that the player had seen in the end."""
        board, player, home = self.start
        cells, eyes, played = bytearray(board, "ascii"), self._new_eyes(), list[PlayedTurn]()
        for number, turn in enumerate(episode.turns, start=1):
            parsed = read(tagged(turn.reply.text), self.moves)
            if turn.valid and not isinstance(parsed, str):
                player, home, _, count = push(cells, self.cols, player, parsed, home, self.boxes, eyes)
                key = cells[::2].decode() if eyes is None else dark.masked(cells[::2].decode(), eyes.seen)
                played.append(PlayedTurn(number, ", ".join(parsed[:count]), key))
        return played, 0 if eyes is None else eyes.seen

    def map_of(self, seen: int) -> str:
        """The level at its start, told in the view, as far as these cells (a bit set) tell."""
        cells = dark.masked(self.level.cells, seen)
        if self.view == "board":
            return spaced(cells, self.cols)
        return f"{walls_and_goals(cells, self.cols)}\n{boxes_view(cells, self.cols)}"

    def digest(self, episode: Episode) -> str:
        """The moves and how it ended, as the view tells things; in the dark first the level as far as it was seen."""
        played, seen = self._replay(episode)
        keys = [self.known_at_start(), *(turn.key for turn in played)]
        ending = f"{keys[-1].count(solver.BOX_ON_GOAL)} of {self.boxes} boxes on goals"
        if self.view == "cells":
            lines = [f"{player_at(key, self.cols)}: {turn.moves}" for key, turn in zip(keys, played, strict=False)]
            lines += ["lost" if episode.stop is StopReason.LOST else ending]
            return "\n".join([self.map_of(seen), *lines] if self.sight else lines)
        moves = " | ".join(turn.moves for turn in played) or "none"
        if self.sight:
            return f"moves {moves}\n{ending}; what was seen of the board, as it is at the start:\n{self.map_of(seen)}"
        return f"moves {moves}\n{ending}; the board at the end:\n{episode.final}"


def push(
    cells: bytearray,
    cols: int,
    player: int,
    names: Sequence[str],
    home: int,
    boxes: int,
    eyes: dark.Sight | None = None,
) -> tuple[int, int, list[str], int]:
    """Play moves on `cells`, the text of the board, until all `boxes` are home. Cell number n stands at byte 2n.
    `eyes` see on the way.

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
            if eyes is not None and target in _LEFT:
                eyes.feel((ahead + delta) // 2)
            continue
        cells[ahead], cells[player] = _WITH_PLAYER[target], _LEFT[cells[player]]
        player = ahead
        if eyes is not None:
            eyes.enter(player // 2)
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
