"""Scripted players of Kuhn poker: the equilibrium and, from memory, the best response to a likely opponent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from mulligan.envs.base import reflection_text
from mulligan.envs.kuhn.env import CARDS, FOLDED, HABITS, MOVES, STAKES, KuhnPoker, Table, opponent_table, payoff
from mulligan.envs.versus import draw, pick
from mulligan.errors import StopReason
from mulligan.types import Episode, Step


class Guess(NamedTuple):
    """One way things may stand: who the opponent is, what it holds, and how likely that is."""

    table: Table
    theirs: int
    weight: float
    """The weights of all guesses need not sum to one; values come out weighted by them."""


def best_value(seat: int, mine: int, betting: str, guesses: Sequence[Guess]) -> float:
    """Chips that `seat` wins from here with the best play against an opponent that is one of the guesses."""
    if betting in STAKES or betting in FOLDED:
        return sum(guess.weight * payoff(betting, seat, mine, guess.theirs) for guess in guesses)
    if len(betting) % 2 == seat - 1:
        return max(best_value(seat, mine, betting + move, guesses) for move in MOVES)
    return sum(best_value(seat, mine, betting + move, updated(guesses, betting, move)) for move in MOVES)


def updated(guesses: Sequence[Guess], betting: str, move: str) -> list[Guess]:
    """The guesses after the opponent's next move: each weighs as much as it expected the move (Bayes' rule)."""
    chances = [guess.table[f"{guess.theirs}{betting}"]["pb".index(move)] for guess in guesses]
    pairs = zip(guesses, chances, strict=True)
    return [Guess(table, theirs, weight * chance) for (table, theirs, weight), chance in pairs if chance > 0.0]


class Bettor:
    """Plays the equilibrium; from memory, the best response to the opponents that would have played as this one did.

    Every opponent is equally likely before the first hand. Each hand multiplies in how likely the opponent's moves were
    for it, with the card summed out where it stayed hidden. The omniscient player knows the opponent and its card.
    """

    def __init__(self, world: KuhnPoker, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.likelihoods: list[tuple[Table, float]] = []

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        guesses: list[Guess] = []
        if self.kind == "omniscient":
            guesses = [Guess(world.table, world.hidden, 1.0)]
        elif self.likelihoods and self.rng.random() < self.recall:
            guesses = self._guesses(self.likelihoods)
        passing, betting = (best_value(world.seat, world.card, world.betting + move, guesses) for move in MOVES)
        if abs(betting - passing) < 1e-9:  # also where there are no guesses
            return world.legal()[draw(self.rng, opponent_table("cfr")[f"{world.card}{world.betting}"])]
        return world.legal()[betting > passing]

    def see(self, step: Step) -> None:
        if step.done and step.valid:
            before = self.likelihoods or [(opponent_table(name), 1.0) for name in HABITS]
            after = self._guesses(before)
            total = sum(guess.weight for guess in after)
            self.likelihoods = [
                (table, sum(guess.weight for guess in after if guess.table is table) / total) for table, _ in before
            ]

    def _guesses(self, likelihoods: Sequence[tuple[Table, float]]) -> list[Guess]:
        """Opponents and cards that agree with what can be seen of this hand."""
        world = self.world
        cards = [card for card in range(3) if card != world.card] if world.shown is None else [world.shown]
        guesses = [Guess(table, card, weight) for table, weight in likelihoods for card in cards]
        for turn, move in enumerate(world.betting):
            if turn % 2 != world.seat - 1:
                guesses = updated(guesses, world.betting[:turn], move)
        return guesses

    def reflect(self, episode: Episode) -> str:
        """What the hand that has just been played tells, and no more than the player saw."""
        world, card = self.world, CARDS[self.world.card]
        mine = [MOVES[move] for move in world.betting[world.seat - 1 :: 2]]
        moved_last = len(world.betting) % 2 == world.seat % 2
        answered = moved_last and world.betting[-2:-1] == "b"
        blunder = answered and (card, mine[-1]) in (("K", "pass"), ("J", "bet"))
        category = "wrong-move" if blunder else "none" if episode.won else "bad-luck"
        if not world.over:
            category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
        last_move = mine[-1] if mine and world.over else "no action"
        return reflection_text(
            strategy=f"{' then '.join(mine) or 'no action'} with {card}",
            outcome="not finished" if not world.over else "won" if episode.won else "lost",
            reward=f"{episode.reward:g}",
            failed_at="none" if episode.won else f"turn {len(episode.turns)}, {last_move}",
            reasoning="K wins every showdown, and J none" if blunder else "none",
            env_answer=world.ending() if world.over else "none",
            error_category=category,
            plan=_lesson(world) if world.over else "answer every turn with pass or bet",
        )


def _lesson(world: KuhnPoker) -> str:
    """What one finished hand suggests about the opponent: a hint, since one hand proves little."""
    shown = None if world.shown is None else CARDS[world.shown]
    mine, theirs = world.betting[world.seat - 1 :: 2], world.betting[2 - world.seat :: 2]
    if "b" in mine and len(world.betting) % 2 != world.seat % 2:  # the opponent has answered a bet
        if shown is None:
            return "it folded to a bet, so bluff with J more often"
        return f"it called with {shown}, {'as anybody would; play on' if shown == 'K' else 'so bluff less and bet K'}"
    if "b" in theirs:
        if shown is None:
            return "it bets, so call once with Q to see what it bets with"
        advice = "fold Q until it is seen to bluff" if shown == "K" else "call its bets with Q and K"
        return f"it bet {shown}, so {advice}"
    return f"it passed {shown}, so {'beware of its passes' if shown == 'K' else 'bet after its passes'}"
