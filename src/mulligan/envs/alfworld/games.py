"""ALFWorld's official games: found under ALFWORLD_DATA or in a file of one's own, checked, and made into worlds.

Two forms are read: the usual folder tree, a ``game.tw-pddl`` for each game, and JSON lines (``.jsonl``, ``.jsonl.gz``)
with id, task and pddl_problem. As in ALFWorld, games about slices and about things carried inside others are left out.

The files' own split decides which set of tasks a game is for (`SETS`). A trial that stands in ``train`` and in a
``valid_*`` is not trained on. A split is named by a folder, a file (``valid_seen.jsonl.gz``) or the beginning of a
game's id. Games of no split have no set, and their worlds are split as those of generated games are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.pddl import GameError, Problem, read_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import World, read_goal
from mulligan.errors import UsageError
from mulligan.seeding import derive

DATA = "ALFWORLD_DATA"
TRAIN = "train"
SETS = {TRAIN: TRAIN, "valid_train": "validation", "valid_seen": "eval", "valid_unseen": "eval"}
"""Split of the official games -> set of tasks."""
SPLITS = tuple(SETS)
GAME_FILE = "game.tw-pddl"
LINES = (".jsonl", ".jsonl.gz")
"""How files of many games end."""
_TASK = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("Your task is to: ([^"\\]*)")')
_WITHOUT_SINKS = "4de9bfc0fd89adc3"
_DOMAINS = frozenset(("6ac36c7c5a294baf", _WITHOUT_SINKS))
"""Fingerprints of the domain, without comments: as in the games, and as in the package, where no sink cleans."""
_GRAMMARS = frozenset(("289a5cbe5d989f2e", "dfcc201c76ff9936"))
"""Fingerprints of the grammar without its task line: two ways to write the same help."""


class Unsolvable(GameError):
    """A game that is marked as unsolvable: passed over where the seed chooses, as ALFWorld does, and never played."""


class GamePath(NamedTuple):
    """The file of a game."""

    file: str
    line: int = 0
    """From 1, in a file of JSON lines; 0 for a file that holds one game."""

    def __str__(self) -> str:
        return f"alfworld: {self.file!r}" + (f", line {self.line}" if self.line else "")


class Listing(NamedTuple):
    """The games that a task may have."""

    paths: tuple[GamePath, ...]
    sets: tuple[str | None, ...]
    """The set of tasks that each is for; None where no file says."""


def pick(games: str, number: int, seed: int, kinds: tuple[str, ...], longest: int) -> tuple[int, World]:
    """Game number `number` of `games`; where it is negative, the first from the seed on that fits.

    `games` is ``official`` (all under ALFWORLD_DATA), one of its splits such as ``valid_seen``, or a path. A game fits
    when it is of one of `kinds` and its plan has at most `longest` steps; an asked-for number must fit too.
    """
    listed = listing(games)
    paths = listed.paths
    if number >= len(paths):
        raise GameError(f"alfworld: game must be < {len(paths)}, the games of games={games!r} (got {number})")
    for candidate in [number] if number >= 0 else _candidates(listed, seed):
        try:
            world = load(paths[candidate])
        except Unsolvable:
            if number >= 0:
                raise
            continue
        if world.goal.kind in kinds and world.plan_length <= longest:
            return candidate, world
        if number >= 0:
            needed = f"kind must be {world.goal.kind} and plan >= {world.plan_length}"
            raise GameError(f"{paths[number]}: {needed} (got {', '.join(kinds)} and plan={longest})")
    raise GameError(
        f"alfworld: none of the {len(paths)} games of games={games!r} is of kind {', '.join(kinds)} with a plan of at "
        f"most {longest} steps; give a larger plan, or another kind"
    )


def listing(games: str) -> Listing:
    """The games behind the parameter `games`; ``train`` has those of ``valid_train`` too, for validation."""
    return _listing(games, _root(games))


@lru_cache(maxsize=16)
def _listing(games: str, root: str) -> Listing:
    paths, all_paths = find(games), _all_splits(Path(root))
    if games == TRAIN:
        paths += tuple(path for path in all_paths if split_of(path) == "valid_train")
    validating = {game_name(path): SETS[split_of(path)] for path in all_paths if split_of(path) not in ("", TRAIN)}
    return Listing(paths, tuple(validating.get(game_name(path)) or SETS.get(split_of(path)) for path in paths))


def _all_splits(root: Path) -> tuple[GamePath, ...]:
    """All games of the data that `root` is part of: beside a split, those of the other splits."""
    if root.name in SPLITS:
        return find(str(root.parent))
    if not (root.is_file() and stem(root) in SPLITS):
        return find(str(root))
    files = [file for file in sorted(root.parent.iterdir()) if stem(file) in SPLITS and file.name.endswith(LINES)]
    return tuple(path for file in files for path in find(str(file)))


def split_of(path: GamePath) -> str:
    """The official split that a game belongs to, "" for none: ``valid_*`` before ``train`` where names disagree."""
    file = Path(path.file).absolute()
    folders = [folder for folder in reversed(file.parts[:-1]) if folder in SPLITS]
    splits = [name for name in (game_id(path).partition("/")[0], stem(file), *folders[:1]) if name in SPLITS]
    return next((split for split in splits if split != TRAIN), TRAIN if splits else "")


def _candidates(listed: Listing, seed: int) -> Iterator[int]:
    """Numbers of games from the seed on: those of one set, drawn as often as any other, then those of the others."""
    sets = list(dict.fromkeys(listed.sets))
    first = derive(seed, "alfworld set") % len(sets) if len(sets) > 1 else 0
    for name in sets[first:] + sets[:first]:
        numbers = [number for number, seed_set in enumerate(listed.sets) if seed_set == name]
        start = seed % len(numbers)
        yield from numbers[start:] + numbers[:start]


def _root(games: str) -> str:
    """The file or folder that the parameter `games` names."""
    root = os.environ.get(DATA, "") if games in (*SPLITS, "official") else games
    if not root:
        raise UsageError(f"alfworld: games={games!r} needs {DATA}; set it to the folder of the official games")
    if not Path(root).exists():
        raise UsageError(f"alfworld: games={games!r} must be a split, a file or a folder ({root!r} does not exist)")
    return root


def find(games: str) -> tuple[GamePath, ...]:
    """All games behind the parameter `games`, in a fixed order."""
    root = _root(games)
    paths = _find(root, games if games in SPLITS else "")
    if not paths:
        raise UsageError(f"alfworld: {root!r} has no {GAME_FILE} and no JSON lines for games={games!r}")
    return paths


@lru_cache(maxsize=16)
def _find(root: str, split: str) -> tuple[GamePath, ...]:
    folder = Path(root)
    paths: list[GamePath] = []
    for file in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts if file != folder else (file.name,)
        if split and split not in (*parts[:-1], stem(file)):
            continue
        if file.name.endswith(LINES):
            records = _records(str(file))
            paths += [GamePath(str(file), line) for line, record in enumerate(records, 1) if record != ""]
        elif file.name == GAME_FILE or file == folder:
            is_left_out = any("movable" in part or "Sliced" in part for part in parts)
            paths += [] if is_left_out else [GamePath(str(file))]
    return tuple(paths)


def stem(file: Path) -> str:
    """The name of a file without its endings."""
    return file.name.partition(".")[0]


@lru_cache(maxsize=4)
def _records(file: str) -> tuple[Any, ...]:
    return tuple(_value(line.strip()) for line in _text(file).splitlines())


def _value(text: str) -> Any:
    """What a JSON text says; one that is no JSON stays a text, and `source` refuses it."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _text(file: str) -> str:
    try:
        data = Path(file).read_bytes()
        return (gzip.decompress(data) if file.endswith(".gz") else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise GameError(f"alfworld: {file!r} cannot be read: {type(error).__name__}: {error}") from None


@lru_cache(maxsize=512)
def load(path: GamePath) -> World:
    """The world of one game, checked: it can be played as TextWorld plays it, and it can be won."""
    problem, task = source(path)
    return build(read_problem(problem, str(path)), task, game_name(path), str(path))


def source(path: GamePath) -> tuple[str, str]:
    """PDDL problem and task of a game, the problem as text."""
    data = _records(path.file)[path.line - 1] if path.line else _value(_text(path.file))
    if not isinstance(data, dict) or not isinstance(data.get("pddl_problem"), str):
        raise GameError(f"{path} must be a JSON object with a text pddl_problem")
    if data.get("solvable") is False:
        raise Unsolvable(f"{path} is marked as unsolvable; choose another game")
    return data["pddl_problem"], _task(data, str(path))


def game_id(path: GamePath) -> str:
    """Split, task and trial: the last folders of a tree, or what a JSON line says."""
    if not path.line:
        return "/".join(Path(path.file).absolute().parts[-4:-1])
    record = _records(path.file)[path.line - 1]
    return str((isinstance(record, dict) and record.get("id")) or f"{Path(path.file).name}/{path.line}")


def game_name(path: GamePath) -> str:
    """Task and trial, without the split: the same trial may stand in several splits, and is one game."""
    return "/".join(game_id(path).split("/")[-2:])


def build(problem: Problem, task: str, name: str, where: str) -> World:
    """The world of a problem, checked; that it can be won is shown by winning it. `where` names it in errors."""
    goal = read_goal(problem, where)
    if sum(fact[0] == "atlocation" for fact in problem.facts) != 1:
        raise GameError(f"{where}: there must be one agent, at one location")
    world = World(problem, goal, task, name)
    game = Game(world)
    if game.won():
        raise GameError(f"{where}: the goal is reached before the game begins")
    steps = plan(game)
    if steps is None or not all(game.play(step) is not None for step in steps) or not game.won():
        raise GameError(f"{where}: the goal cannot be reached ({goal.kind} {goal.object_type} {goal.target_type})")
    world.plan_length = len(steps)
    return world


def _task(data: dict[str, Any], where: str) -> str:
    """The task line; a game file has it in its grammar, which must be ALFWorld's otherwise, as must the domain."""
    task, grammar, domain = data.get("task"), data.get("grammar"), data.get("pddl_domain")
    if isinstance(domain, str):
        domain_print = fingerprint(re.sub(r";[^\n]*", "", domain).lower())
        if domain_print not in _DOMAINS:
            raise GameError(f"{where}: pddl_domain must be ALFWorld's, whose rules are built in")
        if domain_print == _WITHOUT_SINKS and re.search(r"\bsinktype\b", data["pddl_problem"], re.IGNORECASE):
            raise GameError(f"{where}: pddl_domain does not let sinks clean, and the problem has one")
    if isinstance(grammar, str):
        rule = _TASK.search(grammar)
        if rule is None or fingerprint(grammar.replace(rule[1], "")) not in _GRAMMARS:
            raise GameError(f"{where}: grammar must be ALFWorld's, whose texts are built in")
        task = rule[2]
    if not isinstance(task, str) or not task.strip():
        raise GameError(f"{where}: task must be a text (got {task!r})")
    return task


def fingerprint(text: str) -> str:
    """Names a text but for its white space."""
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).hexdigest()
