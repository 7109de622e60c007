"""Opponents in repeated games: those with a habit, and policies.

An opponent with a habit is a small automaton: each state has the chances of its next move, and both moves lead to the
next state. So whoever knows the habits can compute with them: the scripted player, and the exact optimum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from mulligan.envs.base import draw


class Habit(NamedTuple):
    """A way of playing."""

    words: str
    """What the opponent does: "it …"."""
    start: Hashable
    """The state in which a match begins."""
    chances: Callable[[Any], Sequence[float]]
    """State -> the chance of each move."""
    after: Callable[[Any, int, int], Hashable]
    """State, the opponent's move, the agent's move -> the next state."""
    has_model: bool = True
    """Whether exact values can be computed with it: for that it must have few states."""


class Opponent(Protocol):
    """Who plays the other side of one match."""

    def move(self) -> int:
        """The number of its next move."""

    def see(self, own: int, agents: int) -> None:
        """What both have played."""


class Habitual:
    """Plays a habit."""

    def __init__(self, habit: Habit, rng: random.Random) -> None:
        self.habit, self.rng, self.state = habit, rng, habit.start

    def chances(self) -> Sequence[float]:
        """Of its next move."""
        return self.habit.chances(self.state)

    def move(self) -> int:
        return draw(self.rng, self.chances())

    def see(self, own: int, agents: int) -> None:
        self.state = self.habit.after(self.state, own, agents)


class Guest:
    """A policy, which sees what was played by itself."""

    def __init__(self, move: Callable[[], int]) -> None:
        self.move = move

    def see(self, own: int, agents: int) -> None:
        pass
