"""The p@k table of scripted players on MineSweeper: what memory is worth, before anything is trained."""

from __future__ import annotations

import json
import sys
from typing import Any

from mulligan.cli.options import Parser
from mulligan.cli.progress import trial_progress

PLAYERS = (
    ("random moves", "random", "none"),
    ("skill 0.5, no memory", "expert:0.5:0", "none"),
    ("skill 0.5, with memory", "expert:0.5:1", "history"),
    ("skill 0.8, no memory", "expert:0.8:0", "none"),
    ("skill 0.8, with memory", "expert:0.8:1", "history"),
)


def add_options(parser: Parser) -> None:
    parser.add_argument("--tasks", type=int, default=512, metavar="N", help="how many frozen boards (512)")
    parser.add_argument("--episodes", type=int, default=3, metavar="N", help="attempts at each board (3)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the players' randomness (0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(parser: Parser, words: list[str]) -> int:
    from dataclasses import asdict

    from mulligan.eval.run import evaluate

    options = parser.parse_args(words)
    rows: list[tuple[str, dict[str, Any]]] = []
    room: dict[str, Any] = {}
    with trial_progress(quiet=options.json) as progress:
        for label, policy, memory in PLAYERS:
            result = evaluate(
                "minesweeper",
                policy,
                tasks=options.tasks,
                episodes=options.episodes,
                seed=options.seed,
                memory=memory,
                controls=(),
                room=not room,
                progress=lambda arm, done, total, label=label: progress(label, done, total),  # type: ignore[misc]
            )
            rows.append((label, asdict(result.main)))
            room = room or {name: asdict(summary) for name, summary in result.room.items()}
    rows += [("skill 1, no memory", room["expert"]), ("skill 1, with memory", room["expert, perfect memory"])]
    ceiling = room["ceiling"]["p"][0]
    if options.json:
        found = [{"method": label, "p": row["p"], "ci": row["ci"], "tasks": row["trials"]} for label, row in rows]
        sys.stdout.write(json.dumps({"rows": found, "ceiling": ceiling}, indent=2) + "\n")
        return 0
    _print(rows, options.tasks, options.episodes, ceiling)
    return 0


def _print(rows: list[tuple[str, dict[str, Any]]], tasks: int, episodes: int, ceiling: float) -> None:
    from rich.console import Console

    from mulligan.report.tables import summary_table

    title = f"MineSweeper 6x6 with 3 mines, 7 turns: {tasks} frozen boards, {episodes} attempts at each"
    console = Console()
    console.print(summary_table(title, rows, episodes, versus=False, ceiling=ceiling))
    console.print(
        "p@k: share of boards solved within the first k attempts, ± half of its 95 % interval. Ceiling: a player who "
        "sees the mines;\nthe other boards need more than 7 turns. The memory is what the program keeps from one "
        "attempt to the next.",
        highlight=False,
        soft_wrap=True,
    )
