"""Kuhn poker's cards, moves and payoffs, and what a player sees of a hand.

`mulligan.envs.kuhn.env` says how a betting sequence is written.
"""

from __future__ import annotations

from typing import NamedTuple

CARDS, MOVES = "JQK", {"p": "pass", "b": "bet"}
REPLIES = ("<action>pass</action>", "<action>bet</action>")
STAKES = {"pp": 1.0, "bb": 2.0, "pbb": 2.0}
"""Chips the better card wins where the betting ends in a showdown."""
FOLDED = {"bp": 1, "pbp": 2}
"""Seat that wins one chip where the betting ends in a fold."""


class Hand(NamedTuple):
    """The cards and the betting so far; in a match, the hand's number and what was won before."""

    mine: int
    theirs: int
    betting: str = ""
    number: int = 1
    chips: float = 0.0


def payoff(betting: str, seat: int, mine: int, theirs: int) -> float:
    """Chips that `seat` wins when the hand ended with this betting."""
    if betting in FOLDED:
        return 1.0 if FOLDED[betting] == seat else -1.0
    return STAKES[betting] if mine > theirs else -STAKES[betting]


def shown_card(betting: str, theirs: int) -> int | None:
    """The opponent's card, once a showdown has shown it."""
    return theirs if betting in STAKES else None


def state_key(mine: int, betting: str, theirs: int) -> str:
    """All that the player sees of a hand."""
    shown = shown_card(betting, theirs)
    return f"{mine}{betting}" + ("" if shown is None else f"/{shown}")
