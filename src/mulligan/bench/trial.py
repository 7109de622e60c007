"""What the trial loop adds to a turn: trials with an instant policy, less the same steps taken bare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from mulligan.bench import Report
from mulligan.envs import registry
from mulligan.policy.base import Conversation
from mulligan.trial.runner import run_trial
from mulligan.types import Completion, Memory, Message, Sampling, Task

TRIALS = 400


class Instant:
    """Answers at once, always with cells of one row and a reflection that fits."""

    name = "instant"

    def start(self, task: Task, seed: int) -> Conversation:
        return _InstantConversation()


class _InstantConversation:
    def __init__(self) -> None:
        self.replies = [Completion(f"<action>(1, {col})</action>") for col in range(1, 7)]
        self.given = 0

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.given += 1
        return self.replies[self.given % len(self.replies)]

    def close(self) -> None:
        pass


def run() -> Report:
    modes: tuple[Memory, ...] = ("none", "history", "reflection", "both")
    bare = min(_bare() for _ in range(3))
    rows = []
    for memory in modes:
        whole = min(asyncio.run(_trials(memory)) for _ in range(3))
        rows.append((f"memory {memory}", whole * 1e6, (whole - bare) * 1e6))
    title = f"The trial loop on MineSweeper (the bare step takes {bare * 1e6:.1f} µs)"
    return Report(title, ("trial", "µs a turn", "overhead µs"), tuple(rows))


def _tasks() -> list[Task]:
    return [registry.make_task("minesweeper", seed) for seed in range(TRIALS)]


async def _trials(memory: Memory) -> float:
    tasks, policy, turns = _tasks(), Instant(), 0
    started = time.perf_counter()
    for task in tasks:
        trial = await run_trial(task, policy, memory=memory)
        turns += sum(len(episode.turns) for episode in trial.episodes)
    return (time.perf_counter() - started) / turns


def _bare() -> float:
    tasks, turns = _tasks(), 0
    replies = [f"<action>(1, {col})</action>" for col in range(1, 7)]
    started = time.perf_counter()
    for task in tasks:
        env = registry.build(task)
        for _ in range(3):
            env.reset()
            for turn in range(task.turns):
                turns += 1
                if env.step(replies[turn % 6]).done:
                    break
    return (time.perf_counter() - started) / turns
