"""How the worlds of `expedition` are told and played: in plain sentences, or in one word a fact for tiny models.

plain    ``open copper``, ``Behind the copper door: 0.1.``; names are drawn from lists of hundreds (words.toml)
compact  names are cells: ``c1`` searches it, ``up`` climbs the tower, ``s`` reads the sign or takes the sure thing.
         ``c1=*`` means that the prize was found there, ``c1=0`` that it was not, and ``c1=ok`` that the sign or the
         tower shows it there. A number is the hours left.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mulligan.envs.expedition.model import CAMP, Action, Model, State, Told
from mulligan.seeding import generator

LISTS = {"signpost": "doors", "lookout": "rooms", "toolbox": "tools", "camp": "sites"}
"""World -> its list of names."""
WORD_SETS = ("usual", "unseen", "same")
_LETTERS = "abcdefgh"
_CELLS = tuple(f"{letter}{number}" for number in range(1, 9) for letter in _LETTERS)
_SPARE_CELLS = 8
"""Cells that a task of the compact view leaves out: few, since a tiny model learns each of them by itself, but enough
that hardly two tasks have the same ones."""
MOST_PLACES, MOST_TRAILS = 24, len(_LETTERS)
MOST_SITES = 4
"""Of a trail: the cells of a letter have 8 numbers, two for each distance from the camp."""
_MARKS = {"prize": "*", "miss": "x", "shown": "!", "paid": " "}
_COLUMNS = 4


class Names(NamedTuple):
    places: tuple[str, ...]
    sure: str = ""
    """The tool that is known."""


@lru_cache(maxsize=8)
def word_list(world: str, words: str) -> tuple[str, ...]:
    lists = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
    return tuple(lists[LISTS[world]][words].split())


def draw_names(world: str, view: str, words: str, model: Model, rng: random.Random) -> Names:
    """The names of a task's places, in the order in which they are listed."""
    if words == "same":
        rng, words = generator(0, "expedition", "same"), "usual"
    if view == "plain":
        *places, sure = rng.sample(word_list(world, words), model.places + 1)
        return Names(tuple(places), sure)
    if not model.trail:
        return Names(tuple(sorted(rng.sample(_CELLS[: model.places + _SPARE_CELLS], model.places))), "s")
    letters = sorted(rng.sample(_LETTERS, model.places // model.trail))
    numbers = [(letter, depth, rng.randrange(2)) for letter in letters for depth in range(model.trail)]
    return Names(tuple(f"{letter}{2 * depth + coin + 1}" for letter, depth, coin in numbers), "s")


class Sentences:
    """Plain view."""

    def __init__(self, world: str, model: Model, names: Names) -> None:
        self.world, self.model, self.names = world, model, names
        self.noun = LISTS[world].removesuffix("s")
        self.verb = {"signpost": "open", "toolbox": "use"}.get(world, "search")
        self.scout = "read sign" if world == "signpost" else "climb tower"
        self.take = f"use {names.sure}" if world == "toolbox" else "pick berries"

    def action(self, action: Action) -> str:
        searched = "" if action.place == CAMP else f"{self.verb} {self.names.places[action.place]}"
        return {"search": searched, "scout": self.scout, "take": self.take}[action.verb]

    def rules(self) -> str:
        """The same for all tasks with the same numbers: names stand in the first observation."""
        about: str = getattr(self, f"_rules_of_{self.world}")()
        return f"{about}\nAnswer with {' or '.join(self.answers())}"

    def answers(self) -> list[str]:
        special = [self.scout] * bool(self.model.scout) + ["pick berries"] * (self.world == "camp")
        named = f"<action>{self.verb} NAME</action>, with the name of a {self.noun},"
        return [named if special else named.rstrip(","), *(f"<action>{each}</action>" for each in special)]

    def _rules_of_signpost(self) -> str:
        model = self.model
        return (
            f"There are {model.places} doors. Behind one of them is a prize worth {model.prize:g}, behind each of the "
            f"others something worth {model.miss:g}. In an episode you do one thing: open a door, or read the sign, "
            "which is worth nothing and says which door has the prize. It is the same door in every episode."
        )

    def _rules_of_lookout(self) -> str:
        model = self.model
        return (
            f"In one of {model.places} rooms lies a treasure worth {model.prize:g}, in every episode in the same one. "
            f"An episode has {_hours(model.hours)}. Searching a room takes {_hours(model.search)}. Climbing the tower "
            f"takes {_hours(model.scout)} and shows the room with the treasure. The episode ends when you find it, or "
            "when there is no time left."
        )

    def _rules_of_toolbox(self) -> str:
        model = self.model
        return (
            f"You know one of your tools: it earns {model.sure:g}. Of the {model.places} others one earns "
            f"{model.prize:g}, and the rest earn nothing. It is the same tool in every episode. In an episode you use "
            "one tool."
        )

    def _rules_of_camp(self) -> str:
        model = self.model
        errs = f", but with a chance of {model.error:.0%} a wrong one" if model.error else ""
        stays = "It lies there in every episode."
        if model.drift:
            stays = f"Before the next episode it moves to another site with a chance of {model.drift:.0%}."
        return (
            f"At one of {model.places} sites lies a treasure worth {model.prize:g}. {stays} Trails lead from the camp "
            "from site to site, an hour's walk each; from one trail to another you walk through the camp. An episode "
            f"begins at the camp and has {_hours(model.hours)}. Searching a site takes the walk and "
            f"{_hours(model.search)}. At the camp, climbing the tower takes {_hours(model.scout)}, costs "
            f"{model.price:g} and shows the site with the treasure{errs}; picking berries takes {_hours(model.take)} "
            f"and earns {model.sure:g}. The episode ends when you find the treasure, or when there is no time left."
        )

    def opening(self, state: State) -> str:
        if self.world == "toolbox":
            return f"Tools: {self.names.sure} (known); {', '.join(self.names.places)}."
        if not self.model.trail:
            listed = f"{self.noun.capitalize()}s: {', '.join(self.names.places)}."
            return listed if self.world == "signpost" else f"{listed}\n{self.status(state)}"
        trails = "; ".join(", then ".join(trail) for trail in self.trails())
        return f"Trails: {trails}.\n{self.status(state)}"

    def trails(self) -> list[tuple[str, ...]]:
        size = self.model.trail
        return [self.names.places[first : first + size] for first in range(0, self.model.places, size)]

    def status(self, state: State) -> str:
        hours = f"{_hours(state.hours)} left."
        if not self.model.trail:
            return hours
        position = "camp" if state.position == CAMP else self.names.places[state.position]
        return f"You are at the {position}. {hours}"

    def fact(self, told: Told) -> str:
        name = "" if told.place == CAMP else self.names.places[told.place]
        paid = {"prize": self.model.prize, "miss": self.model.miss, "paid": self.model.sure}.get(told.fact, 0.0)
        if self.world == "toolbox":
            return f"The {name or self.names.sure} earned {paid:g}."
        if self.world == "signpost":
            sign = f"The sign says: the prize is behind the {name} door."
            return sign if told.fact == "shown" else f"Behind the {name} door: {paid:g}."
        if told.fact == "paid":
            return f"You picked berries: {paid:g}."
        where = f"in the {name} room" if self.world == "lookout" else f"at the {name}"
        seen = "From the tower the treasure seems to be" if self.model.error else "From the tower you see the treasure"
        words = {"prize": "You found the treasure", "miss": "The treasure is not", "shown": seen}
        return f"{words[told.fact]} {where}."

    def after(self, told: Told, state: State, done: bool) -> str:
        return self.fact(told) if done else f"{self.fact(told)}\n{self.status(state)}"

    def memory(self, observations: Sequence[str]) -> str:
        """What an attempt showed, from the observations after its moves: the first line of each is the fact."""
        return "\n".join(text.partition("\n")[0] for text in observations)

    def picture(self, state: State, facts: Sequence[Told]) -> str:
        """The map for people: what was searched, found and shown in this attempt, and where one is."""
        marks = {told.place: _MARKS[told.fact] for told in facts}
        width = max(map(len, self.names.places))
        drawn = [f"[{marks.get(place, ' ')}] {name:<{width}}" for place, name in enumerate(self.names.places)]
        if not self.model.trail:
            lines = ["  ".join(drawn[first : first + _COLUMNS]) for first in range(0, len(drawn), _COLUMNS)]
            sure = [f"[{self.names.sure}: {self.model.sure:g}]"] if self.model.take else []
            return "\n".join(f"  {line}".rstrip() for line in [*sure, *lines])
        if state.position != CAMP:
            drawn[state.position] = drawn[state.position].replace("[", "<", 1).replace("]", ">", 1)
        trails = [drawn[first : first + self.model.trail] for first in range(0, len(drawn), self.model.trail)]
        camp = "<camp>" if state.position == CAMP else "[camp]"
        corners = ["├"] * (len(trails) - 1) + ["└"]
        lines = [f"    {corner}── {' ── '.join(trail)}" for corner, trail in zip(corners, trails, strict=True)]
        return "\n".join([f"  {camp} with the tower and the berries", *(line.rstrip() for line in lines)])


class Cells(Sentences):
    """Compact view: a word for each fact."""

    def __init__(self, world: str, model: Model, names: Names) -> None:
        super().__init__(world, model, names)
        self.full = {"scout": self.scout, "take": "use the known tool" if world == "toolbox" else self.take}
        self.scout, self.take = "s" if world == "signpost" else "up", "s"

    def action(self, action: Action) -> str:
        return super().action(action).removeprefix(f"{self.verb} ")

    def rules(self) -> str:
        trails = " A letter is a trail; the greater number is farther from the camp." if self.model.trail else ""
        return (
            f"{super().rules()}\nThe names are cells such as c1.{trails} c1=* means that the prize was found at c1, "
            "c1=0 that it is not there, and c1=ok that it is shown there; a number is the hours left."
        )

    def answers(self) -> list[str]:
        special = [each for each in self.full if getattr(self.model, each)]
        meanings = {"c1": f"{self.verb} c1"} | {getattr(self, each): self.full[each] for each in special}
        return [f"<action>{word}</action> ({meaning})" for word, meaning in meanings.items()]

    def opening(self, state: State) -> str:
        return f"{' '.join(self.names.places)} {self.status(state)}".strip()

    def status(self, state: State) -> str:
        return "" if self.model.hours == 1 else str(state.hours)

    def fact(self, told: Told) -> str:
        if told.fact == "paid":
            return "no"
        return f"{self.names.places[told.place]}={ {'prize': '*', 'miss': '0', 'shown': 'ok'}[told.fact] }"

    def after(self, told: Told, state: State, done: bool) -> str:
        return self.fact(told) if done else f"{self.fact(told)} {self.status(state)}"

    def memory(self, observations: Sequence[str]) -> str:
        facts = [text.split()[0] for text in observations]
        return " ".join(fact for fact in facts if "=" in fact) or "no"


def _hours(number: int) -> str:
    return f"{number} hour{'s' if number > 1 else ''}"
