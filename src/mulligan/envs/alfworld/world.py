"""ALFWorld's households: what all games of one problem share, by number instead of by id; and the goals.

A goal in PDDL is a conjunction under existential quantifiers. It is one of the six kinds when it has the kind's
conditions, whatever their order and nesting and the names of the variables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any, Literal, get_args

from mulligan.envs.alfworld.pddl import SIGNATURES, Formula, GameError, Problem, parse, typed

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
CLEAN, HOT, COOL, SLICED, TOGGLED = 1, 2, 4, 8, 16
"""What may become of an object, as bits."""
APPLIANCES = {CLEAN: ("sinktype", "sinkbasintype"), HOT: ("microwavetype",), COOL: ("fridgetype",)}
KNIVES = ("knifetype", "butterknifetype")
_STATES = {"isclean": CLEAN, "ishot": HOT, "iscool": COOL, "issliced": SLICED, "istoggled": TOGGLED}
_ABILITIES = {"cleanable": CLEAN, "heatable": HOT, "coolable": COOL, "sliceable": SLICED, "toggleable": TOGGLED}

Facts = defaultdict[str, list[Any]]
"""Predicate -> the arguments it holds of."""
Kind = Literal["pick", "look", "clean", "heat", "cool", "pick2"]
"""The six kinds of task."""
KINDS: tuple[Kind, ...] = get_args(Kind)
_TREATED: dict[Kind, int] = {"clean": CLEAN, "heat": HOT, "cool": COOL}
_PHRASES: dict[Kind, tuple[str, str]] = {
    "pick": ("put a {o} in {t}.", "put some {o} on {t}."),
    "look": ("look at {o} under the {t}.", "examine the {o} with the {t}."),
    "clean": ("put a clean {o} in {t}.", "clean some {o} and put it in {t}."),
    "heat": ("put a hot {o} in {t}.", "heat some {o} and put it in {t}."),
    "cool": ("put a cool {o} in {t}.", "cool some {o} and put it in {t}."),
    "pick2": ("put two {o} in {t}.", "find two {o} and put them in {t}."),
}
_ONE = "(exists (?r - receptacle ?o - object) (and (receptacletype ?r {t}) (objecttype ?o {o}) (inreceptacle ?o ?r)"
_PDDL: dict[Kind, str] = {
    "pick": f"{_ONE}))",
    "look": "(exists (?t - object ?r - receptacle ?l - location ?a - agent ?o - object ?b - agent) (and "
    "(objecttype ?t {t}) (toggleable ?t) (istoggled ?t) (inreceptacle ?t ?r) (receptacleatlocation ?r ?l) "
    "(atlocation ?a ?l) (objecttype ?o {o}) (holds ?b ?o)))",
    "clean": f"{_ONE} (cleanable ?o) (isclean ?o)))",
    "heat": f"{_ONE} (heatable ?o) (ishot ?o)))",
    "cool": f"{_ONE} (coolable ?o) (iscool ?o)))",
    "pick2": "(exists (?r - receptacle ?o - object ?p - object) (and (receptacletype ?r {t}) (objecttype ?o {o}) "
    "(inreceptacle ?o ?r) (objecttype ?p {o}) (inreceptacle ?p ?r) (not (= ?o ?p))))",
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins: `count` objects of a type, all in `state`, in one receptacle of a type; or one held under a lamp."""

    kind: Kind
    object_type: str
    target_type: str
    """Type of the receptacle; for "look", of the lamp."""
    state: int = 0
    """Bits the objects must have: CLEAN, HOT or COOL."""
    count: int = 1


class World:
    """The unchanging part of a game: names, types and places by number, and how all is at the start.

    Objects and receptacles are numbered in the order of their ids, which is the order TextWorld lists them in.
    """

    def __init__(self, problem: Problem, goal: Goal, task: str, name: str) -> None:
        self.goal, self.task, self.name = goal, task, name
        self.plan_length = 0
        """Steps of the shortest direct way to win."""
        by_predicate: Facts = defaultdict(list)
        for fact in problem.facts:
            by_predicate[fact[0]].append(fact[1:])
        # Only what some fact speaks of has a name; what is declared and never mentioned takes no number.
        mentioned = sorted({argument for fact in problem.facts for argument in fact[1:]})
        names = readable_names(mentioned)
        objects = [each for each in mentioned if problem.objects[each] == "object"]
        receptacles = [each for each in mentioned if problem.objects[each] == "receptacle"]
        o_at = {each: number for number, each in enumerate(objects)}
        r_at = {each: number for number, each in enumerate(receptacles)}
        self.names = tuple(names[each] for each in objects)
        self.r_names = tuple(names[each] for each in receptacles)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.r_numbers = {name: number for number, name in enumerate(self.r_names)}
        types = dict([*by_predicate["objecttype"], *by_predicate["receptacletype"]])
        self.object_types = tuple(types.get(each, "") for each in objects)
        self.r_types = tuple(types.get(each, "") for each in receptacles)
        self._places(by_predicate, o_at, r_at)
        self._objects(by_predicate, o_at)
        things = list(zip(range(len(objects)), self.object_types, self.abilities, strict=True))
        state, wanted, target = goal.state, goal.object_type, goal.target_type
        self.goal_objects = frozenset(o for o, kind, can in things if kind == wanted and can & state == state)
        """Objects that can be what the goal asks for."""
        self.lamps = tuple(o for o, kind, can in things if kind == target and can & TOGGLED)
        """Lamps of the goal's type that can be switched on; none where the goal needs no lamp."""
        self.goal_targets = tuple(r for r, kind in enumerate(self.r_types) if kind == target and goal.kind != "look")

    def _places(self, facts: Facts, o_at: dict[str, int], r_at: dict[str, int]) -> None:
        """Locations by number, and what stands and lies where."""
        numbers: dict[str, int] = {}
        for _, location in (*facts["atlocation"], *facts["receptacleatlocation"], *facts["objectatlocation"]):
            numbers.setdefault(location, len(numbers))
        self.at = numbers[facts["atlocation"][0][1]]
        locations = [-1] * len(r_at)
        for receptacle, location in facts["receptacleatlocation"]:
            locations[r_at[receptacle]] = numbers[location]
        self.locations = tuple(locations)
        """Location of each receptacle; -1 where it has none."""
        self.receptacles_at = tuple(
            tuple(r for r, location in enumerate(locations) if location == number) for number in numbers.values()
        )
        """The receptacles of each location."""
        objects_at = [set[int]() for _ in numbers]
        for each, location in facts["objectatlocation"]:
            objects_at[numbers[location]].add(o_at[each])
        self.objects_at = tuple(map(tuple, map(sorted, objects_at)))
        """The objects of each location."""
        inside = [set[int]() for _ in r_at]
        for each, receptacle in facts["inreceptacle"]:
            inside[r_at[receptacle]].add(o_at[each])
        self.inside = tuple(map(tuple, map(sorted, inside)))
        fits: defaultdict[str, set[str]] = defaultdict(set)
        for holder, held in facts["cancontain"]:
            fits[holder].add(held)
        self.can_hold = tuple(fits[kind] for kind in self.r_types)
        """For each receptacle the types of objects that can be put there."""
        self.openable = frozenset(r_at[each] for (each,) in facts["openable"])
        self.opened = frozenset(r_at[each] for (each,) in facts["opened"])
        self.to_go = sorted((f"go to {self.r_names[r]}", at) for r, at in enumerate(locations) if at >= 0)

    def _objects(self, facts: Facts, o_at: dict[str, int]) -> None:
        """What can be done with each object, and what has been done already."""
        self.pickupable = frozenset(o_at[each] for (each,) in facts["pickupable"])
        self.knives = frozenset(o for o, kind in enumerate(self.object_types) if kind in KNIVES)
        abilities, states = bytearray(len(o_at)), bytearray(len(o_at))
        for bits, table in ((abilities, _ABILITIES), (states, _STATES)):
            for predicate, bit in table.items():
                for (each,) in facts[predicate]:
                    bits[o_at[each]] |= bit
        self.abilities, self.states = bytes(abilities), bytes(states)
        """For each object the bits of what can become of it, and of what has."""
        self.held = next((o_at[each] for _, each in facts["holds"]), -1)
        self.inner = {
            o_at[each]: tuple(sorted(o_at[held] for held, outer in facts["inreceptacleobject"] if outer == each))
            for (each,) in facts["isreceptacleobject"]
        }
        """Objects that hold others, with what they hold: nothing ever changes that."""

    def appliances(self, bit: int) -> list[int]:
        """Receptacles that clean, heat or cool, and can be reached."""
        return [r for r, kind in enumerate(self.r_types) if kind in APPLIANCES[bit] and self.locations[r] >= 0]

    def intro(self) -> str:
        here = self.receptacles_at[self.at]
        if here:
            around = f"You are facing the {listed([self.r_names[r] for r in here])}. Next to it, you see nothing."
        else:
            seen = [f"a {name}" for r, name in enumerate(self.r_names) if self.locations[r] >= 0]
            around = f"You are in the middle of a room. Looking quickly around you, you see {listed(seen)}."
        return f"{WELCOME}\n\n{around}\n\nYour task is to: {self.task}"


def readable_names(ids: Sequence[str]) -> dict[str, str]:
    """Each id as the games call it: ``mug_bar__minus_01…`` is "mug 2"; `ids` are sorted.

    The things of one name are counted down along their ids. Basins have ids like ``sink_bar_…_sinkbasin``.
    """
    heads = {each: each.partition("_bar_")[0] + "basin" * ("basin" in each) for each in ids if "_bar_" in each}
    left = Counter(heads.values())
    names: dict[str, str] = {}
    for each in ids:
        if each in heads:
            names[each] = f"{heads[each]} {left[heads[each]]}"
            left[heads[each]] -= 1
        else:
            plain = each
            for mangled, character in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
                plain = plain.replace(mangled, character)
            names[each] = f"{plain} "
    return names


def listed(items: Sequence[str]) -> str:
    """Several things in words."""
    if not items:
        return "nothing"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def make_goal(kind: Kind, object_type: str, target_type: str) -> Goal:
    """The goal of a kind, for types such as ``mugtype`` and ``shelftype``."""
    return Goal(kind, object_type, target_type, _TREATED.get(kind, 0), 2 if kind == "pick2" else 1)


def task_line(goal: Goal, phrase: int = 0) -> str:
    """The task in words, in one of the two ways the games have."""
    return _PHRASES[goal.kind][phrase % 2].format(
        o=goal.object_type.removesuffix("type"), t=goal.target_type.removesuffix("type")
    )


def write_goal(goal: Goal) -> Formula:
    (formula,) = parse(_PDDL[goal.kind].format(o=goal.object_type, t=goal.target_type))
    assert isinstance(formula, tuple), "a goal is one formula"
    return formula


def read_goal(problem: Problem, where: str) -> Goal:
    """The goal of a problem; `where` names it in errors."""
    try:
        conditions = _conditions(problem.goal)
    except (ValueError, RecursionError) as error:
        raise GameError(f"{where}, PDDL goal: {error}") from None
    object_types = {condition[-1] for condition in conditions if condition[0] == "objecttype"}
    target_types = {condition[-1] for condition in conditions if condition[0] == "receptacletype"}
    for kind, object_type, target_type in product(KINDS, object_types, object_types | target_types):
        goal = make_goal(kind, object_type, target_type)
        if _conditions(write_goal(goal)) == conditions:
            return goal
    raise GameError(f"{where}, PDDL goal: must be one of the six kinds of task ({', '.join(KINDS)})")


def _conditions(formula: Formula) -> list[list[str]]:
    """What a goal demands, sorted; instead of a variable the type of its things, such as ``mugtype`` or ``agent``."""
    conditions = dict.fromkeys(_flatten(formula, {}, count()))
    types = {words[0]: words[-1] for name, *words in conditions if name in ("objecttype", "receptacletype") and words}
    return sorted([types.get(word, word.partition("#")[0]) for word in condition] for condition in conditions)


def _flatten(formula: Formula | str, scope: dict[str, str], numbers: Iterator[int]) -> Iterator[tuple[str, ...]]:
    """The conditions of a formula, each variable renamed to its type and a number of its own: ``object#2``."""
    match formula:
        case ("and", *parts):
            for part in parts:
                yield from _flatten(part, scope, numbers)
        case ("exists", tuple(declared), body):
            variables = {name: f"{kind}#{next(numbers)}" for name, kind in typed(declared).items()}
            yield from _flatten(body, scope | variables, numbers)
        case ("not", ("=", str(first), str(second))):
            yield ("not=", scope.get(first, first), scope.get(second, second))
        case (str(predicate), *names) if predicate in SIGNATURES:
            yield (predicate, *(scope.get(name, name) if isinstance(name, str) else "" for name in names))
        case _:
            raise ValueError(f"{str(formula)[:60]!r} is not a condition of the domain's goals")
