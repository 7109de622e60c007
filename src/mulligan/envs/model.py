"""The model protocol: an environment as probabilities, from which `mulligan.eval.optimum` computes the best play.

An environment that has one offers ``model()``. The solver counts turns and attempts itself: a model says what an action
does, not when time is up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from mulligan.types import Step

Belief = tuple[tuple[Any, Any, float], ...]
"""Each (world, state) that is possible, with its probability. No pair stands in it twice."""


class Outcome(NamedTuple):
    """One of the things that an action can lead to."""

    probability: float
    state: Any
    told: Any
    """What the agent is told: outcomes that it cannot tell apart are equal here. It also sees `done` and `won`."""
    reward: float = 0.0
    done: bool = False
    won: bool = False


class Model(Protocol):
    """Worlds that a task may be, and what actions do in them; all hashable, and the same for all tasks of the same
    parameters. How actions read in a task is in `reply` and `told` alone.

    Some methods are optional. ``between(world)`` lists what the world may be at the next attempt, as (probability,
    world), where it drifts. ``canonical(belief)`` returns a short hashable name of a belief, which it shares only with
    beliefs of equal value (mirror images). Where an attempt begins with luck (cards are dealt, the opponent moves
    first), ``begins(world)`` lists each `Outcome` of it, and ``opening()`` returns what the environment's last `reset`
    told, in the words of `Outcome.told`; the state of ``begin`` is then the one before.
    """

    def worlds(self) -> Iterable[tuple[float, Hashable]]:
        """Every world with its probability before the first attempt. An iterator, where there may be too many."""

    def begin(self, world: Any) -> Hashable:
        """The state in which an attempt begins."""

    def actions(self, state: Any) -> Sequence[Hashable]:
        """What can be done; the same in all states that the agent cannot tell apart."""

    def outcomes(self, world: Any, state: Any, action: Any) -> Iterable[tuple[Any, ...]]:
        """What the action may lead to, each an `Outcome` or a tuple like it; the probabilities add up to 1."""

    def reply(self, action: Any) -> str:
        """An action as a reply to the environment whose model this is."""

    def told(self, step: Step) -> Hashable:
        """What a step of that environment told the agent, in the words of `Outcome.told`."""
