"""Tic-Tac-Toe against an opponent that can go wrong.

A board is written as OpenSpiel writes it: three lines of ``.``, ``x`` and ``o``, top first; x moves first. An action is
a cell, 0 to 8 in reading order.

Parameters (`--env.NAME`):

opponent  ``random``, ``minimax``, which never goes wrong, or ``mcts:100``, which looks ahead with so many simulations
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from mulligan.envs.base import Player, action_text
from mulligan.envs.openspiel import Match, Move, State, load_game, pick, settle_seat, spiel
from mulligan.errors import ParameterError, StopReason, UnknownName
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

OPPONENTS = ("random", "minimax", "mcts:K")
MOST_SIMULATIONS = 100_000
EXPLORATION = 2.0
"""The constant of UCT's exploration term."""
EMPTY = "...\n...\n..."


class Position(NamedTuple):
    """What perfect play makes of a board."""

    value: int
    """For x: 1 won, 0 drawn, -1 lost."""
    moves: tuple[int, ...]
    """The empty cells; none when the game is over."""


@lru_cache(maxsize=1)
def solution() -> Mapping[str, Position]:
    """Every board that can come up, solved by minimax; the boards with the fewest empty cells come first."""
    solved: dict[str, Position] = {}

    def solve(state: State) -> int:
        board = str(state)
        if board not in solved:
            moves = tuple(state.legal_actions())
            if moves:
                best = max if state.current_player() == 0 else min
                value = best(solve(state.child(move)) for move in moves)
            else:
                value = int(state.player_return(0))
            solved[board] = Position(value, moves)
        return solved[board].value

    solve(load_game("tictactoe", "tic_tac_toe").new_initial_state())
    return MappingProxyType(dict(sorted(solved.items(), key=lambda item: item[0].count("."))))


def after(board: str, move: int) -> str:
    """The board once whoever is to move has taken the cell `move`."""
    place = move + move // 3
    return f"{board[:place]}{'xo'[_mover(board)]}{board[place + 1 :]}"


def optimal_moves(board: str) -> list[int]:
    """The moves that keep the value of the board."""
    value, moves = solution()[board]
    return [move for move in moves if solution()[after(board, move)].value == value]


@lru_cache(maxsize=4)
def hopes(player: int, careful: bool) -> Mapping[str, float]:
    """What `player` (0 is x) can expect of each board when the opponent picks its cells blindly.

    The player takes the best cell; when careful, the best of those that lose nothing against perfect play.
    """
    found: dict[str, float] = {}
    for board, (value, moves) in solution().items():
        if not moves:
            found[board] = float(value if player == 0 else -value)
        elif _mover(board) == player:
            found[board] = max(found[after(board, move)] for move in (optimal_moves(board) if careful else moves))
        else:
            found[board] = sum(found[after(board, move)] for move in moves) / len(moves)
    return MappingProxyType(found)


def _mover(board: str) -> int:
    return board.count("x") - board.count("o")


def _simulations(opponent: str) -> int:
    """K of ``mcts:K``; an error names what is wrong with it."""
    count = opponent.partition(":")[2]
    if count.isascii() and count.isdecimal() and len(count) <= 9 and 1 <= int(count) <= MOST_SIMULATIONS:
        return int(count)
    raise ParameterError(
        f"tictactoe: opponent={opponent!r} says no number of simulations from 1 to {MOST_SIMULATIONS}; "
        "give for example 'mcts:100'"
    )


def _opponent(name: str, game: Any, rng: random.Random) -> Move:
    """Who plays the other side, with all its luck drawn from `rng`."""
    if name == "random":
        return lambda state: pick(rng, state.legal_actions())
    if name == "minimax":
        return lambda state: pick(rng, optimal_moves(str(state)))
    library, seed = spiel("tictactoe"), int(rng.random() * 2**31)
    evaluator = library.RandomRolloutEvaluator(1, seed)
    bot = library.MCTSBot(game, evaluator, EXPLORATION, _simulations(name), 64, True, seed, False)
    step: Callable[[State], int] = bot.step
    return step


class TicTacToe:
    """Tic-Tac-Toe against one opponent: three in a row wins."""

    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "mcts:100", "seat": 0}
    turns: ClassVar[int] = 7
    timeout_reward: ClassVar[float] = -1.0
    """Who stalls loses."""
    glyphs: ClassVar[dict[str, str]] = {"X": "cyan", "O": "yellow"}

    def __init__(self, task: Task) -> None:
        self.task = task
        self.seat = task.integer("seat")
        self.mark = " XO"[self.seat]
        self.game = load_game("tictactoe", "tic_tac_toe")
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        opponent = str(params["opponent"])
        if opponent.partition(":")[0] == "mcts":
            opponent = f"mcts:{_simulations(opponent)}"
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
            f"You are {self.mark} and move {'first' if self.seat == 1 else 'second'}. Empty cells are shown as a dot.\n"
            "Answer with the row, counted from the top, and the column, counted from the left, both 1 to 3: "
            "<action>(2, 3)</action>"
        )

    def reset(self, chance: int = 0) -> str:
        rng = generator(self.task.seed, "chance", chance)
        opponent = _opponent(self.task.text("opponent"), self.game, rng)
        self.match = Match(self.game, self.seat, opponent, rng)
        return self._observe()

    def step(self, reply: str) -> Step:
        if self.match.over:
            return Step(self._observe(), valid=False, state_key=self.board, feedback="The game is over.")
        move, feedback = _parse(reply, self.board)
        if move is None:
            return Step(self._observe(), valid=False, state_key=self.board, feedback=feedback)
        self.match.play(move)
        reward = self.match.reward
        return Step(self._observe(), reward, self.match.over, won=reward > 0, state_key=self.board)

    @property
    def board(self) -> str:
        """The board as OpenSpiel writes it; the whole of what there is to see."""
        return str(self.match.state)

    def legal(self) -> Sequence[str]:
        return [_action(move) for move in self.match.state.legal_actions()]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return _Player(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        return f"You were {self.mark}. Moves: {_told(_played(episode, self.mark))}. {_result(episode)}"

    def reflect(self, episode: Episode) -> str:
        return _reflection(self.mark, episode)

    def _observe(self) -> str:
        board = "\n".join(" ".join(row) for row in self.board.upper().split("\n"))
        if self.match.over:
            return f"{board}\n{_RESULTS[self.match.reward]}"
        history = self.match.state.history()
        last = f"The opponent played {_cell(history[-1])}. " if history else ""
        return f"{board}\n{last}You are {self.mark}, to move."


_RESULTS = {1.0: "You won.", 0.0: "A draw.", -1.0: "You lost."}
_OUTCOMES = {"You won.": "won", "A draw.": "drawn", "You lost.": "lost"}
_CELL = re.compile(r"\(?\s*([0-9]+)\s*[,\s]\s*([0-9]+)\s*\)?")
_LONGEST_ACTION = 40
"""Characters; no cell needs more, and the pattern above would be slow on a long run of spaces."""


def _cell(move: int) -> str:
    return f"({move // 3 + 1}, {move % 3 + 1})"


def _action(move: int) -> str:
    return f"<action>{_cell(move)}</action>"


def _parse(reply: str, board: str) -> tuple[int | None, str]:
    """The cell that the reply names; or None, and why."""
    text = action_text(reply)
    found = _CELL.fullmatch(text) if text is not None and len(text) <= _LONGEST_ACTION else None
    if found is None:
        return None, "The reply names no single cell; answer like <action>(2, 3)</action>"
    row, column = int(found[1]), int(found[2])
    if not (1 <= row <= 3 and 1 <= column <= 3):
        return None, f"There is no cell ({row}, {column}); rows and columns go from 1 to 3."
    move = 3 * row + column - 4
    if board[move + move // 3] != ".":
        return None, f"The cell ({row}, {column}) is taken."
    return move, ""


class _Player:
    """Plays moves that lose nothing against perfect play, and of those the one after which most can go wrong.

    Several are often equally good; from memory it takes the one that did best in earlier games of the trial. The
    omniscient player knows an opponent that plays blindly, and then takes the risks that pay.
    """

    def __init__(self, world: TicTacToe, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.bold = kind == "omniscient" and world.task.text("opponent") == "random"
        self.results: dict[str, list[float]] = {}
        """Board after an own move -> how the games that went through it ended."""

    def act(self) -> str:
        board = self.world.board
        if self.rng.random() >= self.skill:
            return _action(pick(self.rng, solution()[board].moves))
        moves = solution()[board].moves if self.bold else optimal_moves(board)
        hope = hopes(self.world.seat - 1, not self.bold)
        moves = _best(moves, lambda move: hope[after(board, move)])
        if self.kind != "omniscient" and self.rng.random() < self.recall:
            moves = _best(moves, lambda move: self._record(after(board, move)))
        return _action(pick(self.rng, moves))

    def see(self, step: Step) -> None:
        if step.done and step.valid:
            board = EMPTY
            for turn, move in enumerate(self.world.match.state.history()):
                board = after(board, move)
                if turn % 2 == self.world.seat - 1:
                    self.results.setdefault(board, []).append(step.reward)

    def _record(self, board: str) -> float:
        """Mean result of the games through `board`; what was never tried counts as half a win."""
        results = self.results.get(board, [])
        return (0.5 + sum(results)) / (1 + len(results))


def _best(moves: Sequence[int], worth: Callable[[int], float]) -> list[int]:
    values = [worth(move) for move in moves]
    return [move for move, value in zip(moves, values, strict=True) if value > max(values) - 1e-9]


def _boards(episode: Episode) -> list[str]:
    """The boards an episode showed, as OpenSpiel writes them."""
    shown = [*(turn.observation for turn in episode.turns), episode.final]
    found = [re.match(r"[.XO] [.XO] [.XO]\n[.XO] [.XO] [.XO]\n[.XO] [.XO] [.XO]", text) for text in shown]
    return [match[0].replace(" ", "").lower() for match in found if match]


def _played(episode: Episode, mark: str) -> list[int]:
    """The moves of an episode in their order, read from its boards: what is new on one is the player's own move, then
    the reply to it."""
    moves: list[int] = []
    before = EMPTY
    for board in _boards(episode):
        new = [place for place in range(11) if board[place] != before[place]]
        moves += (place - place // 4 for place in sorted(new, key=lambda place: board[place] != mark.lower()))
        before = board
    return moves


def _told(moves: Sequence[int]) -> str:
    return ", ".join(f"{'XO'[turn % 2]} {_cell(move)}" for turn, move in enumerate(moves)) or "none"


def _result(episode: Episode) -> str:
    last = episode.final.rpartition("\n")[2]
    return last if last in _OUTCOMES else "The game was not finished."


class _Slip(NamedTuple):
    """A move that gave away a better result."""

    turn: int
    """Counted over the moves of that side, from 1."""
    move: int
    better: int
    before: int
    """Value of the board for that side with best play: 1 won, 0 drawn, -1 lost."""
    then: int
    """The same after the move."""


def _slip(side: int, moves: Sequence[int]) -> _Slip | None:
    """The last move of `side` (0 is x) that gave something away, whether or not it was punished."""
    board, found, sign = EMPTY, None, 1 - 2 * side
    for index, move in enumerate(moves):
        before, then = sign * solution()[board].value, sign * solution()[after(board, move)].value
        if index % 2 == side and then < before:
            found = _Slip(index // 2 + 1, move, optimal_moves(board)[0], before, then)
        board = after(board, move)
    return found


def _account(side: int, moves: Sequence[int], episode: Episode) -> tuple[str, str, str, str]:
    """What went wrong: failed_at, reasoning, error_category and plan of the reflection."""
    mine, theirs = _slip(side, moves), _slip(1 - side, moves)
    words = {1: "won", 0: "drawn", -1: "lost"}
    if _result(episode) not in _OUTCOMES:
        invalid = sum(not turn.valid for turn in episode.turns)
        why = f"{invalid} of {len(episode.turns)} replies were not valid moves"
        category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
        return f"turn {len(episode.turns)}", why, category, "name an empty cell in every reply"
    if episode.won and theirs is not None:
        why = f"the opponent gave the game away with {_cell(theirs.move)}"
        return "none", why, "none", "play the same moves again and wait for the same mistake"
    if mine is not None:
        why = f"the board was {words[mine.before]} with best play and {words[mine.then]} after {_cell(mine.move)}"
        return f"move {mine.turn}, {_cell(mine.move)}", why, "wrong-move", f"in that position play {_cell(mine.better)}"
    return "none", "neither side gave anything away", "none", "try another line, in which the opponent may go wrong"


def _reflection(mark: str, episode: Episode) -> str:
    side, moves = "XO".index(mark), _played(episode, mark)
    failed, reasoning, category, plan = _account(side, moves, episode)
    return (
        "<reflection>\n"
        f"strategy: {mark} on {', '.join(map(_cell, moves[side::2])) or 'no cell'}\n"
        f"outcome: {_OUTCOMES.get(_result(episode), 'not finished')}\n"
        f"reward: {episode.reward:g}\n"
        f"failed_at: {failed}\n"
        f"reasoning: {reasoning}\n"
        f"env_answer: {_result(episode)}\n"
        f"error_category: {category}\n"
        f"plan: {plan}\n"
        "</reflection>"
    )
