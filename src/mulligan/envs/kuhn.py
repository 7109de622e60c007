"""Kuhn poker: three cards, one bet, one hidden card; against an opponent whose habits can be learned.

A betting sequence is written as OpenSpiel writes it: p for pass (check or fold), b for bet (bet or call). A player's
information state is its card, 0 to 2 for J, Q and K, followed by the betting so far: ``1pb`` is a Queen that passed and
now faces a bet. There are twelve, six for each seat.

Parameters (`--env.NAME`):

opponent  ``random``, ``conservative``, ``intermediate``, ``aggressive``, or ``cfr``, which plays the equilibrium
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from mulligan.envs.base import Player, action_text
from mulligan.envs.openspiel import Match, Move, State, draw, load_game, pick, settle_seat, spiel
from mulligan.errors import StopReason, UnknownName
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

CARDS = "JQK"
MOVES = ("pass", "bet")
BETTINGS = ("", "p", "b", "pb")
"""Betting at which somebody must act: "" and "pb" are the first player's, "p" and "b" the second's."""
SYNONYMS: Mapping[bool, Mapping[str, int]] = {
    False: {"pass": 0, "bet": 1, "check": 0, "raise": 1},
    True: {"pass": 0, "bet": 1, "fold": 0, "call": 1},
}
"""Whether a bet is to be answered -> words for an action. What would mean something else in real poker is left out."""

HABITS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "random": {"": (0.5, 0.5, 0.5), "p": (0.5, 0.5, 0.5), "b": (0.5, 0.5, 0.5), "pb": (0.5, 0.5, 0.5)},
    # Never bluffs, bets the best card alone, and gives up most Queens when it is bet into.
    "conservative": {"": (0.0, 0.0, 0.5), "p": (0.0, 0.1, 1.0), "b": (0.0, 0.2, 1.0), "pb": (0.0, 0.2, 1.0)},
    # Bets whatever it holds more often than not, and calls with far too much.
    "aggressive": {"": (0.6, 0.6, 0.9), "p": (0.7, 0.7, 1.0), "b": (0.3, 0.9, 1.0), "pb": (0.3, 0.9, 1.0)},
    # Half-way between the two.
    "intermediate": {"": (0.3, 0.3, 0.7), "p": (0.35, 0.4, 1.0), "b": (0.15, 0.55, 1.0), "pb": (0.15, 0.55, 1.0)},
}
"""Opponent -> betting so far -> chance that it bets (or calls) with J, Q and K; it passes (or folds) otherwise."""
OPPONENTS = (*HABITS, "cfr")
CFR_ITERATIONS = 1000
"""Leaves an exploitability of 0.001 chips a hand; takes a tenth of a second, once in a process."""

STAKES = {"pp": 1.0, "bb": 2.0, "pbb": 2.0}
"""Chips the better card wins where the betting ends in a showdown."""
FOLDED = {"bp": 1, "pbp": 2}
"""Seat that wins one chip where the betting ends in a fold."""

Table = Mapping[str, tuple[float, float]]
"""Information state -> chances of (pass, bet)."""


@lru_cache(maxsize=8)
def opponent_table(name: str) -> Table:
    """The chances of (pass, bet) of opponent `name` at all twelve information states."""
    if name == "cfr":
        return equilibrium()
    if name not in HABITS:
        raise UnknownName("opponent of kuhn", name, OPPONENTS)
    bets = {f"{card}{betting}": HABITS[name][betting][card] for betting in BETTINGS for card in range(3)}
    return MappingProxyType({state: (1.0 - bet, bet) for state, bet in bets.items()})


@lru_cache(maxsize=1)
def equilibrium() -> Table:
    """The average policy of counterfactual regret minimisation (Zinkevich et al. 2007): a Nash equilibrium, nearly.

    It must be sampled: its most probable actions alone are a policy that can be exploited.
    """
    solver = spiel("kuhn").CFRSolver(load_game("kuhn", "kuhn_poker"))
    for _ in range(CFR_ITERATIONS):
        solver.evaluate_and_update_policy()
    average = solver.tabular_average_policy().policy_table()
    return MappingProxyType({state: (chances[0][1], chances[1][1]) for state, chances in sorted(average.items())})


def payoff(betting: str, seat: int, mine: int, theirs: int) -> float:
    """Chips that `seat` wins when the hand ended with this betting."""
    if betting in FOLDED:
        return 1.0 if FOLDED[betting] == seat else -1.0
    return STAKES[betting] if mine > theirs else -STAKES[betting]


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
        return max(best_value(seat, mine, betting + move, guesses) for move in "pb")
    return sum(best_value(seat, mine, betting + move, _updated(guesses, betting, move)) for move in "pb")


def best_response_value(table: Table, seat: int) -> float:
    """Chips a hand that the best response of `seat` wins from `table`; the mean over seats is its exploitability."""
    deals = {mine: [Guess(table, theirs, 1 / 6) for theirs in range(3) if theirs != mine] for mine in range(3)}
    return sum(best_value(seat, mine, "", guesses) for mine, guesses in deals.items())


def _updated(guesses: Sequence[Guess], betting: str, move: str) -> list[Guess]:
    """The guesses after the opponent's next move: each weighs as much as it expected the move (Bayes' rule)."""
    action = "pb".index(move)
    return [
        Guess(table, theirs, weight * table[f"{theirs}{betting}"][action])
        for table, theirs, weight in guesses
        if table[f"{theirs}{betting}"][action] > 0.0
    ]


class KuhnPoker:
    """Kuhn poker against one opponent: bet, bluff, call or fold with one card of three."""

    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "aggressive", "seat": 0}
    turns: ClassVar[int] = 4
    timeout_reward: ClassVar[float] = -1.0
    """Who stalls loses the ante."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.seat = task.integer("seat")
        self.game = load_game("kuhn", "kuhn_poker")
        self.table = opponent_table(task.text("opponent"))
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        if params["opponent"] not in OPPONENTS:
            raise UnknownName("opponent of kuhn", str(params["opponent"]), OPPONENTS)
        return settle_seat("kuhn", params, seed)

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"kuhn/vs-{params['opponent']}"

    def rules(self) -> str:
        return (
            "Kuhn poker for two players. The cards are J, Q and K; K beats Q, and Q beats J.\n"
            "Each player puts in one chip and gets one card; the third card stays unseen.\n"
            f"You act {'first' if self.seat == 1 else 'second'}. The players take turns to pass or bet:\n"
            "- With no bet to answer, pass puts in nothing and bet puts in one more chip.\n"
            "- With a bet to answer, pass folds and bet calls it with one more chip.\n"
            "Who folds loses one chip, and no card is shown.\n"
            "After two passes the better card wins one chip; after a call it wins two.\n"
            "Answer with <action>pass</action> or <action>bet</action>"
        )

    def reset(self, chance: int = 0) -> str:
        rng = generator(self.task.seed, "chance", chance)
        self.match = Match(self.game, self.seat, _sampled(self.table, rng), rng)
        return self._observe()

    def step(self, reply: str) -> Step:
        if self.match.over:
            return Step(self._observe(), valid=False, state_key=self._key(), feedback="The hand is over.")
        word = action_text(reply)
        action = SYNONYMS[self.betting.endswith("b")].get((word or "").lower())
        if action is None:
            why = "The reply names no single action." if word is None else "That is not an action here."
            feedback = f"{why} Answer with <action>pass</action> or <action>bet</action>"
            return Step(self._observe(), valid=False, state_key=self._key(), feedback=feedback)
        self.match.play(action)
        reward = self.match.reward
        return Step(self._observe(), reward, self.match.over, won=reward > 0, state_key=self._key())

    def legal(self) -> Sequence[str]:
        return [] if self.match.over else [f"<action>{move}</action>" for move in MOVES]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return _Player(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        return f"You acted {'first' if self.seat == 1 else 'second'}. {_told(_hand(episode))}"

    def reflect(self, episode: Episode) -> str:
        return _reflection(episode)

    @property
    def card(self) -> int:
        """The player's own card."""
        return int(self._information()[0])

    @property
    def betting(self) -> str:
        """The betting so far."""
        return self._information()[1:]

    @property
    def shown(self) -> int | None:
        """The opponent's card, once a showdown has shown it."""
        return self.hidden if self.betting in STAKES else None

    @property
    def hidden(self) -> int:
        """The opponent's card, which only the omniscient player may look at before a showdown."""
        return int(self.match.state.history()[2 - self.seat])

    def _information(self) -> str:
        return str(self.match.state.information_state_string(self.seat - 1))

    def _key(self) -> str:
        return self._information() if self.shown is None else f"{self._information()}/{self.shown}"

    def _observe(self) -> str:
        information = self._information()
        said = [
            f"{'you' if turn % 2 == self.seat - 1 else 'opponent'} {MOVES['pb'.index(move)]}"
            for turn, move in enumerate(information[1:])
        ]
        head = f"Your card: {CARDS[int(information[0])]}\nBetting: {', '.join(said) or 'none yet'}\n"
        if not self.match.over:
            to_answer = information.endswith("b")
            return head + ("Your turn: pass (fold) or bet (call)." if to_answer else "Your turn: pass or bet.")
        return head + self._result()

    def _result(self) -> str:
        chips = self.match.reward
        end = f"You {'win' if chips > 0 else 'lose'} {abs(chips):g} chip{'s' if abs(chips) > 1 else ''}."
        if self.shown is not None:
            return f"Showdown: the opponent holds {CARDS[self.shown]}. {end}"
        return f"{'The opponent folds' if chips > 0 else 'You fold'}. The opponent's card stays hidden. {end}"


def _sampled(table: Table, rng: random.Random) -> Move:
    """An opponent that draws its actions with the table's chances."""

    def answer(state: State) -> int:
        return draw(rng, table[state.information_state_string()])

    return answer


class _Player:
    """Plays the equilibrium; from memory, the best response to the opponents that would have played as this one did.

    What the earlier hands of the trial showed is kept as the likelihood of each scripted opponent, with the card summed
    out where it stayed hidden; every one is as likely as the others before the first hand. The omniscient player
    knows the opponent and its card.
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
        passing, betting = (best_value(world.seat, world.card, world.betting + move, guesses) for move in "pb")
        if abs(betting - passing) < 1e-9:  # also where there are no guesses
            return world.legal()[draw(self.rng, equilibrium()[f"{world.card}{world.betting}"])]
        return world.legal()[betting > passing]

    def see(self, step: Step) -> None:
        if not step.done or not step.valid:
            return
        before = self.likelihoods or [(opponent_table(name), 1.0) for name in OPPONENTS]
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
                guesses = _updated(guesses, world.betting[:turn], move)
        return guesses


class _Hand(NamedTuple):
    """What an episode's last observation tells, which is all that the player saw."""

    card: str
    betting: list[tuple[str, str]]
    """Who ("you" or "opponent") made which move, in order."""
    shown: str
    """The opponent's card; empty when it stayed hidden."""
    result: str
    """How it ended; empty when it did not."""


def _hand(episode: Episode) -> _Hand:
    card = re.search(r"Your card: (\w)", episode.final)
    shown = re.search(r"opponent holds (\w)", episode.final)
    result = episode.final.rpartition("\n")[2]
    return _Hand(
        card[1] if card else "?",
        re.findall(r"(you|opponent) (pass|bet)", episode.final),
        shown[1] if shown else "",
        "" if result.startswith("Your turn") else result,
    )


def _told(hand: _Hand) -> str:
    """The hand in one line."""
    said = ", ".join(" ".join(move) for move in hand.betting) or "none"
    return f"Your card: {hand.card}. Betting: {said}. {hand.result or 'The hand was not finished.'}"


_SENSE = {
    ("J", "pass", False): "J wins no showdown",
    ("Q", "pass", False): "Q beats J alone, so a bet is called by K and hardly by J",
    ("K", "pass", False): "a pass with K may draw a bet",
    ("J", "bet", False): "a bluff, since J wins only if the opponent folds",
    ("Q", "bet", False): "Q beats J, and the opponent may fold",
    ("K", "bet", False): "K wins every showdown",
    ("J", "pass", True): "J cannot win by a call",
    ("Q", "pass", True): "Q loses to K, and beats a bluff alone",
    ("K", "pass", True): "a fold with K gives up a sure win",
    ("J", "bet", True): "a call with J cannot win",
    ("Q", "bet", True): "Q beats a bluff with J",
    ("K", "bet", True): "K wins every showdown",
}
"""(own card, own move, whether it answered a bet) -> what there is to be said for it, or against it."""


def _reflection(episode: Episode) -> str:
    hand = _hand(episode)
    own = [move for who, move in hand.betting if who == "you"]
    answered = hand.betting[-2:-1] == [("opponent", "bet")]
    blunder = answered and (hand.card, own[-1]) in (("K", "pass"), ("J", "bet"))
    category = "wrong-move" if blunder else "none" if episode.won else "bad-luck"
    if not hand.result:
        category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
    failed = "none" if episode.won else f"turn {len(episode.turns)}, {own[-1] if own and hand.result else 'no action'}"
    return (
        "<reflection>\n"
        f"strategy: {' then '.join(own) or 'no action'} with {hand.card}\n"
        f"outcome: {'not finished' if not hand.result else 'won' if episode.won else 'lost'}\n"
        f"reward: {episode.reward:g}\n"
        f"failed_at: {failed}\n"
        f"reasoning: {_SENSE[hand.card, own[-1], answered] if own and hand.result else 'none'}\n"
        f"env_answer: {hand.result or 'none'}\n"
        f"error_category: {category}\n"
        f"plan: {_lesson(hand) if hand.result else 'answer every turn with pass or bet'}\n"
        "</reflection>"
    )


def _lesson(hand: _Hand) -> str:
    """What one finished hand suggests about the opponent: a hint, since one hand proves little."""
    if ("you", "bet") in hand.betting and hand.betting[-1][0] == "opponent":
        if not hand.shown:
            return "it folded to a bet, so bluff with J more often"
        weak = hand.shown != "K"
        return f"it called with {hand.shown}, {'so bluff less and bet K' if weak else 'as anybody would; play on'}"
    if ("opponent", "bet") in hand.betting:
        if not hand.shown:
            return "it bets, so call once with Q to see what it bets with"
        weak = hand.shown != "K"
        return f"it bet {hand.shown}, so {'call its bets with Q and K' if weak else 'fold Q until it is seen to bluff'}"
    return f"it passed {hand.shown}, so {'beware of its passes' if hand.shown == 'K' else 'bet after its passes'}"
