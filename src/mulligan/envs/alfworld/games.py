"""ALFWorld's official games: found under ALFWORLD_DATA or in a file of one's own, checked, and made into worlds.

Two forms are read: the usual folder tree, a ``game.tw-pddl`` for each game, and JSON lines (``.jsonl``, ``.jsonl.gz``)
with id, task and pddl_problem. As in ALFWorld, games about slices and about things carried inside others are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.goal import FOLDERS, read_goal
from mulligan.envs.alfworld.pddl import GameError, Problem, read_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import Goal, World
from mulligan.errors import UsageError

DATA = "ALFWORLD_DATA"
"""Environment variable that names the folder of the official games."""
SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
GAME_FILE = "game.tw-pddl"
LINES = (".jsonl", ".jsonl.gz")
"""How files of many games end."""
_TASK = "Your task is to: "
_TASK_RULE = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')
_SPECIAL = frozenset(';|"<>[]#{}\n\t')
"""Characters that TextWorld's grammar would not print as they are."""
_NAME = re.compile(r"[\w\-]+( [\w\-]+)*")
_WITHOUT_SINKS = "4de9bfc0fd89adc3"
_DOMAINS = frozenset(("6ac36c7c5a294baf", _WITHOUT_SINKS))
"""Fingerprints of the domain, without comments: as in the games, and as in the package, where no sink cleans."""
_GRAMMARS = frozenset(("289a5cbe5d989f2e", "dfcc201c76ff9936"))
"""Fingerprints of the grammar without its task line: two ways to write the same help."""


class Unsolvable(GameError):
    """A game that is marked as unsolvable: left out where the seed chooses, as ALFWorld does, and never played."""


class Place(NamedTuple):
    """Where a game stands."""

    file: str
    line: int = 0
    """From 1, in a file of JSON lines; 0 for a file of its own."""

    def __str__(self) -> str:
        return f"alfworld: {self.file!r}" + (f", line {self.line}" if self.line else "")


def find(games: str) -> tuple[Place, ...]:
    """The places of all games behind the parameter `games`, in a fixed order."""
    split = games if games in SPLITS else ""
    named = os.environ.get(DATA, "") if split or games == "official" else games
    if not named:
        raise UsageError(f"alfworld: games={games!r} needs {DATA}; set it to the folder of the official games")
    path = Path(named)
    if not path.exists():
        raise UsageError(f"alfworld: {named!r} is no file or folder; name one, or use games='generated'")
    places = _find(named, split, path.stat().st_mtime_ns)
    if not places:
        within = f" for the split {split!r}" if split else ""
        raise UsageError(f"alfworld: {named!r} holds no games{within}: no {GAME_FILE}, no JSON lines")
    return places


@lru_cache(maxsize=16)
def _find(named: str, split: str, stamp: int) -> tuple[Place, ...]:
    path = Path(named)
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    places: list[Place] = []
    for file in files:
        inside = file.relative_to(path).parts if file != path else (file.name,)
        if split and split not in (*inside[:-1], file.name.partition(".")[0]):
            continue
        if file.name.endswith(LINES):
            lines = _lines(str(file), _stamp(file))
            places += [Place(str(file), number) for number, line in enumerate(lines, 1) if line.strip()]
        elif (file.name == GAME_FILE or file == path) and not any("movable" in p or "Sliced" in p for p in inside):
            places.append(Place(str(file)))
    return tuple(places)


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns


def kind_by_name(place: Place) -> str:
    """The kind of task as the folder's name says; empty where it does not."""
    if place.line:
        return ""
    return next(
        (kind for part in Path(place.file).parts for name, kind in FOLDERS.items() if part.startswith(name)), ""
    )


@lru_cache(maxsize=4)
def _lines(file: str, stamp: int) -> tuple[str, ...]:
    """The lines of a file of games."""
    return tuple(_text(file).splitlines())


def _text(file: str) -> str:
    try:
        data = Path(file).read_bytes()
        return (gzip.decompress(data) if file.endswith(".gz") else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise GameError(f"alfworld: {file!r} cannot be read: {type(error).__name__}: {error}") from None


def load(place: Place) -> World:
    """The world of one game, checked: it can be played as TextWorld plays it, and it can be won."""
    return _load(place, _stamp(Path(place.file)))


def plan_length(place: Place) -> int:
    """Steps of the shortest direct way to win."""
    return _plan_length(place, _stamp(Path(place.file)))


@lru_cache(maxsize=8192)
def _plan_length(place: Place, stamp: int) -> int:
    return len(plan(Game(_load(place, stamp))) or ())


@lru_cache(maxsize=512)
def _load(place: Place, stamp: int) -> World:
    name, problem, task = source(place)
    return build(read_problem(problem, str(place)), task, name, str(place))


def source(place: Place) -> tuple[str, str, str]:
    """Name, PDDL problem and task of a game, the problem as yet unread."""
    text = _lines(place.file, _stamp(Path(place.file)))[place.line - 1] if place.line else _text(place.file)
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = "" if place.line or isinstance(error, RecursionError) else f", line {error.lineno}"
        raise GameError(f"{place}{line}: is no JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("pddl_problem"), str):
        raise GameError(f"{place}: is no ALFWorld game: it has no pddl_problem")
    if data.get("solvable") is False:
        raise Unsolvable(f"{place}: the game says of itself that it cannot be solved; choose another")
    return name_of(place, str(data.get("id") or "")), data["pddl_problem"], _task(data, str(place))


def ident(place: Place) -> str:
    """The id that a line of games gives; "" where it gives none."""
    return _idents(place.file, _stamp(Path(place.file)))[place.line - 1] if place.line else ""


@lru_cache(maxsize=16)
def _idents(file: str, stamp: int) -> tuple[str, ...]:
    return tuple(map(_ident, _lines(file, stamp)))


def _ident(line: str) -> str:
    try:
        data = json.loads(line)
    except (json.JSONDecodeError, RecursionError):  # a damaged line is refused when it is loaded
        return ""
    return str(data.get("id") or "") if isinstance(data, dict) else ""


def name_of(place: Place, ident: str) -> str:
    """Task and trial, wherever the game lies: the same trial may stand in several splits, and is one game."""
    if not place.line:
        return "/".join(Path(place.file).absolute().parts[-3:-1])
    return "/".join((ident or f"{Path(place.file).name}/{place.line}").split("/")[-2:])


def build(problem: Problem, task: str, name: str, where: str) -> World:
    """The world of a problem, checked; that it can be won is shown by winning it. `where` names it in errors."""
    goal = read_goal(problem, where)
    _check(problem, where)
    world = World(problem, goal, task, name)
    game = Game(world)
    line = f"{where}, line {problem.lines[2]} of its PDDL problem"
    if game.won():
        raise GameError(f"{line}: the goal is reached before the game begins")
    steps = plan(game)
    if steps is None or not all(game.play(step) is not None for step in steps) or not game.won():
        raise GameError(f"{line}: the goal cannot be reached ({_say(goal)})")
    return world


def _say(goal: Goal) -> str:
    return f"{goal.kind}: {goal.object_type.removesuffix('type')}, {goal.target_type.removesuffix('type')}"


def _task(data: dict[str, Any], where: str) -> str:
    """The task line; a game file has it in its grammar, which must be ALFWorld's otherwise, as must the domain."""
    task = data.get("task")
    grammar, domain = data.get("grammar"), data.get("pddl_domain")
    known = fingerprint(re.sub(r";[^\n]*", "", domain).lower()) if isinstance(domain, str) else ""
    if known and known not in _DOMAINS:
        raise GameError(f"{where}: its pddl_domain is not ALFWorld's, so its rules would be others")
    if known == _WITHOUT_SINKS and re.search(r"\bsinktype\b", data["pddl_problem"], re.IGNORECASE):
        raise GameError(f"{where}: its pddl_domain does not let sinks clean, and its problem has one")
    if isinstance(grammar, str):
        found = _TASK_RULE.search(grammar)
        if found is None:
            raise GameError(f"{where}: its grammar has no task")
        if fingerprint(grammar.replace(found[1], "")) not in _GRAMMARS:
            raise GameError(f"{where}: its grammar is not ALFWorld's, so its text would be other")
        try:
            said = str(json.loads(found[1]))
        except json.JSONDecodeError:
            raise GameError(f"{where}: the task of its grammar is no JSON text") from None
        task = said.removeprefix(_TASK) if said.startswith(_TASK) else None
    if not isinstance(task, str) or not task.strip():
        raise GameError(f"{where}: has no task in words")
    if strange := _SPECIAL & set(task):
        raise GameError(f"{where}: its task has the character {min(strange)!r}, which TextWorld would not print")
    return task


def fingerprint(text: str) -> str:
    """Names a text but for its white space."""
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).hexdigest()


def _check(problem: Problem, where: str) -> None:
    """What the engine takes for granted of a problem, beyond the domain."""
    declared, stated = (f"{where}, line {line} of its PDDL problem" for line in problem.lines[:2])
    if not _NAME.fullmatch(" ".join(problem.objects)):
        raise GameError(f"{declared}: a name among the objects has characters that no ALFWorld name has")
    counts: dict[str, Counter[str]] = {}
    for fact in problem.facts:
        if len(fact) == 3:
            counts.setdefault(fact[0], Counter())[fact[1]] += 1
    agents = [name for name, kind in problem.objects.items() if kind == "agent"]
    if len(agents) != 1 or counts.get("atlocation", Counter())[agents[0]] != 1:
        raise GameError(f"{stated}: there must be one agent, at one location")
    for predicate in ("receptacleatlocation", "objecttype", "receptacletype", "holds"):
        twice = next((name for name, count in counts.get(predicate, Counter()).items() if count > 1), None)
        if twice is not None:
            raise GameError(f"{stated}: {predicate} is stated twice of {twice!r}")
    if (("holdsany", agents[0]) in problem.facts) != ("holds" in counts):
        raise GameError(f"{stated}: holds and holdsAny contradict each other")
