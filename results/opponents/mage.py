"""MAGE's protocol as a table: games won within 1, 2 and 3 attempts at the same deal, with the bars that it lacks.

    python results/opponents/mage.py runs/opponents/mage-tictactoe runs/opponents/mage-kuhn
    python results/opponents/mage.py                # the bars alone

The bars are scripted players under the same protocol and on the same tasks: one that plays perfectly and remembers
nothing, one that also goes by what it remembers of the opponent, and one that sees what is hidden. mage.md has the
table, mage.json the rows: `game`, `opponent`, `method`, `seed`, `p` (won within 1, 2, 3), `not_lost` (of each attempt).
MAGE's own figures are from its abstract and a summary: one seed, 128 tasks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mulligan
from mulligan.app.sweep.arms import RESULT, WARM_START
from mulligan.report.files import replace_file
from mulligan.report.run import RunFolder

HERE = Path(__file__).parent
OPPONENTS = {"tictactoe": ("mcts:100", "mcts:1000"), "kuhn": ("seen", "cfr")}
BARS = {
    "perfect play without memory": ("expert", "none"),
    "perfect play with memory": ("expert:1:1", "history"),
    "everything seen": ("omniscient", "history"),
}
PUBLISHED = {("tictactoe", "mcts:100"): 0.672, ("kuhn", "seen"): 0.656, ("kuhn", "cfr"): 0.508}
"""MAGE's share of games won; against mcts:1000 it says that none was lost."""
TASKS = 512
Row = dict[str, Any]


def main(folders: list[Path]) -> None:
    rows = [*bars(), *(row for folder in folders for row in trained(folder))]
    replace_file(HERE / "mage.json", (json.dumps(rows, indent=1) + "\n").encode())
    replace_file(HERE / "mage.md", text(rows).encode())
    sys.stdout.write(text(rows))


def bars() -> Iterator[Row]:
    for game, opponents in OPPONENTS.items():
        for opponent in opponents:
            for name, (policy, memory) in BARS.items():
                result = mulligan.evaluate(
                    game,
                    policy,
                    params={"opponent": opponent, "seat": 1},
                    tasks=TASKS,
                    controls=(),
                    room=False,
                    restart="replay",
                    stop="success",
                    memory=memory,
                )
                yield row(game, opponent, name, 0, asdict(result.main))


def trained(folder: Path) -> Iterator[Row]:
    """The further evaluations of a sweep's arms."""
    for file in sorted(folder.rglob(RESULT)):
        arm = json.loads(file.read_text(encoding="utf-8"))
        if not arm["name"].startswith(WARM_START):
            game = RunFolder.open(file.parent).config()["task"]["env"]
            for opponent, evaluation in arm.get("also", {}).items():
                yield row(game, opponent, arm["name"], arm["seed"], evaluation["main"])


def row(game: str, opponent: str, method: str, seed: int, summary: Mapping[str, Any]) -> Row:
    pairs = zip(summary["won"], summary["drawn"], strict=True)
    not_lost = [None if won is None or drawn is None else won + drawn for won, drawn in pairs]
    figures = {"p": summary["p"], "not_lost": not_lost, "tasks": summary["trials"]}
    return {"game": game, "opponent": opponent, "method": method, "seed": seed, **figures}


def text(rows: list[Row]) -> str:
    lines = [
        "| game | opponent | method | won within 1 | 2 | 3 | not lost in the worst attempt | by seed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for game, opponent, method in dict.fromkeys((row["game"], row["opponent"], row["method"]) for row in rows):
        seeds = [row for row in rows if (row["game"], row["opponent"], row["method"]) == (game, opponent, method)]
        means = [sum(row["p"][k] for row in seeds) / len(seeds) for k in range(3)]
        not_lost = [share for row in seeds for share in row["not_lost"] if share is not None]
        cells = [game, opponent, method, *(f"{100 * mean:.1f}" for mean in means), f"{100 * min(not_lost):.1f}"]
        by_seed = " / ".join(f"{100 * row['p'][-1]:.0f}" for row in seeds)
        lines.append(f"| {' | '.join([*cells, by_seed])} |")
        if method == [*BARS][-1] and (game, opponent) in PUBLISHED:
            lines.append(
                f"| {game} | {opponent} | MAGE, Qwen3-4B (published) | | | {100 * PUBLISHED[game, opponent]:.1f} | | |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
