"""Opponents in rock-paper-scissors that guess, and guess what is guessed: `guessers`, to train with before strong bots.

Each has a few ways to foretell a throw, the agent's or its own (as the agent might foretell it), and three answers to
what was foretold: beat it, beat what beats it, or copy it. In each round it goes by the way and the answer that would
have earned most lately, and throws by chance where none would have earned anything. Such an opponent cannot be beaten
for long by a plan that it can see through: against it, chance is a good answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mulligan.envs.repeated.habits import Habit
from mulligan.seeding import generator

_THROWS = range(3)
_MEMORY = 30
"""Rounds that it remembers."""
_KEPT = 64
"""Situations whose forecasts are kept: in a round they are asked for several times."""
_OWN, _AGENTS = 0, 1
Rounds = tuple[tuple[int, int], ...]
"""[round] its own throw, and the agent's."""
Forecast = Callable[[Rounds], int | None]
"""The next throw; None where nothing speaks for one."""


class State(NamedTuple):
    rounds: Rounds
    """The last ones."""
    earned: tuple[float, ...]
    """[way * 3 + answer] what going by it would have earned, of late."""


def guesser(number: int) -> Habit:
    """A guesser by its number."""
    rng = generator(number, "guesser")
    ways = rng.sample(_WAYS, rng.randint(2, 5))
    kept, sure = rng.uniform(0.75, 0.97), rng.uniform(0.85, 1.0)

    @lru_cache(_KEPT)
    def intended(rounds: Rounds) -> list[int | None]:
        """[way * 3 + answer]"""
        forecasts = [way(rounds) for way in ways]
        return [None if throw is None else (throw + step) % 3 for throw in forecasts for step in _THROWS]

    def chances(state: State) -> Sequence[float]:
        best = max(range(len(state.earned)), key=state.earned.__getitem__)
        throw = intended(state.rounds)[best] if state.earned[best] > 0.0 else None
        return [1 / 3] * 3 if throw is None else [sure if each == throw else (1 - sure) / 2 for each in _THROWS]

    def after(state: State, own: int, agents: int) -> State:
        points = (0.0, 1.0, -1.0)  # of a throw that is 0, 1 or 2 steps above the agent's
        earned = tuple(
            kept * before + (0.0 if throw is None else points[(throw - agents) % 3])
            for before, throw in zip(state.earned, intended(state.rounds), strict=True)
        )
        return State((*state.rounds, (own, agents))[-_MEMORY:], earned)

    start = State((), (0.0,) * (3 * len(ways)))
    return Habit("guesses your next throw, and what you guess of its own", start, chances, after, has_model=False)


def _most_often_after(whose: int, situation: Callable[[Rounds], object]) -> Forecast:
    """What has mostly followed the situation that there is now."""

    def forecast(rounds: Rounds) -> int | None:
        now = situation(rounds)
        followed = Counter(each[whose] for number, each in enumerate(rounds) if situation(rounds[:number]) == now)
        return followed.most_common(1)[0][0] if now is not None and followed else None

    return forecast


def _as_last_time(whose: int, read: Callable[[tuple[int, int]], object]) -> Forecast:
    """What followed the longest series of throws that ends as the match so far, the last time."""

    def forecast(rounds: Rounds) -> int | None:
        seen, longest, throw = [read(each) for each in rounds], 0, None
        for end in range(len(seen) - 1, 0, -1):
            length = 0
            while length < end and seen[end - 1 - length] == seen[-1 - length]:
                length += 1
            if length > longest:
                longest, throw = length, rounds[end][whose]
        return throw

    return forecast


def _of(whose: int) -> Callable[[tuple[int, int]], int]:
    return lambda each: each[whose]


def _last(*whose: int) -> Callable[[Rounds], object]:
    return lambda rounds: tuple(rounds[-1][each] for each in whose) if rounds else None


_WAYS: Sequence[Forecast] = [
    way
    for whose in (_AGENTS, _OWN)
    for way in (
        _most_often_after(whose, lambda _: ()),
        _most_often_after(whose, _last(whose)),
        _most_often_after(whose, _last(_OWN, _AGENTS)),
        _as_last_time(whose, _of(whose)),
        _as_last_time(whose, tuple),
    )
]

_NUMBER = 60

GUESSERS: Mapping[str, Habit] = {f"guesser-{number}": guesser(number) for number in range(_NUMBER)}
