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
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from typing import Any, ClassVar, NamedTuple, Self

from mulligan.envs import drawing
from mulligan.envs.base import (
    ORDER,
    Player,
    action_text,
    check_range,
    check_turns_of,
    draw,
    pick,
    reflection_text,
    settle_seat,
)
from mulligan.envs.model import Outcome
from mulligan.envs.opponents import (
    ask_move,
    at_any_episode,
    at_episode,
    at_next_episode,
    chances_of,
    check_models,
    guest_mover,
    is_guest,
    settle_opponent,
)
from mulligan.errors import StopReason, UnknownName
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

CARDS, MOVES = "JQK", {"p": "pass", "b": "bet"}
REPLIES = ("<action>pass</action>", "<action>bet</action>")
SYNONYMS = {
    False: {"pass": "p", "bet": "b", "check": "p", "raise": "b"},
    True: {"pass": "p", "bet": "b", "fold": "p", "call": "b"},
}
"""Whether a bet is to be answered -> words for a move. Words that mean something else in real poker are left out."""
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
STAKES = {"pp": 1.0, "bb": 2.0, "pbb": 2.0}
"""Chips the better card wins where the betting ends in a showdown."""
FOLDED = {"bp": 1, "pbp": 2}
"""Seat that wins one chip where the betting ends in a fold."""

_ENDED_HAND = re.compile(r"Hand \d+: ")
Table = Mapping[str, tuple[float, float]]
"""Information state -> chances of (pass, bet)."""


@cache
def opponent_table(name: str) -> Table:
    """The chances of (pass, bet) of opponent `name` at all twelve information states."""
    habit = PLAYABLE[name]
    bets = {f"{card}{betting}": chances[card] for betting, chances in habit.items() for card in range(3)}
    return {state: (1.0 - bet, bet) for state, bet in bets.items()}


def payoff(betting: str, seat: int, mine: int, theirs: int) -> float:
    """Chips that `seat` wins when the hand ended with this betting."""
    if betting in FOLDED:
        return 1.0 if FOLDED[betting] == seat else -1.0
    return STAKES[betting] if mine > theirs else -STAKES[betting]


def check_opponent(name: str) -> None:
    if not is_habit(name):
        raise UnknownName("opponent of kuhn", name, [*HABITS, *GROUPS])


def is_habit(name: str) -> bool:
    return name in PLAYABLE


def members(part: str) -> Sequence[str]:
    """The opponents that a part of a pool stands for: itself, or those of a group."""
    return GROUPS.get(part, (part,))


def shown_card(betting: str, theirs: int) -> int | None:
    """The opponent's card, once a showdown has shown it."""
    return theirs if betting in STAKES else None


def state_key(mine: int, betting: str, theirs: int) -> str:
    """All that the player sees of a hand."""
    shown = shown_card(betting, theirs)
    return f"{mine}{betting}" + ("" if shown is None else f"/{shown}")


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
        return Bettor(self, kind, rng, skill, recall)

    def model(self) -> KuhnModel:
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


class Hand(NamedTuple):
    """The cards and the betting so far; in a match, the hand's number and what was won before."""

    mine: int
    theirs: int
    betting: str = ""
    number: int = 1
    chips: float = 0.0


@dataclass(frozen=True)
class KuhnModel:
    """Kuhn poker as a model. A world is an opponent and the episode: see `at_next_episode`."""

    seat: int
    hands: int
    opponents: tuple[tuple[str, float], ...]
    """With their probabilities."""
    env: KuhnPoker = field(compare=False, repr=False)

    def worlds(self) -> list[tuple[float, tuple[str, int]]]:
        return [(chance, (name, 0)) for name, chance in self.opponents]

    def between(self, world: tuple[str, int]) -> list[tuple[float, tuple[str, int]]]:
        return [(1.0, at_next_episode(*world))]

    def begin(self, world: tuple[str, int]) -> None:
        """No card is dealt yet."""

    def begins(self, world: tuple[str, int]) -> list[Outcome]:
        return list(self._dealt(world, 1, 0.0))

    def opening(self) -> str:
        return state_key(self.env.card, self.env.betting, self.env.hidden)

    def actions(self, state: Hand) -> str:
        return "pb"

    def outcomes(self, world: tuple[str, int], state: Hand, action: str) -> list[Outcome]:
        return list(self._answers(world, state._replace(betting=state.betting + action)))

    def _dealt(self, world: tuple[str, int], number: int, chips: float) -> Iterator[Outcome]:
        """How a hand may begin."""
        for mine, theirs in permutations(range(3), 2):
            for outcome in self._answers(world, Hand(mine, theirs, "", number, chips)):
                yield outcome._replace(probability=outcome.probability / 6)

    def _answers(self, world: tuple[str, int], hand: Hand) -> Iterator[Outcome]:
        """What the opponent's move, if it has one, may make of a hand; after a match's hand the next one is dealt."""
        mine, theirs, betting, number, chips = hand
        key = state_key(mine, betting, theirs)
        if betting in STAKES or betting in FOLDED:
            paid = payoff(betting, self.seat, mine, theirs)
            if number == self.hands:
                yield Outcome(1.0, hand, key, paid, done=True, won=chips + paid > 0)
                return
            for outcome in self._dealt(world, number + 1, chips + paid):
                yield outcome._replace(told=f"{key} {outcome.told}", reward=paid)
        elif len(betting) % 2 == self.seat - 1:
            yield Outcome(1.0, hand, key)
        else:
            table = opponent_table(at_episode(*world))
            for move, chance in zip("pb", table[f"{theirs}{betting}"], strict=True):
                for outcome in self._answers(world, hand._replace(betting=betting + move)):
                    yield outcome._replace(probability=chance * outcome.probability)

    def reply(self, action: str) -> str:
        return REPLIES["pb".index(action)]

    def told(self, step: Step) -> str:
        ended, env = self.env.ended, self.env
        before = f"{state_key(ended.mine, ended.betting, ended.theirs)} " if ended and not step.done else ""
        return before + state_key(env.card, env.betting, env.hidden)


class Guess(NamedTuple):
    """One way things may stand: who the opponent is, what it holds, and how likely that is (not normalised)."""

    table: Table
    theirs: int
    weight: float


def best_value(seat: int, mine: int, betting: str, guesses: Sequence[Guess]) -> float:
    """Chips that `seat` wins from here with the best play against one of the guesses, times their total weight."""
    if betting in STAKES or betting in FOLDED:
        return sum(guess.weight * payoff(betting, seat, mine, guess.theirs) for guess in guesses)
    if len(betting) % 2 == seat - 1:
        return max(best_value(seat, mine, betting + move, guesses) for move in MOVES)
    return sum(best_value(seat, mine, betting + move, updated(guesses, betting, move)) for move in MOVES)


def updated(guesses: Sequence[Guess], betting: str, move: str) -> list[Guess]:
    """The guesses after the opponent's next move: each weighs as much as it expected the move (Bayes' rule)."""
    return [
        Guess(table, theirs, weight * chance)
        for table, theirs, weight in guesses
        if (chance := table[f"{theirs}{betting}"]["pb".index(move)]) > 0.0
    ]


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
