"""ALFWorld natively: steps per second on one core, time of a reset and of loading a game, bytes of a live game.

Random admissible play, the list of commands made anew at every step, as TextWorld makes it. The bytes are those of a
game with a world of its own, nothing shared. TextWorld on the same games: `results/environments/alfworld_speed.py`.
"""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

from mulligan.bench import Report
from mulligan.envs.alfworld import games as game_files
from mulligan.envs.alfworld import generate
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.goal import KINDS
from mulligan.envs.alfworld.pddl import read_problem, write_problem
from mulligan.envs.alfworld.world import World
from mulligan.seeding import generator

GAMES, STEPS, EPISODE = 24, 30, 10
_PLACES, _LONGEST = 20, 12


class Source(NamedTuple):
    """A game as its file has it."""

    name: str
    problem: str
    """In PDDL."""
    task: str


def run() -> Report:
    rows: list[tuple[str | float, ...]] = []
    for label, sources in game_sources():
        rows.append((label, *_native(sources)))
    return Report("ALFWorld, one core", ("games", "steps/s", "reset ms", "load ms", "bytes"), tuple(rows))


def game_sources() -> list[tuple[str, list[Source]]]:
    """Generated games as large as the official ones, and those of ALFWORLD_DATA where there are some."""
    made: list[Source] = []
    for seed in range(GAMES):
        problem, world = generate.make(seed, KINDS[seed % len(KINDS)], _PLACES, _LONGEST)
        made.append(Source(world.name, write_problem(problem), world.task))
    sources = [("generated", made)]
    if os.environ.get(game_files.DATA):
        paths = game_files.find("official")
        chosen = [paths[number * len(paths) // GAMES] for number in range(GAMES)]
        official = [Source(game_files.game_name(path), *game_files.source(path)) for path in chosen]
        sources.append(("official", official))
    return sources


def _build(source: Source) -> World:
    return game_files.build(read_problem(source.problem, source.name), source.task, source.name, source.name)


def _native(sources: list[Source]) -> tuple[float, float, float, float]:
    load = min(_seconds(lambda: [_build(source) for source in sources]) for _ in range(3)) / len(sources)
    games = [Game(_build(source)) for source in sources]
    reset = min(_seconds(lambda: [_begin(game) for game in games]) for _ in range(3)) / len(games)
    speed = max(_speed(games) for _ in range(3))
    return speed, reset * 1e3, load * 1e3, _bytes_each(sources)


def _begin(game: Game) -> str:
    game.reset()
    return game.world.intro()


def _speed(games: list[Game]) -> float:
    choose, steps = generator(0, "bench").random, 0
    started = time.perf_counter()
    for game in games:
        for turn in range(10 * STEPS):
            if turn % EPISODE == 0:
                game.reset()
                commands = game.commands()
            game.play(commands[int(choose() * len(commands))])
            commands = game.commands()
            game.won()
            steps += 1
    return steps / (time.perf_counter() - started)


def _bytes_each(sources: list[Source]) -> float:
    _build(sources[0])
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        games = [Game(_build(source)) for source in sources]
        for game in games:
            game.play(game.commands()[0])
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(games)
    finally:
        tracemalloc.stop()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
