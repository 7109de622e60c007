"""ALFWorld's goals: the six kinds of task, read from PDDL and written as PDDL.

A goal is a conjunction under existential quantifiers. Flattened, with a name of its own for each variable, it is a set
of literals. It is one of the six kinds when that set is the kind's, whatever the order and the nesting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, permutations, product

from mulligan.envs.alfworld.pddl import SIGNATURES, Formula, GameError, Problem
from mulligan.envs.alfworld.world import CLEAN, COOL, HOT, Goal, Kind

KINDS: tuple[Kind, ...] = ("pick", "look", "clean", "heat", "cool", "pick2")
_STATES: dict[Kind, tuple[str, str, int]] = {
    "clean": ("cleanable", "isclean", CLEAN),
    "heat": ("heatable", "ishot", HOT),
    "cool": ("coolable", "iscool", COOL),
}
_PHRASES: dict[Kind, tuple[str, str]] = {
    "pick": ("put a {o} in {t}.", "put some {o} on {t}."),
    "look": ("look at {o} under the {t}.", "examine the {o} with the {t}."),
    "clean": ("put a clean {o} in {t}.", "clean some {o} and put it in {t}."),
    "heat": ("put a hot {o} in {t}.", "heat some {o} and put it in {t}."),
    "cool": ("put a cool {o} in {t}.", "cool some {o} and put it in {t}."),
    "pick2": ("put two {o} in {t}.", "find two {o} and put them in {t}."),
}

Literal = tuple[str, ...]


def make_goal(kind: Kind, object_type: str, target_type: str) -> Goal:
    """The goal of a kind, for types such as ``mugtype`` and ``shelftype``."""
    state = _STATES[kind][2] if kind in _STATES else 0
    return Goal(kind, object_type, target_type, state, 2 if kind == "pick2" else 1)


def task_line(goal: Goal, phrase: int = 0) -> str:
    """The task in words, in one of the two ways the games have."""
    return _PHRASES[goal.kind][phrase % 2].format(
        o=goal.object_type.removesuffix("type"), t=goal.target_type.removesuffix("type")
    )


def read_goal(problem: Problem, where: str) -> Goal:
    """The goal of a problem; `where` names it in errors."""
    try:
        literals = list(dict.fromkeys(_flatten(problem.goal, {}, count())))
    except (ValueError, RecursionError) as error:
        raise GameError(f"{where}, PDDL goal: {error}") from None
    object_types = {literal[-1] for literal in literals if literal[0] == "objecttype"}
    target_types = {literal[-1] for literal in literals if literal[0] == "receptacletype"}
    for kind, object_type, target_type in product(KINDS, object_types, object_types | target_types):
        goal = make_goal(kind, object_type, target_type)
        if _is_same(literals, _literals(goal)):
            return goal
    raise GameError(f"{where}, PDDL goal: must be one of the six kinds of task ({', '.join(KINDS)})")


def write_goal(goal: Goal) -> Formula:
    """A goal as PDDL."""
    kinds = {**dict.fromkeys("opt", "object"), **dict.fromkeys("ab", "agent"), "r": "receptacle", "l": "location"}
    literals = _literals(goal)
    used = dict.fromkeys(name for literal in literals for name in literal[1:] if name.startswith("?"))
    declared = tuple(word for name in used for word in (name, "-", kinds[name[1]]))
    body: list[Formula] = [("not", ("=", *literal[1:])) if literal[0] == "not=" else literal for literal in literals]
    return ("exists", declared, ("and", *body))


def _literals(goal: Goal) -> list[Literal]:
    """What a goal demands, with variables of its own."""
    kind, target = goal.kind, goal.target_type
    if kind == "look":
        return [
            ("objecttype", "?t", target), ("toggleable", "?t"), ("istoggled", "?t"), ("inreceptacle", "?t", "?r"),
            ("receptacleatlocation", "?r", "?l"), ("atlocation", "?a", "?l"), ("objecttype", "?o", goal.object_type),
            ("holds", "?b", "?o"),
        ]  # fmt: skip
    literals: list[Literal] = [("receptacletype", "?r", target)]
    for name in ("?o", "?p")[: goal.count]:
        literals += [("objecttype", name, goal.object_type), ("inreceptacle", name, "?r")]
        if kind in _STATES:
            literals += [(_STATES[kind][0], name), (_STATES[kind][1], name)]
    return [*literals, ("not=", "?o", "?p")] if goal.count == 2 else literals


def _flatten(formula: Formula | str, scope: dict[str, str], numbers: Iterator[int]) -> Iterator[Literal]:
    """The literals of a formula, its variables renamed so that no two quantifiers share one."""
    match formula:
        case ("and", *parts):
            for part in parts:
                yield from _flatten(part, scope, numbers)
        case ("exists", tuple(declared), body):
            variables = [word for word in declared if isinstance(word, str) and word.startswith("?")]
            yield from _flatten(body, {**scope, **{name: f"?{next(numbers)}" for name in variables}}, numbers)
        case ("not", ("=", str(first), str(second))):
            yield ("not=", scope.get(first, first), scope.get(second, second))
        case (str(predicate), *names) if predicate in SIGNATURES:
            yield (predicate, *(scope.get(name, name) if isinstance(name, str) else "" for name in names))
        case _:
            raise ValueError(f"{str(formula)[:60]!r} is not a condition of the domain's goals")


def _is_same(literals: Sequence[Literal], wanted: Sequence[Literal]) -> bool:
    """Whether two lists of literals differ only in their order and the names of their variables."""
    if _shape(literals) != _shape(wanted):
        return False
    variables, others = (
        list(dict.fromkeys(name for literal in each for name in literal[1:] if name.startswith("?")))
        for each in (literals, wanted)
    )
    renamings = (dict(zip(variables, order, strict=True)) for order in permutations(others, len(variables)))
    return any({_renamed(literal, names) for literal in literals} == set(wanted) for names in renamings)


def _shape(literals: Sequence[Literal]) -> list[list[str]]:
    """The literals, sorted, with a blank for every variable."""
    return sorted(["?" if word.startswith("?") else word for word in literal] for literal in literals)


def _renamed(literal: Literal, names: dict[str, str]) -> Literal:
    arguments = [names.get(name, name) for name in literal[1:]]
    return (literal[0], *(sorted(arguments) if literal[0] == "not=" else arguments))
