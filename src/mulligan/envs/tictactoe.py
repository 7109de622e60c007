"""Tic-Tac-Toe against an opponent that can go wrong.

A board is written as OpenSpiel writes it: three lines of ``.``, ``x`` and ``o``, top first; x moves first. A move is a
cell, 0 to 8 in reading order.

Parameters (`--env.NAME`):

opponent  ``random``; ``minimax``, which never goes wrong; ``mcts:100``, which looks ahead with so many simulations
          (needs OpenSpiel); or one of ``preferred``, which take the first free cell of an order: prefers-centre,
          prefers-corners, prefers-edges, prefers-falling, prefers-rising, prefers-last. Several with commas, with
          weights as ``random:2``; ``random>minimax@3`` changes at the third game, ``random>minimax`` at a hidden one
pool      the opponents that an agent may expect, if they are not those of `opponent`
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from statistics import fmean
from typing import ClassVar, NamedTuple, Self

from mulligan.envs import drawing
from mulligan.envs.base import ORDER, Player, action_text, pick, reflection_text, settle_seat
from mulligan.envs.opponents import (
    ask_move,
    at_any_episode,
    at_episode,
    chances_of,
    guest_mover,
    is_guest,
    settle_opponent,
    simulations_of,
)
from mulligan.errors import StopReason, UnknownName
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

EMPTY = "...\n...\n..."
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_RESULTS = {1.0: "You won.", 0.0: "A draw.", -1.0: "You lost.", None: "The game was not finished."}
_WORDS: dict[float | None, str] = {1: "won", 0: "drawn", -1: "lost", None: "not finished"}
_LEADING_ZEROS = re.compile(r"(?<=mcts:)0+(?=\d)")
_SURPRISE = 0.01
"""Added to each chance when the opponent is guessed at: it may be none that is expected."""
_TRIED, _MOST_TRIED = 20, 1_000
"""Searches that tell how likely a move of MCTS is, and the most simulations of each."""
_CELL = re.compile(r"\(?\s*([0-9]+)\s*[,\s]\s*([0-9]+)\s*\)?")


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
    return next((marks[a] for a, b, c in LINES if marks[a] == marks[b] == marks[c] != "."), "")


class Habit(NamedTuple):
    """A way of playing."""

    words: str
    """What the opponent does: "it …"."""
    cells: Callable[[str], Sequence[int]]
    """Board -> the cells of which it takes one, all with equal chances."""


def _preferring(words: str, *order: int) -> Habit:
    return Habit(words, lambda board: [next(move for move in order if move in moves(board))])


PREFERRED: Mapping[str, Habit] = {
    "prefers-centre": _preferring("takes the centre, then corners, then edges", 4, 0, 2, 6, 8, 1, 3, 5, 7),
    "prefers-corners": _preferring("takes corners, then the centre, then edges", 0, 2, 6, 8, 4, 1, 3, 5, 7),
    "prefers-edges": _preferring("takes edges, then the centre, then corners", 1, 3, 5, 7, 4, 0, 2, 6, 8),
    "prefers-falling": _preferring("takes the diagonal from the upper left first", 0, 4, 8, 2, 6, 1, 3, 5, 7),
    "prefers-rising": _preferring("takes the diagonal from the upper right first", 2, 4, 6, 0, 8, 1, 3, 5, 7),
    "prefers-last": _preferring("takes corners from the lower right on, then the centre", 8, 6, 2, 0, 4, 7, 5, 3, 1),
}
"""MAGE's six (arXiv 2603.03680)."""
HABITS: Mapping[str, Habit] = {
    "random": Habit("takes any free cell", moves),
    "minimax": Habit("never goes wrong", optimal_moves),
    **PREFERRED,
}


class TicTacToe:
    """Tic-Tac-Toe against one opponent: three in a row wins."""

    draw = staticmethod(drawing.tictactoe)
    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "mcts:100", "seat": 0, "pool": ""}
    turns: ClassVar[int] = 7
    timeout_reward: ClassVar[float] = -1.0
    """Who stalls loses."""
    opponent_words: ClassVar[Mapping[str, str]] = {name: habit.words for name, habit in HABITS.items()}
    glyphs: ClassVar[dict[str, str]] = {"X": "cyan", "O": "yellow"}

    def __init__(self, task: Task) -> None:
        self.task, self.seat = task, task.integer("seat")
        self.mark = " XO"[self.seat]
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        params = {**params, "opponent": _LEADING_ZEROS.sub("", str(params["opponent"]))}
        return settle_opponent("tictactoe", settle_seat("tictactoe", params, seed), seed, check_opponent, members)

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
        self.boards, self.history = [EMPTY], list[int]()
        """Every board of the game so far, and the moves between them."""
        self.opponent_name = at_episode(self.task.text("opponent"), chance)
        self.opponent = self._opponent(chance)
        self._let_opponent_move()
        return self.observe()

    def step(self, reply: str) -> Step:
        move, feedback = self.named(reply)
        if move is None:
            return Step(self.observe(), valid=False, state_key=self.board, feedback=feedback)
        self._play(move)
        reward = self.result or 0.0
        return Step(self.observe(), reward, self.over, won=reward > 0, state_key=self.board)

    def named(self, reply: str) -> tuple[int | None, str]:
        """The cell that a reply names, or None and why."""
        return (None, "The game is over.") if self.over else _parse(reply, self.board)

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        """The game as the opponent sees it."""
        other = copy(self)
        other.seat, other.mark = 3 - self.seat, " OX"[self.seat]
        return other

    def position(self) -> Step:
        """What the player is told now, with the result once there is one."""
        reward = self.result or 0.0
        return Step(self.observe(), reward, self.over, won=reward > 0, state_key=self.board)

    @property
    def board(self) -> str:
        return self.boards[-1]

    @property
    def over(self) -> bool:
        return not moves(self.board)

    @property
    def result(self) -> float | None:
        """What the game paid the player; None while it goes on."""
        return float(value(self.board) * (1, -1)[self.seat - 1]) if self.over else None

    def legal(self) -> Sequence[str]:
        return [action(move) for move in moves(self.board)]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return Strategist(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        """The moves in their order: new on each board are the player's own move and the answer to it."""
        played: list[str] = []
        before = "." * 9
        for text in (*(turn.observation for turn in episode.turns), episode.final):
            marks = "".join(text.split()[:9])
            fresh = [move for move in range(9) if marks[move] != before[move]]
            fresh.sort(key=lambda move: marks[move] != self.mark)
            played += [f"{marks[move]} {cell(move)}" for move in fresh]
            before = marks
        ending = episode.final.rpartition("\n")[2]
        result = ending if ending in _RESULTS.values() else _RESULTS[None]
        return f"You were {self.mark}. Moves: {', '.join(played) or 'none'}. {result}"

    def _opponent(self, chance: int) -> Callable[[], int]:
        """The opponent's next move."""
        name, rng = self.opponent_name, generator(self.task.seed, "chance", chance)
        if is_guest(name):
            return guest_mover(self, name, chance)
        if name in HABITS:
            return lambda: pick(rng, HABITS[name].cells(self.board))
        from mulligan.envs.adapters.openspiel import mcts

        search = mcts("tictactoe", "tic_tac_toe", simulations_of("tictactoe", name), rng)
        return lambda: search(self.history)

    def _play(self, move: int) -> None:
        """Make a move, and let the opponent answer it."""
        self.boards.append(after(self.board, move))
        self.history.append(move)
        self._let_opponent_move()

    def _let_opponent_move(self) -> None:
        if not self.over and mover(self.board) != self.seat - 1:
            self._play(ask_move("tictactoe", self.opponent_name, self.opponent, moves(self.board)))

    def observe(self) -> str:
        board = "\n".join(" ".join(row) for row in self.board.upper().split("\n"))
        if self.over:
            return f"{board}\n{_RESULTS[self.result]}"
        last = f"The opponent played {cell(self.history[-1])}. " if self.history else ""
        return f"{board}\n{last}You are {self.mark}, to move."


def check_opponent(name: str) -> None:
    if name.partition(":")[0] == "mcts":
        simulations_of("tictactoe", name)
    elif name not in HABITS:
        raise UnknownName("opponent of tictactoe", name, [*HABITS, "preferred", "mcts:K"])


def members(part: str) -> Sequence[str]:
    return tuple(PREFERRED) if part == "preferred" else (part,)


def cell(move: int) -> str:
    return f"({move // 3 + 1}, {move % 3 + 1})"


def action(move: int) -> str:
    return f"<action>{cell(move)}</action>"


def _parse(reply: str, board: str) -> tuple[int | None, str]:
    """The cell that the reply names; or None, and why."""
    text = action_text(reply) or ""
    numbers = _CELL.fullmatch(text) if len(text) <= 40 else None  # slow on long runs of spaces
    if numbers is None:
        return None, "The reply names no single cell; answer like <action>(2, 3)</action>"
    row, column = int(numbers[1]), int(numbers[2])
    if not (1 <= row <= 3 and 1 <= column <= 3):
        return None, f"There is no cell ({row}, {column}); rows and columns go from 1 to 3."
    move = 3 * row + column - 4
    return (move, "") if move in moves(board) else (None, f"The cell ({row}, {column}) is taken.")


@cache
def hope(board: str, side: int, careful: bool, opponent: str = "random") -> float:
    """What `side` (0 is x) can expect of a board against an opponent with this habit.

    The side takes the best cell; when careful, the best of those that lose nothing against perfect play.
    """
    if not moves(board):
        return float(value(board) if side == 0 else -value(board))
    is_own = mover(board) == side
    cells = (optimal_moves if careful else moves)(board) if is_own else HABITS[opponent].cells(board)
    values = [hope(after(board, move), side, careful, opponent) for move in cells]
    return max(values) if is_own else sum(values) / len(values)


class Strategist:
    """Plays moves that lose nothing against perfect play, and of those the one after which most can go wrong.

    Several are often equally good; from memory it takes the one that did best in earlier games of the trial. The
    omniscient player knows the opponent's habit, and then takes the risks that pay.
    """

    def __init__(self, world: TicTacToe, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.results: dict[str, list[float]] = defaultdict(lambda: [0.5])
        """Board after a move of the player's -> results of the games through it, and half a win for what is untried."""
        self.earlier: list[tuple[tuple[int, ...], int]] = []
        """Moves of the opponent in games that are over, each with those before it in its game."""
        self.latest: list[tuple[tuple[int, ...], int]] = []
        """Those of the game that is played."""

    def act(self) -> str:
        board = self.world.board
        if self.rng.random() >= self.skill:
            return action(pick(self.rng, moves(board)))
        bold = self.kind == "omniscient" and self.world.opponent_name in HABITS
        opponent = self.world.opponent_name if bold else "random"
        choices = moves(board) if bold else optimal_moves(board)
        choices = _best(choices, lambda move: hope(after(board, move), self.world.seat - 1, not bold, opponent))
        if self.kind != "omniscient" and self.rng.random() < self.recall:
            choices = _best(choices, lambda move: fmean(self.results[after(board, move)]))
        return action(pick(self.rng, choices))

    def beliefs(self) -> dict[str, float]:
        """How likely each opponent of the pool is, after all that was seen."""
        world = self.world
        spec = world.task.text("pool") or world.task.text("opponent")
        weights = at_any_episode(chances_of("tictactoe", spec, check_opponent, members))
        for name in weights:
            for history, move in [*self.earlier, *self.latest]:
                weights[name] *= _chance_of(name, history)[move] + _SURPRISE
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def see(self, step: Step) -> None:
        history, first = self.world.history, 2 - self.world.seat
        self.latest = [(tuple(history[:turn]), history[turn]) for turn in range(first, len(history), 2)]
        if step.done:
            self.earlier, self.latest = self.earlier + self.latest, []
        if step.done and step.valid:
            for board in self.world.boards[self.world.seat :: 2]:
                self.results[board].append(step.reward)

    def reflect(self, episode: Episode) -> str:
        """What went wrong in the game that has just been played."""
        world = self.world
        failed_at, reasoning, category, plan = _account(world, episode)
        return reflection_text(
            strategy=f"{world.mark} on {', '.join(map(cell, world.history[world.seat - 1 :: 2])) or 'no cell'}",
            outcome=_WORDS[world.result],
            reward=f"{episode.reward:g}",
            failed_at=failed_at,
            reasoning=reasoning,
            env_answer=_RESULTS[world.result],
            error_category=category,
            plan=plan,
        )


@cache
def _chance_of(name: str, history: tuple[int, ...]) -> Sequence[float]:
    """[cell] how likely an opponent takes it after these moves; of a search, the share of some that were tried."""
    if name in HABITS:
        board = EMPTY
        for move in history:
            board = after(board, move)
        cells = HABITS[name].cells(board)
    elif name.startswith("mcts:"):
        from mulligan.envs.adapters.openspiel import mcts

        simulations = min(_MOST_TRIED, simulations_of("tictactoe", name))
        cells = [mcts("tictactoe", "tic_tac_toe", simulations, random.Random(seed))(history) for seed in range(_TRIED)]
    else:
        return [1 / 9] * 9  # of a policy nothing is known
    return [cells.count(cell_number) / len(cells) for cell_number in range(9)]


def _best(choices: Sequence[int], worth: Callable[[int], float]) -> list[int]:
    values = [worth(move) for move in choices]
    return [move for move, each in zip(choices, values, strict=True) if each > max(values) - 1e-9]


def _slip(world: TicTacToe, side: int) -> int | None:
    """Index of the last move of `side` (0 is x) that gave a better result away, punished or not."""
    values = [(1 - 2 * side) * value(board) for board in world.boards]
    slips = [index for index in range(side, len(world.history), 2) if values[index + 1] < values[index]]
    return slips[-1] if slips else None


def _account(world: TicTacToe, episode: Episode) -> tuple[str, str, str, str]:
    """What went wrong: failed_at, reasoning, error_category and plan of the reflection."""
    side, history = world.seat - 1, world.history
    if not world.over:
        invalid = sum(not turn.valid for turn in episode.turns)
        why = f"{invalid} of {len(episode.turns)} replies were not valid moves"
        category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
        return f"turn {len(episode.turns)}", why, category, "name an empty cell in every reply"
    if episode.won and (slip := _slip(world, 1 - side)) is not None:
        why = f"the opponent gave the game away with {cell(history[slip])}"
        return "none", why, "none", "play the same moves again and wait for the same mistake"
    if (slip := _slip(world, side)) is not None:
        board, move = world.boards[slip], cell(history[slip])
        before, then = (_WORDS[(1 - 2 * side) * value(each)] for each in world.boards[slip : slip + 2])
        why = f"the board was {before} with best play and {then} after {move}"
        plan = f"in that position play {cell(optimal_moves(board)[0])}"
        return f"move {slip // 2 + 1}, {move}", why, "wrong-move", plan
    return "none", "neither side gave anything away", "none", "try another line, in which the opponent may go wrong"
