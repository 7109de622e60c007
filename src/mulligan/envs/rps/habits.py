"""Opponents in rock-paper-scissors that go by the last throw at most: `seen`, `unseen`, and those drawn by number."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from itertools import product

from mulligan.envs.repeated.habits import Habit
from mulligan.seeding import generator

MOVES = ("rock", "paper", "scissors")
"""Each beats the one before it, and the first beats the last."""


def _biased(words: str, *chances: float) -> Habit:
    return Habit(words, None, lambda _: chances, lambda *_: None)


def _intending(words: str, intended: Callable[[int, int], int], sure: float = 1.0) -> Habit:
    """A habit that both last throws (its own, the agent's) decide, with the chance `sure`; the first is random.

    Its state is the throw that it intends.
    """

    others = (1.0 - sure) / 2
    chances: dict[int | None, list[float]] = {None: [1 / 3] * 3}
    chances |= {throw: [sure if each == throw else others for each in range(3)] for throw in range(3)}
    after = [[intended(own, agents) % 3 for agents in range(3)] for own in range(3)]
    return Habit(words, None, chances.__getitem__, lambda _, own, agents: after[own][agents])


SEEN: Mapping[str, Habit] = {
    "mostly-rock": _biased("throws rock 8 times in 10", 0.8, 0.1, 0.1),
    "mostly-paper": _biased("throws paper 8 times in 10", 0.1, 0.8, 0.1),
    "mostly-scissors": _biased("throws scissors 8 times in 10", 0.1, 0.1, 0.8),
    "rising": _intending("goes from rock to paper to scissors to rock", lambda own, _: own + 1),
    "falling": _intending("goes from rock to scissors to paper to rock", lambda own, _: own - 1),
    "copies": _intending("throws what you threw last", lambda _, agents: agents),
    "beats": _intending("throws what beats your last throw", lambda _, agents: agents + 1),
    "yields": _intending("throws what your last throw beats", lambda _, agents: agents - 1),
}
UNSEEN: Mapping[str, Habit] = {
    "often-rock": _biased("throws rock 6 times in 10", 0.6, 0.2, 0.2),
    "often-paper": _biased("throws paper 6 times in 10", 0.2, 0.6, 0.2),
    "often-scissors": _biased("throws scissors 6 times in 10", 0.2, 0.2, 0.6),
    "no-rock": _biased("never throws rock", 0.0, 0.5, 0.5),
    "no-paper": _biased("never throws paper", 0.5, 0.0, 0.5),
    "no-scissors": _biased("never throws scissors", 0.5, 0.5, 0.0),
    "stays": _intending("repeats its first throw", lambda own, _: own),
    "mostly-rising": _intending("mostly goes from rock to paper to scissors to rock", lambda own, _: own + 1, 0.8),
    "mostly-falling": _intending("mostly goes from rock to scissors to paper to rock", lambda own, _: own - 1, 0.8),
    "mostly-copies": _intending("mostly throws what you threw last", lambda _, agents: agents, 0.8),
    "mostly-beats": _intending("mostly throws what beats your last throw", lambda _, agents: agents + 1, 0.8),
    "mostly-yields": _intending("mostly throws what your last throw beats", lambda _, agents: agents - 1, 0.8),
    "win-stay": _intending(
        "repeats a throw that won, and goes on to the next otherwise",
        lambda own, agents: own if (own - agents) % 3 == 1 else own + 1,
    ),
    "lose-stay": _intending(
        "repeats a throw that lost, and goes on to the next otherwise",
        lambda own, agents: own if (agents - own) % 3 == 1 else own + 1,
    ),
}

_NEW_RULES = ("stays", "win-stay", "lose-stay")
"""Of ``unseen``, those that are no noisier version of a habit of ``seen``."""
_DRAWN = 256
"""Habits of the group ``drawn``."""
_VALIDATION = 16
"""Habits of the group ``validation``, drawn in the same way from other numbers."""
_APART = 0.08
"""What a habit of ``drawn`` differs by, in some chance, from each of ``unseen``."""


def drawn_habit(number: int) -> Habit:
    """A habit by its number: it likes a throw, or goes by its own last throw, by yours or by the result.

    Some are as unsure of themselves as those of ``unseen``, but none is one of them: none goes by a rule that only
    ``unseen`` has, and of what both have some chance differs by `_APART`.
    """
    rng = generator(number, "habit")
    while _is_unseen(habit := _drawn_habit(rng, number % 4)):
        pass
    return habit


def _drawn_habit(rng: random.Random, kind: int) -> Habit:
    if kind == 0:
        liked, sure = rng.randrange(3), rng.uniform(0.5, 0.95)
        second = rng.random() * (1.0 - sure)
        chances = [sure, second, 1.0 - sure - second]
        return _biased(f"likes {MOVES[liked]}", *(chances[throw - liked] for throw in range(3)))
    table = _drawn_table(rng, kind)
    by = ("its own last throw", "your last throw", "the last result")[kind - 1]
    return _intending(f"goes by {by}", lambda own, agents: table[own][agents], rng.uniform(0.6, 1.0))


def _is_unseen(habit: Habit) -> bool:
    """Whether a habit has a rule that only ``unseen`` has, or nearly the chances of one of those."""
    if _table(habit) in _new_rules():
        return True
    own = _expected(habit)
    return any(max(abs(a - b) for a, b in zip(own, other, strict=True)) < _APART for other in _unseen_chances())


@cache
def _new_rules() -> list[list[list[Hashable]]]:
    return [_table(UNSEEN[name]) for name in _NEW_RULES]


@cache
def _unseen_chances() -> list[list[float]]:
    return [_expected(habit) for habit in UNSEEN.values()]


def _expected(habit: Habit) -> list[float]:
    """The chances of the next throw after each pair of last throws."""
    pairs = product(range(3), repeat=2)
    return [chance for own, agents in pairs for chance in habit.chances(habit.after(None, own, agents))]


def _drawn_table(rng: random.Random, kind: int) -> list[list[int]]:
    """[its own last throw][yours] -> its next: a step from its own (kind 1), from yours (2), or by the result (3)."""
    steps = [rng.randrange(3) for _ in MOVES]
    after: Mapping[int, Callable[[int, int], int]] = {
        1: lambda own, _: own + steps[0],
        2: lambda _, agents: agents + steps[0],
        3: lambda own, agents: own + steps[own - agents],
    }
    return [[after[kind](own, agents) % 3 for agents in range(3)] for own in range(3)]


def _table(habit: Habit) -> list[list[Hashable]]:
    """What the habit intends after both last throws; None where it intends nothing."""
    return [[habit.after(None, own, agents) for agents in range(3)] for own in range(3)]


DRAWN: Mapping[str, Habit] = {f"drawn-{number}": drawn_habit(number) for number in range(_DRAWN)}
VALIDATION: Mapping[str, Habit] = {f"validation-{n}": drawn_habit(_DRAWN + n) for n in range(_VALIDATION)}
"""Opponents to choose settings by: neither trained nor evaluated with."""
