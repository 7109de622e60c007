"""The scripted player of Kuhn poker: the equilibrium at first, then the best response to the opponents it remembers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mulligan.envs.base import draw, pick, reflection_text
from mulligan.envs.kuhn.env import KuhnPoker
from mulligan.envs.kuhn.guesses import Guess, best_value, updated
from mulligan.envs.kuhn.habits import HABITS, SOFT, Table, is_habit, opponent_table
from mulligan.envs.kuhn.rules import CARDS, MOVES, REPLIES, Hand, shown_card
from mulligan.envs.opponents import at_any_episode
from mulligan.errors import StopReason
from mulligan.types import Episode, Step


class Bettor:
    """Plays the equilibrium; from memory, the best response to the opponents that would have played as this one did.

    Before the first hand an opponent is as likely as the task's pool says; where that names one alone, all of its kind
    are equally likely. Each hand multiplies in how likely the opponent's moves were for it, with the card summed out
    where it stayed hidden. If no opponent plays so, it has changed, and all begins anew. The omniscient player knows
    the opponent and its card.
    """

    def __init__(self, world: KuhnPoker, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.likelihoods: list[tuple[Table, float]] = []

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        guesses: list[Guess] = []
        if self.kind == "omniscient" and world.table is not None:
            guesses = [Guess(world.table, world.hidden, 1.0)]
        elif self.likelihoods and self.rng.random() < self.recall:
            guesses = self._guesses(self.likelihoods, Hand(world.card, world.hidden, world.betting))
        passing, betting = (best_value(world.seat, world.card, world.betting + move, guesses) for move in MOVES)
        if abs(betting - passing) < 1e-9:  # also where there are no guesses
            return REPLIES[draw(self.rng, opponent_table("cfr")[f"{world.card}{world.betting}"])]
        return REPLIES[betting > passing]

    def see(self, step: Step) -> None:
        hand = self.world.ended
        if hand and step.valid:
            before = self.likelihoods or self._prior()
            after = self._guesses(before, hand) or self._guesses(self._prior(), hand)
            total = sum(guess.weight for guess in after)
            self.likelihoods = [
                (table, sum(guess.weight for guess in after if guess.table is table) / total)
                for table, _ in before
                if after  # none where no opponent of the pool plays so
            ]

    def beliefs(self) -> dict[str, float]:
        """How likely each opponent is that there may be, after all that was seen, of this hand too."""
        world, likelihoods = self.world, self.likelihoods or self._prior()
        before = [Guess(table, 0, weight) for table, weight in likelihoods]
        hand = Hand(world.card, world.hidden, world.betting)
        guesses = before if world.over else self._guesses(likelihoods, hand) or before
        total = sum(guess.weight for guess in guesses)
        return {
            name: sum(guess.weight for guess in guesses if guess.table is opponent_table(name)) / total
            for name in self._weights()
        }

    def _prior(self) -> list[tuple[Table, float]]:
        return [(opponent_table(name), weight) for name, weight in self._weights().items()]

    def _weights(self) -> dict[str, float]:
        """Each opponent that there may be, with its weight before the first hand; of one that changes, both."""
        weights = {name: each for name, each in at_any_episode(self.world.expected()).items() if is_habit(name)}
        if len(weights) <= 1:
            weights = dict.fromkeys(SOFT if self.world.opponent in SOFT else HABITS, 1.0)
        return weights

    def _guesses(self, likelihoods: Sequence[tuple[Table, float]], hand: Hand) -> list[Guess]:
        """Opponents and cards that agree with what can be seen of a hand."""
        is_shown = shown_card(hand.betting, hand.theirs) is not None
        cards = [hand.theirs] if is_shown else [card for card in range(3) if card != hand.mine]
        guesses = [Guess(table, card, weight) for table, weight in likelihoods if weight > 0.0 for card in cards]
        for turn in range(2 - self.world.seat, len(hand.betting), 2):
            guesses = updated(guesses, hand.betting[:turn], hand.betting[turn])
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
            outcome="not finished"
            if not world.over
            else "won"
            if episode.won
            else "lost"
            if episode.reward
            else "drawn",
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
