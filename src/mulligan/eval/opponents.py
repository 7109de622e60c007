"""Controls of games against an opponent: another opponent's memory, and who it is told in words.

The words are the environment's (`opponent_words`, a mapping from an opponent's name to what it does: "throws what you
threw last").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mulligan.envs import registry
from mulligan.envs.opponents import LAST_SWITCH, WORDS, at_episode
from mulligan.policy.base import Conversation, Policy
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Message, Sampling, Task, Trial


def left_out(control: str, tasks: Sequence[Task], settings: TrialSettings) -> str:
    """Why a control of a game cannot be played; empty if it can."""
    if control == "foreign" and len({task.opponent for task in tasks}) < 2:
        return "all tasks have the same opponent"
    if control == "told" and not prompts.system("rules", prompts.style(settings.style), 1):
        return f"style {settings.style} has no words"
    if control == "told" and any(opponent_in_words(task) is None for task in tasks):
        return "the environment has no words for the opponent"
    return ""


def other_opponents(task: Task, trials: Sequence[Trial]) -> list[Trial]:
    """The trials against other opponents than the task's; those in the same seat, if there are any."""
    others = [trial for trial in trials if trial.task.opponent != task.opponent]
    return [trial for trial in others if trial.task.seat == task.seat] or others


def remembered_by(trial: Trial, index: int) -> str | None:
    """What stood before the first observation of a trial's episode: memory, and the words around it.

    None where there was no such episode, or where it went on in the messages of the one before.
    """
    episode = trial.episodes[index] if index < len(trial.episodes) else None
    if episode is None or episode.continues or not episode.turns:
        return None
    return episode.opening[-1]["content"].removesuffix(episode.turns[0].observation)


@lru_cache(maxsize=4096)
def opponent_in_words(task: Task) -> str | None:
    """Who the task's opponent is, in a sentence; None where the environment has no words for it."""
    words: Mapping[str, str] = {**WORDS, **getattr(registry.build(task), "opponent_words", {})}
    opponent = str(task.opponent)
    first, then = at_episode(opponent, 0), at_episode(opponent, LAST_SWITCH)
    if first not in words or then not in words:
        return None
    change = opponent.rpartition("@")[2]
    return f"The opponent {words[first]}" + (f"; from episode {change} on it {words[then]}." if then != first else ".")


def told(messages: Sequence[Message], task: Task) -> list[Message]:
    """The messages with who the opponent is after the rules, which come first."""
    rules, *rest = messages
    return [{"role": rules["role"], "content": f"{rules['content']}\n{opponent_in_words(task)}"}, *rest]


class Told:
    """A policy that is told who the opponent is."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _ToldConversation(self.policy.start(task, seed), task)


class _ToldConversation:
    def __init__(self, conversation: Conversation, task: Task) -> None:
        self.conversation, self.task = conversation, task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conversation, name)

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        return await self.conversation.reply(told(messages, self.task), sampling)

    def close(self) -> None:
        self.conversation.close()
