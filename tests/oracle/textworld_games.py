"""TextWorld playing ALFWorld games, and the native engine compared with it (extra ``alfworld-oracle``).

A game is played with the domain and the grammar of its own file; where there are none, with those of the installed
``alfworld`` package, so that nothing of theirs is kept here.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.envs.alfworld.game import NOTHING, Game
from mulligan.envs.alfworld.games import GamePath, Unsolvable, build, find, game_id, source
from mulligan.envs.alfworld.pddl import read_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import World, readable_names
from mulligan.errors import MissingExtra

AFTER_THE_WIN, FROM_THE_START = 25, 50
"""Random commands: after a way to win, and in a second episode."""
_TOGETHER = 60
"""Games after which a process ends: TextWorld keeps some 6 MB of each."""
_TASK = re.compile(r'("rhs"\s*:\s*"Your task is to: )[^"]*"')
_DIGITS = re.compile(r"\d+")
_OFTEN = {"help": 0.1, "inventory": 0.3, "look": 0.5, "take": 3.0, "open": 2.0, "go": 2.0} | dict.fromkeys(
    ("heat", "cool", "clean", "slice", "use"), 3.0
)
"""How often a verb is drawn where it is admissible, against 1."""
_PAIRS = (("take", "from"), ("move", "to"), ("heat", "with"), ("clean", "with"), ("cool", "with"), ("slice", "with"))
_NONSENSE = (
    "", "dance", "go", "go to", "take from", "open", "look around", "[look]", "#look#", "{r}", "é漢", "Look", "i",
    "look\nlook", "help me", "examine", "use ", "go to agent1", "move to",
)  # fmt: skip

Script = tuple[tuple[str, ...], ...]
"""The commands of each episode."""


class Answer(NamedTuple):
    """What a game shows after a command."""

    text: str
    commands: tuple[str, ...]
    """The admissible commands, sorted."""
    won: bool
    ended: bool


class Source(NamedTuple):
    """A game to be compared."""

    name: str
    problem: str
    """In PDDL."""
    task: str
    walkthrough: tuple[str, ...] = ()
    domain: str = ""
    grammar: str = ""
    """Empty: the package's."""


class Tally(NamedTuple):
    """What comparing one game came to."""

    name: str
    walkthrough: bool
    """Whether the game has a walkthrough; where it has none, the native plan was played."""
    won: bool
    """Whether that way led to the win in TextWorld."""
    random: int
    """Random commands that were played."""
    answers: int
    different: tuple[int, ...]
    """Answers that differ in text, admissible commands, win, end."""
    first: str = ""
    """The first difference in words."""


class Oracle:
    """One game in TextWorld."""

    def __init__(self, game: Source) -> None:
        if not is_installed():
            raise MissingExtra("playing ALFWorld in TextWorld", "alfworld-oracle")
        with _calm():
            textworld = importlib.import_module("textworld")
            engine = importlib.import_module("textworld.envs.pddl").PddlEnv
            stack = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
            wanted = textworld.EnvInfos(won=True, admissible_commands=True)
            self.env: Any = stack.AlfredDemangler(stack.AlfredInfos(engine(wanted)))
            self.env.load(game_file(game))

    def reset(self) -> Answer:
        with _calm():
            return _answer(self.env.reset(), False)

    def step(self, command: str) -> Answer:
        with _calm():
            state, _, ended = self.env.step(command)
        return _answer(state, ended)

    def close(self) -> None:
        self.env.close()


def is_installed() -> bool:
    """Whether TextWorld, its planner and ALFWorld can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("textworld", "fast_downward", "alfworld"))


def game_file(game: Source) -> dict[str, object]:
    """A game as a ``game.tw-pddl`` file holds it."""
    domain, grammar = game.domain or _theirs("alfred.pddl"), game.grammar or _theirs("alfred.twl2")
    grammar = _TASK.sub(lambda rule: f'{rule[1]}{game.task}"', grammar, count=1)
    return {"pddl_domain": domain, "grammar": grammar, "pddl_problem": game.problem, "solvable": True}


@contextmanager
def quickened() -> Iterator[None]:
    """TextWorld five to ten times as fast inside the block, with the same answers.

    What it saves decides nothing that a game says: the few texts of the grammar are parsed once each instead of at
    every use; a problem is translated once instead of four times (loading and resetting both do it, and both do it
    again for a plan, which nobody asks for here); and derivations share the entities' records, which none of them
    writes to.
    """
    planner: Any = importlib.import_module("fast_downward")
    textgen: Any = importlib.import_module("textworld.envs.pddl.textgen")
    parsers = [textgen._PARSER, importlib.import_module("textworld.logic")._PARSER]
    translate, copy_context = planner.pddl2sas, textgen.copy_context
    last: dict[tuple[str, str], Any] = {}

    def translate_once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        if (domain, problem) not in last:
            last.clear()
            last[domain, problem] = translate(domain, problem, verbose)
        return last[domain, problem]

    def share_entities(context: dict[str, Any]) -> dict[str, Any]:
        return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    try:
        for parser in parsers:
            parser.parse = _remembering(parser.parse)
        planner.pddl2sas, textgen.copy_context = translate_once, share_entities
        yield
    finally:
        planner.pddl2sas, textgen.copy_context = translate, copy_context
        for parser in parsers:
            del parser.parse  # the class has its own


def sources(games: str) -> Iterator[Source]:
    """The official games behind `games`, each with its walkthrough, domain and grammar as far as there are any."""
    for path in find(games):
        try:
            problem, task = source(path)
        except Unsolvable:
            continue
        data = _data(path)
        beside = {key: Path(path.file).with_name(file) for key, file in _BESIDE.items()}
        rules = {key: data.get(key) or (file.read_text() if file.exists() else "") for key, file in beside.items()}
        walkthrough = tuple(map(str, data.get("walkthrough") or ()))
        yield Source(game_id(path), problem, task, walkthrough, rules["pddl_domain"], rules["grammar"])


def compare_all(games: Iterable[Source], cores: int, quick: bool = True) -> Iterator[Tally]:
    """Compare games in processes of their own, in order; `quick` as in `compare`, otherwise as in `compare_plain`."""
    waiting = iter(games)
    while some := list(islice(waiting, _TOGETHER * cores)):
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            yield from pool.map(compare if quick else compare_plain, some)


def compare(game: Source) -> Tally:
    """Play a game natively and in quickened TextWorld, and count the differences."""
    world = _build(game)
    script = commands(world, game)
    with quickened():
        theirs = play_in_textworld(game, script)
    return tally(game, script, play_natively(world, script), theirs)


def compare_plain(game: Source) -> Tally:
    """Play a game in TextWorld as it comes and in quickened TextWorld, and count the differences."""
    script = commands(_build(game), game)
    plain = play_in_textworld(game, script)
    with quickened():
        quick = play_in_textworld(game, script)
    return tally(game, script, plain, quick)


def commands(world: World, game: Source) -> Script:
    """Two episodes: a way to win and random commands after it; random commands from the start."""
    rng = random.Random(game.name)
    played = Game(world)
    first = list(_readable(game) or plan(played) or ())
    for command in first:
        played.play(command)
    first += _random(played, rng, AFTER_THE_WIN)
    return tuple(first), tuple(_random(Game(world), rng, FROM_THE_START))


def play_natively(world: World, script: Script) -> list[Answer]:
    answers: list[Answer] = []
    game = Game(world)
    for episode in script:
        game.reset()
        answers.append(_native(game, world.intro()))
        answers += [_native(game, game.play(command) or NOTHING) for command in episode]
    return answers


def play_in_textworld(game: Source, script: Script) -> list[Answer]:
    answers: list[Answer] = []
    oracle = Oracle(game)
    try:
        for episode in script:
            answers.append(oracle.reset())
            answers += map(oracle.step, episode)
    finally:
        oracle.close()
    return answers


def tally(game: Source, script: Script, ours: Sequence[Answer], theirs: Sequence[Answer]) -> Tally:
    """Count the differences between two ways to play one script."""
    played = [command for episode in script for command in ("(reset)", *episode)]
    pairs = list(zip(played, ours, theirs, strict=True))
    different = [sum(mine[part] != other[part] for _, mine, other in pairs) for part in range(4)]
    first = next((f"{command!r}: {mine} / {other}" for command, mine, other in pairs if mine != other), "")
    won = theirs[len(script[0]) - AFTER_THE_WIN].won
    count = AFTER_THE_WIN + FROM_THE_START
    return Tally(game.name, bool(game.walkthrough), won, count, len(pairs), tuple(different), first)


_BESIDE = {"pddl_domain": "domain.pddl", "grammar": "grammar.twl2"}
"""What JSON lines leave out may lie beside them."""


def _build(game: Source) -> World:
    return build(read_problem(game.problem, game.name), game.task, game.name, game.name)


def _readable(game: Source) -> list[str]:
    """The walkthrough; where it calls things by their ids, with the names that the game has for them."""
    facts = read_problem(game.problem, game.name).facts
    names = readable_names(sorted({argument for fact in facts for argument in fact[1:]}))
    return [" ".join(names.get(word.lower(), word).strip() for word in step.split()) for step in game.walkthrough]


def _random(game: Game, rng: random.Random, count: int) -> list[str]:
    """Commands and what they lead to: two thirds admissible, the rest near misses and nonsense."""
    names = [*game.world.names, *game.world.r_names]
    drawn: list[str] = []
    earlier: list[str] = []
    for _ in range(count):
        now = game.commands()
        earlier.extend(now)
        draw = rng.random()
        if draw < 0.67:
            command = _one_of(now, rng)
        elif draw < 0.75:
            command = rng.choice(earlier)
        elif draw < 0.83:
            verb, word = rng.choice(_PAIRS)
            command = f"{verb} {rng.choice(names)} {word} {rng.choice(names)}"
        elif draw < 0.9:
            command = rng.choice(now)
            command = rng.choice([f" {command} ", command.upper(), command.replace(" ", "  "), command[:-1]])
        else:
            command = rng.choice(_NONSENSE)
        game.play(command)
        drawn.append(command)
    return drawn


def _one_of(now: list[str], rng: random.Random) -> str:
    """An admissible command: first its verb, then its words without numbers, so that twenty cabinets hide nothing."""
    verbs = sorted({command.split()[0] for command in now})
    verb = rng.choices(verbs, [_OFTEN.get(each, 1.0) for each in verbs])[0]
    kinds = sorted({_DIGITS.sub("", each) for each in now if each.split()[0] == verb})
    kind = rng.choice(kinds)
    return rng.choice([each for each in now if _DIGITS.sub("", each) == kind])


def _native(game: Game, text: str) -> Answer:
    return Answer(text, tuple(game.commands()), game.won(), game.won())


def _answer(state: Any, ended: bool) -> Answer:
    return Answer(str(state.feedback), tuple(state.admissible_commands), bool(state.won), bool(ended))


def _data(path: GamePath) -> dict[str, Any]:
    with gzip.open(path.file, "rt") if path.file.endswith(".gz") else open(path.file) as file:
        data: dict[str, Any] = json.loads(next(islice(file, path.line - 1, None)) if path.line else file.read())
    return data


@cache
def _theirs(name: str) -> str:
    """A file of the package's data."""
    package = importlib.util.find_spec("alfworld")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("writing a game for TextWorld", "alfworld-oracle")
    return (Path(package.submodule_search_locations[0]) / "data" / name).read_text()


@contextmanager
def _calm() -> Iterator[None]:
    """Keeps the command line, which the translator overwrites, and lets TextWorld's warnings pass."""
    words = list(sys.argv)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(setattr, sys, "argv", words)
        yield


_parsed: dict[tuple[Any, ...], Any] = {}


def _remembering(parse: Callable[..., Any]) -> Callable[..., Any]:
    """A parser that reads each text once: what it returns depends on the text alone, and is only looked at."""

    def remembered(*words: Any, **options: Any) -> Any:
        key = (parse, *words, *sorted(options.items()))
        if key not in _parsed:
            _parsed[key] = parse(*words, **options)
        return _parsed[key]

    return remembered
