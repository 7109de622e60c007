"""Opponents in Leduc poker that always play in the same way, by name.

A habit is three chances: to raise with a King or a pair (it calls otherwise), to raise with anything else, and to fold
anything else to a raise. Those of `SEEN` and `UNSEEN` never toss a coin; those that are drawn mostly do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mulligan.seeding import generator

FOLD, CALL, RAISE = range(3)
"""Actions."""
KING = 2
_DRAWN = 96
"""Habits of the group ``drawn``."""
_VALIDATION = 8
"""Habits of the group ``validation``, drawn in the same way from other numbers."""
_APART = 0.1
"""What a habit of ``drawn`` differs by, in some chance, from each of ``unseen``."""


class Chances(NamedTuple):
    raises_strong: float
    raises_weak: float
    folds_weak: float


SEEN: Mapping[str, Chances] = {
    "caller": Chances(0.0, 0.0, 0.0),
    "maniac": Chances(1.0, 1.0, 0.0),
    "rock": Chances(1.0, 0.0, 1.0),
    "bluffer": Chances(0.0, 1.0, 0.0),
}
UNSEEN: Mapping[str, Chances] = {
    "station": Chances(1.0, 0.0, 0.0),
    "trapper": Chances(0.0, 0.0, 1.0),
    "brawler": Chances(1.0, 1.0, 1.0),
    "thief": Chances(0.0, 1.0, 1.0),
}


def drawn_habit(number: int) -> Chances:
    """A habit to train with, by its number; about half of its chances are 0 or 1."""
    rng = generator(number, "leduc habit")
    while True:
        chances = Chances(*(min(1.0, max(0.0, rng.uniform(-0.5, 1.5))) for _ in Chances._fields))
        if all(max(abs(a - b) for a, b in zip(chances, other, strict=True)) >= _APART for other in UNSEEN.values()):
            return chances


DRAWN = {f"drawn-{number}": drawn_habit(number) for number in range(_DRAWN)}
VALIDATION = {f"validation-{number}": drawn_habit(_DRAWN + number) for number in range(_VALIDATION)}
"""Opponents to choose settings by: neither trained nor evaluated with."""
GROUPS: Mapping[str, Sequence[str]] = {
    "seen": (*SEEN, "random"),
    "drawn": tuple(DRAWN),
    "validation": tuple(VALIDATION),
    "unseen": tuple(UNSEEN),
}
"""Names for several opponents."""


def ranks(state: Any, player: int) -> tuple[int, int | None]:
    """The rank of a player's card, and of the open one, if there is one yet; 0 to 2 for J, Q and K."""
    suits = 1 if state.get_game().get_parameters().get("suit_isomorphism") else 2
    cards = re.findall(r"\[(?:Private|Public): (\d+)\]", state.information_state_string(player))
    known = [int(card) // suits for card in cards]
    return known[0], known[1] if len(known) > 1 else None


def habit(chances: Chances) -> Callable[[Any], Mapping[int, float]]:
    """From a state of OpenSpiel's game to the chances of the actions."""

    def answer(state: Any) -> Mapping[int, float]:
        mine, public = ranks(state, state.current_player())
        legal = state.legal_actions()
        strong = mine in (KING, public)
        folds = chances.folds_weak if FOLD in legal and not strong else 0.0
        raises = chances.raises_strong if strong else chances.raises_weak
        raises = (1.0 - folds) * raises if RAISE in legal else 0.0
        likely = {FOLD: folds, CALL: 1.0 - folds - raises, RAISE: raises}
        return {action: chance for action, chance in likely.items() if chance > 0.0}

    return answer


HABITS = {name: habit(chances) for name, chances in {**SEEN, **UNSEEN, **DRAWN, **VALIDATION}.items()}
