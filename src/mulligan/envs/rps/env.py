"""Rock-paper-scissors, a match of several throws against an opponent whose habit can be found out.

A throw that wins pays 1, a draw 0, a loss -1, each divided by the number of throws: the return of a match is what a
throw of it was worth. Who cannot tell the opponents apart wins nothing; ``docs/opponents.md`` has the exact values.

Parameters (`--env.NAME`):

throws    of a match; a reply that names no throw loses one
opponent  a habit, or ``bot:NAME``: one of the 43 of OpenSpiel, from the tournaments of 1999 and 2000. Several with
          commas, with weights as ``copies:2``; ``copies>beats@3`` changes at the third match, ``copies>beats`` at a
          hidden one; ``seen``, ``drawn``, ``unseen`` and ``bots`` are all of a kind, ``seen:2`` with a weight each;
          ``runs/x@40`` or ``endpoint:MODEL`` is a policy
pool      the opponents that an agent may expect, which the scripted players and the optimum go by; empty: `opponent`
view      ``plain`` words, or ``compact``: a word a throw, for tiny models

Habits of ``seen``: mostly-rock, mostly-paper, mostly-scissors, rising, falling, copies, beats, yields. Of ``unseen``:
often-rock, often-paper, often-scissors, no-rock, no-paper, no-scissors, stays, mostly-rising, mostly-falling,
mostly-copies, mostly-beats, mostly-yields, win-stay, lose-stay. Of ``drawn``: 256 to train with, drawn-0 to drawn-255.
Of ``wide``: 250 of more kinds, which repeat a pattern or count your throws (`mulligan.envs.rps.wide`).
Of ``guessers``: 60 that guess your next throw, and what you guess of theirs (`mulligan.envs.rps.guessers`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mulligan.envs import drawing
from mulligan.envs.base import Player
from mulligan.envs.repeated.env import RepeatedGame
from mulligan.envs.repeated.habits import Habit, Opponent
from mulligan.envs.repeated.model import Payoffs
from mulligan.envs.rps.bots import BOTS, Bot, bot_names
from mulligan.envs.rps.counting import Counting
from mulligan.envs.rps.guessers import GUESSERS
from mulligan.envs.rps.habits import DRAWN, MOVES, SEEN, UNSEEN, VALIDATION
from mulligan.envs.rps.wide import WIDE, WIDE_VALIDATION
from mulligan.errors import UnknownName
from mulligan.seeding import derive
from mulligan.types import ParamValue


class RockPaperScissors(RepeatedGame):
    """Rock-paper-scissors: a match against one opponent, whose habit can be found out and exploited."""

    draw = staticmethod(drawing.throws)
    name: ClassVar[str] = "rps"
    unit: ClassVar[str] = "throw"
    moves: ClassVar[tuple[str, ...]] = MOVES
    letters: ClassVar[str] = "abc"
    payoffs: ClassVar[Payoffs] = Payoffs(((0, -1, 1), (1, 0, -1), (-1, 1, 0)), most=1, par=0)
    habits: ClassVar[Mapping[str, Habit]] = {
        **SEEN,
        **UNSEEN,
        **DRAWN,
        **VALIDATION,
        **WIDE,
        **WIDE_VALIDATION,
        **GUESSERS,
    }
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "seen": tuple(SEEN),
        "unseen": tuple(UNSEEN),
        "drawn": tuple(DRAWN),
        "validation": tuple(VALIDATION),
        "wide": tuple(WIDE),
        "wide-validation": tuple(WIDE_VALIDATION),
        "guessers": tuple(GUESSERS),
        "bots": (),
    }
    lookahead: ClassVar[int] = 1
    players: ClassVar[tuple[str, ...]] = ("expert", "omniscient", "counting")
    defaults: ClassVar[dict[str, ParamValue]] = {"throws": 10, "opponent": "seen", "pool": "", "view": "plain"}

    @classmethod
    def members(cls, part: str) -> Sequence[str]:
        return [f"{BOTS}{name}" for name in bot_names()] if part == "bots" else super().members(part)

    @classmethod
    def check_opponent(cls, name: str) -> None:
        if not name.startswith(BOTS):
            super().check_opponent(name)
        elif name.removeprefix(BOTS) not in bot_names():
            raise UnknownName("bot of OpenSpiel", name.removeprefix(BOTS), bot_names())

    def make_opponent(self, name: str, chance: int) -> Opponent:
        if name.startswith(BOTS):
            return Bot(name.removeprefix(BOTS), derive(self.task.seed, "chance", chance))
        return super().make_opponent(name, chance)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return Counting(self, rng, skill, recall) if kind == "counting" else super().player(kind, rng, skill, recall)

    def explained(self) -> str:
        return (
            f"Rock-paper-scissors, a match of {self.rounds} throws. Both players throw at the same time.\n"
            "Rock beats scissors, scissors beats paper, and paper beats rock. The opponent may have a habit."
        )

    def standing(self) -> str:
        points = [self.payoffs.points[mine][theirs] for mine, theirs in self.played]
        return f"Won {points.count(1)}, lost {points.count(-1)}, drawn {points.count(0)}."
