"""Expedition: small worlds in which finding out costs something now and pays later.

Every episode is an attempt of its own, whose return counts, so that a trial goes on after a win. A first attempt that
finds out earns less than one that does not, and the later ones earn more for it: whether it is worth it depends on
γ_traj. ``docs/expedition.md`` has the values and thresholds of each world.

signpost  doors, one of which has the prize; or read the sign, which pays nothing and names the door
lookout   rooms, one of which has the treasure; an attempt's hours suffice for some of them, or for climbing the tower
toolbox   a known tool that pays a little, and unknown ones, one of which pays much
camp      trails with sites to search, berries for sure, a tower that costs something and errs, a treasure that may move

Parameters (`--env.NAME`), each with the worlds that have it:

world        ``signpost``, ``lookout``, ``toolbox`` or ``camp``
view         ``plain`` sentences, or ``compact``: one word a fact, for tiny models
words        names that training has (``usual``), or others (``unseen``; plain view), or the ``same`` in every task
doors        (signpost) how many, or a range such as ``4-12``, of which each task draws its number
rooms        (lookout) as doors
tools        (toolbox) unknown ones, as doors
trails       (camp) as doors
sites        (camp) of each trail
prize        what the right place pays
consolation  (signpost) what the other doors pay
sure         (toolbox) what the known tool pays
hours        (lookout, camp) of an attempt; 0: 4 in lookout, 6 in camp
search       (lookout, camp) hours that searching takes
climb        (lookout, camp) hours that the tower takes
price        (camp) what climbing the tower costs
error        (camp) how often the tower shows a wrong site
berries      (camp) what picking berries earns, in 2 hours
drift        (camp) how often the treasure has moved before the next attempt
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from mulligan.envs import drawing
from mulligan.envs.base import Player, action_text, check_choices, check_range, draw
from mulligan.envs.expedition import views
from mulligan.envs.expedition.model import Action, Model, State, Told, model_of
from mulligan.errors import ParameterError
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

COUNTS = {"signpost": "doors", "lookout": "rooms", "toolbox": "tools", "camp": "trails"}
"""World -> the parameter that says how many places there are."""
OWN_PARAMS = {
    "signpost": ("doors", "prize", "consolation"),
    "lookout": ("rooms", "prize", "hours", "search", "climb"),
    "toolbox": ("tools", "prize", "sure"),
    "camp": ("trails", "sites", "prize", "hours", "search", "climb", "price", "error", "berries", "drift"),
}
_HOURS = {"lookout": 4, "camp": 6}
_WORD = re.compile(r"[a-z0-9]+")
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
FILLERS = frozenset(
    ("a", "an", "the", "to", "go", "walk", "visit", "enter", "open", "search", "use", "try", "at", "in", "behind",
     "door", "room", "tool", "site")
)  # fmt: skip
"""Words of a reply that name nothing."""
_LONGEST_ACTION = 80


class Expedition:
    """Find out first or take what is sure: worlds in which an attempt that explores pays only later."""

    draw = staticmethod(drawing.expedition)
    defaults: ClassVar[dict[str, ParamValue]] = {
        "world": "signpost", "view": "plain", "words": "usual", "doors": "8", "rooms": "12", "tools": "4",
        "trails": "5", "sites": 2, "prize": 1.0, "consolation": 0.1, "sure": 0.3, "hours": 0, "search": 2, "climb": 4,
        "price": 0.1, "error": 0.15, "berries": 0.1, "drift": 0.0,
    }  # fmt: skip
    turns: ClassVar[int] = 4
    stop: ClassVar[str] = "never"
    restart: ClassVar[str] = "fresh"
    players: ClassVar[tuple[str, ...]] = ("expert", "explorer", "mixed", "omniscient")
    room_players: ClassVar[tuple[str, ...]] = ("explorer",)

    def __init__(self, task: Task) -> None:
        self.task = task
        world, view = task.text("world"), task.text("view")
        model = model_of(dict(task.params))
        names = views.draw_names(world, view, task.text("words"), model, generator(task.seed, "expedition", "names"))
        self.view = (views.Sentences if view == "plain" else views.Cells)(world, model, names)
        actions = model.actions(State(10 * model.hours + 10))  # with time for everything
        self._model = replace(
            model, replies={action: f"<action>{self.view.action(action)}</action>" for action in actions}
        )
        spoken = [(word, action) for action in actions for word in self.view.action(action).split()]
        self._actions = {word: action for word, action in spoken if word not in FILLERS}
        self.first_prize = int(generator(task.seed, "expedition", "prize").random() * model.places)
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters, and draw the number of places where it is a range."""
        choices = {"world": tuple(OWN_PARAMS), "view": ("plain", "compact"), "words": views.WORD_SETS}
        check_choices("expedition", params, choices)
        world = str(params["world"])
        _check_ownership(world, params)
        if params["view"] == "compact" and params["words"] == "unseen":
            raise ParameterError("expedition: words=unseen needs view=plain (compact names are cells)")
        hours = params["hours"] or _HOURS.get(world, 0)
        settled = {**params, COUNTS[world]: _settled_count(world, params, seed), "hours": hours}
        _check_numbers(world, settled)
        return settled

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """The hours of an attempt must be its limit, not the turns."""
        model = model_of(params)
        most = model.hours // min(filter(None, (model.search, model.scout, model.take)))
        if turns < most:
            raise ParameterError(f"expedition: turns must be >= {most}, the most moves of an attempt (got {turns})")

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        world = str(params["world"])
        size = params[COUNTS[world]]
        return f"expedition/{world}/{size}x{params['sites']}" if world == "camp" else f"expedition/{world}/{size}"

    def rules(self) -> str:
        return self.view.rules()

    def reset(self, chance: int = 0) -> str:
        self.chance, self.prize_place = chance, self.first_prize
        for attempt in range(1, chance + 1):
            moves = self._model.between(self.prize_place)
            luck = generator(self.task.seed, "expedition", "drift", attempt)
            self.prize_place = moves[draw(luck, [probability for probability, _ in moves])][1]
        self.state = self._model.begin(self.prize_place)
        self.facts: list[Told] = []
        self.done = False
        self.observation = self.view.opening(self.state)
        return self.observation

    def step(self, reply: str) -> Step:
        action = self._read(reply)
        if self.done:
            return self._invalid("The episode is over.")
        if action is None:
            return self._invalid(f"That is not an action here; name one as in {self.legal()[0]}.")
        if action not in self._model.actions(self.state):
            needed, left = self._model.duration(self.state, action), self.state.hours
            return self._invalid(f"There is no time for that: it takes {needed} hours, and {left} are left.")
        outcomes = self._model.outcomes(self.prize_place, self.state, action)
        luck = generator(self.task.seed, "expedition", "luck", self.chance, len(self.facts))
        outcome = outcomes[draw(luck, [each.probability for each in outcomes])]
        self.state, self.done = outcome.state, outcome.done
        self.facts.append(outcome.told)
        self.observation = self.view.after(outcome.told, self.state, self.done)
        return Step(self.observation, outcome.reward, outcome.done, outcome.won, state_key=self._key())

    def legal(self) -> Sequence[str]:
        return [self._model.reply(action) for action in self._model.actions(self.state)]

    def model(self) -> Model:
        """The world as probabilities (`mulligan.envs.model`)."""
        return self._model

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.expedition.player import Traveller

        return Traveller(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        shown = [*(turn.observation for turn in episode.turns[1:]), episode.final]
        return self.view.memory([text for turn, text in zip(episode.turns, shown, strict=False) if turn.valid])

    def world_key(self) -> str | None:
        """The names of all places; the order of doors does not matter, nor where the prize lies.

        Were the prize part of the key, names of training would come back in evaluation with the prize where training
        never had it, and agents that remember names would do worse than chance. Tasks that all have the same names
        cannot be kept apart.
        """
        if self.task.text("words") == "same":
            return None
        size, places = self._model.trail or 1, self.view.names.places
        trails = sorted(",".join(places[first : first + size]) for first in range(0, len(places), size))
        return f"{self.task.text('world')}:{';'.join(trails)}"

    def task_key(self) -> str | None:
        """The names, and where the prize lies at first."""
        world = self.world_key()
        return None if world is None else f"{world}:{self.view.names.places[self.first_prize]}"

    def picture(self) -> str:
        """The map as people see it."""
        return self.view.picture(self.state, self.facts)

    def _key(self) -> str:
        facts = "".join(f";{told.fact} {told.place}" for told in self.facts)
        return f"{self.state.hours} {self.state.position}{facts}"

    def _read(self, reply: str) -> Action | None:
        """The one action that a reply names: ``open the copper door``, ``copper``, ``read sign``."""
        text = action_text(reply)
        if text is None or len(text) > _LONGEST_ACTION:
            return None
        named = {self._actions.get(word) for word in _WORD.findall(text.lower()) if word not in FILLERS}
        return named.pop() if len(named) == 1 else None

    def _invalid(self, why: str) -> Step:
        return Step(self.observation, valid=False, state_key=self._key(), feedback=why)


def _settled_count(world: str, params: Mapping[str, ParamValue], seed: int) -> str:
    """The number of places of a task: ``8``, or one drawn from ``4-12``."""
    name = COUNTS[world]
    numbers = _RANGE.fullmatch(str(params[name]))
    if numbers is None:
        raise ParameterError(f"expedition: {name} must be a number or a range such as 4-12 (got {params[name]!r})")
    least, most = int(numbers[1]), int(numbers[2] or numbers[1])
    possible = views.MOST_TRAILS if world == "camp" else views.MOST_PLACES
    if not 2 <= least <= most <= possible:
        raise ParameterError(f"expedition: {name} must be 2 to {possible} (got {params[name]})")
    return str(least + int(generator(seed, "expedition", name).random() * (most - least + 1)))


def _check_ownership(world: str, params: Mapping[str, ParamValue]) -> None:
    """Refuse a parameter that this world does not have, if it was changed."""
    for name in {name for names in OWN_PARAMS.values() for name in names} - {*OWN_PARAMS[world]}:
        if params[name] != Expedition.defaults[name]:
            raise ParameterError(f"expedition: {world} has no {name}; it has {', '.join(OWN_PARAMS[world])}")


def _check_numbers(world: str, params: Mapping[str, ParamValue]) -> None:
    """Refuse worlds in which there is nothing to find, nothing to find out, or no time for it."""
    for name, least, most in (("error", 0.0, 0.5), ("drift", 0.0, 1.0), ("price", 0.0, 100.0), ("prize", 1e-6, 100.0)):
        if not least <= float(params[name]) <= most:
            raise ParameterError(f"expedition: {name} must be {least:g} to {most:g} (got {params[name]})")
    check_range("expedition", params, "sites", 1, views.MOST_SITES)
    model, prize = model_of(params), float(params["prize"])
    if not 1.0 - model.error > model.error / (model.places - 1):
        raise ParameterError(
            f"expedition: a tower that errs with {model.error:g} tells nothing of {model.places} sites"
        )
    times = model.hours // model.take if model.take else 1
    sure = {"signpost": "consolation", "toolbox": "sure", "camp": "berries"}.get(world)
    if sure and not 0 <= float(params[sure]) * times < prize:
        often = f", {times} times an attempt," if times > 1 else ""
        raise ParameterError(
            f"expedition: {sure}{often} must be >= 0 and below the prize of {prize:g} (got {params[sure]})"
        )
    if world in _HOURS:
        check_range("expedition", params, "search", 1, 100)
        farthest = model.search + model.trail
        if not farthest <= model.hours <= 100:
            raise ParameterError(
                f"expedition: hours must be {farthest} to 100, to reach and search every place (got {model.hours})"
            )
        check_range("expedition", params, "climb", 1, model.hours)
