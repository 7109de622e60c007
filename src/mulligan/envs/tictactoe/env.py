"""Tic-Tac-Toe against an opponent that can go wrong.

A board is written as OpenSpiel writes it: three lines of ``.``, ``x`` and ``o``, top first; x moves first. A move is a
cell, 0 to 8 in reading order.

Parameters (`--env.NAME`):

opponent  ``random``, ``minimax``, which never goes wrong, or ``mcts:100``, which looks ahead with so many simulations
          (needs OpenSpiel)
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import ClassVar

from mulligan.envs.adapters.openspiel import mcts, simulations_of
from mulligan.envs.base import Player, action_text
from mulligan.envs.versus import ORDER, pick, settle_seat
from mulligan.errors import UnknownName
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

OPPONENTS = ("random", "minimax", "mcts:K")
EMPTY = "...\n...\n..."
LINES = ("012", "345", "678", "036", "147", "258", "048", "246")
_UNFINISHED = "The game was not finished."
_RESULTS = {1.0: "You won.", 0.0: "A draw.", -1.0: "You lost."}
_CELL = re.compile(r"\(?\s*([0-9]+)\s*[,\s]\s*([0-9]+)\s*\)?")
_LONGEST_ACTION = 40
"""Characters; no cell needs more, and the pattern above would be slow on a long run of spaces."""


def after(board: str, move: int) -> str:
    """The board once whoever is to move has taken the cell `move`."""
    index = move + move // 3  # line breaks count
    return f"{board[:index]}{'xo'[mover(board)]}{board[index + 1 :]}"


def mover(board: str) -> int:
    """Who is to move: 0 for x, 1 for o."""
    return board.count("x") - board.count("o")


@cache
def moves(board: str) -> tuple[int, ...]:
    """The empty cells; none when the game is over."""
    return () if _winner(board) else tuple(move for move, mark in enumerate(board.replace("\n", "")) if mark == ".")


@cache
def value(board: str) -> int:
    """What perfect play makes of a board, for x: 1 won, 0 drawn, -1 lost."""
    if not moves(board):
        return {"x": 1, "o": -1, "": 0}[_winner(board)]
    return (max, min)[mover(board)](value(after(board, move)) for move in moves(board))


def optimal_moves(board: str) -> list[int]:
    """The moves that keep the value of the board."""
    return [move for move in moves(board) if value(after(board, move)) == value(board)]


def _winner(board: str) -> str:
    marks = board.replace("\n", "")
    rows = ("".join(marks[int(cell)] for cell in line) for line in LINES)
    return next((row[0] for row in rows if row in ("xxx", "ooo")), "")


class TicTacToe:
    """Tic-Tac-Toe against one opponent: three in a row wins."""

    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "mcts:100", "seat": 0}
    turns: ClassVar[int] = 7
    timeout_reward: ClassVar[float] = -1.0
    """Who stalls loses."""
    glyphs: ClassVar[dict[str, str]] = {"X": "cyan", "O": "yellow"}

    def __init__(self, task: Task) -> None:
        self.task, self.seat = task, task.integer("seat")
        self.mark = " XO"[self.seat]
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        opponent = str(params["opponent"])
        if opponent.partition(":")[0] == "mcts":
            opponent = f"mcts:{simulations_of('tictactoe', opponent)}"
        elif opponent not in OPPONENTS:
            raise UnknownName("opponent of tictactoe", opponent, OPPONENTS)
        return settle_seat("tictactoe", {**params, "opponent": opponent}, seed)

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"tictactoe/vs-{params['opponent']}"

    def rules(self) -> str:
        return (
            "Tic-Tac-Toe on a board of 3 rows and 3 columns. The players take turns to mark an empty cell; X begins.\n"
            "Three marks of one player in a row, column or diagonal win; a full board without them is a draw.\n"
            f"You are {self.mark} and move {ORDER[self.seat]}. Empty cells are shown as a dot.\n"
            "Answer with the row, counted from the top, and the column, counted from the left, both 1 to 3: "
            "<action>(2, 3)</action>"
        )

    def reset(self, chance: int = 0) -> str:
        self.board, self.history = EMPTY, list[int]()
        self.opponent = self._opponent(generator(self.task.seed, "chance", chance))
        self._let_opponent_move()
        return self._observe()

    def step(self, reply: str) -> Step:
        move, feedback = (None, "The game is over.") if self.over else _parse(reply, self.board)
        if move is None:
            return Step(self._observe(), valid=False, state_key=self.board, feedback=feedback)
        self._play(move)
        self._let_opponent_move()
        return Step(self._observe(), self.reward, self.over, won=self.reward > 0, state_key=self.board)

    @property
    def over(self) -> bool:
        return not moves(self.board)

    @property
    def reward(self) -> float:
        return float(value(self.board) * (1, -1)[self.seat - 1]) if self.over else 0.0

    def result(self) -> str:
        return _RESULTS[self.reward] if self.over else _UNFINISHED

    def legal(self) -> Sequence[str]:
        return [action(move) for move in moves(self.board)]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.tictactoe.player import Strategist

        return Strategist(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        history = _played_in(episode, self.mark)
        played = ", ".join(f"{'XO'[turn % 2]} {cell(move)}" for turn, move in enumerate(history))
        ending = episode.final.rpartition("\n")[2]
        result = ending if ending in _RESULTS.values() else _UNFINISHED
        return f"You were {self.mark}. Moves: {played or 'none'}. {result}"

    def _opponent(self, rng: random.Random) -> Callable[[], int]:
        """The opponent's next move, with all its luck drawn from `rng`."""
        name = self.task.text("opponent")
        if name == "random":
            return lambda: pick(rng, moves(self.board))
        if name == "minimax":
            return lambda: pick(rng, optimal_moves(self.board))
        search = mcts("tictactoe", "tic_tac_toe", simulations_of("tictactoe", name), rng)
        return lambda: search(self.history)

    def _let_opponent_move(self) -> None:
        if not self.over and mover(self.board) != self.seat - 1:
            self._play(self.opponent())

    def _play(self, move: int) -> None:
        self.board = after(self.board, move)
        self.history.append(move)

    def _observe(self) -> str:
        board = "\n".join(" ".join(row) for row in self.board.upper().split("\n"))
        if self.over:
            return f"{board}\n{self.result()}"
        last = f"The opponent played {cell(self.history[-1])}. " if self.history else ""
        return f"{board}\n{last}You are {self.mark}, to move."


def cell(move: int) -> str:
    return f"({move // 3 + 1}, {move % 3 + 1})"


def action(move: int) -> str:
    return f"<action>{cell(move)}</action>"


def _parse(reply: str, board: str) -> tuple[int | None, str]:
    """The cell that the reply names; or None, and why."""
    text = action_text(reply)
    numbers = _CELL.fullmatch(text) if text is not None and len(text) <= _LONGEST_ACTION else None
    if numbers is None:
        return None, "The reply names no single cell; answer like <action>(2, 3)</action>"
    row, column = int(numbers[1]), int(numbers[2])
    if not (1 <= row <= 3 and 1 <= column <= 3):
        return None, f"There is no cell ({row}, {column}); rows and columns go from 1 to 3."
    move = 3 * row + column - 4
    return (move, "") if move in moves(board) else (None, f"The cell ({row}, {column}) is taken.")


def _played_in(episode: Episode, mark: str) -> list[int]:
    """The moves of an episode in their order: new on each board are the move of `mark` and the answer to it."""
    history: list[int] = []
    before = "." * 9
    for text in (*(turn.observation for turn in episode.turns), episode.final):
        marks = "".join(text.split()[:9])
        fresh = [move for move in range(9) if marks[move] != before[move]]
        history += sorted(fresh, key=lambda move: marks[move] != mark)
        before = marks
    return history
