"""Stand-ins that several test files share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mulligan.policy.base import Conversation
from mulligan.rollout.tasksets import tasks_of
from mulligan.types import Completion, Message, Sampling, Task


class ScriptedPolicy:
    """Gives a fixed list of replies, over and over."""

    name = "scripted"

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies = replies

    def start(self, task: Task, seed: int) -> Conversation:
        return _Scripted(self.replies)


class _Scripted:
    def __init__(self, replies: Sequence[str]) -> None:
        self.replies = itertools.cycle(replies)

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        return Completion(next(self.replies))

    def close(self) -> None:
        pass


def task_set(env: str, tasks: int, seed_set: str = "eval", **params: object) -> list[Task]:
    return tasks_of(env, tasks, seed_set, params)
