"""Leduc poker: six cards, two rounds of betting, one open card; against an opponent whose habits can be learned.

OpenSpiel's game (extra ``games``) with readable text. Suits do not count, so its cards are ranks here, 0 to 2.

Parameters (`--env.NAME`):

opponent  ``caller``, ``maniac`` (raises), ``rock`` (raises what is strong and folds the rest), ``bluffer`` (raises what
          is weak and calls with the rest), ``random``, ``cfr`` (the equilibrium); ``station``, ``trapper``,
          ``brawler``, ``thief`` (the same kinds, for evaluation); ``seen`` (the first five), ``unseen`` (the last
          four), ``drawn`` (96 to train with that toss coins, ``drawn-0`` to ``drawn-95``); or several, or one that
          changes (`mulligan.envs.opponents`)
pool      what the opponent was drawn from, which is filled in
seat      1 moves first, 2 second; 0 lets the seed decide
view      ``plain`` words, or ``compact``: a letter, a digit or a word for each thing that is seen, for tiny models
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from mulligan.envs import drawing
from mulligan.envs.adapters.leduc_habits import CALL, FOLD, GROUPS, RAISE, ranks
from mulligan.envs.adapters.openspiel import SpielGame
from mulligan.envs.adapters.spiel_hand import (
    Children,
    HandTree,
    Numbers,
    ending_key,
    hand_tree,
    losses_of,
    own_moves,
)
from mulligan.envs.adapters.spiel_opponents import shown_card
from mulligan.envs.base import ORDER, Player, check_choices, pick, reflection_text
from mulligan.envs.model import Outcome
from mulligan.envs.opponents import at_any_episode, at_episode, at_next_episode, chances_of, check_models
from mulligan.errors import StopReason
from mulligan.types import Episode, ParamValue, Step, Task

GAME = "leduc_poker(suit_isomorphism=true)"
RANKS, MOVES = "JQK", ("fold", "call", "raise")
LETTERS = "fcr"
"""For the moves, in the compact view; the opponent's are 1, 2 and 3."""
SYNONYMS = {"check": "call", "bet": "raise"}
"""Words for moves where there is no raise to answer."""


class LeducPoker(SpielGame):
    """Leduc poker against one opponent: two rounds of betting, with one card in the hand and one on the table."""

    draw = staticmethod(drawing.poker)
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "rock", "seat": 0, "pool": "", "view": "plain"}
    name: ClassVar[str] = "leduc"
    game_name: ClassVar[str] = GAME
    is_open: ClassVar[bool] = False
    turns: ClassVar[int] = 6
    """A hand has four decisions at most, so that two invalid replies are forgiven."""
    timeout_reward: ClassVar[float] = -13.0
    """The most that can be lost."""
    opponent_words: ClassVar[Mapping[str, str]] = {
        "caller": "calls with everything",
        "maniac": "raises with everything",
        "rock": "raises with a King or a pair, and folds the rest",
        "bluffer": "raises with what is weak, and calls with a King or a pair",
        "station": "raises with a King or a pair, and calls with the rest",
        "trapper": "calls with a King or a pair, and folds the rest to a raise",
        "brawler": "raises with everything, and folds what is weak to a raise",
        "thief": "raises with what is weak but folds it to a raise, and calls with a King or a pair",
    }

    def __init__(self, task: Task) -> None:
        self.compact = task.text("view") == "compact"
        super().__init__(task)

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        check_choices(cls.name, params, {"view": ("plain", "compact")})
        return super().settle(params, seed)

    @classmethod
    def members(cls, part: str) -> Sequence[str]:
        return GROUPS.get(part, (part,))

    def rules(self) -> str:
        replies = f"Answer with {' or '.join(self.reply_of(move) for move in (RAISE, CALL, FOLD))}"
        if self.compact:
            replies += (
                "\nYour moves are letters, those of the opponent numbers: f or 1 is fold, c or 2 is call, r or 3 is "
                "raise.\nJ 3 c Q 2 r 1 | won 3: with a J you called a raise; Q was laid open, the opponent called, you "
                "raised, and it folded. A card behind the line is the opponent's."
            )
        return (
            "Leduc poker for two players. The deck has two J, two Q and two K; K beats Q, and Q beats J.\n"
            "Each player puts in one chip and gets one card. After a round of betting one card is laid open, and a "
            f"second round follows. You act {ORDER[self.seat]} in each round. The players take turns:\n"
            "- call puts in what is missing to the opponent's chips; with no raise to answer, that is nothing.\n"
            "- raise calls and puts in 2 more chips, 4 in the second round. There are at most two raises in a round.\n"
            "- fold, where there is a raise to answer, loses what one has put in, and no card is shown.\n"
            "A round ends when a raise is called, or when both have called without one.\n"
            "In the end a card of the same rank as the open one wins, or else the better card; equal cards share.\n"
            f"{replies}"
        )

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        seen_so = copy(self)
        seen_so.compact = params.get("view") == "compact"
        return super(LeducPoker, seen_so).switched(params)

    def step(self, reply: str) -> Step:
        """A move earns what it gives away of the best play against this opponent; the last also what that is worth."""
        step = super().step(reply)
        if not step.valid or self.habit_named(self.opponent_name) is None:
            return step
        best, losses = losses_of(GAME, self.seat, self.opponent_name)
        moves = own_moves(self.state, self.seat - 1)
        before, action = moves[-1]
        loss = losses[before.information_state_string(self.seat - 1)][action]
        earned = (best if step.done else 0.0) - loss
        return step._replace(luck=step.reward - earned)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return LeducPlayer(self, kind, rng, skill, recall)

    def model(self) -> LeducModel:
        expected = self.expected()
        check_models(self.name, [name for name in at_any_episode(expected) if not self.habit_named(name)])
        return LeducModel(self.seat, tuple(expected.items()), self)

    def expected(self) -> dict[str, float]:
        """The opponents that the task was drawn from, with their probabilities."""
        spec = self.task.text("pool") or self.task.text("opponent")
        return chances_of(self.name, spec, self.check_opponent, self.members)

    def observation_in(self, state: Any) -> str:
        """What the player would see in a state of OpenSpiel's game."""
        self.state = state
        return self.observe()

    def reply_of(self, action: int) -> str:
        """An action of OpenSpiel's game as a reply."""
        return f"<action>{(LETTERS if self.compact else MOVES)[action]}</action>"

    def digest(self, episode: Episode) -> str:
        if self.compact:
            return episode.final if self.over else f"{episode.final} | not finished"
        lines = episode.final.split("\n")
        if lines[-1].startswith("Your turn"):
            lines[-1] = "The hand was not finished."
        return f"You acted {ORDER[self.seat]}. " + " ".join(
            line if line.endswith(".") else f"{line}." for line in lines
        )

    @property
    def shown(self) -> int | None:
        """The rank of the opponent's card, once a showdown has shown it."""
        return shown_card(self.state, 2 - self.seat) if self.over else None

    def betting(self) -> list[list[tuple[bool, int]]]:
        """Whether it was the player's, and the move, for each move of the two rounds."""
        rounds: list[list[tuple[bool, int]]] = [[]]
        state: Any = self.game.new_initial_state()
        for action in self.state.history():
            if not state.is_chance_node():
                rounds[-1].append((state.current_player() == self.seat - 1, action))
            elif len(state.history()) > 1:
                rounds.append([])
            state.apply_action(action)
        return rounds

    def _moves(self) -> dict[int, str]:
        names = LETTERS if self.compact else MOVES
        return {move: names[move] for move in self.state.legal_actions(self.seat - 1)}

    def _named(self, name: str) -> int | None:
        word = name.lower()
        if FOLD not in self._moves():
            word = SYNONYMS.get(word, word)
        if self.compact and word in MOVES:
            word = LETTERS[MOVES.index(word)]
        return super()._named(word)

    def _seen(self) -> str:
        return (
            ending_key(self.state, self.seat - 1)
            if self.over
            else str(self.state.information_state_string(self.seat - 1))
        )

    def observe(self) -> str:
        card, public = ranks(self.state, self.seat - 1)
        if self.compact:
            return self._compact(card, public)
        lines = [f"Your card: {RANKS[card]}", f"Open card: {'none yet' if public is None else RANKS[public]}"]
        for number, moves in enumerate(self.betting(), 1):
            texts = [f"{'you' if mine else 'opponent'} {MOVES[move]}" for mine, move in moves]
            lines.append(f"Round {number}: {', '.join(texts) or 'no move yet'}")
        return "\n".join([*lines, self.ending()])

    def _compact(self, card: int, public: int | None) -> str:
        """``J 3 c Q 2 r 2 | Q lost 7``: the card, a round, the open card, another round, and how it ended."""
        cards = [RANKS[each] for each in (card, public) if each is not None]
        words: list[str | int] = []
        for shown, moves in zip(cards, self.betting(), strict=True):
            words += [shown, *(LETTERS[move] if mine else move + 1 for mine, move in moves)]
        if self.over:
            result = "won" if self.total > 0 else "lost" if self.total else "drawn"
            words += ["|", *("" if self.shown is None else RANKS[self.shown]), result]
            words += [f"{abs(self.total):g}"] if self.total else []
        return " ".join(map(str, words))

    def ending(self) -> str:
        """How the hand ended, or what can be played now."""
        if not self.over:
            left = re.findall(r"\d+", re.findall(r"\[Money: (.*?)\]", self._seen())[0])  # of 100 for each player
            mine, theirs = (100 - int(left[player]) for player in (self.seat - 1, 2 - self.seat))
            return (
                f"Pot: {mine} from you, {theirs} from the opponent\nYour turn: {' or '.join(self._moves().values())}."
            )
        chips = abs(self.total)
        result = f"You {'win' if self.total > 0 else 'lose'} {chips:g} chip{'s' if chips > 1 else ''}."
        if self.shown is not None:
            return f"Showdown: the opponent holds {RANKS[self.shown]}. {result if chips else 'The chips are shared.'}"
        return f"{'The opponent folds' if self.total > 0 else 'You fold'}. The opponent's card stays hidden. {result}"


@dataclass(frozen=True)
class LeducModel:
    """Leduc poker as a model. A world is an opponent and the episode: see `at_next_episode`. A state is the number of
    an information state: what the opponent may hold is summed out for each opponent."""

    seat: int
    opponents: tuple[tuple[str, float], ...]
    """With their probabilities."""
    env: LeducPoker = field(compare=False, repr=False)

    @cached_property
    def columns(self) -> dict[str, int]:
        """Opponent -> its column in the tree."""
        return {name: column for column, name in enumerate(at_any_episode(dict(self.opponents)))}

    @cached_property
    def tree(self) -> HandTree:
        return hand_tree(GAME, self.seat, tuple(self.columns))

    def worlds(self) -> list[tuple[float, tuple[str, int]]]:
        return [(chance, (name, 0)) for name, chance in self.opponents]

    def between(self, world: tuple[str, int]) -> list[tuple[float, tuple[str, int]]]:
        return [(1.0, at_next_episode(*world))]

    def begin(self, world: tuple[str, int]) -> None:
        """No card is dealt yet."""

    def begins(self, world: tuple[str, int]) -> list[Outcome]:
        return self._following(world, self.tree.root, 1.0)

    def opening(self) -> str:
        return str(self.env.state.information_state_string(self.seat - 1))

    def actions(self, state: int) -> list[int]:
        return list(self.tree.states[state].actions)

    def outcomes(self, world: tuple[str, int], state: int, action: int) -> list[Outcome]:
        information_state = self.tree.states[state]
        reach = float(information_state.reach[self.columns[at_episode(*world)]])
        return self._following(world, information_state.actions[action], reach)

    def _following(self, world: tuple[str, int], children: Children, reach: float) -> list[Outcome]:
        """What may be seen next, from something that has the chance `reach`."""
        tree, column = self.tree, self.columns[at_episode(*world)]
        outcomes = []
        for number in children.states:
            if chance := float(tree.states[number].reach[column]):
                outcomes.append(Outcome(chance / reach, number, tree.states[number].key))
        for number in children.endings:
            if chance := float(tree.reach[number, column]):
                chips = round(float(tree.paid[number, column]) / chance, 9)
                outcomes.append(Outcome(chance / reach, None, tree.endings[number], chips, done=True, won=chips > 0))
        return outcomes

    def reply(self, action: int) -> str:
        return self.env.reply_of(action)

    def told(self, step: Step) -> str:
        return step.state_key


@lru_cache(maxsize=10_000)
def _best_actions(seat: int, opponents: tuple[str, ...], belief: tuple[float, ...]) -> dict[str, int]:
    """The best action in each information state, where the opponent is each of these with such a weight."""
    return hand_tree(GAME, seat, opponents).best_response(np.array(belief))[1]


class LeducPlayer:
    """Plays the best response to the opponents of the task's pool, or to all if that names one alone; from memory, to
    those that would have played as this one did. If none would have, it has changed, and all begins anew. The
    omniscient player knows the opponent."""

    def __init__(self, world: LeducPoker, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        expected = {name: each for name, each in at_any_episode(world.expected()).items() if world.habit_named(name)}
        if len(expected) <= 1:
            seen, unseen = GROUPS["seen"], GROUPS["unseen"]
            expected = dict.fromkeys(seen if set(expected) <= set(seen) else (*seen, *unseen), 1.0)
        self.names = tuple(expected)
        self.tree = hand_tree(GAME, world.seat, self.names)
        self.prior: Numbers = np.array([*expected.values()]) / sum(expected.values())
        self.belief = self.prior

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        names, belief = self.names, self.belief if self.rng.random() < self.recall else self.prior
        if self.kind == "omniscient" and world.habit_named(world.opponent_name):
            names, belief = (world.opponent_name,), np.ones(1)
        actions = _best_actions(world.seat, names, tuple(belief.round(6)))
        action = actions.get(world.state.information_state_string(world.seat - 1))
        # None of those that it expects could have played so.
        return pick(self.rng, world.legal()) if action is None else world.reply_of(action)

    def see(self, step: Step) -> None:
        if step.done and step.valid and step.state_key in self.tree.ending_numbers:
            likelihood = self.tree.reach[self.tree.ending_numbers[step.state_key]]
            weights = self.belief * likelihood
            weights = weights if weights.any() else self.prior * likelihood
            self.belief = weights / weights.sum()

    def beliefs(self) -> dict[str, float]:
        """How likely each opponent is that there may be, after all that was seen, of this hand too."""
        world, weights = self.world, self.belief
        key = "" if world.over else world.state.information_state_string(world.seat - 1)
        reach = [state.reach for state in self.tree.states if state.key == key]
        if reach and (self.belief * reach[0]).any():
            weights = self.belief * reach[0]
        return dict(zip(self.names, (weights / weights.sum()).tolist(), strict=True))

    def reflect(self, episode: Episode) -> str:
        """What the hand that has just been played shows, and no more than the player saw."""
        world = self.world
        mine = [MOVES[move] for moves in world.betting() for is_mine, move in moves if is_mine]
        theirs = [MOVES[move] for moves in world.betting() for is_mine, move in moves if not is_mine]
        category = "none" if episode.won else "bad-luck"
        if not world.over:
            category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
        shown = "" if world.shown is None else f" with {RANKS[world.shown]}"
        result = "not finished" if not world.over else "won" if episode.won else "lost" if world.total else "drawn"
        last = mine[-1] if mine and world.over else "no action"
        return reflection_text(
            strategy=f"{' then '.join(mine) or 'no action'} with {RANKS[ranks(world.state, world.seat - 1)[0]]}",
            outcome=result,
            reward=f"{episode.reward:g}",
            failed_at="none" if episode.won else f"turn {len(episode.turns)}, {last}",
            reasoning="none",
            env_answer=world.ending() if world.over else "none",
            error_category=category,
            plan=f"expect it to {' then '.join(theirs)}{shown}" if theirs else "see what it does",
        )
