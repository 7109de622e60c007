"""Hands of Kuhn poker, for its tests."""

from __future__ import annotations

import itertools
from typing import Any

from mulligan.envs.kuhn import KuhnPoker
from mulligan.envs.registry import make
from mulligan.errors import StopReason
from mulligan.types import Completion, Episode, Step, Turn

PASS, BET = "<action>pass</action>", "<action>bet</action>"
J, Q, K = 0, 1, 2


def world(seed: int = 0, **params: Any) -> KuhnPoker:
    env = make("kuhn", seed, **params)
    assert isinstance(env, KuhnPoker)
    return env


def play(env: KuhnPoker, chance: int, replies: list[str], stop: StopReason | None = None) -> Episode:
    """An episode with these replies, as the trial runner would record it."""
    seen, turns, step = env.reset(chance), [], Step("")
    for reply in replies:
        step = env.step(reply)
        turns.append(Turn(seen, Completion(reply), step.reward, step.valid, step.state_key))
        seen = step.observation
        if step.done:
            break
    won = StopReason.WON if step.won else StopReason.LOST
    return Episode(0, tuple(turns), seen, stop or won)


def hand_of(env: KuhnPoker, mine: int, theirs: int) -> int:
    """A chance that deals these cards."""
    for chance in range(500):
        env.reset(chance)
        if (env.card, env.hidden) == (mine, theirs):
            return chance
    raise AssertionError("no such deal")


DEALS = list(itertools.permutations(range(3), 2))
