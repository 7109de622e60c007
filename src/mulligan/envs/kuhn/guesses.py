"""Guesses at the opponent in Kuhn poker and its card: Bayes' rule, and the best play against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mulligan.envs.kuhn.habits import Table
from mulligan.envs.kuhn.rules import FOLDED, MOVES, STAKES, payoff


class Guess(NamedTuple):
    """One way things may stand: who the opponent is, what it holds, and how likely that is (not normalised)."""

    table: Table
    theirs: int
    weight: float


def best_value(seat: int, mine: int, betting: str, guesses: Sequence[Guess]) -> float:
    """Chips that `seat` wins from here with the best play against one of the guesses, times their total weight."""
    if betting in STAKES or betting in FOLDED:
        return sum(guess.weight * payoff(betting, seat, mine, guess.theirs) for guess in guesses)
    if len(betting) % 2 == seat - 1:
        return max(best_value(seat, mine, betting + move, guesses) for move in MOVES)
    return sum(best_value(seat, mine, betting + move, updated(guesses, betting, move)) for move in MOVES)


def updated(guesses: Sequence[Guess], betting: str, move: str) -> list[Guess]:
    """The guesses after the opponent's next move: each weighs as much as it expected the move (Bayes' rule)."""
    return [
        Guess(table, theirs, weight * chance)
        for table, theirs, weight in guesses
        if (chance := table[f"{theirs}{betting}"]["pb".index(move)]) > 0.0
    ]
