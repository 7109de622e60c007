"""Repeated games as models: what a round pays, and what a habit does next."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mulligan.envs.model import Outcome
from mulligan.envs.opponents import HIDDEN_SWITCHES, at_episode, is_hidden
from mulligan.envs.repeated.habits import Habit
from mulligan.types import Step


class Payoffs(NamedTuple):
    """What a match pays."""

    points: Sequence[Sequence[int]]
    """[the agent's move][the opponent's move]"""
    most: int
    """Points of a round that pay 1; a match pays the mean of its rounds."""
    par: int
    """Points a round with which a match is drawn; with more it is won."""

    def reward(self, mine: int, theirs: int, rounds: int) -> float:
        return self.points[mine][theirs] / self.most / rounds


class State(NamedTuple):
    """Where a match stands."""

    mind: Hashable
    """The habit's state."""
    played: int
    """Rounds so far."""
    margin: int
    """Points above those of a drawn match: it is won if there are any in the end."""


@dataclass(frozen=True)
class HabitModel:
    """The game as a model: a world is who plays, as far as it still lies ahead (``copies>beats@2``)."""

    habits: Mapping[str, Habit]
    payoffs: Payoffs
    rounds: int
    pool: tuple[tuple[str, float], ...]
    replies: tuple[str, ...]

    def worlds(self) -> list[tuple[float, str]]:
        """Of each name once, with its weight; a switch at a hidden episode may be at each of them."""
        total = sum(weight for _, weight in self.pool)
        weights: dict[str, float] = {}
        for name, weight in self.pool:
            names = [f"{name}@{episode}" for episode in HIDDEN_SWITCHES] if is_hidden(name) else [name]
            for each in names:
                weights[each] = weights.get(each, 0.0) + weight / total / len(names)
        return [(weight, name) for name, weight in weights.items() if weight > 0.0]

    def between(self, world: str) -> list[tuple[float, str]]:
        first_and_then, at, episode = world.partition("@")
        if not at:
            return [(1.0, world)]
        return [(1.0, first_and_then.partition(">")[2] if episode == "2" else f"{first_and_then}@{int(episode) - 1}")]

    def begin(self, world: str) -> State:
        return State(self.habits[at_episode(world, 0)].start, 0, -self.payoffs.par * self.rounds)

    def actions(self, state: State) -> range:
        return range(len(self.replies))

    def outcomes(self, world: str, state: State, action: int) -> list[Outcome]:
        habit = self.habits[at_episode(world, 0)]
        outcomes, played = [], state.played + 1
        least, most = (bound(map(bound, self.payoffs.points)) * (self.rounds - played) for bound in (min, max))
        for theirs, chance in enumerate(habit.chances(state.mind)):
            points = state.margin + self.payoffs.points[action][theirs]
            margin = max(-most, min(1 - least, points))  # by more than that, nothing can be changed any more
            after = State(habit.after(state.mind, theirs, action), played, margin)
            reward, done = self.payoffs.reward(action, theirs, self.rounds), played == self.rounds
            outcomes.append(Outcome(chance, after, theirs, reward, done, done and margin > 0))
        return outcomes

    def reply(self, action: int) -> str:
        return self.replies[action]

    def told(self, step: Step) -> int:
        """The opponent's move: the last digit of the state key."""
        return int(step.state_key[-1]) - 1
