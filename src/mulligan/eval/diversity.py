"""How differently an agent plays the same task: the entropy of its action sequences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from mulligan.envs.base import action_text
from mulligan.types import Episode, Task, Trial

TRIALS = 32
"""Of each task; the entropy is at most log TRIALS = 3.47 nats."""


def diversity(trials: Sequence[Trial]) -> float:
    """Entropy, in nats, of the action sequences of first episodes among the trials of one task; mean over tasks.

    It depends on how many trials a task has: compare figures of equally many, sampled at one temperature.
    """
    by_task: dict[Task, Counter[tuple[str, ...]]] = {}
    for trial in trials:
        by_task.setdefault(trial.task, Counter())[_actions(trial.episodes[0])] += 1
    return sum(map(_entropy, by_task.values())) / len(by_task)


def _actions(episode: Episode) -> tuple[str, ...]:
    """The actions of an episode without thoughts, case and spaces."""
    replies = (turn.reply.text for turn in episode.turns)
    return tuple("".join((action_text(text) or text).split()).lower() for text in replies)


def _entropy(counts: Counter[tuple[str, ...]]) -> float:
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values())
