"""Opponents in Kuhn poker that always play in the same way: by hand, drawn by number, and in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from mulligan.errors import UnknownName
from mulligan.seeding import generator

Table = Mapping[str, tuple[float, float]]
"""Information state -> chances of (pass, bet)."""
HABITS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "random": {"": (0.5, 0.5, 0.5), "p": (0.5, 0.5, 0.5), "b": (0.5, 0.5, 0.5), "pb": (0.5, 0.5, 0.5)},
    # Never bluffs, bets the best card alone, and gives up most Queens when it is bet into.
    "soft-conservative": {"": (0.0, 0.0, 0.5), "p": (0.0, 0.1, 1.0), "b": (0.0, 0.2, 1.0), "pb": (0.0, 0.2, 1.0)},
    # Bets whatever it holds more often than not, and calls with far too much.
    "soft-aggressive": {"": (0.6, 0.6, 0.9), "p": (0.7, 0.7, 1.0), "b": (0.3, 0.9, 1.0), "pb": (0.3, 0.9, 1.0)},
    # Half-way between the two.
    "soft-intermediate": {"": (0.3, 0.3, 0.7), "p": (0.35, 0.4, 1.0), "b": (0.15, 0.55, 1.0), "pb": (0.15, 0.55, 1.0)},
    # The average policy of OpenSpiel's CFR (Zinkevich et al. 2007) after 1,000 iterations, as a test recomputes it:
    # exploitable by 0.001 chips a hand when it is sampled, and by far more if only its likelier moves are played.
    "cfr": {
        "": (0.19398197589429045, 0.007492081400927672, 0.5841162496707258),
        "p": (0.333018584934662, 0.0035, 0.999),
        "b": (0.0005, 0.33640635777848255, 0.9995),
        "pb": (0.00031016676119293866, 0.5305412094720448, 0.9993988704781034),
    },
    # MAGE's three habits, which never toss a coin.
    "conservative": {"": (0, 0, 1), "p": (0, 0, 1), "b": (0, 0, 1), "pb": (0, 0, 1)},
    "intermediate": {"": (0, 1, 1), "p": (0, 1, 1), "b": (0, 0, 1), "pb": (0, 0, 1)},
    "aggressive": {"": (1, 1, 1), "p": (1, 1, 1), "b": (0, 1, 1), "pb": (0, 1, 1)},
    "always-bet": {"": (1, 1, 1), "p": (1, 1, 1), "b": (1, 1, 1), "pb": (1, 1, 1)},
    "always-pass": {"": (0, 0, 0), "p": (0, 0, 0), "b": (0, 0, 0), "pb": (0, 0, 0)},
}
"""Opponent -> betting so far -> chance that it bets (or calls) with J, Q and K; it passes (or folds) otherwise."""
UNSEEN = ("soft-conservative", "soft-intermediate", "soft-aggressive", "always-bet", "always-pass")
_DRAWN = 128
"""Habits of the group ``drawn``."""
_VALIDATION = 16
"""Habits of the group ``validation``, drawn in the same way from other numbers."""
_APART = 0.1
"""What a habit of ``drawn`` differs by, in some chance, from each of ``unseen``."""
_READINESS = (-0.5, 1.5)
"""Chances to bet with a Queen that habits are drawn from, before they are cut off at 0 and 1."""


def drawn_habit(number: int) -> Mapping[str, tuple[float, float, float]]:
    """A habit to train with, by its number: how readily it bets, how readily it calls, and how much each goes by its
    card. Who bets readily mostly calls readily. Four numbers, so that two hands tell something of the third."""
    rng = generator(number, "kuhn habit")
    while True:
        temper = rng.uniform(*_READINESS)
        habit: dict[str, tuple[float, float, float]] = {}
        for bettings in (("", "p"), ("b", "pb")):
            readiness = 0.7 * temper + 0.3 * rng.uniform(*_READINESS)
            by_card = rng.uniform(0.0, 1.0)
            low, middle, high = (min(1.0, max(0.0, readiness + by_card * (card - 1))) for card in range(3))
            habit |= dict.fromkeys(bettings, (low, middle, high))
        if not any(_is_near(habit, HABITS[name]) for name in UNSEEN):
            return habit


def _is_near(one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]) -> bool:
    pairs = (pair for betting in one for pair in zip(one[betting], other[betting], strict=True))
    return max(abs(a - b) for a, b in pairs) < _APART


DRAWN = {f"drawn-{number}": drawn_habit(number) for number in range(_DRAWN)}
VALIDATION = {f"validation-{number}": drawn_habit(_DRAWN + number) for number in range(_VALIDATION)}
"""Opponents to choose settings by: neither trained nor evaluated with."""
PLAYABLE = {**HABITS, **DRAWN, **VALIDATION}
GROUPS: Mapping[str, Sequence[str]] = {
    "seen": ("conservative", "intermediate", "aggressive"),
    "drawn": tuple(DRAWN),
    "validation": tuple(VALIDATION),
    "unseen": UNSEEN,
}
"""Names for several opponents."""
SOFT = ("random", "soft-conservative", "soft-aggressive", "soft-intermediate", "cfr")
"""Opponents that a player of one of them expects; against another one it expects any."""
WORDS: Mapping[str, str] = {
    "soft-conservative": "never bluffs, and folds most Queens to a bet",
    "soft-aggressive": "bets more often than not, and calls with far too much",
    "soft-intermediate": "bets and calls half-way between too little and too much",
    "conservative": "bets and calls with the King alone",
    "intermediate": "bets with Queen and King, and calls with the King alone",
    "aggressive": "bets with every card, and calls with Queen and King",
    "always-bet": "bets and calls with every card",
    "always-pass": "never bets, and folds to every bet",
}


@cache
def opponent_table(name: str) -> Table:
    """The chances of (pass, bet) of opponent `name` at all twelve information states."""
    habit = PLAYABLE[name]
    bets = {f"{card}{betting}": chances[card] for betting, chances in habit.items() for card in range(3)}
    return {state: (1.0 - bet, bet) for state, bet in bets.items()}


def check_opponent(name: str) -> None:
    if not is_habit(name):
        raise UnknownName("opponent of kuhn", name, [*HABITS, *GROUPS])


def is_habit(name: str) -> bool:
    return name in PLAYABLE


def members(part: str) -> Sequence[str]:
    """The opponents that a part of a pool stands for: itself, or those of a group."""
    return GROUPS.get(part, (part,))
