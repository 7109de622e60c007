"""A scripted player of rock-paper-scissors that knows no habits: it counts what followed what.

How often the opponent threw what is counted after each situation of seven kinds: any, its last throw, the agent's,
both, and the last two of either or of both. Each kind is believed as far as it has foretold the throws so far (Bayes'
rule, with Dirichlet priors), and the throw that earns most against what is believed is played.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

from mulligan.envs.base import pick
from mulligan.envs.repeated.env import RepeatedGame
from mulligan.envs.repeated.player import reflection_on
from mulligan.types import Episode, Step

Rounds = Sequence[tuple[int, int]]
"""[round] the agent's throw and the opponent's."""
_PRIOR = 0.3
"""Of each throw, before any was counted: below 1, since most habits are quite sure."""
_FORGET_BELIEF = 0.98
"""What a kind of situation has foretold counts less by this power with each throw, so that an opponent may change."""
_FORGET_COUNTS = 0.9
"""What was counted in a situation counts less by this factor whenever it comes again."""
_TIE = 1e-9


def _last(agents: int, opponents: int) -> Callable[[Rounds], Hashable]:
    """The situation after the last so many throws of either; before there were as many, how many there were."""
    longest = max(agents, opponents)

    def situation(rounds: Rounds) -> Hashable:
        if len(rounds) < longest:
            return len(rounds)
        last = rounds[len(rounds) - longest :]
        return (
            tuple(mine for mine, _ in last[longest - agents :]),
            tuple(theirs for _, theirs in last[longest - opponents :]),
        )

    return situation


SITUATIONS = tuple(_last(*lengths) for lengths in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 2)))


class Counts:
    """What was counted so far, and how far each kind of situation is believed."""

    def __init__(self) -> None:
        self.counts: list[dict[Hashable, list[float]]] = [{} for _ in SITUATIONS]
        self.belief = [1.0] * len(SITUATIONS)

    def chances(self, rounds: Rounds) -> list[float]:
        """Of the opponent's next throw."""
        total, mixed = sum(self.belief), [0.0, 0.0, 0.0]
        for situation, counts, belief in zip(SITUATIONS, self.counts, self.belief, strict=True):
            count = counts.get(situation(rounds)) or [_PRIOR] * 3
            for throw in range(3):
                mixed[throw] += belief / total * count[throw] / sum(count)
        return mixed

    def see(self, rounds: Rounds, theirs: int) -> None:
        """Count what came after `rounds`."""
        for number, (situation, counts) in enumerate(zip(SITUATIONS, self.counts, strict=True)):
            count = counts.setdefault(situation(rounds), [_PRIOR] * 3)
            self.belief[number] = self.belief[number] ** _FORGET_BELIEF * count[theirs] / sum(count)
            count[:] = [_PRIOR + (counted - _PRIOR) * _FORGET_COUNTS for counted in count]
            count[theirs] += 1.0
        most = max(self.belief)
        self.belief = [belief / most for belief in self.belief]


class Counting:
    """Plays the best answer to what it counted, in this match, or as `recall` says in all so far."""

    def __init__(self, world: RepeatedGame, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.rng, self.skill, self.recall = world, rng, skill, recall
        self.remembered, self.of_match = Counts(), Counts()

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        counts = self.remembered if self.rng.random() < self.recall else self.of_match
        chances = counts.chances(world.played)
        values = [sum(p * points for p, points in zip(chances, row, strict=True)) for row in world.payoffs.points]
        best = [reply for reply, value in zip(world.replies, values, strict=True) if value >= max(values) - _TIE]
        return pick(self.rng, best)

    def see(self, step: Step) -> None:
        if step.valid:
            *before, (_, theirs) = self.world.played
            self.remembered.see(before, theirs)
            self.of_match.see(before, theirs)
        if step.done:
            self.of_match = Counts()

    def reflect(self, episode: Episode) -> str:
        return reflection_on(self.world, episode, "expect what has mostly followed the last throws")
