"""The scripted player of repeated games: Bayes' rule over the habits it expects, and the best answer to them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

from mulligan.envs.base import pick, reflection_text
from mulligan.envs.repeated.env import RepeatedGame
from mulligan.envs.repeated.habits import Habit, Habitual
from mulligan.envs.repeated.model import Payoffs
from mulligan.errors import StopReason
from mulligan.types import Episode, Step

_SURPRISE = 0.01
"""Added to each chance when the scripted player learns: an opponent may have none of the habits that it expects."""
_LIKELY = 0.5
_TIE = 1e-9


class Guess(NamedTuple):
    """A habit that the opponent may have, the state that it is in then, and how likely that is (not normalised)."""

    habit: Habit
    state: Hashable
    weight: float


def updated(guesses: Sequence[Guess], mine: int, theirs: int, surprise: float = 0.0) -> list[Guess]:
    """The guesses after a round: each weighs as much as it expected the opponent's move (Bayes' rule)."""
    return [
        Guess(habit, habit.after(state, theirs, mine), weight * chance)
        for habit, state, weight in guesses
        if (chance := habit.chances(state)[theirs] + surprise) > 0.0
    ]


def worths(payoffs: Payoffs, guesses: Sequence[Guess], rounds: int) -> list[float]:
    """[move] Points of the next rounds if they begin with it and go on with the best ones, times the total weight."""
    moves = range(len(payoffs.points))
    weights = [0.0 for _ in moves]
    """[their move]"""
    for habit, state, weight in guesses:
        for theirs, chance in enumerate(habit.chances(state)):
            weights[theirs] += weight * chance
    totals = [sum(payoffs.points[move][theirs] * weights[theirs] for theirs in moves) for move in moves]
    if rounds > 1:
        for move, theirs in product(moves, moves):
            if weights[theirs] > 0.0:
                totals[move] += max(worths(payoffs, updated(guesses, move, theirs), rounds - 1))
    return totals


class Reader:
    """Plays the best answer to what it believes of the opponent, from the pool and from what the opponent has done.

    Within a match it remembers everything; of earlier matches, as `recall` says. The omniscient player knows the habit;
    where there is none (a bot), it sees the coming move.
    """

    def __init__(self, world: RepeatedGame, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        expected = world.habits_of(world.pool(world.task.text("pool")))
        self.weights = {name: weight for name, weight in expected.items() if name in world.habits}
        self.weights = self.weights or dict.fromkeys([*world.groups["seen"], *world.groups["unseen"]], 1.0)
        self.remembered = self.of_match = self._begun(self.weights.values())

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        guesses = self.remembered if self.rng.random() < self.recall else self.of_match
        if self.kind == "omniscient":
            guesses = self._certain()
        rounds = min(world.lookahead, world.rounds - len(world.played))
        values = worths(world.payoffs, guesses, rounds)
        best = [reply for reply, value in zip(world.replies, values, strict=True) if value >= max(values) - _TIE]
        return pick(self.rng, best)

    def see(self, step: Step) -> None:
        if step.valid:
            mine, theirs = self.world.played[-1]
            self.remembered, self.of_match = (
                _normal(updated(guesses, mine, theirs, _SURPRISE)) for guesses in (self.remembered, self.of_match)
            )
        if step.done:
            self.remembered = self._begun([guess.weight for guess in self.remembered])
            self.of_match = self._begun(self.weights.values())

    def beliefs(self) -> dict[str, float]:
        """How likely each opponent of the pool is, after all that was seen."""
        return {name: guess.weight for name, guess in zip(self.weights, _normal(self.remembered), strict=True)}

    def reflect(self, episode: Episode) -> str:
        """What the match that has just been played tells, and no more than the player saw."""
        likeliest = max(self.remembered, key=lambda guess: guess.weight)
        plan = "find out what it plays after each of my moves"
        if likeliest.weight >= _LIKELY:
            plan = f"it {likeliest.habit.words}, it seems; play the best answer to that"
        return reflection_on(self.world, episode, plan)

    def _begun(self, weights: Iterable[float]) -> list[Guess]:
        """At the beginning of a match."""
        habits = [self.world.habits[name] for name in self.weights]
        return [Guess(habit, habit.start, weight) for habit, weight in zip(habits, weights, strict=True)]

    def _certain(self) -> list[Guess]:
        world, opponent = self.world, self.world.opponent
        if isinstance(opponent, Habitual):
            return [Guess(opponent.habit, opponent.state, 1.0)]
        chances = [float(move == world.coming()) for move in range(len(world.moves))]
        return [Guess(Habit("", None, lambda _: chances, lambda *_: None), None, 1.0)]


def reflection_on(world: RepeatedGame, episode: Episode, plan: str) -> str:
    """A match as it went, with a plan; of the compact view what was seen alone."""
    if world.compact:
        return f"<reflection>{world.digest(episode)}</reflection>"
    outcome = world.outcome()
    category = {"won": "none", "not finished": "other"}.get(outcome, "wrong-move")
    counts = Counter(world.moves[mine] for mine, _ in world.played)
    return reflection_text(
        strategy=", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no move",
        outcome=outcome,
        reward=f"{episode.reward:g}",
        env_answer=f"{world.standing()} {world.reactions()}".strip(),
        error_category="out-of-turns" if episode.stop is StopReason.TURN_LIMIT else category,
        plan=plan,
    )


def _normal(guesses: Sequence[Guess]) -> list[Guess]:
    total = sum(guess.weight for guess in guesses)
    return [guess._replace(weight=guess.weight / total) for guess in guesses]
