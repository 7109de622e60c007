"""The iterated prisoner's dilemma against an opponent whose habit can be found out, at a price.

Points of a round, yours first: 3 and 3 if both cooperate, 1 and 1 if both defect, 5 and 0 if you alone defect, 0 and 5
if the opponent alone does. 5 points pay 1, and a match pays the mean of its rounds: 0.6 for cooperation. With that it
counts as drawn, with more as won. To defect shows whether the opponent minds, and may cost the rest of the match.

Parameters (`--env.NAME`):

rounds    of a match; a reply that names no move loses one
opponent  a habit; several with commas, with weights as ``pavlov:2``; ``grim>pavlov@3`` changes at the third match,
          ``grim>pavlov`` at a hidden one; ``seen`` and ``unseen`` are all of a kind; ``runs/x@40`` or
          ``endpoint:MODEL`` is a policy
pool      the opponents that an agent may expect, which the scripted players and the optimum go by; empty: `opponent`
view      ``plain`` words, or ``compact``: a word a round, for tiny models

Habits of ``seen``: tit-for-tat, always-defect, always-cooperate, pavlov, grim. Of ``unseen``: tit-for-two-tats,
suspicious (tit-for-tat that begins by defecting), generous, alternates, random:0.3 and random:0.7, which cooperate so
often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mulligan.envs.repeated.env import RepeatedGame
from mulligan.envs.repeated.habits import Habit
from mulligan.envs.repeated.model import Payoffs
from mulligan.types import ParamValue

C, D = range(2)
CHANCES = ((1.0, 0.0), (0.0, 1.0))
"""Of a habit that is sure of its move: [the move that it intends]"""


def _steady(words: str, cooperates: float) -> Habit:
    return Habit(words, None, lambda _: (cooperates, 1.0 - cooperates), lambda *_: None)


def _tit_for_tat(words: str, first: int = C, forgives: float = 0.0) -> Habit:
    chances = (CHANCES[C], (forgives, 1.0 - forgives))
    return Habit(words, first, lambda last: chances[last], lambda _, own, agents: agents)


def _two_tats(defections: int, own: int, agents: int) -> int:
    """Defections in a row, up to 2."""
    return min(2, defections + 1) if agents == D else 0


def _sure(intended: Any) -> Sequence[float]:
    return CHANCES[intended]


SEEN: Mapping[str, Habit] = {
    "tit-for-tat": _tit_for_tat("does what you did last, and cooperates first"),
    "always-defect": _steady("always defects", 0.0),
    "always-cooperate": _steady("always cooperates", 1.0),
    "pavlov": Habit(
        "cooperates if both did the same last, and defects otherwise",
        C,
        _sure,
        lambda _, own, agents: int(own != agents),
    ),
    "grim": Habit(
        "cooperates until you defect, and defects from then on", C, _sure, lambda state, own, agents: max(state, agents)
    ),
}
UNSEEN: Mapping[str, Habit] = {
    "tit-for-two-tats": Habit(
        "defects after two of your defections in a row", 0, lambda defections: CHANCES[defections == 2], _two_tats
    ),
    "suspicious": _tit_for_tat("does what you did last, and defects first", first=D),
    "generous": _tit_for_tat("does what you did last, and forgives one defection in three", forgives=1 / 3),
    "alternates": Habit("cooperates and defects in turn", C, _sure, lambda state, own, agents: 1 - state),
    "random:0.3": _steady("cooperates 3 times in 10, at random", 0.3),
    "random:0.7": _steady("cooperates 7 times in 10, at random", 0.7),
}


class Dilemma(RepeatedGame):
    """Iterated prisoner's dilemma: cooperate or defect, against one opponent whose habit can be found out."""

    name: ClassVar[str] = "dilemma"
    unit: ClassVar[str] = "round"
    moves: ClassVar[tuple[str, ...]] = ("cooperate", "defect")
    letters: ClassVar[str] = "cd"
    payoffs: ClassVar[Payoffs] = Payoffs(((3, 0), (5, 1)), most=5, par=3)
    habits: ClassVar[Mapping[str, Habit]] = {**SEEN, **UNSEEN}
    groups: ClassVar[Mapping[str, Sequence[str]]] = {"seen": tuple(SEEN), "unseen": tuple(UNSEEN)}
    lookahead: ClassVar[int] = 6
    turns: ClassVar[int] = 6
    defaults: ClassVar[dict[str, ParamValue]] = {"rounds": 6, "opponent": "seen", "pool": "", "view": "plain"}

    def explained(self) -> str:
        return (
            f"A match of {self.rounds} rounds. In each, both players cooperate or defect at the same time.\n"
            "Points of a round: 3 each if both cooperate, 1 each if both defect; if one defects alone, 5 for that one "
            "and none for the other.\n"
            f"Collect as many points as you can, whatever the opponent has: more than {3 * self.rounds} is a win.\n"
            "The opponent may have a habit."
        )

    def standing(self) -> str:
        theirs = sum(self.payoffs.points[other][mine] for mine, other in self.played)
        return f"You have {self.score} points, the opponent {theirs}."
