"""ALFWorld's goals: the six kinds of task, read from PDDL and written as PDDL.

A goal is a conjunction under existential quantifiers. Flattened, with each quantifier's variables kept apart, it is a
set of literals; it is one of the six kinds when that set is the kind's own, whatever the order and the nesting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product

from mulligan.envs.alfworld.pddl import SIGNATURES, Formula, GameError, Problem, variables
from mulligan.envs.alfworld.world import CLEAN, COOL, HOT, Goal, Kind

KINDS: tuple[Kind, ...] = ("pick", "look", "clean", "heat", "cool", "pick2")
FOLDERS: dict[str, Kind] = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick2",
}
"""How the official games' ids begin -> kind of task."""
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
    place = f"{where}, line {problem.lines[2]} of its PDDL problem"
    found: list[Literal] = []
    kinds: dict[str, str] = {}
    try:
        for literal in _flatten(problem.goal, {}, kinds):
            _check(literal, kinds, problem)
            found.append(literal)
    except ValueError as error:
        raise GameError(f"{place}: the goal cannot be read: {error}") from None
    literals = frozenset(found)
    typed = [name for literal in literals if literal[0] == "objecttype" for name in literal[2:]]
    targets = [name for literal in literals if literal[0] == "receptacletype" for name in literal[2:]]
    for kind in KINDS:
        names = Counter(typed)
        pairs = permutations(names, 2) if kind == "look" else ((o, t) for o in names for t in set(targets))
        for object_type, target_type in pairs:
            goal = make_goal(kind, object_type, target_type)
            if _same(literals, frozenset(_literals(goal))):
                return goal
    raise GameError(f"{place}: the goal is none of the six kinds of task ({', '.join(KINDS)})")


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
    found: list[Literal] = [("receptacletype", "?r", target)]
    for name in ("?o", "?p")[: goal.count]:
        found += [("objecttype", name, goal.object_type), ("inreceptacle", name, "?r")]
        if kind in _STATES:
            found += [(_STATES[kind][0], name), (_STATES[kind][1], name)]
    return [*found, ("not=", "?o", "?p")] if goal.count == 2 else found


def _flatten(formula: Formula | str, scope: dict[str, str], kinds: dict[str, str]) -> Iterator[Literal]:
    """The literals of a formula, its variables renamed so that no two quantifiers share one."""
    if isinstance(formula, str) or not formula or not isinstance(formula[0], str):
        raise ValueError(f"{str(formula)[:60]!r} is no condition")
    head, parts = formula[0], formula[1:]
    if head == "and":
        for part in parts:
            yield from _flatten(part, scope, kinds)
    elif head == "exists" and len(parts) == 2 and not isinstance(parts[0], str):
        inner = dict(scope)
        for name, kind in variables(parts[0]).items():
            inner[name] = f"?{len(kinds)}"
            kinds[inner[name]] = kind
        yield from _flatten(parts[1], inner, kinds)
    elif head == "not" and len(parts) == 1 and not isinstance(parts[0], str) and parts[0][:1] == ("=",):
        first, second = sorted(_names(parts[0], scope))
        yield ("not=", first, second)
    elif head in SIGNATURES:
        yield (head, *_names(formula, scope))
    else:
        raise ValueError(f"{head[:40]!r} is nothing that the domain's goals are made of")


def _names(formula: Formula, scope: dict[str, str]) -> list[str]:
    names = []
    for part in formula[1:]:
        if not isinstance(part, str):
            raise ValueError(f"{str(part)[:60]!r} stands where a name should")
        if part.startswith("?") and part not in scope:
            raise ValueError(f"the variable {part!r} is not declared")
        names.append(scope.get(part, part))
    if formula[0] == "=" and len(names) != 2:
        raise ValueError("'=' compares two things")
    return names


def _check(literal: Literal, kinds: dict[str, str], problem: Problem) -> None:
    """A literal must fit its predicate."""
    if literal[0] == "not=":
        return
    wanted = SIGNATURES[literal[0]]
    got = tuple(kinds.get(name) or problem.objects.get(name, "?") for name in literal[1:])
    if got != wanted:
        raise ValueError(f"{literal[0]} takes ({' '.join(wanted)}), not ({' '.join(got)})")


def _same(found: frozenset[Literal], wanted: frozenset[Literal]) -> bool:
    """Whether two sets of literals are the same but for the names of their variables."""
    if Counter(literal[0] for literal in found) != Counter(literal[0] for literal in wanted):
        return False
    ours, theirs = _roles(found), _roles(wanted)
    choices = [[name for name, role in theirs.items() if role == played] for played in ours.values()]
    for order in product(*choices):
        renamed = dict(zip(ours, order, strict=True))
        if len(set(order)) == len(theirs) and {_renamed(literal, renamed) for literal in found} == wanted:
            return True
    return False


def _roles(literals: frozenset[Literal]) -> dict[str, list[tuple[str, ...]]]:
    """For each variable what is said of it, the other variables left blank: only equal roles can be the same one."""
    roles: dict[str, list[tuple[str, ...]]] = {}
    for literal in literals:
        blank = ["?" if name.startswith("?") else name for name in literal]
        for place, name in enumerate(literal):
            if name.startswith("?"):
                where = 0 if literal[0] == "not=" else place
                roles.setdefault(name, []).append((str(where), *blank))
    return {name: sorted(said) for name, said in roles.items()}


def _renamed(literal: Literal, names: dict[str, str]) -> Literal:
    arguments = [names.get(name, name) for name in literal[1:]]
    return (literal[0], *(sorted(arguments) if literal[0] == "not=" else arguments))
