"""RL and meta-RL from one warm start on MineSweeper: what a second and a third attempt are worth.

Trains a tiny language model from nothing, in about four minutes on two cores, and prints p@k on boards it has never
seen. The report has the learning curves and two trials to read."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from mulligan.app.cli.options import Parser, available_cores, new_run_path, print_tables
from mulligan.app.cli.sweep import run_arms


def add_options(parser: Parser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="root of all randomness (0)")
    parser.add_argument(
        "--recall", type=float, default=0.2, metavar="X", help="how often demonstrations use memory (0.2)"
    )
    parser.add_argument("--updates", type=int, default=80, metavar="N", help="of each arm (80)")
    parser.add_argument("--longer", action="store_true", help="train RL for twice the updates too")
    parser.add_argument("--tasks", type=int, default=512, metavar="N", help="frozen boards to evaluate on (512)")
    parser.add_argument("--run", metavar="DIR", help="folder for runs and report (runs/<time>-demo-…)")
    parser.add_argument("--cores", type=int, metavar="N", help="arms at a time (all cores)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    began = time.perf_counter()
    from mulligan.app.sweep.arms import plan_work, refuse_edits
    from mulligan.app.sweep.demo import demo_sweep, gather
    from mulligan.report.page import page
    from mulligan.report.run import RunFolder, to_json

    folder = Path(options.run or new_run_path("demo", "minesweeper"))
    sweep = demo_sweep(
        options.seed, recall=options.recall, updates=options.updates, tasks=options.tasks, longer=options.longer
    )
    work = plan_work(sweep, folder.absolute(), warm_threads=2)  # whatever the machine: threads change the last bits
    refuse_edits(work)
    results = run_arms(work, folder, ["demo", *words], options)
    data = gather(sweep, work, results)
    minutes = round((time.perf_counter() - began) / 60, 2)
    command = shlex.join(["mulligan", "demo", *words])
    data |= {"minutes": minutes, "cores": available_cores(options.cores), "run": str(folder), "command": command}
    RunFolder(folder).write_text("demo.json", to_json(data))
    RunFolder(folder).write_text("report.html", page(data))
    if options.json:
        sys.stdout.write(to_json({name: value for name, value in data.items() if name != "trials"}))
    else:
        _print(data, folder)
    return 0


def _print(data: dict[str, Any], folder: Path) -> None:
    from mulligan.report.tables import summary_table

    rows = [(row["method"], row) for row in data["rows"]]
    title = f"{data['title']}: {data['tasks']} boards never trained on, {data['episodes']} attempts at each"
    notes = (
        f"meta-RL against RL at p@{data['episodes']}: {_points(data['gap'])}; against gamma_traj 0: "
        f"{_points(data['gap_to_myopic'])} (same boards, 95 %). {data['updates']} updates each, seed {data['seed']}.\n"
        f"p@k: share of boards solved within the first k attempts, ± half of its 95 % interval. A player who sees the "
        f"mines solves {100 * data['ceiling']:.1f} %.\n"
        f"{data['minutes']:.1f} minutes on {data['cores']} core{'s' if data['cores'] > 1 else ''}. "
        f"Curves{' and two trials to read' if data['trials'] else ''}: {folder / 'report.html'}"
    )
    print_tables([summary_table(title, rows, data["episodes"], versus=False)], [notes])


def _points(gap: dict[str, Any]) -> str:
    low, high = gap["ci"]
    return f"{gap['points']:+.1f} points [{low:+.1f}, {high:+.1f}]"
