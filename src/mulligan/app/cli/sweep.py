"""Compare training runs: arms from shared warm starts, side by side, over seeds, evaluated by one protocol."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.app.cli.options import Parser, available_cores, new_run_path
from mulligan.app.stopping import handling, interrupt_once
from mulligan.errors import UsageError, extra_named
from mulligan.text import visible

if TYPE_CHECKING:
    from mulligan.app.sweep.arms import Sweep, Work

TIME_OVER = 75
"""Exit code where the time is over and there is more to do."""

_EPILOG = """The file:
  title = "How far should credit reach?"
  preset = "cpu"
  seeds = [0, 1, 2]
  tasks = 64                         # frozen, on validation worlds; seed_set = "eval" for the last run of all
  env = "minesweeper"                # what all are compared on; needed where arms train on mixtures
  [settings]                         # of all arms
  "task.env" = "minesweeper"
  [also."4 mines"]                   # a further evaluation: of trials (memory, episodes), of the environment, controls
  mines = 4
  turns = 14
  [also."camp"]
  env = "expedition(world=camp)"     # another game, trained on or not; the warm starts play it too
  [arms."RL"]
  "trial.episodes" = 1
  "run.group" = 24
  also = ["4 mines"]                 # takes part in it
  [arms."meta-RL"]
  [arms."writer for meta-RL"]        # the arm "meta-RL" plays, frozen; this one trains who writes its notes
  player = "meta-RL"                 # or "warm start"; trial.memory must be reflection or both
  also = ["scripted writer"]         # [also."scripted writer"] writer = "expert:1:1", or any policy, or "untrained"

Results: RUN/table.json and RUN/table.md, as `mulligan compare RUN` shows them. The same command continues an
interrupted sweep. Arms that were begun keep their settings and their place in the file; new ones come at its end."""


def add_options(parser: Parser) -> None:
    parser.add_argument("file", help="the arms, in TOML; see below")
    parser.add_argument("--run", metavar="DIR", help="folder for all runs (runs/<time>-sweep-…)")
    parser.add_argument("--cores", type=int, metavar="N", help="arms at a time, one thread each (all cores)")
    parser.add_argument("--only", action="append", metavar="ARM", help="of all arms, this one; can be given again")
    parser.add_argument("--seeds", metavar="LIST", help="of all seeds, these: 0,2")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, metavar="N", help="stop after so long, to go on another time"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.epilog = _EPILOG


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.app.sweep.arms import chosen, plan_work, read_sweep, refuse_edits

    options = parser.parse_args(words)
    sweep = read_sweep(options.file)
    folder = Path(options.run or new_run_path("sweep", Path(options.file).stem))
    plan = plan_work(sweep, folder.absolute())
    refuse_edits(plan)
    work = chosen(plan, options.only or (), _seeds(sweep, options.seeds))
    if not options.minutes > 0:
        raise UsageError(f"sweep: --minutes must be > 0 (got {options.minutes:g})")
    results = run_arms(work, folder, ["sweep", *words], options, 60 * options.minutes)
    _report(sweep.title, folder, results, as_json=options.json)
    return 0


def run_arms(
    work: Sequence[Work], folder: Path, words: Sequence[str], options: argparse.Namespace, seconds: float = math.inf
) -> dict[Path, dict[str, Any]]:
    """Do what is not done yet of `work`; where that is stopped, end the command `words` with how to continue it."""
    from mulligan.app.sweep.schedule import TimeOver, run_work, work_progress
    from mulligan.report.run import RunFolder

    cores = available_cores(options.cores)
    if (folder / "config.toml").exists():
        raise UsageError(f"{folder} is a run itself; choose another folder for several")
    with extra_named(f"mulligan {words[0]}"):
        import transformers  # noqa: F401
    try:
        with (
            RunFolder(folder).held(),
            handling(interrupt_once()),
            work_progress(work, quiet=options.json) as progress,
        ):
            return run_work(work, cores, progress, seconds)
    except (KeyboardInterrupt, TimeOver) as stopped:
        command = shlex.join(["mulligan", *words] + ([] if options.run else ["--run", str(folder)]))
        sys.stderr.write(f"{str(stopped) or 'interrupted'}; continue with: {command}\n")
        raise SystemExit(TIME_OVER if isinstance(stopped, TimeOver) else 130) from None


def _report(title: str, folder: Path, results: Mapping[Path, Mapping[str, Any]], *, as_json: bool) -> None:
    """Write the table of all arms in the folder, and print that of the chosen ones."""
    from mulligan.app.sweep.compare import compare
    from mulligan.app.sweep.rows import as_table, read_rows
    from mulligan.report.comparison import markdown
    from mulligan.report.run import RunFolder, to_json

    rows = read_rows([folder])
    RunFolder(folder).write_text("table.json", as_table(rows))
    RunFolder(folder).write_text("table.md", markdown(compare(rows, show_all=True)))
    chosen = compare(read_rows(results), show_all=True)
    sys.stdout.write(to_json(chosen) if as_json else visible(f"{title}\n\n{markdown(chosen)}\nRuns: {folder}\n"))
    for path, result in results.items():
        for summary in (result["main"], *result["controls"].values()):
            if summary["failed"]:
                failure = visible(str(summary["failure"]))
                sys.stderr.write(f"{path.name}: {summary['failed']} trials failed outside the agent: {failure}\n")


def _seeds(sweep: Sweep, listed: str | None) -> list[int]:
    """Some of the sweep's seeds, or all of them."""
    words = [word.strip() for word in listed.split(",")] if listed else [str(seed) for seed in sweep.seeds]
    if any(word not in map(str, sweep.seeds) for word in words):
        raise UsageError(f"sweep: --seeds must be among {', '.join(map(str, sweep.seeds))} (got {listed})")
    return [seed for seed in sweep.seeds if str(seed) in words]
