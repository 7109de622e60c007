"""Write a report on runs as one file that holds everything: figures, curves, and trials to step through.

The same pages as those of mulligan view, in one HTML file that loads nothing. With --inspect, the trials of one run as
a log of inspect_ai instead, to be read with inspect view."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mulligan.app.cli.options import Parser
from mulligan.errors import UsageError
from mulligan.text import visible


def add_options(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of training runs, evaluations or sweeps")
    parser.add_argument("--out", metavar="FILE", help="the file (report.html in the first folder)")
    parser.add_argument(
        "--inspect", metavar="FILE", help="write the trials as a log of inspect_ai (.eval, or .json), and no report"
    )
    parser.add_argument(
        "--arm", metavar="ARM", help="with --inspect: main or a control, or an update (main, or the last)"
    )
    parser.add_argument(
        "--notes",
        type=int,
        default=4,
        metavar="N",
        help="trials of each run for which its model is asked what the note changed (4); 0: none",
    )
    parser.add_argument("--trials", type=int, default=24, metavar="N", help="trials of each arm of a run at most (24)")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.view.export import write_report

    options = parser.parse_args(words)
    if options.trials < 1:
        raise UsageError(f"report: --trials must be >= 1 (got {options.trials})")
    if options.notes < 0:
        raise UsageError(f"report: --notes must be >= 0 (got {options.notes})")
    if options.inspect and options.out:
        raise UsageError("report: --inspect FILE writes no report, so that --out has nothing to name")
    if options.inspect:
        return _inspect(options)
    if options.arm:
        raise UsageError("report: --arm chooses the trials of --inspect FILE, which is missing; a report has all arms")
    target = Path(options.out) if options.out else Path(options.runs[0]) / "report.html"
    size = write_report([Path(run) for run in options.runs], target, options.trials, options.notes)
    sys.stdout.write(visible(f"{target} ({size / 1e6:.1f} MB)\n"))
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from mulligan.app.cli.show import evaluation_of
    from mulligan.report.files import replace_file
    from mulligan.report.inspect_log import as_eval, inspect_log
    from mulligan.report.run import RunFolder, finite

    if len(options.runs) > 1:
        raise UsageError("report: a log of inspect_ai holds one run; call it once for each")
    if Path(options.inspect).suffix not in (".eval", ".json"):
        raise UsageError(f"report: inspect_ai knows logs by their ending; {options.inspect} must end in .eval or .json")
    folder = evaluation_of(RunFolder.open(options.runs[0]), options.arm)
    arm, config = folder.arm(options.arm), folder.config()
    trials = folder.trials(arm)
    shown = {place: trials[place] for place in sorted(trials)[: options.trials]}
    settings = {"run": folder.name, "arm": arm, "mulligan": config}
    task = next((trial.task.env for trial in shown.values()), folder.name)
    model = str(config.get("policy") or config.get("model", {}).get("name", folder.path.name))
    episodes = max((len(trial.episodes) for trial in shown.values()), default=1)
    created = (folder.path / "config.toml").stat().st_mtime
    log = inspect_log(shown, task=task, model=model, episodes=episodes, created=created, settings=settings)
    is_zip = Path(options.inspect).suffix == ".eval"
    replace_file(Path(options.inspect), as_eval(finite(log)) if is_zip else json.dumps(finite(log)).encode())
    left_out = f" of {len(trials):,}; --trials takes more" if len(shown) < len(trials) else ""
    sys.stdout.write(visible(f"{options.inspect} ({len(shown):,} trials{left_out})\n"))
    return 0
