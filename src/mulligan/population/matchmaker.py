"""Who meets whom in a round: scripted opponents, other agents, snapshots of oneself; by shares."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mulligan.envs.base import draw
from mulligan.training.config import PopulationConfig

_CANDIDATES = 8
"""Pairings of which a prioritised one is drawn."""
_LEAST = 0.05
"""What the chance of a meeting is weighed with at least, so that none is left out for ever."""


class Pairing(NamedTuple):
    """A task that two play: an agent from the task's seat, and another agent or a snapshot from the other one."""

    agent: int
    other: int
    """The number of an agent; of a snapshot, the agent's own."""
    snapshot: int | None = None
    """The snapshot after so many updates; None where the agent itself plays, and learns from it."""


@dataclass(frozen=True)
class Round:
    """What each agent plays in a round."""

    scripted: int
    """Tasks of each agent against scripted opponents, or in solitary games."""
    pairings: Sequence[Pairing]


def shares(tasks: int, config: PopulationConfig, *, has_snapshots: bool) -> tuple[int, int, int]:
    """Of so many tasks: scripted ones (at least one), those with other agents (an even number), with snapshots."""
    others = 2 * round(config.others * tasks / 2)
    past = round(config.past * tasks) if has_snapshots else 0
    while others + past >= tasks:
        others, past = (others - 2, past) if others else (others, past - 1)
    return tasks - others - past, others, past


def matched(
    config: PopulationConfig,
    tasks: int,
    snapshots: Sequence[int],
    win_rate: Callable[[int, str], float],
    rng: random.Random,
) -> Round:
    """The round of a population in which every agent plays as many tasks of each kind as every other one.

    snapshots: numbers of updates after which there is one of every agent. win_rate: an agent's score against an
    opponent by its name, .5 where they have not met. Uniform: a random circle of agents, each the host of the next.
    Prioritised: of several such circles those of even games are likelier, weighed by the sum of p (1 - p); and of the
    snapshots those that win, by (1 - p)².
    """
    scripted, others, past = shares(tasks, config, has_snapshots=bool(snapshots))
    pairings: list[Pairing] = []
    is_weighed = config.matchmaking == "prioritised"
    for _ in range(others // 2):
        circles = [_circle(config.agents, rng) for _ in range(_CANDIDATES if is_weighed else 1)]
        rates = [[win_rate(pair.agent, f"agent/{pair.other}") for pair in circle] for circle in circles]
        weights = [max(_LEAST, sum(rate * (1.0 - rate) for rate in each)) for each in rates]
        pairings += circles[draw(rng, weights)]
    for agent in range(config.agents):
        names = [f"past/{agent}@{number}" for number in snapshots]
        weights = [max(_LEAST, (1.0 - win_rate(agent, name)) ** 2) if is_weighed else 1.0 for name in names]
        chosen = snapshots[draw(rng, weights)] if past else None  # one a round: its weights are loaded once
        pairings += [Pairing(agent, agent, chosen) for _ in range(past)]
    return Round(scripted, pairings)


def _circle(agents: int, rng: random.Random) -> list[Pairing]:
    order = list(range(agents))
    rng.shuffle(order)
    return [Pairing(agent, other) for agent, other in zip(order, [*order[1:], order[0]], strict=True)]
