"""ALFWorld natively: steps per second on one core, time of a reset and of loading a game, bytes of a live game.

Random admissible play, the list of commands made anew at every step, as TextWorld makes it. The bytes are those of a
game with a world of its own, nothing shared. Beside it TextWorld, where it is installed, on the same games and with the
same commands, as it comes and not quickened; where it is not, its row says so.
"""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable

from mulligan.bench import Report
from mulligan.envs.alfworld import games as game_files
from mulligan.envs.alfworld import generate, oracle
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.goal import KINDS
from mulligan.envs.alfworld.oracle import Oracle, Source
from mulligan.envs.alfworld.pddl import read_problem, write_problem
from mulligan.envs.alfworld.world import World
from mulligan.seeding import generator

GAMES, STEPS, EPISODE = 24, 30, 10
ORACLE_GAMES, ORACLE_STEPS = 2, 12
_PLACES, _LONGEST = 20, 12


def run() -> Report:
    rows: list[tuple[str | float, ...]] = []
    for label, sources in _sources():
        native = _native(sources)
        rows.append((f"{label}, native", *native, ""))
        rows.append((f"{label}, TextWorld", *_oracle(sources, native[0])))
    columns = ("games", "steps/s", "reset ms", "load ms", "bytes", "native is faster")
    return Report("ALFWorld, one core", columns, tuple(rows))


def _sources() -> list[tuple[str, list[Source]]]:
    """Generated games as large as the official ones, and those of ALFWORLD_DATA where there are some."""
    made: list[Source] = []
    for seed in range(GAMES):
        problem, world = generate.make(seed, KINDS[seed % len(KINDS)], _PLACES, _LONGEST)
        made.append(Source(world.name, write_problem(problem), world.task))
    found = [("generated", made)]
    if os.environ.get(game_files.DATA):
        places = game_files.find("official")
        chosen = [places[number * len(places) // GAMES] for number in range(GAMES)]
        found.append(("official", [Source(*game_files.source(place)) for place in chosen]))
    return found


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


def _oracle(sources: list[Source], native: float) -> tuple[str | float, ...]:
    if not oracle.installed():
        return ("needs the extra 'alfworld-oracle'", "", "", "", "")
    choose = generator(0, "bench").random
    load = reset = play = 0.0
    for source in sources[:ORACLE_GAMES]:
        started = time.perf_counter()
        game = Oracle(source)
        loaded = time.perf_counter()
        answer = game.reset()
        begun = time.perf_counter()
        for _ in range(ORACLE_STEPS):
            answer = game.step(answer.commands[int(choose() * len(answer.commands))])
        load, reset, play = load + loaded - started, reset + begun - loaded, play + time.perf_counter() - begun
        game.close()
    speed = ORACLE_GAMES * ORACLE_STEPS / play
    return speed, reset / ORACLE_GAMES * 1e3, load / ORACLE_GAMES * 1e3, "", f"{native / speed:,.0f} times"


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
