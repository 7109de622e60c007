"""Hands of poker scored by what was to be expected, where a policy knows how likely its replies are.

A hand's chips have a standard deviation of about 1.3 in Kuhn poker, most of it luck of the cards. So the policy is
asked for the chances of its moves at each information state of the hand, with the memory that it really had, and their
worth against the opponent is computed over all cards and moves. Trials are still sampled: memory comes of them.

Only the usual form of each legal reply is weighed, and chances are taken relative to each other: as if anything else
(an invalid reply, or the same move in other words) were asked again. Where more than `MOST_OTHER` such replies are to
be expected in a hand, it counts with its sampled reward.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from mulligan.envs import registry
from mulligan.envs.adapters.spiel_hand import HandTree, hand_tree, own_moves
from mulligan.envs.adapters.spiel_opponents import habits_of
from mulligan.envs.opponents import at_episode
from mulligan.eval.intervals import interval_of_mean
from mulligan.eval.opponents import told
from mulligan.eval.rooms import GAMES, are_hands, exploitability
from mulligan.policy.base import WeighsReplies
from mulligan.seeding import derive
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Episode, Message, Task, Trial

MOST_OTHER = 0.05
RARE = 1e-4
"""Information states that are come to less often are not asked for: what is done in them counts as random."""
EXPLOITED = 32
"""Trials whose exploitability is computed: in Leduc poker it takes 144 information states and half a second each."""
_AT_ONCE = 64
"""Trials whose prompts are weighed at once."""


class Line(NamedTuple):
    """An information state as the agent comes to it."""

    key: str
    observations: tuple[str, ...]
    """At each decision of the hand so far, the last one in this state."""
    replies: tuple[str, ...]
    """To those before the last."""
    legal: tuple[tuple[int, str], ...]
    """The actions in this state, and the replies that name them."""


@lru_cache(maxsize=256)
def lines_of(task: Task, opponent: str) -> dict[str, Line]:
    """The information states of a hand of the task against an opponent by name; the task's own does not matter."""
    env = cast(Any, registry.build(task))
    tree = _tree(task, opponent)
    lines = {}
    for state in tree.states:
        before = own_moves(state.example, tree.player)
        observations = [env.observation_in(each) for each in (*(each for each, _ in before), state.example)]
        replies = [env.reply_of(action) for _, action in before]
        legal = [(action, env.reply_of(action)) for action in state.actions]
        lines[state.key] = Line(state.key, tuple(observations), tuple(replies), tuple(legal))
    return lines


def _tree(task: Task, opponent: str) -> HandTree:
    return hand_tree(GAMES[task.env][0], task.integer("seat"), (opponent,))


@dataclass
class Hand:
    """A hand, and what the policy would do in it."""

    trial: Trial
    episode: Episode
    lines: Mapping[str, Line]
    """Information state -> how the agent comes to it; those that follow on others stand behind them."""
    tree: HandTree
    moves: dict[str, Mapping[int, float]]
    """Information state -> chances of actions; empty where the policy was not asked."""
    other: dict[str, float] = field(default_factory=dict)
    """Information state -> chance of a reply that names no action in its usual form."""

    def likely(self, decisions: int) -> list[Line]:
        """The information states after so many decisions that are not all too rare."""
        chances = zip(self.tree.states, self.tree.own_chances(self.moves), strict=True)
        likely = [state.key for state, chance in chances if state.reach[0] * chance > RARE]
        return [self.lines[key] for key in likely if len(self.lines[key].replies) == decisions]

    def settle(self) -> None:
        """Where the policy was not asked, it moves at random."""
        for key, line in self.lines.items():
            self.moves[key] = self.moves[key] or {action: 1 / len(line.legal) for action, _ in line.legal}

    @property
    def other_replies(self) -> float:
        """How many replies in other words are to be expected."""
        chances = zip(self.tree.states, self.tree.own_chances(self.moves), strict=True)
        return sum(float(state.reach[0] * chance) * self.other.get(state.key, 0.0) for state, chance in chances)


@dataclass
class ExactScores:
    """Scores the hands of a policy's trials."""

    policy: WeighsReplies
    settings: TrialSettings
    other: list[float] = field(default_factory=list)
    """Of each hand that was weighed, how many replies in other words are to be expected."""
    _is_told: bool = False
    _chances: dict[int, list[float]] = field(default_factory=dict)
    """Digest of a prompt -> the chances of its legal replies."""

    def scored(self, trials: Sequence[Trial], *, is_told: bool = False) -> list[Trial]:
        """The trials with the expected rewards of those episodes that can be scored; `is_told`: the agent was told who
        the opponent is."""
        self._is_told = is_told
        scored = [*trials]
        for first in range(0, len(trials), _AT_ONCE):
            scored[first : first + _AT_ONCE] = self._scored(trials[first : first + _AT_ONCE])
            if all(other > MOST_OTHER for other in self.other):
                break  # it answers in other words, or thinks first: none will be scored
        return scored

    def _scored(self, trials: Sequence[Trial]) -> list[Trial]:
        values: dict[tuple[int, int], float] = {}
        pairs = [(n, episode) for n, trial in enumerate(trials) for episode in trial.episodes]
        hands = {(n, each.index): hand for n, each in pairs if (hand := hand_of(trials[n], each))}
        for decisions in range(GAMES[trials[0].task.env][1]):
            promising = [hand for hand in hands.values() if hand.other_replies <= MOST_OTHER]
            self.weigh([(hand, line) for hand in promising for line in hand.likely(decisions)])
        for key, hand in hands.items():
            hand.settle()
            self.other.append(hand.other_replies)
            if hand.other_replies <= MOST_OTHER:
                values[key] = float(hand.tree.value(hand.moves)[0])
        return [
            replace(trial, episodes=tuple(replace(e, expected=values.get((n, e.index))) for e in trial.episodes))
            for n, trial in enumerate(trials)
        ]

    def exploitability(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Chips a hand that the policy gives away to its best response, in the first and in the last episode, the mean
        over some of the trials with its interval; None where their hands were not scored."""
        scored = [trial for trial in trials if all(each.expected is not None for each in trial.episodes)]
        given: dict[str, list[float]] = {"before": [], "after": []}
        for trial in scored[:EXPLOITED]:
            game, seat = GAMES[trial.task.env][0], trial.task.integer("seat")
            for name, episode in zip(given, (trial.episodes[0], trial.episodes[-1]), strict=True):
                hand = _hand(trial, episode, "random")  # against whom a player may come to all of its states
                self.weigh([(hand, line) for line in hand.lines.values()])
                hand.settle()
                given[name].append(exploitability(game, hand.moves, seat))
        if not given["before"]:
            return None
        means = {name: interval_of_mean(np.array([values])) for name, values in given.items()}
        parts = {name: {"mean": mean, "ci": interval} for name, (mean, interval) in means.items()}
        return {**parts, "trials": len(given["before"])}

    def to_dict(self) -> dict[str, Any]:
        """How many hands were scored, of how many, and how many replies in other words are to be expected in a hand."""
        exact = sum(other <= MOST_OTHER for other in self.other)
        mean = sum(self.other) / len(self.other) if self.other else None
        return {"hands": exact, "of": len(self.other), "other_replies": mean}

    def weigh(self, asked: Sequence[tuple[Hand, Line]]) -> None:
        """Note what the policy would do in information states of hands."""
        style = prompts.style(self.settings.style)
        messages = [self._prompt(hand.trial, hand.episode, line) for hand, line in asked]
        digests = [derive(json.dumps(each)) for each in messages]
        new = {digest: n for n, digest in enumerate(digests) if digest not in self._chances}
        replies = [[style.demonstrated(reply) for _, reply in asked[n][1].legal] for n in new.values()]
        if new:
            chances = self.policy.reply_chances([messages[n] for n in new.values()], replies, self.settings.sampling)
            self._chances |= dict(zip(new, chances, strict=True))
        for (hand, line), digest in zip(asked, digests, strict=True):
            weights = self._chances[digest]
            total = sum(weights)
            hand.other[line.key] = max(0.0, 1.0 - total)
            pairs = zip(line.legal, weights, strict=True)
            hand.moves[line.key] = {action: weight / total for (action, _), weight in pairs} if total > 0 else {}

    def _prompt(self, trial: Trial, episode: Episode, line: Line) -> list[Message]:
        """What the agent would be shown in an information state: the episode's own prompt, but for the hand."""
        *system, opening = episode.opening
        style, turns = prompts.style(self.settings.style), trial.task.turns
        before = opening["content"].removesuffix(episode.turns[0].observation)
        messages: list[Message] = [*system, {"role": "user", "content": before + line.observations[0]}]
        for number, (reply, observation) in enumerate(zip(line.replies, line.observations[1:], strict=True), 1):
            messages.append({"role": "assistant", "content": style.demonstrated(reply)})
            messages.append({"role": "user", "content": prompts.turn(observation, "", turns - number, style)})
        shown = prompts.last_turns(messages, len(line.replies), self.settings.window, system, style)
        return told(shown, trial.task) if self._is_told else shown


def can_score(task: Task, settings: TrialSettings, policy: object) -> bool:
    """Whether episodes of the task are hands that can be scored, and the policy tells how likely its replies are."""
    return isinstance(policy, WeighsReplies) and are_hands(task, settings)


def hand_of(trial: Trial, episode: Episode) -> Hand | None:
    """The hand of an episode; None where it cannot be scored."""
    opponent = at_episode(str(trial.task.opponent), episode.index)
    is_whole = episode.turns and not episode.continues and not episode.stop.is_infrastructure
    if not is_whole or opponent not in habits_of(GAMES[trial.task.env][0]):
        return None
    if not episode.opening[-1]["content"].endswith(episode.turns[0].observation):
        return None
    return _hand(trial, episode, opponent)


def _hand(trial: Trial, episode: Episode, opponent: str) -> Hand:
    lines, tree = lines_of(replace(trial.task, seed=0), opponent), _tree(trial.task, opponent)
    return Hand(trial, episode, lines, tree, {key: {} for key in lines})
