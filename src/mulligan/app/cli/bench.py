"""Benchmarks of this machine: 'all', or one of the names below."""

from __future__ import annotations

import importlib
import json
import sys

from mulligan.app.bench import NAMES, Cell, Report
from mulligan.app.cli.options import Parser, print_tables
from mulligan.errors import UnknownName, UsageError, extra_named

_OF_PRESET = ("preset", "env", "tasks", "group", "episodes")


def add_options(parser: Parser) -> None:
    names = "; ".join(f"{name}: {summary}" for name, summary in NAMES.items())
    parser.add_argument("name", nargs="?", default="all", help=names.replace("%", "%%"))
    parser.add_argument("--shape", help="of 'update' and 'step': a model of this size drawn at random, e.g. qwen3-4b")
    of_preset = parser.add_argument_group("one update of a preset at full length ('step' with --shape)")
    of_preset.add_argument("--preset", metavar="NAME", help="the preset, e.g. lamer-qwen3-4b or mage")
    of_preset.add_argument("--env", metavar="NAME", help="the environment (the preset's)")
    of_preset.add_argument("--tasks", type=int, metavar="N", help="tasks of the update (the preset's)")
    of_preset.add_argument("--group", type=int, metavar="N", help="trials of each task (the preset's)")
    of_preset.add_argument("--episodes", type=int, metavar="N", help="episodes of a trial (the preset's)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    if options.name != "all" and options.name not in NAMES:
        raise UnknownName("benchmark", options.name, ["all", *NAMES])
    if options.shape and options.name not in ("update", "step"):
        raise UsageError("--shape is for 'update' and 'step'")
    given = {name: getattr(options, name) for name in ("shape", *_OF_PRESET) if getattr(options, name) is not None}
    if any(name in given for name in _OF_PRESET) and not (options.name == "step" and options.shape and options.preset):
        raise UsageError("--preset, --env, --tasks, --group and --episodes are for 'step' with --shape and --preset")
    reports: dict[str, Report] = {}
    for name in NAMES if options.name == "all" else [options.name]:
        with extra_named(f"bench {name}", "serve" if name == "proxy" else "train"):
            benchmark = importlib.import_module(f"mulligan.app.bench.{name}")
        reports[name] = benchmark.run(**given)
        if not options.json:
            _print(reports[name])
    if options.json:
        sys.stdout.write(json.dumps({name: report.rows for name, report in reports.items()}, indent=2) + "\n")
    return 0


def _print(report: Report) -> None:
    from mulligan.report.tables import empty_table

    table = empty_table(report.title)
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in report.rows:
        table.add_row(*(_text(row.get(column, "")) for column in report.columns))
    print_tables([table])


def _text(cell: Cell) -> str:
    if isinstance(cell, str | int):
        return cell if isinstance(cell, str) else f"{cell:,}"
    return f"{cell:,.1f}" if cell < 100 else f"{cell:,.0f}"
