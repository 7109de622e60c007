"""The native ALFWorld engine against TextWorld: every official game at hand, and generated ones.

    ALFWORLD_DATA=... PYTHONPATH=tests python results/environments/alfworld_equal.py      (make test-oracle)

Each game is played in both: its walkthrough (or the native plan where it has none) and random commands after the win,
then random commands from a fresh start. Compared are the text, the admissible commands, the win and the end after every
command. TextWorld is quickened for this; the last row compares it with TextWorld as it comes, on some of the games.
Fails where anything differs.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from mulligan.envs.alfworld.games import DATA, SPLITS
from mulligan.envs.alfworld.generate import make
from mulligan.envs.alfworld.pddl import write_problem
from mulligan.envs.alfworld.world import KINDS
from oracle.textworld_games import Source, Tally, compare_all, sources

SEEDS, PLAIN = 10, 12
"""Generated games of each kind; games that are also played in TextWorld as it comes."""
CORES = os.cpu_count() or 1
COLUMNS = ("games", "walkthroughs", "won", "random commands", "answers")
DIFFERENT = ("text", "commands", "win", "end")


def main() -> int:
    official = list(sources("official")) if os.environ.get(DATA) else []
    made = [generated(seed, number) for number in range(len(KINDS)) for seed in range(SEEDS)]
    tallies_of: defaultdict[str, list[Tally]] = defaultdict(list)
    games = [*official, *made]
    for game, tally in zip(games, compare_all(games, CORES), strict=True):
        tallies_of[split(game)].append(tally)
        progress(tally, sum(map(len, tallies_of.values())), len(games))
    some = games[:: max(1, len(games) // PLAIN)]
    plain = "TextWorld against its quickened self"
    for tally in compare_all(some, CORES, quick=False):
        tallies_of[plain].append(tally)
        progress(tally, len(tallies_of[plain]), len(some))
    show(tallies_of)
    return int(any(any(tally.different) for tallies in tallies_of.values() for tally in tallies))


def generated(seed: int, number: int) -> Source:
    """Rooms from small to as large as the official ones."""
    problem, world = make(seed, KINDS[number], 8 + 4 * (seed % 4), 14)
    return Source(world.name, write_problem(problem), world.task)


def split(game: Source) -> str:
    parts = Path(game.name).parts
    return next((each for each in SPLITS if each in parts), parts[0] if parts[0] == "generated" else "official")


def progress(tally: Tally, done: int, total: int) -> None:
    if any(tally.different) or not tally.won or done % 20 == 0 or done == total:
        remark = f"  DIFFERENT {tally.first}" if any(tally.different) else "" if tally.won else "  not won"
        sys.stderr.write(f"{done} of {total}: {tally.name}{remark}\n")


def show(tallies_of: dict[str, list[Tally]]) -> None:
    title = "ALFWorld natively and in TextWorld; on the right the answers that differ"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(("", *COLUMNS, *DIFFERENT)):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for label, tallies in tallies_of.items():
        table.add_row(label, *(f"{count:,}" for count in counts(tallies)))
    Console(width=160).print(table)


def counts(tallies: Sequence[Tally]) -> Iterable[int]:
    yield len(tallies)
    yield sum(tally.walkthrough for tally in tallies)
    yield sum(tally.won for tally in tallies)
    yield sum(tally.random for tally in tallies)
    yield sum(tally.answers for tally in tallies)
    for part in range(len(DIFFERENT)):
        yield sum(tally.different[part] for tally in tallies)


if __name__ == "__main__":
    sys.exit(main())
