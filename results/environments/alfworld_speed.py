"""TextWorld's speed on the games of `mulligan bench alfworld`, beside the native engine's.

    ALFWORLD_DATA=... PYTHONPATH=tests .venv/oracle/bin/python results/environments/alfworld_speed.py

TextWorld plays as it comes, not quickened. Both play random admissible commands.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from mulligan.app.bench import alfworld
from mulligan.seeding import generator
from oracle.textworld_games import Oracle, Source

GAMES, STEPS = 2, 12
"""Games of each kind that TextWorld plays, and commands of a game."""


def main() -> None:
    native = alfworld.run()
    table = Table(*native.columns, "native is faster", title=native.title)
    for row, (label, sources) in zip(native.rows, alfworld.game_sources().items(), strict=True):
        speed, reset, load = textworld_speed([Source(*source) for source in sources[:GAMES]])
        table.add_row(f"{label}, native", *(f"{value:,.1f}" for value in row.values() if isinstance(value, float)))
        faster = f"{float(row['steps/s']) / speed:,.0f} times"
        table.add_row(f"{label}, TextWorld", f"{speed:.1f}", f"{1e3 * reset:.0f}", f"{1e3 * load:.0f}", "", faster)
    Console(width=120).print(table)


def textworld_speed(sources: list[Source]) -> tuple[float, float, float]:
    """Steps per second, and the seconds of a reset and of loading a game."""
    choose = generator(0, "bench").random
    load = reset = play = 0.0
    for source in sources:
        started = time.perf_counter()
        game = Oracle(source)
        loaded = time.perf_counter()
        answer = game.reset()
        begun = time.perf_counter()
        for _ in range(STEPS):
            answer = game.step(answer.commands[int(choose() * len(answer.commands))])
        load, reset, play = load + loaded - started, reset + begun - loaded, play + time.perf_counter() - begun
        game.close()
    return len(sources) * STEPS / play, reset / len(sources), load / len(sources)


if __name__ == "__main__":
    main()
