"""Kuhn poker: three cards, one bet, one hidden card; against an opponent whose habits can be learned.

A betting sequence is written as OpenSpiel writes it: p for pass (check or fold), b for bet (bet or call). A player's
information state is its card, 0 to 2 for J, Q and K, followed by the betting so far: ``1pb`` is a Queen that passed and
now faces a bet. There are twelve, six for each seat.

Parameters (`--env.NAME`):

opponent  ``conservative``, ``intermediate``, ``aggressive`` (MAGE's habits), ``soft-conservative`` and so on (which
          toss coins), ``always-bet``, ``always-pass``, ``random``, or ``cfr``, which plays the equilibrium; or several,
          or one that changes (`mulligan.envs.opponents`). ``seen`` is MAGE's three, ``unseen`` the soft ones with
          always-bet and always-pass, and ``drawn`` 128 more to train with, ``drawn-0`` to ``drawn-127``
pool      what the opponent was drawn from, which is filled in
seat      1 moves first, 2 second; 0 lets the seed decide
hands     of an episode: with more than one it is a match, with four turns for each hand
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

from mulligan.envs import drawing
from mulligan.envs.base import ORDER, Player, action_text, check_range, check_turns_of, draw, settle_seat
from mulligan.envs.kuhn.guesses import Guess, updated
from mulligan.envs.kuhn.habits import HABITS, WORDS, check_opponent, is_habit, members, opponent_table
from mulligan.envs.kuhn.rules import CARDS, FOLDED, MOVES, REPLIES, STAKES, Hand, payoff, shown_card, state_key
from mulligan.envs.model import Model
from mulligan.envs.opponents import (
    ask_move,
    at_any_episode,
    at_episode,
    chances_of,
    check_models,
    guest_mover,
    is_guest,
    settle_opponent,
)
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

SYNONYMS = {
    False: {"pass": "p", "bet": "b", "check": "p", "raise": "b"},
    True: {"pass": "p", "bet": "b", "fold": "p", "call": "b"},
}
"""Whether a bet is to be answered -> words for a move. Words that mean something else in real poker are left out."""
_ENDED_HAND = re.compile(r"Hand \d+: ")


class KuhnPoker:
    """Kuhn poker against one opponent: bet, bluff, call or fold with one card of three."""

    draw = staticmethod(drawing.poker)
    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "soft-aggressive", "seat": 0, "pool": "", "hands": 1}
    turns: ClassVar[int] = 4
    timeout_reward: ClassVar[float] = -1.0
    """Who stalls loses the ante."""
    opponent_words: ClassVar[Mapping[str, str]] = WORDS

    def __init__(self, task: Task) -> None:
        self.task, self.seat, self.hands = task, task.integer("seat"), task.integer("hands")
        self.opponent, self.pool = task.text("opponent"), task.text("pool")
        if not self.pool and f"soft-{self.opponent}" in HABITS:  # a task from when the soft habits had these names
            self.opponent = f"soft-{self.opponent}"
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        check_range("kuhn", params, "hands", 1, 1_000)
        if int(params["hands"]) > 1:
            params = {**params, "turns": KuhnPoker.turns * int(params["hands"])}
        return settle_opponent("kuhn", settle_seat("kuhn", params, seed), seed, check_opponent, members)

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A match has as many turns as its hands need; of a single hand they can be chosen."""
        if int(params["hands"]) > 1:
            check_turns_of("kuhn", params, "hands", KuhnPoker.turns * int(params["hands"]), turns)

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        match = f"/{params['hands']}" if int(params["hands"]) > 1 else ""
        return f"kuhn{match}/vs-{params['opponent']}"

    def rules(self) -> str:
        match = f"A match has {self.hands} hands, each with new cards.\n" if self.hands > 1 else ""
        return (
            "Kuhn poker for two players. The cards are J, Q and K; K beats Q, and Q beats J.\n"
            "Each player puts in one chip and gets one card; the third card stays unseen.\n"
            f"You act {ORDER[self.seat]}. The players take turns to pass or bet:\n"
            "- With no bet to answer, pass puts in nothing and bet puts in one more chip.\n"
            "- With a bet to answer, pass folds and bet calls it with one more chip.\n"
            "Who folds loses one chip, and no card is shown.\n"
            "After two passes the better card wins one chip; after a call it wins two.\n"
            f"{match}Answer with {' or '.join(REPLIES)}"
        )

    def reset(self, chance: int = 0) -> str:
        self.rng = generator(self.task.seed, "chance", chance)
        self.opponent_name = at_episode(self.opponent, chance)
        self.table = opponent_table(self.opponent_name) if is_habit(self.opponent_name) else None
        """The opponent's chances; None of one that is a policy."""
        self.opponents_move = (
            guest_mover(self, self.opponent_name, chance) if is_guest(self.opponent_name) else self._drawn_move
        )
        self.hand, self.chips = 0, 0.0
        """The number of the hand, and what the hands before it won."""
        self.ended: Hand | None = None
        """The hand that the last move has ended."""
        self.before = ""
        """The hand before, in one line."""
        self._deal()
        return self.observe()

    def _deal(self) -> None:
        deck = [0, 1, 2]
        dealt = [deck.pop(draw(self.rng, [1 / len(deck)] * len(deck))) for _ in range(2)]
        self.card, self.hidden = dealt[self.seat - 1], dealt[2 - self.seat]
        """The player's card; and the opponent's, which only the omniscient player may look at before a showdown."""
        self.betting = ""
        self.hand += 1
        self._let_opponent_move()

    def step(self, reply: str) -> Step:
        move, feedback = self.named(reply)
        if move is None:
            return Step(self.observe(), valid=False, state_key=self._key(), feedback=feedback)
        self.betting += move
        self._let_opponent_move()
        reward, done = self.reward, self.over and self.hand == self.hands
        luck = reward - self.expected_reward() if self.over and self.table else 0.0
        self.ended = Hand(self.card, self.hidden, self.betting) if self.over else None
        self.chips += reward
        if self.over and not done:
            self.before = self._summary(self._hand_text())
            self._deal()
        return Step(self.observe(), reward, done, won=done and self.chips > 0, state_key=self._key(), luck=luck)

    def named(self, reply: str) -> tuple[str | None, str]:
        """The move that a reply names, or None and why."""
        word = action_text(reply)
        move = SYNONYMS[self.betting.endswith("b")].get((word or "").lower())
        if self.over:
            return None, "The hand is over."
        why = "The reply names no single action." if word is None else "That is not an action here."
        return (move, "") if move else (None, f"{why} Answer with {' or '.join(REPLIES)}")

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        """The hand as the opponent sees it, and of the one before what it saw."""
        other = copy(self)
        other.seat, other.chips = 3 - self.seat, -self.chips
        other.card, other.hidden = self.hidden, self.card
        if self.ended:
            last = copy(other)
            last.card, last.hidden, last.betting = self.ended.theirs, self.ended.mine, self.ended.betting
            other.before = self._summary(last._hand_text())
        return other

    def position(self) -> Step:
        """What the player is told now, with the chips of the whole match so far."""
        done = self.over and self.hand == self.hands
        return Step(self.observe(), self.chips, done, won=done and self.chips > 0, state_key=self._key())

    def _let_opponent_move(self) -> None:
        if not self.over and len(self.betting) % 2 != self.seat - 1:
            self.betting += ask_move("kuhn", self.opponent_name, self.opponents_move, MOVES)

    def _drawn_move(self) -> str:
        assert self.table is not None, "a policy has moves of its own"
        return "pb"[draw(self.rng, self.table[f"{self.hidden}{self.betting}"])]

    @property
    def over(self) -> bool:
        return self.betting in STAKES or self.betting in FOLDED

    @property
    def reward(self) -> float:
        return payoff(self.betting, self.seat, self.card, self.hidden) if self.over else 0.0

    def expected_reward(self) -> float:
        """What a hand that ended after the player's last move earns on average, against this opponent: over the card
        that it may hold and its answers that end the hand."""
        assert self.table is not None, "of a policy's next move nothing is known"
        last = len(self.betting) - 1 - (len(self.betting) + self.seat) % 2  # the turn of the player's last move
        cards = [Guess(self.table, card, 1.0) for card in range(3) if card != self.card]
        for turn in range(2 - self.seat, last, 2):
            cards = updated(cards, self.betting[:turn], self.betting[turn])
        moved = self.betting[: last + 1]
        endings = {moved: cards} if moved == self.betting else {moved + m: updated(cards, moved, m) for m in MOVES}
        paid = [
            (card.weight, payoff(betting, self.seat, self.card, card.theirs))
            for betting, left in endings.items()
            if betting in STAKES or betting in FOLDED
            for card in left
        ]
        return sum(weight * chips for weight, chips in paid) / sum(weight for weight, _ in paid)

    @property
    def shown(self) -> int | None:
        return shown_card(self.betting, self.hidden)

    def legal(self) -> Sequence[str]:
        return [] if self.over else REPLIES

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.kuhn.player import Bettor

        return Bettor(self, kind, rng, skill, recall)

    def model(self) -> Model:
        from mulligan.envs.kuhn.model import KuhnModel

        expected = self.expected()
        check_models("kuhn", [name for name in at_any_episode(expected) if not is_habit(name)])
        return KuhnModel(self.seat, self.hands, tuple(expected.items()), self)

    def expected(self) -> dict[str, float]:
        """The opponents that the task was drawn from, with their probabilities."""
        return chances_of("kuhn", self.pool or self.opponent, check_opponent, members)

    def observation_in(self, state: Any) -> str:
        """What the player would see in a state of OpenSpiel's game, as the first hand."""
        first, second, *moves = state.history()
        self.card, self.hidden = (first, second) if self.seat == 1 else (second, first)
        self.betting, self.hand = "".join("pb"[move] for move in moves), 1
        return self.observe()

    def reply_of(self, action: int) -> str:
        """An action of OpenSpiel's game as a reply."""
        return REPLIES[action]

    def digest(self, episode: Episode) -> str:
        texts = [*(turn.observation for turn in episode.turns), episode.final]
        hands = list(dict.fromkeys(line for text in texts for line in text.split("\n") if _ENDED_HAND.match(line)))
        last = self._summary(episode.final[episode.final.index("Your card") :])
        hands.append(last if self.hands == 1 else f"Hand {len(hands) + 1}: {last}")
        return f"You acted {ORDER[self.seat]}. " + " ".join(hands)

    def _key(self) -> str:
        """What the player sees of the hand; in a match, which one it is and what was won before."""
        match = f"{self.hand}:{self.chips:g}:" if self.hands > 1 else ""
        return match + state_key(self.card, self.betting, self.hidden)

    def observe(self) -> str:
        if self.hands == 1:
            return self._hand_text()
        is_new = self.hand > 1 and self.ended is not None and not self.over
        before = f"Hand {self.hand - 1}: {self.before}\n" if is_new else ""
        after = f"\nThe match is over: {self.chips:+g} chips in all." if self.over else ""
        return f"{before}Hand {self.hand} of {self.hands}.\n{self._hand_text()}{after}"

    def _hand_text(self) -> str:
        movers = ("you", "opponent") if self.seat == 1 else ("opponent", "you")
        moves = ", ".join(f"{movers[turn % 2]} {MOVES[move]}" for turn, move in enumerate(self.betting))
        return f"Your card: {CARDS[self.card]}\nBetting: {moves or 'none yet'}\n{self.ending()}"

    @staticmethod
    def _summary(hand_text: str) -> str:
        """A hand's text in one line."""
        card, betting, *endings = hand_text.split("\n")
        ending = "The hand was not finished." if endings[0].startswith("Your turn") else " ".join(endings)
        return f"{card}. {betting.removesuffix(' yet')}. {ending}"

    def ending(self) -> str:
        """How the hand ended, or what can be played now."""
        if not self.over:
            return f"Your turn: {'pass (fold) or bet (call)' if self.betting.endswith('b') else 'pass or bet'}."
        chips = abs(self.reward)
        result = f"You {'win' if self.reward > 0 else 'lose'} {chips:g} chip{'s' if chips > 1 else ''}."
        if self.shown is not None:
            return f"Showdown: the opponent holds {CARDS[self.shown]}. {result}"
        return f"{'The opponent folds' if self.reward > 0 else 'You fold'}. The opponent's card stays hidden. {result}"
