"""The worlds of `expedition` as models: what is hidden, what can be done in an attempt, what comes of it. No words.

The environment plays by these functions, and whoever computes with the worlds (the scripted players, the optimum)
reads the same ones. All four worlds are settings of one model. Something lies at one of several places, and an attempt
has so many hours. To search a place pays the prize if it lies there. To scout shows where it lies, perhaps wrongly, and
pays nothing. The sure thing pays a little and shows nothing. Between two attempts the thing may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from mulligan.envs.model import Belief, Outcome
from mulligan.types import ParamValue, Step

World = int
"""The place at which the prize lies."""
CAMP = -1
"""The position, and the place, that is none of those searched."""


class Action(NamedTuple):
    verb: Literal["search", "scout", "take"]
    """"take" is the sure thing."""
    place: int = CAMP


class State(NamedTuple):
    """What an agent sees of an attempt."""

    hours: int
    """Hours left."""
    position: int = CAMP


class Told(NamedTuple):
    """What an agent is told after an action."""

    fact: Literal["prize", "miss", "shown", "paid"]
    """Found it there; it is not there; it is said to be there; the sure thing was paid."""
    place: int = CAMP


@dataclass(frozen=True)
class Model:
    """One world's numbers, and its rules as pure functions."""

    places: int
    prize: float
    hours: int = 1
    """Of an attempt."""
    search: int = 1
    """Hours that searching a place takes, without the way there."""
    miss: float = 0.0
    """What a place without the prize pays."""
    scout: int = 0
    """Hours that scouting takes; 0 if nothing can be scouted."""
    price: float = 0.0
    """What scouting costs, in reward."""
    error: float = 0.0
    """How often scouting shows a wrong place, each of them as often."""
    take: int = 0
    """Hours that the sure thing takes; 0 if there is none."""
    sure: float = 0.0
    """What the sure thing pays each time."""
    drift: float = 0.0
    """How often the prize has moved when the next attempt begins, to each other place as often."""
    trail: int = 0
    """Places on a trail, one an hour's walk behind the other, the first an hour from the camp; 0 if nobody walks."""
    replies: Mapping[Action, str] = field(default_factory=dict, compare=False)
    """Each action as a task says it."""

    def reply(self, action: Action) -> str:
        return self.replies[action]

    @staticmethod
    def told(step: Step) -> Told:
        """What a step told, from its state key: ``4 -1;miss 3;shown 0`` ends in ``Told("shown", 0)``."""
        fact, place = step.state_key.rpartition(";")[2].split()
        return Told(fact, int(place))  # type: ignore[arg-type]

    def worlds(self) -> list[tuple[float, World]]:
        return [(1 / self.places, place) for place in range(self.places)]

    def between(self, world: World) -> list[tuple[float, World]]:
        """Where the prize lies at the next attempt."""
        return self._one_or_another(world, self.drift)

    def begin(self, world: World) -> State:
        """The first state of an attempt, which shows nothing of the world."""
        return State(self.hours)

    def duration(self, state: State, action: Action) -> int:
        """Hours of an action, the way included."""
        at_work = self.search if action.verb == "search" else self.scout if action.verb == "scout" else self.take
        return self.distance(state.position, action.place) + at_work

    def actions(self, state: State) -> Sequence[Action]:
        """What there is time for; an attempt with nothing left to do is over."""
        return _possible(self, state)

    def outcomes(self, world: World, state: State, action: Action) -> list[Outcome]:
        after = State(state.hours - self.duration(state, action), action.place if self.trail else CAMP)
        done = after.hours == 0 or not self.actions(after)
        if action.verb == "take":
            return [Outcome(1.0, after, Told("paid"), self.sure, done)]
        if action.verb == "scout":
            shown = self._one_or_another(world, self.error)
            return [Outcome(chance, after, Told("shown", place), -self.price, done) for chance, place in shown]
        if action.place == world:
            return [Outcome(1.0, after, Told("prize", world), self.prize, done=True, won=True)]
        return [Outcome(1.0, after, Told("miss", action.place), self.miss, done)]

    def canonical(self, belief: Belief) -> Belief:
        """The same belief with the places in a fixed order, as far as the way to them does not tell them apart.

        Places on one trail keep their order; trails are sorted by what is believed of them, that of the position first.
        """
        size, state = self.trail or 1, belief[0][1]
        chances = [0.0] * self.places
        for world, _, chance in belief:
            chances[world] = chance
        here = state.position // size if self.trail and state.position != CAMP else -1
        trails = [tuple(chances[first : first + size]) for first in range(0, self.places, size)]
        order = sorted(range(len(trails)), key=lambda trail: (trail != here, trails[trail]))
        state = State(state.hours, state.position % size) if here >= 0 else state
        sorted_chances = [chance for trail in order for chance in trails[trail]]
        return tuple((world, state, chance) for world, chance in enumerate(sorted_chances) if chance)

    def distance(self, start: int, end: int) -> int:
        """Hours of walking. With two places on a trail, 0 and 1 lie on the first: 1 to 0 is 1, 1 to 2 is 2 + 1 = 3."""
        if not self.trail or start == end:
            return 0
        depths = [0 if place == CAMP else place % self.trail + 1 for place in (start, end)]
        if CAMP not in (start, end) and start // self.trail == end // self.trail:
            return abs(depths[0] - depths[1])
        return sum(depths)

    def _one_or_another(self, world: World, other: float) -> list[tuple[float, World]]:
        if not other:
            return [(1.0, world)]
        return [(1 - other if place == world else other / (self.places - 1), place) for place in range(self.places)]


@lru_cache(maxsize=10_000)
def _possible(model: Model, state: State) -> tuple[Action, ...]:
    everything = [Action("search", place) for place in range(model.places)]
    everything += [Action("scout")] if model.scout else []
    everything += [Action("take")] if model.take else []
    return tuple(action for action in everything if model.duration(state, action) <= state.hours)


PICKING = 2
"""Hours that picking berries takes."""


def model_of(params: Mapping[str, ParamValue]) -> Model:
    """The model of a task with these parameters, settled."""
    number = {name: float(value) for name, value in params.items() if name not in ("world", "view", "words")}
    prize, hours, search, climb = number["prize"], *(int(number[name]) for name in ("hours", "search", "climb"))
    if params["world"] == "signpost":
        return Model(int(number["doors"]), prize, miss=number["consolation"], scout=1)
    if params["world"] == "lookout":
        return Model(int(number["rooms"]), prize, hours, search, scout=climb)
    if params["world"] == "toolbox":
        return Model(int(number["tools"]), prize, take=1, sure=number["sure"])
    sites = int(number["sites"])
    return Model(
        int(number["trails"]) * sites,
        prize,
        hours,
        search,
        scout=climb,
        price=number["price"],
        error=number["error"],
        take=PICKING,
        sure=number["berries"],
        drift=number["drift"],
        trail=sites,
    )
