"""ALFWorld's PDDL problems: read, checked against the domain, and written; all in lower case, as PDDL ignores case.

Only the problem is read. The domain is the same for all games and is part of the engine: its predicates are the table
below, its actions are the methods of `mulligan.envs.alfworld.game.Game`. Whatever lies outside it is an error, because
a world that leaves a fact out would be a wrong one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mulligan.errors import UsageError

TYPES = frozenset(("agent", "location", "receptacle", "object", "rtype", "otype"))
SIGNATURES: dict[str, tuple[str, ...]] = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "inreceptacle": ("object", "receptacle"),
    "inreceptacleobject": ("object", "object"),
    "wasinreceptacle": ("object", "receptacle"),
    "receptacletype": ("receptacle", "rtype"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
    "holds": ("agent", "object"),
    "examined": ("location",),
    **dict.fromkeys(("holdsany", "holdsanyreceptacleobject"), ("agent",)),
    **dict.fromkeys(("openable", "opened", "checked", "full"), ("receptacle",)),
    **dict.fromkeys(("isreceptacleobject", "isreceptacleobjectfull", "pickupable", "moveable"), ("object",)),
    **dict.fromkeys(("cleanable", "heatable", "coolable", "toggleable", "sliceable"), ("object",)),
    **dict.fromkeys(("isclean", "ishot", "iscool", "ison", "istoggled", "issliced"), ("object",)),
}
"""The domain's predicates and the types of their arguments."""

Fact = tuple[str, ...]
"""A predicate and its arguments."""
Formula = tuple["str | Formula", ...]
"""Nested tuples: ``("and", ("exists", …), …)``."""

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


class GameError(UsageError):
    """A game that cannot be played as it is; the message names its file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A PDDL problem of the ALFWorld domain."""

    name: str
    objects: dict[str, str]
    """Every declared name -> its type."""
    facts: tuple[Fact, ...]
    """What holds at the start, each fact once, in the order of the file."""
    goal: Formula


def read_problem(text: str, where: str) -> Problem:
    """The problem that `text` states; `where` names it in errors."""
    try:
        match parse(text):
            case (("define", ("problem", str(name)), (":domain", "alfred"), *parts),):
                sections: dict[Any, Any] = {part[0]: part[1:] for part in parts if part}
            case _:
                raise ValueError("must be one problem of the domain 'alfred'")
        if missing := {":objects", ":init", ":goal"} - sections.keys():
            raise ValueError(f"must have {', '.join(sorted(missing))}")
        objects = typed(sections[":objects"])
        return Problem(name, objects, _facts(sections[":init"], objects), sections[":goal"][0])
    except (ValueError, RecursionError) as error:
        raise GameError(f"{where}, PDDL problem: {error}") from None


def write_problem(problem: Problem) -> str:
    """The problem as PDDL, which `read_problem` reads back and TextWorld plays."""
    objects = "\n".join(f"        {name} - {kind}" for name, kind in problem.objects.items())
    facts = "\n".join(f"        ({' '.join(fact)})" for fact in problem.facts)
    return (
        f"(define (problem {problem.name})\n    (:domain alfred)\n    (:objects\n{objects}\n    )\n"
        f"    (:init\n{facts}\n    )\n    (:goal {_written(problem.goal)})\n)\n"
    )


def _written(formula: str | Formula) -> str:
    return formula if isinstance(formula, str) else f"({' '.join(map(_written, formula))})"


def parse(text: str) -> Formula:
    """Parentheses as nested tuples, without comments."""
    stack: list[list[str | Formula]] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            closed = tuple(stack.pop())
            stack[-1].append(closed)
        else:
            raise ValueError("')' without '('")
    if len(stack) > 1:
        raise ValueError("')' is missing at the end")
    return tuple(stack[0])


def typed(words: Formula) -> dict[str, str]:
    """Names and types of ``name name - type …``."""
    types: dict[str, str] = {}
    untyped: list[str] = []
    rest = map(_written, words)
    for word in rest:
        if word != "-":
            untyped.append(word)
            continue
        kind = next(rest, "")
        if kind not in TYPES:
            raise ValueError(f"{kind[:80]!r} is not a type of the domain")
        types |= dict.fromkeys(untyped, kind)
        untyped = []
    if untyped:
        raise ValueError(f"{untyped[0][:80]!r} is declared without a type")
    return types


def _facts(formulas: Formula, objects: dict[str, str]) -> tuple[Fact, ...]:
    """Each fact once. Costs of actions, ``(= (total-cost) 0)``, are left out: they change neither text nor rules."""
    facts: dict[Fact, None] = {}
    for formula in formulas:
        fact = tuple(map(_written, formula))
        if fact[:1] == ("=",):
            continue
        expected = SIGNATURES.get(fact[0]) if fact else None
        types = tuple(objects.get(name, "undeclared") for name in fact[1:])
        if types != expected:
            reason = f"must have the types ({' '.join(expected)}) (got {' '.join(types)})" if expected else "is unknown"
            raise ValueError(f"the fact {_written(formula)[:80]!r} {reason}")
        facts[fact] = None
    return tuple(facts)
