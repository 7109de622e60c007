"""A world of counting to three, and a policy that keeps what it was shown, for the tests of the trial loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import mulligan
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Message, Sampling, Step, Task

REFLECTION = "<reflection>\nplan: try the next number\nerror_category: wrong-move\n</reflection>"


class Counter:
    """Say the numbers 1, 2, 3 in order; without digest, so that history is the transcript."""

    turns: ClassVar[int] = 3

    def __init__(self, task: Task) -> None:
        self.task = task

    def rules(self) -> str:
        return "Count to three."

    def reset(self, chance: int = 0) -> str:
        self.said = 0
        self.chance = chance
        return f"start {chance}"

    def step(self, reply: str) -> Step:
        if reply != str(self.said + 1):
            return Step(f"at {self.said}", valid=False, state_key=str(self.said), feedback="not next")
        self.said += 1
        won = self.said == 3
        return Step(f"at {self.said}", float(won), won, won, state_key=str(self.said))


def counter(**overrides: object) -> Counter:
    return Counter(Task("counter", seed=1, turns=3, task_class="counter", **overrides))  # type: ignore[arg-type]


class Recorder:
    """Answers from a list (or a function of the messages) and keeps what it was shown."""

    name = "recorder"

    def __init__(self, replies: Sequence[str | Exception] | None = None) -> None:
        self.replies = list(replies or ["1", "2", "x"])
        self.seen: list[list[Message]] = []
        self.sampling: list[Sampling] = []
        self.started = self.closed = self.played = 0

    def start(self, task: Task, seed: int) -> Recorder:
        self.started += 1
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append([dict(message) for message in messages])  # type: ignore[misc]
        self.sampling.append(sampling)
        if "Write a short" in messages[-1]["content"]:
            return Completion(REFLECTION, prompt_tokens=5, completion_tokens=7)
        answer = self.replies[self.played % len(self.replies)]
        self.played += 1
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer, prompt_tokens=3, completion_tokens=1)

    def close(self) -> None:
        self.closed += 1


def play(policy: Recorder, env: Counter | None = None, **options: object) -> mulligan.Trial:
    return run_trial_sync(env or counter(), policy, **options)


def openings(policy: Recorder) -> list[str]:
    """The last message of each first request of an episode."""
    return [messages[-1]["content"] for messages in policy.seen if messages[-1]["content"].endswith("start 0")]
