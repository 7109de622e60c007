"""Write a report on runs as one file that holds everything: figures, curves, and trials to step through.

The same pages as those of mulligan view, in one HTML file that loads nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from mulligan.app.cli.options import Parser
from mulligan.text import visible


def add_options(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of training runs, evaluations or sweeps")
    parser.add_argument("--out", metavar="FILE", help="the file (report.html in the first folder)")
    parser.add_argument("--trials", type=int, default=24, metavar="N", help="trials of each arm of a run at most (24)")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.view.export import write_report

    options = parser.parse_args(words)
    target = Path(options.out) if options.out else Path(options.runs[0]) / "report.html"
    size = write_report([Path(run) for run in options.runs], target, options.trials)
    sys.stdout.write(visible(f"{target} ({size / 1e6:.1f} MB)\n"))
    return 0
