"""New ALFWorld games without end: rooms of four kinds, furnished and filled by the domain's own rules, and solvable.

A game is made as a PDDL problem, so that TextWorld can play it too (`write_problem`), and handed out only
when the planner wins it within the bound and it is not won at the start.

A floor plan is a room's kind and its receptacles. A fifth of all floor plans, by their hash, is set apart: the unseen
rooms, as the official games set rooms apart for ``valid_unseen``.
"""

from __future__ import annotations

import hashlib
import random
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.pddl import Fact, Problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import Goal, Kind, World, make_goal, task_line, write_goal
from mulligan.envs.base import pick
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

_TABLES = tomllib.loads(Path(__file__).with_name("rooms.toml").read_text(encoding="utf-8"))
FITS = {receptacle: frozenset(things.split()) for receptacle, things in _TABLES["fits"].items()}
"""What can be put where."""
_TRAITS = {trait: frozenset(things.split()) for trait, things in _TABLES["traits"].items()}
_ROOMS: dict[str, dict[str, list[str]]] = {
    room: {part: names.split() for part, names in parts.items()} for room, parts in _TABLES["rooms"].items()
}
_ACTS: dict[Kind, str] = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_OPENABLE = frozenset(("Cabinet", "Drawer", "Fridge", "Microwave", "Safe"))
_LAMPS = ("DeskLamp", "FloorLamp")
_LAMP_STANDS = ("Desk", "Dresser", "SideTable", "DiningTable", "Shelf")


@lru_cache(maxsize=2048)
def generate(seed: int, kind: Kind, places: int, longest: int, rooms: Rooms = "all") -> World:
    """The world of a seed: `places` receptacles, a task of `kind`, a plan of at most `longest` steps."""
    return make(seed, kind, places, longest, rooms)[1]


def make(seed: int, kind: Kind, places: int, longest: int, rooms: Rooms = "all") -> tuple[Problem, World]:
    """As `generate`, with the problem beside the world."""
    rng = generator(seed, "alfworld", kind, places, longest)
    attempt = 0
    for _ in range(_ATTEMPTS if rooms == "all" else _ATTEMPTS * _UNSEEN):
        room = pick(rng, [room for room, parts in _ROOMS.items() if kind in parts["tasks"]])
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
            world.name, world.plan_length = f"generated/{digest}", len(steps)
            return problem, world
    raise ParameterError(
        f"alfworld: no game of kind={kind} can be generated with plan={longest}, places={places} and rooms={rooms}; "
        "give a larger plan or other places"
    )


def is_unseen(room: str, receptacles: Sequence[str]) -> bool:
    """Whether a floor plan is set apart. A room that has everything has one floor plan alone, which is not."""
    if (len(receptacles) - len(_ROOMS[room]["always"])) % len(_ROOMS[room]["maybe"]) == 0:
        return False
    return derive("floor plan", room, *sorted(receptacles)) % _UNSEEN == 0


def _choose(rng: random.Random, room: str, places: int) -> list[str]:
    receptacles, left = list(_ROOMS[room]["always"]), list[str]()
    while len(receptacles) < places:
        left = left or list(_ROOMS[room]["maybe"])  # a large room has everything several times
        receptacles.append(left.pop(int(rng.random() * len(left))))
    return receptacles


def _furnish(
    rng: random.Random, room: str, receptacles: list[str], kind: Kind, *, easy: bool
) -> tuple[Problem, Goal] | None:
    """A room with things in it and a goal; None where the draw allows no goal. `easy` leaves doors out of the way."""
    objects: list[tuple[str, int]] = []
    """Type of each object, and the number of the receptacle it lies in."""

    def drop(thing: str, stands: list[int]) -> None:
        if stands:
            objects.append((thing, stands[int(rng.random() * len(stands))]))

    things = _ROOMS[room]["things"]
    thing = pick(rng, [thing for thing in things if kind not in _ACTS or thing in _TRAITS[_ACTS[kind]]])
    closed = _OPENABLE if easy else frozenset[str]()
    targets = sorted({r for r in receptacles if thing in FITS[r] and r not in closed})
    if kind == "look":
        stands = [number for number, r in enumerate(receptacles) if r in _LAMP_STANDS]
        targets = [pick(rng, _LAMPS)] if stands else []
        if stands:
            drop(targets[0], stands)
    if not targets:
        return None
    target = pick(rng, targets)
    avoided = closed | {target} if kind in ("pick", "pick2") else closed
    for _ in range((2 if kind == "pick2" else 1) + int(rng.random() * 2)):
        drop(thing, [number for number, r in enumerate(receptacles) if thing in FITS[r] and r not in avoided])
    for _ in range(int(len(receptacles) * (0.8 + 0.6 * rng.random()))):
        other = pick(rng, things)
        if other != thing:
            drop(other, [number for number, r in enumerate(receptacles) if other in FITS[r]])
    goal = make_goal(kind, f"{thing}type".lower(), f"{target}type".lower())
    return _problem(receptacles, objects, goal), goal


def _problem(receptacles: list[str], things: list[tuple[str, int]], goal: Goal) -> Problem:
    """A room in PDDL, all in lower case."""
    width = len(str(max(len(receptacles), len(things))))
    stands = [_id(kind, number, width) for number, kind in enumerate(receptacles)]
    names = [f"{kind}_bar_{number:0{width}}" for number, (kind, _) in enumerate(things)]
    kinds, r_kinds = sorted({kind for kind, _ in things}), sorted(set(receptacles))
    facts: list[Fact] = [("atLocation", "agent1", "loc_bar_start")]
    for number, (name, kind) in enumerate(zip(stands, receptacles, strict=True)):
        facts += [("receptacleType", name, f"{kind}Type"), ("receptacleAtLocation", name, f"loc_bar_{number}")]
        facts += [("openable", name)] if kind in _OPENABLE else []
    facts += [
        ("canContain", f"{r_kind}Type", f"{kind}Type") for r_kind in r_kinds for kind in kinds if kind in FITS[r_kind]
    ]
    for name, (kind, receptacle) in zip(names, things, strict=True):
        facts += [("objectType", name, f"{kind}Type"), ("inReceptacle", name, stands[receptacle])]
        facts += [("objectAtLocation", name, f"loc_bar_{receptacle}")]
        facts += [("toggleable" if kind in _LAMPS else "pickupable", name)]
        facts += [(trait, name) for trait, able in _TRAITS.items() if kind in able]
    objects = {"agent1": "agent", "loc_bar_start": "location"}
    objects |= {f"loc_bar_{number}": "location" for number in range(len(stands))}
    objects |= dict.fromkeys(stands, "receptacle") | dict.fromkeys(names, "object")
    objects |= {f"{kind}Type": "otype" for kind in kinds} | {f"{kind}Type": "rtype" for kind in r_kinds}
    lower = tuple(tuple(map(str.lower, fact)) for fact in facts)
    return Problem("generated", {name.lower(): kind for name, kind in objects.items()}, lower, write_goal(goal))


def _id(kind: str, number: int, width: int) -> str:
    """An id as the official games have it, basins included: ``Sink_bar_…_SinkBasin``."""
    head = kind.removesuffix("Basin")
    return f"{head}_bar_{number:0{width}}" + (f"_bar_{kind}" if head != kind else "")
