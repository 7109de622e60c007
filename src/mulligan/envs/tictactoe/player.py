"""Scripted players of Tic-Tac-Toe, from the solved game, and what they reflect."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

from mulligan.envs.base import reflection_text
from mulligan.envs.tictactoe.env import EMPTY, TicTacToe, action, after, cell, mover, moves, optimal_moves, value
from mulligan.envs.versus import pick
from mulligan.errors import StopReason
from mulligan.types import Episode, Step

_WORDS = {1: "won", 0: "drawn", -1: "lost"}


@cache
def hope(board: str, side: int, careful: bool) -> float:
    """What `side` (0 is x) can expect of a board when the opponent picks its cells blindly.

    The side takes the best cell; when careful, the best of those that lose nothing against perfect play.
    """
    if not moves(board):
        return float(value(board) if side == 0 else -value(board))
    if mover(board) == side:
        return max(hope(after(board, move), side, careful) for move in (optimal_moves if careful else moves)(board))
    return sum(hope(after(board, move), side, careful) for move in moves(board)) / len(moves(board))


class Strategist:
    """Plays moves that lose nothing against perfect play, and of those the one after which most can go wrong.

    Several are often equally good; from memory it takes the one that did best in earlier games of the trial. The
    omniscient player knows an opponent that plays blindly, and then takes the risks that pay.
    """

    def __init__(self, world: TicTacToe, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.bold = kind == "omniscient" and world.task.text("opponent") == "random"
        self.results: dict[str, list[float]] = {}
        """Board after a move of the player's -> how the games that went through it ended."""

    def act(self) -> str:
        board = self.world.board
        if self.rng.random() >= self.skill:
            return action(pick(self.rng, moves(board)))
        choices = moves(board) if self.bold else optimal_moves(board)
        choices = _best(choices, lambda move: hope(after(board, move), self.world.seat - 1, not self.bold))
        if self.kind != "omniscient" and self.rng.random() < self.recall:
            choices = _best(choices, lambda move: self._record(after(board, move)))
        return action(pick(self.rng, choices))

    def see(self, step: Step) -> None:
        if step.done and step.valid:
            board = EMPTY
            for turn, move in enumerate(self.world.history):
                board = after(board, move)
                if turn % 2 == self.world.seat - 1:
                    self.results.setdefault(board, []).append(step.reward)

    def _record(self, board: str) -> float:
        """Mean result of the games through `board`; what was never tried counts as half a win."""
        results = self.results.get(board, [])
        return (0.5 + sum(results)) / (1 + len(results))

    def reflect(self, episode: Episode) -> str:
        """What went wrong in the game that has just been played."""
        world, side = self.world, self.world.seat - 1
        failed_at, reasoning, category, plan = _account(world, episode)
        return reflection_text(
            strategy=f"{world.mark} on {', '.join(map(cell, world.history[side::2])) or 'no cell'}",
            outcome=_WORDS[int(world.reward)] if world.over else "not finished",
            reward=f"{episode.reward:g}",
            failed_at=failed_at,
            reasoning=reasoning,
            env_answer=world.result(),
            error_category=category,
            plan=plan,
        )


def _best(choices: Sequence[int], worth: Callable[[int], float]) -> list[int]:
    values = [worth(move) for move in choices]
    return [move for move, each in zip(choices, values, strict=True) if each > max(values) - 1e-9]


def _slip(side: int, history: Sequence[int]) -> tuple[int, str] | None:
    """Index and board of the last move of `side` (0 is x) that gave a better result away, punished or not."""
    board, slip, sign = EMPTY, None, 1 - 2 * side
    for index, move in enumerate(history):
        if index % 2 == side and sign * value(after(board, move)) < sign * value(board):
            slip = index, board
        board = after(board, move)
    return slip


def _account(world: TicTacToe, episode: Episode) -> tuple[str, str, str, str]:
    """What went wrong: failed_at, reasoning, error_category and plan of the reflection."""
    side, history = world.seat - 1, world.history
    if not world.over:
        invalid = sum(not turn.valid for turn in episode.turns)
        why = f"{invalid} of {len(episode.turns)} replies were not valid moves"
        category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
        return f"turn {len(episode.turns)}", why, category, "name an empty cell in every reply"
    if episode.won and (slip := _slip(1 - side, history)):
        why = f"the opponent gave the game away with {cell(history[slip[0]])}"
        return "none", why, "none", "play the same moves again and wait for the same mistake"
    if slip := _slip(side, history):
        index, board = slip
        move, sign = history[index], 1 - 2 * side
        before, then = (_WORDS[sign * value(each)] for each in (board, after(board, move)))
        why = f"the board was {before} with best play and {then} after {cell(move)}"
        plan = f"in that position play {cell(optimal_moves(board)[0])}"
        return f"move {index // 2 + 1}, {cell(move)}", why, "wrong-move", plan
    return "none", "neither side gave anything away", "none", "try another line, in which the opponent may go wrong"
