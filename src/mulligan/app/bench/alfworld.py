"""ALFWorld: steps per second on one core, time of a reset and of loading a game, bytes of a live game.

Random admissible play, the list of commands made anew at every step, as TextWorld makes it. The bytes are those of a
game with a world of its own, nothing shared. TextWorld on the same games: `results/environments/alfworld_speed.py`.
"""

from __future__ import annotations

import os
import time

from mulligan.app.bench import Cell, Report, bytes_each, seconds
from mulligan.envs.alfworld import games as game_files
from mulligan.envs.alfworld import generate
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.pddl import read_problem, write_problem
from mulligan.envs.alfworld.world import KINDS, World
from mulligan.seeding import generator

GAMES, STEPS, EPISODE = 24, 300, 10
_RECEPTACLES, _LONGEST = 20, 12
"""Of generated games: as large as the official ones."""
Source = tuple[str, str, str]
"""Name, PDDL problem and task of a game."""


def run() -> Report:
    return Report("ALFWorld, one core", [_measure(label, sources) for label, sources in game_sources().items()])


def game_sources() -> dict[str, list[Source]]:
    """Generated games, and those of ALFWORLD_DATA where there are some."""
    sources = {"generated": [_generated(seed) for seed in range(GAMES)]}
    if os.environ.get(game_files.DATA):
        paths = game_files.find("official")
        chosen = [paths[number * len(paths) // GAMES] for number in range(GAMES)]
        sources["official"] = [(game_files.game_name(path), *game_files.source(path)) for path in chosen]
    return sources


def _generated(seed: int) -> Source:
    problem, world = generate.make(seed, KINDS[seed % len(KINDS)], _RECEPTACLES, _LONGEST)
    return world.name, write_problem(problem), world.task


def _build(source: Source) -> World:
    name, problem, task = source
    return game_files.build(read_problem(problem, name), task, name, name)


def _measure(label: str, sources: list[Source]) -> dict[str, Cell]:
    load = min(seconds(lambda: [_build(source) for source in sources]) for _ in range(3)) / len(sources)
    games = [Game(_build(source)) for source in sources]
    reset = min(seconds(lambda: [_begin(game) for game in games]) for _ in range(3)) / len(games)
    speed = max(_steps_per_second(games) for _ in range(3))

    def begun() -> list[Game]:
        more = [Game(_build(source)) for source in sources]
        for game in more:
            game.play(game.commands()[0])
        return more

    size = bytes_each(begun)
    return {"games": label, "steps/s": speed, "reset ms": reset * 1e3, "load ms": load * 1e3, "bytes": size}


def _begin(game: Game) -> str:
    game.reset()
    return game.world.intro()


def _steps_per_second(games: list[Game]) -> float:
    choose, steps = generator(0, "bench").random, 0
    started = time.perf_counter()
    for game in games:
        for turn in range(STEPS):
            if turn % EPISODE == 0:
                game.reset()
                commands = game.commands()
            game.play(commands[int(choose() * len(commands))])
            commands = game.commands()
            game.won()
            steps += 1
    return steps / (time.perf_counter() - started)
