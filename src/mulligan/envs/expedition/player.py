"""Scripted players of `expedition`: what each wants of an attempt, from the same exact beliefs.

expert      myopic: the best that can be expected of this attempt, given what it knows
explorer    finds out first, whatever it costs: the most telling action until a place is likelier than not; then expert
mixed       in each attempt expert or explorer, by the toss of a coin: shows both, and leaves the choice to be learned
omniscient  as the expert, knowing where the prize lies
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from functools import lru_cache

from mulligan.envs.base import reflection_text
from mulligan.envs.expedition.env import Expedition
from mulligan.envs.expedition.model import Action, Model, State, Told, World
from mulligan.envs.model import Belief
from mulligan.types import Episode, Step

_LIKELY = 0.5
_TIE = 1e-9
Chances = tuple[float, ...]
"""[place] how probably the prize lies there."""


class Traveller:
    """Plays one world for a whole trial, and remembers all that it was told."""

    def __init__(self, world: Expedition, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.model = world.model()
        self.prior: Chances = tuple(chance for chance, _ in self.model.worlds())
        self.remembered = self.of_attempt = self.prior
        self.action, self.state = Action("take"), world.state
        self.explores = self._is_to_explore()

    def act(self) -> str:
        self.state = self.world.state
        self.action = self.rng.choice(
            self._wanted() if self.rng.random() < self.skill else self.model.actions(self.state)
        )
        return self.model.reply(self.action)

    def see(self, step: Step) -> None:
        fact = self.world.facts[-1]
        self.remembered, self.of_attempt = (
            posterior(self.model, chances, self.state, self.action, fact)
            for chances in (self.remembered, self.of_attempt)
        )
        if step.done:
            self.remembered, self.of_attempt = drifted(self.model, self.remembered), self.prior
            self.explores = self._is_to_explore()

    def reflect(self, episode: Episode) -> str:
        memory = self.world.digest(episode)
        if self.world.task["view"] == "compact":
            return f"<reflection>{memory}</reflection>"
        likeliest = max(range(len(self.prior)), key=self.remembered.__getitem__)
        plan = "find out where it is, or take what is sure"
        if self.remembered[likeliest] >= _LIKELY:
            plan = self.world.view.action(Action("search", likeliest))
        return reflection_text(env_answer=memory.replace("\n", " "), plan=plan)

    def _is_to_explore(self) -> bool:
        return self.kind == "explorer" or (self.kind == "mixed" and self.rng.random() < 0.5)

    def _wanted(self) -> list[Action]:
        """The actions that it likes best, all as much."""
        chances = self.remembered if self.rng.random() < self.recall else self.of_attempt
        if self.kind == "omniscient":
            chances = tuple(float(place == self.world.prize_place) for place in range(self.model.places))
        if self.explores and max(chances) < _LIKELY:
            telling = most_telling(self.model, self.state, chances)
            if telling:
                return telling
        return best_now(self.model, self.state, chances)


def posterior(model: Model, chances: Chances, state: State, action: Action, told: Told) -> Chances:
    """Bayes' rule after one action."""
    weights = [
        chance * sum(each.probability for each in model.outcomes(place, state, action) if each.told == told)
        for place, chance in enumerate(chances)
    ]
    return tuple(round(weight / sum(weights), 12) for weight in weights)


def drifted(model: Model, chances: Chances) -> Chances:
    """What is believed of the next attempt."""
    following = [0.0] * model.places
    for place, chance in enumerate(chances):
        for probability, next_place in model.between(place):
            following[next_place] += chance * probability
    return tuple(following)


@lru_cache(maxsize=10_000)
def best_now(model: Model, state: State, chances: Chances) -> list[Action]:
    """The actions with the highest expected return of this attempt; of those, the ones that pay soonest."""
    belief = tuple((place, state, round(chance, 12)) for place, chance in enumerate(chances) if chance > 0)
    returns = {action: _return(model, belief, action) for action in model.actions(state)}
    best = [action for action, (value, _) in returns.items() if value >= max(returns.values())[0] - _TIE]
    soonest = max(returns[action][1] for action in best)
    return [action for action in best if returns[action][1] >= soonest - _TIE]


@lru_cache(maxsize=100_000)
def _best_return(model: Model, belief: Belief) -> float:
    return max(_return(model, belief, action) for action in model.actions(belief[0][1]))[0]


def _return(model: Model, belief: Belief, action: Action) -> tuple[float, float]:
    """The expected return of an action with the best ones after it, and of the action alone."""
    now = later = 0.0
    branches: dict[Told, list[tuple[World, State, float]]] = defaultdict(list)
    for world, state, chance in belief:
        for outcome in model.outcomes(world, state, action):
            weight = chance * outcome.probability
            now += weight * outcome.reward
            if weight and not outcome.done:
                branches[outcome.told].append((world, outcome.state, weight))
    for branch in branches.values():
        probability = sum(weight for *_, weight in branch)
        after = tuple((world, state, round(weight / probability, 12)) for world, state, weight in branch)
        later += probability * _best_return(model, model.canonical(after))
    return now + later, now


@lru_cache(maxsize=10_000)
def most_telling(model: Model, state: State, chances: Chances) -> list[Action]:
    """The actions after which the least uncertainty is to be expected; none if no action tells anything."""
    left = {action: _uncertainty_after(model, state, chances, action) for action in model.actions(state)}
    least = min(left.values())
    if least > _uncertainty(chances) - _TIE:
        return []
    return [action for action, uncertainty in left.items() if uncertainty <= least + _TIE]


def _uncertainty_after(model: Model, state: State, chances: Chances, action: Action) -> float:
    joint: dict[Told, list[float]] = defaultdict(lambda: [0.0] * model.places)
    for place, chance in enumerate(chances):
        for outcome in model.outcomes(place, state, action):
            joint[outcome.told][place] += chance * outcome.probability
    # H(place | told) = H(place, told) - H(told)
    return sum(_uncertainty(weights) - _uncertainty([sum(weights)]) for weights in joint.values())


def _uncertainty(weights: Chances | list[float]) -> float:
    return -sum(weight * math.log(weight) for weight in weights if weight > 0)
