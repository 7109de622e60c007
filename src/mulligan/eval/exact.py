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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

from mulligan.envs import registry
from mulligan.envs.adapters.spiel_hand import HandTree, hand_tree
from mulligan.envs.adapters.spiel_opponents import habits_of
from mulligan.envs.opponents import at_episode
from mulligan.eval.rooms import GAMES, are_hands
from mulligan.policy.base import WeighsReplies
from mulligan.seeding import derive
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Episode, Message, Task, Trial

MOST_OTHER = 0.05
_AT_ONCE = 64
"""Trials whose prompts are weighed at once."""
Moves = Mapping[str, Mapping[int, float]]
"""Information state -> chances of actions."""


class Line(NamedTuple):
    """An information state as the agent comes to it."""

    key: str
    observations: tuple[str, ...]
    """At each decision of the hand so far, the last one in this state."""
    replies: tuple[str, ...]
    """To those before the last."""
    legal: tuple[tuple[int, str], ...]
    """The actions in this state, and the replies that name them."""


class Weighed(NamedTuple):
    """What a policy would do in a hand."""

    moves: Moves
    other: Mapping[str, float]
    """Information state -> chance of a reply that names no action in its usual form."""


@lru_cache(maxsize=256)
def lines_of(task: Task, opponent: str) -> tuple[Line, ...]:
    """The information states of a hand of the task against an opponent by name; the task's own does not matter."""
    env = cast(Any, registry.build(task))
    tree = _tree(task, opponent)
    lines = []
    for state in tree.states:
        before = tree.own_moves(state.example)
        observations = [env.observation_in(each) for each in (*(each for each, _ in before), state.example)]
        replies = [env.reply_of(action) for _, action in before]
        legal = [(action, env.reply_of(action)) for action in state.actions]
        lines.append(Line(state.key, tuple(observations), tuple(replies), tuple(legal)))
    return tuple(lines)


def _tree(task: Task, opponent: str) -> HandTree:
    return hand_tree(GAMES[task.env][0], task.integer("seat"), (opponent,))


@dataclass
class ExactScores:
    """Scores the hands of a policy's trials."""

    policy: WeighsReplies
    settings: TrialSettings
    other: list[float] = field(default_factory=list)
    """Of each hand that was weighed, how many replies are to be expected that are something else."""
    _chances: dict[int, list[float]] = field(default_factory=dict)
    """Digest of a prompt -> the chances of its legal replies."""

    def scored(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials with the expected rewards of those episodes that can be scored."""
        scored = []
        for first in range(0, len(trials), _AT_ONCE):
            part = trials[first : first + _AT_ONCE]
            hands = [(trial, episode) for trial in part for episode in trial.episodes]
            self._ask((trial, episode, _lines(trial, episode)) for trial, episode in hands)
            for trial in part:
                episodes = tuple(replace(each, expected=self._value(trial, each)) for each in trial.episodes)
                scored.append(replace(trial, episodes=episodes))
        return scored

    def to_dict(self) -> dict[str, Any]:
        """How many hands were scored, of how many, and how many other replies are to be expected in a hand."""
        exact = sum(other <= MOST_OTHER for other in self.other)
        mean = sum(self.other) / len(self.other) if self.other else None
        return {"hands": exact, "of": len(self.other), "other_replies": mean}

    def _value(self, trial: Trial, episode: Episode) -> float | None:
        lines = _lines(trial, episode)
        if not lines:
            return None
        weighed, tree = self.weighed(trial, episode, lines), _tree(trial.task, _opponent(trial, episode))
        chances = tree.own_chances(weighed.moves)
        pairs = zip(tree.states, chances, strict=True)
        other = sum(float(state.reach[0] * chance) * weighed.other[state.key] for state, chance in pairs)
        self.other.append(other)
        return float(tree.value(weighed.moves)[0]) if other <= MOST_OTHER else None

    def weighed(self, trial: Trial, episode: Episode, lines: Sequence[Line]) -> Weighed:
        """What the policy would do in these information states, with what it remembered in the episode."""
        self._ask([(trial, episode, lines)])
        moves, other = {}, {}
        for line in lines:
            chances = self._chances[_digest(self._prompt(trial, episode, line))]
            total = sum(chances)
            other[line.key] = max(0.0, 1.0 - total)
            weights = chances if total > 0 else [1.0] * len(chances)
            pairs = zip(line.legal, weights, strict=True)
            moves[line.key] = {action: weight / sum(weights) for (action, _), weight in pairs}
        return Weighed(moves, other)

    def _ask(self, hands: Iterable[tuple[Trial, Episode, Sequence[Line]]]) -> None:
        """Weigh the replies to all prompts of hands that were not weighed yet."""
        style, asked = prompts.style(self.settings.style), dict[int, tuple[list[Message], list[str]]]()
        for trial, episode, lines in hands:
            for line in lines:
                messages = self._prompt(trial, episode, line)
                if (digest := _digest(messages)) not in self._chances:
                    asked[digest] = (messages, [style.demonstrated(reply) for _, reply in line.legal])
        if asked:
            messages_of, replies = zip(*asked.values(), strict=True)
            chances = self.policy.reply_chances(messages_of, replies, self.settings.sampling)
            self._chances |= dict(zip(asked, chances, strict=True))

    def _prompt(self, trial: Trial, episode: Episode, line: Line) -> list[Message]:
        """What the agent would be shown in an information state: the episode's own prompt, but for the hand."""
        *system, opening = episode.opening
        style, turns = prompts.style(self.settings.style), trial.task.turns
        before = opening["content"].removesuffix(episode.turns[0].observation)
        messages: list[Message] = [*system, {"role": "user", "content": before + line.observations[0]}]
        for number, (reply, observation) in enumerate(zip(line.replies, line.observations[1:], strict=True), 1):
            messages.append({"role": "assistant", "content": style.demonstrated(reply)})
            messages.append({"role": "user", "content": prompts.turn(observation, "", turns - number, style)})
        return prompts.last_turns(messages, len(line.replies), self.settings.window, system)


def can_score(task: Task, settings: TrialSettings, policy: object) -> bool:
    """Whether episodes of the task are hands that can be scored, and the policy tells how likely its replies are."""
    return isinstance(policy, WeighsReplies) and are_hands(task, settings)


def _lines(trial: Trial, episode: Episode) -> tuple[Line, ...]:
    """The information states of an episode's hand; none where it cannot be scored."""
    opponent = _opponent(trial, episode)
    is_whole = episode.turns and not episode.continues and not episode.stop.is_infrastructure
    if not is_whole or opponent not in habits_of(GAMES[trial.task.env][0]):
        return ()
    if not episode.opening[-1]["content"].endswith(episode.turns[0].observation):
        return ()
    return lines_of(replace(trial.task, seed=0), opponent)


def _opponent(trial: Trial, episode: Episode) -> str:
    return at_episode(str(trial.task.opponent), episode.index)


def _digest(messages: Sequence[Message]) -> int:
    return derive(json.dumps(messages))
