"""Opponents in rock-paper-scissors of more kinds: `wide`, to train with before an agent meets strong bots.

Those of `seen` and `drawn` take a step from one of the last throws. These repeat a pattern, go by any two of the last
throws, answer what the agent throws most often, always or after its last throws, or go by two rules in turn. They are
drawn by number, and most of them are not always sure. Some draw what is simple: a pattern of one throw, twice the same
rule. A pattern of `wide-validation` may be one of `wide`, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from mulligan.envs.repeated.habits import Habit
from mulligan.seeding import generator

_THROWS = range(3)
_LONGEST_MEMORY = 30
_KEPT = 64
"""Situations of which a habit's chances are kept: in a round they are asked for several times."""


class Seen(NamedTuple):
    """What such an opponent has seen of a match."""

    played: int
    """Rounds so far."""
    rounds: tuple[tuple[int, int], ...]
    """The last ones: its own throw, and the agent's."""


Intention = Callable[[Seen], int | None]
"""The throw that it intends; None where it has no reason to prefer one."""


def wide_habit(number: int) -> Habit:
    """A habit by its number; each kind comes equally often."""
    rng = generator(number, "wide habit")
    words, intention, sureness = _KINDS[number % len(_KINDS)](rng)
    return _habit(words, intention, rng.uniform(*sureness))


def _habit(words: str, intention: Intention, sure: float) -> Habit:
    others = (1.0 - sure) / 2

    @lru_cache(_KEPT)
    def chances(seen: Seen) -> Sequence[float]:
        intended = intention(seen)
        return [1 / 3] * 3 if intended is None else [sure if throw == intended else others for throw in _THROWS]

    def after(seen: Seen, own: int, agents: int) -> Seen:
        return Seen(seen.played + 1, (*seen.rounds, (own, agents))[-_LONGEST_MEMORY:])

    return Habit(words, Seen(0, ()), chances, after, has_model=False)


Kind = tuple[str, Intention, tuple[float, float]]
"""Words, the intention, and within which bounds it is sure of it."""


def _pattern(rng: random.Random) -> Kind:
    pattern = [rng.choice(_THROWS) for _ in range(rng.randint(2, 8))]
    return f"repeats {len(pattern)} throws", lambda seen: pattern[seen.played % len(pattern)], (0.75, 1.0)


def _rule_of_two(rng: random.Random) -> Kind:
    """By both last throws, by the agent's last two or by its own last two."""
    rule = {situation: rng.choice(_THROWS) for situation in product(_THROWS, repeat=2)}
    read, words = rng.choice(_PAIRS)

    def intention(seen: Seen) -> int | None:
        situation = read(seen.rounds)
        return None if situation is None else rule[situation]

    return f"goes by {words}", intention, (0.7, 1.0)


Rounds = Sequence[tuple[int, int]]
"""[round] the opponent's own throw, and the agent's."""
Pair = tuple[int, int]


def _both_last(rounds: Rounds) -> Pair | None:
    return rounds[-1] if rounds else None


def _agents_last_two(rounds: Rounds) -> Pair | None:
    return (rounds[-2][1], rounds[-1][1]) if len(rounds) > 1 else None


def _own_last_two(rounds: Rounds) -> Pair | None:
    return (rounds[-2][0], rounds[-1][0]) if len(rounds) > 1 else None


def _agents_last(rounds: Rounds) -> Pair | None:
    return (rounds[-1][1], 0) if rounds else None


_PAIRS = (
    (_both_last, "both last throws"),
    (_agents_last_two, "your last two throws"),
    (_own_last_two, "its own last two throws"),
)


def _counting(rng: random.Random) -> Kind:
    """Answers the agent's most frequent throw of late."""
    memory, level = rng.randint(3, _LONGEST_MEMORY), rng.choice(_LEVELS)

    def intention(seen: Seen) -> int | None:
        return _answer(Counter(agents for _, agents in seen.rounds[-memory:]), level)

    return "counts your throws", intention, (0.7, 1.0)


def _guessing(rng: random.Random) -> Kind:
    """Answers what the agent has thrown most often in the same situation."""
    memory, level = rng.randint(10, _LONGEST_MEMORY), rng.choice(_LEVELS)
    read = rng.choice((_agents_last, _both_last, _agents_last_two))

    def intention(seen: Seen) -> int | None:
        rounds = seen.rounds[-memory:]
        now = read(rounds)
        before = (agents for number, (_, agents) in enumerate(rounds) if read(rounds[:number]) == now)
        return None if now is None else _answer(Counter(before), level)

    return "guesses your next throw from your last ones", intention, (0.7, 1.0)


_LEVELS = (1, 1, 2, 0)
"""Steps from the throw that is expected to the answer: 1 beats it, 2 beats what would beat that, 0 copies it."""


def _answer(expected: Counter[int], level: int) -> int | None:
    if not expected:
        return None
    return (expected.most_common(1)[0][0] + level) % 3


def _changing(rng: random.Random) -> Kind:
    """Goes by the last round, by one rule and by another in turn."""
    period = rng.randint(6, 20)
    rules: list[dict[Pair, int]] = [{pair: rng.choice(_THROWS) for pair in product(_THROWS, _THROWS)} for _ in range(2)]
    likes: list[int | None] = [rng.choice((None, *_THROWS)) for _ in rules]

    def intention(seen: Seen) -> int | None:
        which = seen.played // period % 2
        if likes[which] is not None or not seen.rounds:
            return likes[which]
        return rules[which][seen.rounds[-1]]

    return f"goes by two rules in turn, {period} throws each", intention, (0.7, 1.0)


_KINDS: Sequence[Callable[[random.Random], Kind]] = (_pattern, _rule_of_two, _counting, _guessing, _changing)
_NUMBER = 250

WIDE: Mapping[str, Habit] = {f"wide-{number}": wide_habit(number) for number in range(_NUMBER)}
WIDE_VALIDATION: Mapping[str, Habit] = {f"wide-validation-{n}": wide_habit(_NUMBER + n) for n in range(50)}
"""To choose settings by: not trained with."""
