"""Compare training runs: arms from shared warm starts, side by side, over seeds, evaluated by one protocol."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.cli.options import Parser, available_cores, check_installed, new_run_path
from mulligan.cli.progress import work_progress
from mulligan.errors import UsageError

if TYPE_CHECKING:
    from mulligan.sweep.arms import Sweep, Work

_EPILOG = """The file:
  title = "How far should credit reach?"
  preset = "cpu"
  seeds = [0, 1, 2]
  tasks = 512                        # frozen; seed_set = "validation" while settings are still being chosen
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

Results: RUN/sweep.json and RUN/table.md. The same command goes on where an interrupted sweep stopped."""


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
    from mulligan.report.run import to_json
    from mulligan.sweep.arms import plan_work, read_sweep
    from mulligan.sweep.results import markdown
    from mulligan.sweep.schedule import TimeOver

    options = parser.parse_args(words)
    sweep = read_sweep(options.file)
    if options.seeds is not None:
        sweep = _with_seeds(sweep, options.seeds)
    folder = Path(options.run or new_run_path("sweep", Path(options.file).stem))
    work = plan_work(sweep, folder.absolute(), only=options.only or ())
    cores = available_cores(options.cores)
    check_installed("mulligan sweep")
    if options.minutes is not None and not options.minutes > 0:
        raise UsageError(f"sweep: --minutes {options.minutes:g} cannot be; give more than 0")
    seconds = math.inf if options.minutes is None else 60 * options.minutes
    try:
        data = run_sweep(sweep, work, cores, quiet=options.json, seconds=seconds)
    except (KeyboardInterrupt, TimeOver) as stopped:
        again = shlex.join(["mulligan", "sweep", *words] + ([] if options.run else ["--run", str(folder)]))
        sys.stderr.write(f"{str(stopped) or 'interrupted'}; continue with: {again}\n")
        return 130
    (folder / "sweep.json").write_text(to_json(data), encoding="utf-8")
    (folder / "table.md").write_text(markdown(data["rows"]), encoding="utf-8")
    sys.stdout.write(to_json(data) if options.json else f"{sweep.title}\n\n{markdown(data['rows'])}\nRuns: {folder}\n")
    return 0


def _with_seeds(sweep: Sweep, listed: str) -> Sweep:
    """The sweep with some of its seeds."""
    words = [word.strip() for word in listed.split(",")]
    unknown = [word for word in words if word not in map(str, sweep.seeds)]
    if unknown:
        raise UsageError(f"sweep: --seeds {listed}: the file has seeds {', '.join(map(str, sweep.seeds))} only")
    kept = [seed for seed in sweep.seeds if str(seed) in words]
    arms = [
        arm if arm.seeds is None else replace(arm, seeds=[seed for seed in arm.seeds if seed in kept])
        for arm in sweep.arms
    ]
    return replace(sweep, seeds=kept, arms=arms)


def run_sweep(
    sweep: Sweep, work: Sequence[Work], cores: int, *, quiet: bool, seconds: float = math.inf
) -> dict[str, Any]:
    """Do the work with a progress bar, and gather what was found."""
    from mulligan.sweep.results import combine
    from mulligan.sweep.schedule import run_work

    with work_progress(work, quiet=quiet) as progress:
        found = run_work(work, cores, progress, seconds)
    results = [found[each.folder] for each in work]
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
