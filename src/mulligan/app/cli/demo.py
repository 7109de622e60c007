"""RL and meta-RL from one warm start, in two acts: what memory is worth, and when exploring is learned.

Trains a tiny language model from nothing, in six to eight minutes on two cores, and prints p@k on tasks it has never
seen: boards of MineSweeper, then doors of which a sign names the right one. The report has both findings, the
learning curves, and trials of every agent to step through."""

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
    parser.add_argument("--updates", type=int, default=80, metavar="N", help="of each arm of MineSweeper (80)")
    parser.add_argument("--longer", action="store_true", help="train RL for twice the updates too, on MineSweeper")
    parser.add_argument(
        "--tasks", type=int, default=512, metavar="N", help="frozen tasks of each act to evaluate on (512)"
    )
    parser.add_argument("--run", metavar="DIR", help="folder for runs and report (runs/<time>-demo-…)")
    parser.add_argument("--cores", type=int, metavar="N", help="arms at a time (all cores)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    began = time.perf_counter()
    from mulligan.app.sweep.arms import plan_work, refuse_edits
    from mulligan.app.sweep.demo import READABLE, demo_sweep, gather, gather_signpost, signpost_sweep
    from mulligan.report.run import RunFolder, to_json
    from mulligan.view.export import write_report

    folder = Path(options.run or new_run_path("demo", "minesweeper"))
    sweep = demo_sweep(
        options.seed, recall=options.recall, updates=options.updates, tasks=options.tasks, longer=options.longer
    )
    signpost = signpost_sweep(options.seed, options.tasks)
    work = plan_work(sweep, folder.absolute(), warm_threads=2)  # whatever the machine: threads change the last bits
    signpost_work = plan_work(signpost, folder.absolute() / "signpost")
    refuse_edits([*work, *signpost_work])
    cores = available_cores(options.cores)
    data = gather(sweep, work, run_arms(work, folder, ["demo", *words], options))
    if not options.json:
        _print(data, "boards", _about_boards(data))
    if options.cores is None:  # its arms are short: three on two cores end sooner than one after the two others
        options.cores = max(cores, len(signpost.arms))
    results = run_arms(signpost_work, folder, ["demo", *words], options)
    data["signpost"] = gather_signpost(signpost, signpost_work, results)
    minutes = round((time.perf_counter() - began) / 60, 2)
    command = shlex.join(["mulligan", "demo", *words])
    data |= {"minutes": minutes, "cores": cores, "run": str(folder), "command": command}
    RunFolder(folder).write_text("demo.json", to_json(data))
    write_report([folder], folder / "report.html", READABLE)
    if options.json:
        sys.stdout.write(to_json(data))
    else:
        _print(data["signpost"], "tasks", _about_signs(data["signpost"]), _about_run(data, folder))
    return 0


def _print(act: dict[str, Any], tasks: str, *notes: str) -> None:
    """The table of an act, the differences between its arms, and notes."""
    from mulligan.report.tables import summary_table

    rows = [(row["method"], row) for row in act["rows"]]
    title = f"{act['title']}: {act['tasks']} {tasks} never trained on, {act['episodes']} attempts at each"
    gaps = (
        f"meta-RL against RL at p@{act['episodes']}: {_points(act['gap'])}; against gamma_traj 0: "
        f"{_points(act['gap_to_myopic'])} (same {tasks}, 95 %). {act['updates']} updates each, seed {act['seed']}."
    )
    print_tables([summary_table(title, rows, act["episodes"], versus=False)], [gaps, *notes])


def _about_boards(data: dict[str, Any]) -> str:
    return (
        "p@k: share of boards solved within the first k attempts, ± half of its 95 % interval. A player who sees the "
        f"mines solves {100 * data['ceiling']:.1f} %.\n"
    )


def _about_signs(signpost: dict[str, Any]) -> str:
    shares = (f"{name}: {100 * share:.1f} %" for name, share in signpost["reads_first"].items())
    return (
        f"First attempts that read the sign: {'; '.join(shares)}.\n"
        "optimum: the most that any agent can expect of all attempts; at γ_traj 0, of each attempt by itself.\n"
        f"{signpost['sentence']}\n"
    )


def _about_run(data: dict[str, Any], folder: Path) -> str:
    return (
        f"{data['minutes']:.1f} minutes on {data['cores']} core{'s' if data['cores'] > 1 else ''}. "
        f"To read and to send around: {folder / 'report.html'}; all of it in the browser: mulligan view {folder}"
    )


def _points(gap: dict[str, Any]) -> str:
    low, high = gap["ci"]
    return f"{gap['points']:+.1f} points [{low:+.1f}, {high:+.1f}]"
