"""ALFWorld's PDDL problems: read, checked against the domain, and written.

Only the problem is read. The domain is the same for all games and is part of the engine: its predicates are the table
below, its actions are the methods of `mulligan.envs.alfworld.game.Game`. Whatever lies outside it is an error that
names file and line, because a world that leaves a fact out would be a wrong one.

PDDL does not tell upper from lower case; here all is lower case, as the games' text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    **dict.fromkeys(
        (
            "isreceptacleobject", "isreceptacleobjectfull", "pickupable", "moveable", "cleanable", "heatable",
            "coolable", "toggleable", "sliceable", "isclean", "ishot", "iscool", "ison", "istoggled", "issliced",
        ),
        ("object",),
    ),
}  # fmt: skip
"""The domain's predicates and the types of their arguments."""
FUNCTIONS = frozenset(("total-cost", "distance"))
"""Costs of actions: read over, since they change neither text nor rules."""

Fact = tuple[str, ...]
"""A predicate and its arguments."""
Formula = tuple["str | Formula", ...]
"""A goal as nested tuples: ``("and", ("exists", …), …)``."""

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")
_DEEPEST = 60


class GameError(UsageError):
    """A game that cannot be played as it is; the message names where it stands and what is wrong."""


class _Wrong(Exception):
    """What is wrong with a problem, and the number of the token at which it shows."""

    def __init__(self, token: int, what: str) -> None:
        super().__init__(what)
        self.token, self.what = token, what


@dataclass(frozen=True, slots=True)
class Problem:
    """A PDDL problem of the ALFWorld domain."""

    name: str
    objects: dict[str, str]
    """Every declared name -> its type."""
    facts: tuple[Fact, ...]
    """What holds at the start, each fact once, in the order of the file."""
    goal: Formula
    lines: tuple[int, int, int] = (0, 0, 0)
    """The lines on which :objects, :init and :goal begin, for messages about them."""


def read_problem(text: str, where: str) -> Problem:
    """The problem that `text` states; `where` names it in errors."""
    plain = _COMMENT.sub("", text).lower() if ";" in text else text.lower()
    tokens = _TOKEN.findall(plain)
    try:
        found = _Reader(tokens).problem()
    except _Wrong as wrong:
        raise GameError(f"{where}, line {_line(plain, wrong.token)} of its PDDL problem: {wrong.what}") from None
    begins = [plain.count("\n", 0, plain.find(part)) + 1 for part in (":objects", ":init", ":goal")]
    return replace(found, lines=(begins[0], begins[1], begins[2]))


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


def _line(text: str, token: int) -> int:
    """The line on which token number `token` stands; beyond the last one, the last line."""
    for number, found in enumerate(_TOKEN.finditer(text)):
        if number == token:
            return text.count("\n", 0, found.start()) + 1
    return text.count("\n") + 1


class _Reader:
    """Walks over the tokens of one problem."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def problem(self) -> Problem:
        self._take("(", "define", "(", "problem")
        name = self._word("the problem's name")
        self._take(")", "(", ":domain")
        if (domain := self._word("the domain")) != "alfred":
            raise _Wrong(self.at - 1, f"the domain is {domain[:40]!r}, not 'alfred'")
        self._take(")")
        objects: dict[str, str] = {}
        facts: dict[Fact, None] | None = None
        goal: Formula | None = None
        while self._peek() == "(":
            section = self.tokens[self.at + 1 : self.at + 2]
            self.at += 2
            if section == [":objects"] and not objects:
                objects = self._objects()
            elif section == [":init"] and facts is None:
                facts = self._facts(objects)
            elif section == [":goal"] and goal is None:
                goal = self._goal()
            elif section == [":metric"] or section == [":requirements"]:
                self._skip()
            else:
                raise _Wrong(self.at - 1, f"unexpected part {''.join(section)[:40]!r}")
            self._take(")")
        self._take(")")
        if self.at < len(self.tokens):
            raise _Wrong(self.at, f"{self.tokens[self.at][:40]!r} after the end of the problem")
        if not objects or not facts or not goal:
            missing = ":objects" if not objects else ":goal" if facts else ":init"
            raise _Wrong(self.at, f"the problem has no {missing}")
        return Problem(name, objects, tuple(facts), goal)

    def _peek(self) -> str:
        if self.at >= len(self.tokens):
            raise _Wrong(self.at, "the problem ends in the middle")
        return self.tokens[self.at]

    def _take(self, *wanted: str) -> None:
        for token in wanted:
            if (found := self._peek()) != token:
                raise _Wrong(self.at, f"expected {token!r}, found {found[:40]!r}")
            self.at += 1

    def _word(self, what: str) -> str:
        if (found := self._peek()) in "()":
            raise _Wrong(self.at, f"expected {what}, found {found!r}")
        self.at += 1
        return found

    def _skip(self) -> None:
        """To the parenthesis that closes the part."""
        depth = 0
        while depth or self._peek() != ")":
            depth += {"(": 1, ")": -1}.get(self._peek(), 0)
            self.at += 1

    def _objects(self) -> dict[str, str]:
        """``name name - type …`` up to the closing parenthesis."""
        objects: dict[str, str] = {}
        waiting: list[str] = []
        while (token := self._peek()) != ")":
            if token == "-":
                self.at += 1
                kind = self._word("a type")
                if kind not in TYPES:
                    raise _Wrong(self.at - 1, f"{kind[:40]!r} is no type of the domain")
                for name in waiting:
                    if name in objects:
                        raise _Wrong(self.at - 2, f"{name[:80]!r} is declared twice")
                    objects[name] = kind
                waiting = []
            else:
                waiting.append(self._word("a name"))
        if waiting:
            raise _Wrong(self.at, f"{waiting[0][:80]!r} is declared without a type")
        return objects

    def _facts(self, objects: dict[str, str]) -> dict[Fact, None]:
        tokens, facts = self.tokens, dict[Fact, None]()
        known = objects.get
        while self._peek() != ")":
            start = self.at
            self._take("(")
            if self._peek() == "=":
                self._cost()
                continue
            try:
                end = tokens.index(")", start)
            except ValueError:
                raise _Wrong(len(tokens), "the problem ends in the middle") from None
            fact = tuple(tokens[start + 1 : end])
            self.at = end + 1
            if tuple(map(known, fact[1:])) != SIGNATURES.get(fact[0] if fact else ""):
                raise _Wrong(start, _complaint(fact, objects))
            facts[fact] = None
        return facts

    def _cost(self) -> None:
        """``(= (distance a b) 3)``: the opening parenthesis is taken already."""
        self._take("=", "(")
        if (function := self._word("a function")) not in FUNCTIONS:
            raise _Wrong(self.at - 1, f"{function[:40]!r} is no function of the domain")
        self._skip()
        self._take(")")
        self._word("a number")
        self._take(")")

    def _goal(self, depth: int = 0) -> Formula:
        if depth > _DEEPEST:
            raise _Wrong(self.at, "the goal is nested too deeply")
        self._take("(")
        parts: list[str | Formula] = []
        while (token := self._peek()) != ")":
            if token == "(":
                parts.append(self._goal(depth + 1))
            else:
                parts.append(token)
                self.at += 1
        self.at += 1
        return tuple(parts)


def _complaint(fact: Sequence[str], objects: dict[str, str]) -> str:
    """What is wrong with a fact that does not fit its predicate."""
    if not fact or fact[0] not in SIGNATURES:
        return f"{fact[0][:40] if fact else '()'!r} is no predicate of the domain"
    unknown = next((name for name in fact[1:] if name not in objects), None)
    if unknown is not None:
        return f"{unknown[:80]!r} is not declared among the objects"
    kinds = " ".join(objects[name] for name in fact[1:])
    return f"{fact[0]} takes ({' '.join(SIGNATURES[fact[0]])}), not ({kinds})"


def variables(declared: Iterable[str | Formula]) -> dict[str, str]:
    """``?o - object ?r - receptacle`` of a quantifier as names and types; raises ValueError where it is malformed."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    words = iter(declared)
    for word in words:
        if not isinstance(word, str):
            raise ValueError("a quantifier declares its variables in words")
        if word == "-":
            kind = next(words, "")
            if kind not in TYPES:
                raise ValueError(f"{kind!r} is no type of the domain")
            found.update(dict.fromkeys(waiting, str(kind)))
            waiting = []
        else:
            waiting.append(word)
    if waiting or not found:
        raise ValueError("a quantifier's variable has no type")
    return found
