"""Hands of Kuhn poker, for its tests."""

from __future__ import annotations

import itertools
import random
from typing import Any

from mulligan.envs.kuhn.env import KuhnPoker
from mulligan.envs.kuhn.guesses import Guess, best_value
from mulligan.envs.kuhn.habits import Table
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


def best_response_value(table: Table, seat: int) -> float:
    """Chips a hand that the best response of `seat` wins from `table`; the mean over seats is its exploitability."""
    deals = {mine: [Guess(table, theirs, 1 / 6) for theirs in range(3) if theirs != mine] for mine in range(3)}
    return sum(best_value(seat, mine, "", guesses) for mine, guesses in deals.items())


def reflection(env: KuhnPoker, episode: Episode) -> str:
    """What a scripted player writes after the episode that has just been played."""
    return env.player("expert", random.Random(0), 1.0, 0.0).reflect(episode)  # type: ignore[attr-defined]
