"""ALFWorld's goals: the six kinds of task, read from PDDL and written as PDDL.

A goal is a conjunction under existential quantifiers. It is one of the six kinds when it has the kind's conditions,
whatever their order and nesting and the names of the variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

from mulligan.envs.alfworld.pddl import SIGNATURES, Formula, GameError, Problem, parse, typed
from mulligan.envs.alfworld.world import CLEAN, COOL, HOT, Goal, Kind

KINDS: tuple[Kind, ...] = ("pick", "look", "clean", "heat", "cool", "pick2")
_STATES: dict[Kind, int] = {"clean": CLEAN, "heat": HOT, "cool": COOL}
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


def make_goal(kind: Kind, object_type: str, target_type: str) -> Goal:
    """The goal of a kind, for types such as ``mugtype`` and ``shelftype``."""
    return Goal(kind, object_type, target_type, _STATES.get(kind, 0), 2 if kind == "pick2" else 1)


def task_line(goal: Goal, phrase: int = 0) -> str:
    """The task in words, in one of the two ways the games have."""
    return _PHRASES[goal.kind][phrase % 2].format(
        o=goal.object_type.removesuffix("type"), t=goal.target_type.removesuffix("type")
    )


def write_goal(goal: Goal) -> Formula:
    """A goal as PDDL."""
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
