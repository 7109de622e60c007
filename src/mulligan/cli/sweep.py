"""Compare training runs: arms from shared warm starts, side by side, over seeds, evaluated by one protocol."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.cli.options import Parser, available_cores, check_holds_runs, check_installed, new_run_path
from mulligan.cli.progress import work_progress
from mulligan.cli.stopping import ended_as_interrupted
from mulligan.errors import UsageError

if TYPE_CHECKING:
    from mulligan.sweep.arms import Sweep, Work

TIME_OVER = 75
"""Exit code where the time is over and there is more to do."""

_EPILOG = """The file:
  title = "How far should credit reach?"
  preset = "cpu"
  seeds = [0, 1, 2]
  tasks = 64                         # frozen, on validation worlds; seed_set = "eval" for the last run of all
  [settings]                         # of all arms
  "task.env" = "minesweeper"
  [also."4 mines"]                   # a further evaluation: of trials (memory, episodes), of the environment, controls
  mines = 4
  turns = 14
  [arms."RL"]
  "trial.episodes" = 1
  "run.group" = 24
  also = ["4 mines"]                 # takes part in it
  seeds = [0]                        # of the sweep's; without it all
  [arms."RL, twice the updates"]
  from = "RL"                        # goes on where that arm ended
  "trial.episodes" = 1
  "run.group" = 24
  [arms."meta-RL"]

Results: RUN/sweep.json and RUN/table.md. The same command goes on where an interrupted sweep stopped,
also after RUN was moved (--run says where it is now)."""


def add_options(parser: Parser) -> None:
    parser.add_argument("file", help="the arms, in TOML; see below")
    parser.add_argument("--run", metavar="DIR", help="folder for all runs (runs/<time>-sweep-…)")
    parser.add_argument("--cores", type=int, metavar="N", help="arms at a time, one thread each (all cores)")
    parser.add_argument("--only", action="append", metavar="ARM", help="of all arms, this one; can be given again")
    parser.add_argument("--seeds", metavar="LIST", help="of all seeds, these: 0,2")
    parser.add_argument("--minutes", type=float, metavar="N", help="stop after so long, to go on another time")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.epilog = _EPILOG


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import RunFolder, to_json
    from mulligan.sweep.arms import plan_work, read_sweep
    from mulligan.sweep.match import matching
    from mulligan.sweep.results import markdown
    from mulligan.sweep.schedule import TimeOver

    options = parser.parse_args(words)
    sweep = read_sweep(options.file)
    seeds = None if options.seeds is None else _seeds(sweep, options.seeds)
    folder = Path(options.run or new_run_path("sweep", Path(options.file).stem))
    check_holds_runs(folder)
    work = plan_work(sweep, folder.absolute(), only=options.only or (), seeds=seeds)
    if not work:
        raise UsageError("sweep: no arm has been chosen that has these seeds")
    cores = available_cores(options.cores)
    check_installed("mulligan sweep")
    if options.minutes is not None and not options.minutes > 0:
        raise UsageError(f"sweep: --minutes {options.minutes:g} cannot be; give more than 0")
    seconds = math.inf if options.minutes is None else 60 * options.minutes
    try:
        with RunFolder(folder).held(), ended_as_interrupted():
            data = run_sweep(sweep, work, cores, quiet=options.json, seconds=seconds)
    except (KeyboardInterrupt, TimeOver) as stopped:
        again = shlex.join(["mulligan", "sweep", *words] + ([] if options.run else ["--run", str(folder)]))
        sys.stderr.write(f"{str(stopped) or 'interrupted'}; continue with: {again}\n")
        return TIME_OVER if isinstance(stopped, TimeOver) else 130
    results, left_out = matching(plan_work(sweep, folder.absolute()))
    for place, apart in left_out.items():
        sys.stderr.write(f"left out of the table: {place.name} was made with other settings ({'; '.join(apart)})\n")
    whole = gather(sweep, results)
    RunFolder(folder).write_text("sweep.json", to_json(whole))
    RunFolder(folder).write_text("table.md", markdown(whole["rows"]))
    sys.stdout.write(to_json(data) if options.json else f"{sweep.title}\n\n{markdown(data['rows'])}\nRuns: {folder}\n")
    return 0


def _seeds(sweep: Sweep, listed: str) -> list[int]:
    """Some of the sweep's seeds."""
    words = [word.strip() for word in listed.split(",")]
    if any(word not in map(str, sweep.seeds) for word in words):
        raise UsageError(f"sweep: --seeds {listed}: the file has seeds {', '.join(map(str, sweep.seeds))} only")
    return [seed for seed in sweep.seeds if str(seed) in words]


def run_sweep(
    sweep: Sweep, work: Sequence[Work], cores: int, *, quiet: bool, seconds: float = math.inf
) -> dict[str, Any]:
    """Do the work with a progress bar, and gather what was found."""
    from mulligan.sweep.match import matching
    from mulligan.sweep.schedule import run_work

    with work_progress(work, quiet=quiet) as progress:
        run_work(work, cores, progress, seconds)
    return gather(sweep, matching(work)[0])


def gather(sweep: Sweep, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the arms have found, as it is kept and printed."""
    from mulligan.sweep.results import combine

    return {
        "title": sweep.title,
        "preset": sweep.preset,
        "seeds": list(sweep.seeds),
        "seed_set": sweep.seed_set,
        "tasks": sweep.tasks,
        "rows": combine(results),
        "arms": [
            {name: result[name] for name in ("name", "seed", "settings", "memory", "curve", "seconds")}
            for result in results
        ],
    }
