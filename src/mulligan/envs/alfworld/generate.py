"""New ALFWorld games without end: rooms of four kinds, furnished and filled by the domain's own rules, and solvable.

A game is made as a PDDL problem, so that TextWorld can play it too (`write_problem`), and handed out only
when the planner wins it within the bound and it is not won at the start.

A floor plan is a room's kind and its receptacles. A fifth of all floor plans, by their hash, is set apart: the unseen
rooms, as the official games set rooms apart for ``valid_unseen``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.goal import make_goal, task_line, write_goal
from mulligan.envs.alfworld.pddl import Fact, Problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import Goal, Kind, World
from mulligan.errors import ParameterError
from mulligan.seeding import derive, generator

TRAINING: tuple[Kind, ...] = ("pick", "look", "clean", "heat")
OUT_OF_DISTRIBUTION: tuple[Kind, ...] = ("cool", "pick2")
SHORTEST: dict[Kind, int] = {"pick": 4, "look": 4, "clean": 6, "heat": 6, "cool": 6, "pick2": 8}
"""Steps that no game of a kind can do without: go, take, go, put; a treatment takes two more, a second object four."""
FEWEST, MOST = 6, 40
"""Receptacles of a room."""
Rooms = Literal["seen", "unseen", "all"]
"""Which floor plans a game may have."""
_UNSEEN = 5
"""One floor plan in so many is unseen."""
_ATTEMPTS = 400

_FOOD = "Apple Bread Egg Lettuce Potato Tomato"
_DISHES = "Bowl Cup Mug Plate"
_CUTLERY = "ButterKnife Fork Knife Ladle Spatula Spoon"
_PAPERS = "Book CD CellPhone CreditCard KeyChain Pen Pencil RemoteControl"
_BATH = "Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper"
FITS: dict[str, str] = {
    "ArmChair": "Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
    "Bed": "BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket",
    "Cabinet": f"{_DISHES} {_BATH} Book Box Candle CD Glassbottle Kettle Ladle Newspaper Pan PepperShaker Plunger Pot "
    "SaltShaker Vase WateringCan WineBottle",
    "Cart": f"{_BATH} Candle Plunger",
    "CoffeeMachine": "Mug",
    "CoffeeTable": "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Plate RemoteControl "
    "Statue TissueBox Vase Watch WateringCan",
    "CounterTop": f"{_FOOD} {_DISHES} {_CUTLERY} {_PAPERS} {_BATH} AlarmClock Candle Glassbottle Kettle Laptop Pan "
    "PepperShaker Pot SaltShaker Statue Vase WineBottle",
    "Desk": f"{_PAPERS} AlarmClock BasketBall Bowl Box Cloth Laptop Mug Statue TennisRacket TissueBox Vase Watch "
    "WateringCan",
    "DiningTable": f"{_FOOD} {_DISHES} {_CUTLERY} {_PAPERS} AlarmClock BaseballBat Box Candle DishSponge Glassbottle "
    "Kettle Laptop Newspaper Pan PepperShaker Pot SaltShaker SoapBottle SprayBottle Statue TissueBox Vase Watch "
    "WateringCan WineBottle",
    "Drawer": f"{_CUTLERY} {_PAPERS} {_BATH} Candle Newspaper PepperShaker SaltShaker Watch WateringCan",
    "Dresser": f"{_PAPERS} AlarmClock BasketBall Bowl Box Candle Cloth Laptop Mug Newspaper SprayBottle Statue "
    "TennisRacket TissueBox ToiletPaper Vase Watch WateringCan",
    "Fridge": f"{_FOOD} {_DISHES} Glassbottle Pan Pot WineBottle",
    "GarbageCan": f"{_FOOD} {_BATH} CD Newspaper Pen Pencil WineBottle",
    "HandTowelHolder": "HandTowel",
    "LaundryHamper": "Cloth",
    "Microwave": f"{_DISHES} Apple Bread Egg Glassbottle Potato Tomato",
    "Ottoman": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "Safe": "CD CellPhone CreditCard KeyChain Statue Vase",
    "Shelf": f"{_DISHES} {_PAPERS} {_BATH} AlarmClock Box Candle Glassbottle Kettle Newspaper PepperShaker Pot "
    "SaltShaker Statue Vase Watch WateringCan WineBottle",
    "SideTable": f"{_FOOD} {_DISHES} {_PAPERS} {_BATH} AlarmClock BaseballBat BasketBall Box ButterKnife Candle Fork "
    "Kettle Knife Laptop Newspaper Pan PepperShaker Pot SaltShaker Spatula Spoon Statue TennisRacket Vase Watch "
    "WateringCan WineBottle",
    "SinkBasin": f"{_DISHES} {_CUTLERY} Apple Cloth DishSponge Egg Glassbottle HandTowel Kettle Lettuce Pan Pot Potato "
    "SoapBar Tomato",
    "Sofa": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "StoveBurner": "Kettle Pan Pot",
    "Toaster": "",
    "Toilet": f"{_BATH} Candle",
    "ToiletPaperHanger": "ToiletPaper",
    "TowelHolder": "Towel",
    "TVStand": "TissueBox",
}
"""What can be put where, as in the official games."""
_HOLDS = {receptacle: frozenset(things.split()) for receptacle, things in FITS.items()}
_TRAITS: dict[str, frozenset[str]] = {
    trait: frozenset(kinds.split())
    for trait, kinds in {
        "cleanable": f"{_DISHES} {_CUTLERY} Apple Cloth DishSponge Egg Kettle Lettuce Pan Pot Potato SoapBar Tomato",
        "heatable": "Apple Bread Cup Egg Mug Plate Potato Tomato",
        "coolable": f"{_FOOD} {_DISHES} Pan Pot WineBottle",
        "sliceable": _FOOD,
        "isReceptacleObject": f"{_DISHES} Box Pan Pot",
    }.items()
}
_ACTS: dict[Kind, str] = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_OPENABLE = frozenset(("Cabinet", "Drawer", "Fridge", "Microwave", "Safe"))
_LAMPS = ("DeskLamp", "FloorLamp")
_LAMP_STANDS = ("Desk", "Dresser", "SideTable", "DiningTable", "Shelf")
ROOMS: dict[str, tuple[str, str, str]] = {
    "kitchen": (
        "CounterTop Fridge Microwave SinkBasin",
        "Cabinet Cabinet Cabinet Cabinet Drawer Drawer Drawer CounterTop DiningTable StoveBurner StoveBurner "
        "CoffeeMachine Toaster GarbageCan Shelf SideTable",
        f"{_FOOD} {_DISHES} {_CUTLERY} DishSponge Kettle Pan PepperShaker Pot SaltShaker SoapBottle WineBottle",
    ),
    "living room": (
        "Sofa SideTable",
        "ArmChair CoffeeTable SideTable Drawer Drawer Drawer Shelf Shelf DiningTable Dresser GarbageCan Cabinet "
        "Ottoman TVStand Safe",
        f"{_PAPERS} Box Candle Laptop Newspaper Pillow Plate Statue TissueBox Vase Watch WateringCan",
    ),
    "bedroom": (
        "Bed Desk",
        "SideTable Dresser Drawer Drawer Drawer Shelf Shelf GarbageCan Safe ArmChair LaundryHamper Cabinet",
        f"{_PAPERS} AlarmClock BaseballBat BasketBall Bowl Box Cloth Laptop Mug Pillow Statue TennisRacket TissueBox "
        "Vase Watch",
    ),
    "bathroom": (
        "SinkBasin Toilet CounterTop",
        "Cabinet Cabinet Drawer Drawer BathtubBasin ToiletPaperHanger HandTowelHolder GarbageCan Shelf Cart SideTable",
        f"{_BATH} Candle Plunger",
    ),
}
"""Room -> what always stands there, what else may (as often as it is named), and what lies about."""
_HOMES: dict[Kind, tuple[str, ...]] = {
    "pick": tuple(ROOMS),
    "pick2": tuple(ROOMS),
    "look": ("living room", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
}


@lru_cache(maxsize=2048)
def generate(seed: int, kind: Kind, places: int, longest: int, rooms: Rooms = "all") -> World:
    """The world of a seed: `places` receptacles, a task of `kind`, a plan of at most `longest` steps."""
    return make(seed, kind, places, longest, rooms)[1]


def make(seed: int, kind: Kind, places: int, longest: int, rooms: Rooms = "all") -> tuple[Problem, World]:
    """As `generate`, with the problem beside the world."""
    rng = generator(seed, "alfworld", kind, places, longest)
    attempt = 0
    for _ in range(_ATTEMPTS if rooms == "all" else _ATTEMPTS * _UNSEEN):
        room = _one(rng, _HOMES[kind])
        receptacles = _choose(rng, room, places)
        if rooms != "all" and is_unseen(room, receptacles) != (rooms == "unseen"):
            continue
        furnished = _furnish(rng, room, receptacles, kind, easy=attempt >= _ATTEMPTS // 4)
        attempt += 1
        if furnished is None:
            continue
        problem, goal = furnished
        task = task_line(goal, int(rng.random() * 2))
        world = World(problem, goal, task, "generated")
        game = Game(world)
        steps = None if game.won() else plan(game)
        if steps is None or not SHORTEST[kind] <= len(steps) <= longest:
            continue
        if all(game.play(step) is not None for step in steps) and game.won():
            digest = hashlib.blake2b(repr((problem.facts, problem.goal, task)).encode(), digest_size=8).hexdigest()
            world.name = f"generated/{digest}"
            return problem, world
    raise ParameterError(
        f"alfworld: no game of kind={kind} can be generated with plan={longest}, places={places} and rooms={rooms}; "
        "give a larger plan or other places"
    )


def is_unseen(room: str, receptacles: Sequence[str]) -> bool:
    """Whether a floor plan is set apart. A room that has everything has one floor plan alone, which is not."""
    always, maybe, _ = (part.split() for part in ROOMS[room])
    if (len(receptacles) - len(always)) % len(maybe) == 0:
        return False
    return derive("floor plan", room, *sorted(receptacles)) % _UNSEEN == 0


def _one(rng: random.Random, items: tuple[str, ...] | list[str]) -> str:
    """One of `items`; `Random.random` alone is promised to give the same numbers in every version of Python."""
    return items[int(rng.random() * len(items))]


def _choose(rng: random.Random, room: str, places: int) -> list[str]:
    """The receptacles of a room."""
    always, maybe, _ = (part.split() for part in ROOMS[room])
    receptacles, left = list(always), list[str]()
    while len(receptacles) < places:
        left = left or list(maybe)  # a large room has everything several times
        receptacles.append(left.pop(int(rng.random() * len(left))))
    return receptacles


def _furnish(
    rng: random.Random, room: str, receptacles: list[str], kind: Kind, *, easy: bool
) -> tuple[Problem, Goal] | None:
    """A room with things in it and a goal; None where the draw allows no goal. `easy` leaves doors out of the way."""
    things = ROOMS[room][2].split()
    scene = _Scene(receptacles)
    wanted = [thing for thing in things if kind not in _ACTS or thing in _TRAITS[_ACTS[kind]]]
    thing = _one(rng, wanted)
    targets = sorted({r for r in receptacles if thing in _HOLDS[r] and not (easy and r in _OPENABLE)})
    if kind == "look":
        stands = [r for r in range(len(receptacles)) if receptacles[r] in _LAMP_STANDS]
        targets = [_one(rng, _LAMPS)] if stands else []
        if stands:
            scene.objects.append((targets[0], stands[int(rng.random() * len(stands))]))
    if not targets:
        return None
    target = _one(rng, targets)
    copies = 2 if kind == "pick2" else 1
    for _ in range(copies + int(rng.random() * 2)):
        scene.drop(rng, thing, avoid=target if kind in ("pick", "pick2") else "", easy=easy)
    for _ in range(int(len(receptacles) * (0.8 + 0.6 * rng.random()))):
        other = _one(rng, things)
        if other != thing:
            scene.drop(rng, other)
    goal = make_goal(kind, f"{thing}type".lower(), f"{target}type".lower())
    return scene.problem(goal), goal


class _Scene:
    """A room in the making."""

    def __init__(self, receptacles: list[str]) -> None:
        self.receptacles = receptacles
        self.objects: list[tuple[str, int]] = []
        """Type of each object, and the number of the receptacle it lies in."""

    def drop(self, rng: random.Random, thing: str, avoid: str = "", *, easy: bool = False) -> None:
        """Lay a thing anywhere it fits, but not in a receptacle of type `avoid`."""
        fitting = [
            number
            for number, kind in enumerate(self.receptacles)
            if thing in _HOLDS[kind] and kind != avoid and not (easy and kind in _OPENABLE)
        ]
        if fitting:
            self.objects.append((thing, fitting[int(rng.random() * len(fitting))]))

    def problem(self, goal: Goal) -> Problem:
        """The scene in PDDL, all in lower case."""
        width = len(str(max(len(self.receptacles), len(self.objects))))
        stands = [_id(kind, number, width) for number, kind in enumerate(self.receptacles)]
        things = [f"{kind}_bar_{number:0{width}}" for number, (kind, _) in enumerate(self.objects)]
        kinds, r_kinds = sorted({kind for kind, _ in self.objects}), sorted(set(self.receptacles))
        facts: list[Fact] = [("atLocation", "agent1", "loc_bar_start")]
        for number, (name, kind) in enumerate(zip(stands, self.receptacles, strict=True)):
            facts += [("receptacleType", name, f"{kind}Type"), ("receptacleAtLocation", name, f"loc_bar_{number}")]
            facts += [("openable", name)] if kind in _OPENABLE else []
        facts += [
            ("canContain", f"{r_kind}Type", f"{kind}Type")
            for r_kind in r_kinds
            for kind in kinds
            if kind in _HOLDS[r_kind]
        ]
        for name, (kind, receptacle) in zip(things, self.objects, strict=True):
            facts += [("objectType", name, f"{kind}Type"), ("inReceptacle", name, stands[receptacle])]
            facts += [("objectAtLocation", name, f"loc_bar_{receptacle}")]
            facts += [("toggleable" if kind in _LAMPS else "pickupable", name)]
            facts += [(trait, name) for trait, able in _TRAITS.items() if kind in able]
        objects = {"agent1": "agent", "loc_bar_start": "location"}
        objects |= {f"loc_bar_{number}": "location" for number in range(len(stands))}
        objects |= dict.fromkeys(stands, "receptacle") | dict.fromkeys(things, "object")
        objects |= {f"{kind}Type": "otype" for kind in kinds} | {f"{kind}Type": "rtype" for kind in r_kinds}
        lower = tuple(tuple(map(str.lower, fact)) for fact in facts)
        return Problem("generated", {name.lower(): kind for name, kind in objects.items()}, lower, write_goal(goal))


def _id(kind: str, number: int, width: int) -> str:
    """An id as the official games have it, basins included: ``Sink_bar_…_SinkBasin``."""
    head = kind.removesuffix("Basin")
    return f"{head}_bar_{number:0{width}}" + (f"_bar_{kind}" if head != kind else "")
