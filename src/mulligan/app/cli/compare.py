"""Compare results over seeds: p@k with intervals, paired differences, cost, settings that differ, learning curves.

Takes folders of sweeps, arms and evaluations, and tables (table.json). Other settings make other rows, other --env
parameters other tables. Of equal rows of a seed the last one counts: give an earlier table before new runs."""

from __future__ import annotations

import sys
from pathlib import Path

from mulligan.app.cli.options import Parser, print_tables
from mulligan.errors import MissingExtra, UsageError
from mulligan.text import visible


def add_options(parser: Parser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="RUN|FILE", help="sweep, arm or evaluation folder, or table.json")
    parser.add_argument("--against", metavar="ROW", help="what others are compared with (the best RL)")
    parser.add_argument("--main", action="append", metavar="ROW", help="a row that curves.png shows (all); repeatable")
    parser.add_argument("--classes", action="store_true", help="compare each class of tasks too")
    parser.add_argument("--ceiling", action="store_true", help="play the tasks of arms with all hidden things seen")
    parser.add_argument("--out", metavar="FOLDER", help="write table.json, table.md and curves.png there")
    formats = parser.add_mutually_exclusive_group()
    for name in ("markdown", "latex", "csv", "json"):
        formats.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"print as {name}")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.app.sweep.compare import compare
    from mulligan.app.sweep.rows import as_table, read_rows
    from mulligan.report import comparison
    from mulligan.report.run import RunFolder, to_json

    options = parser.parse_args(words)
    texts = {"markdown": comparison.markdown, "latex": comparison.latex, "csv": comparison.as_csv, "json": to_json}
    try:
        rows = read_rows(options.inputs, ceiling=options.ceiling, classes=options.classes, main=options.main)
        data = compare(rows, options.against)
        tables = [comparison.rich_table(grid) for grid in comparison.grids(data)]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        inputs = ", ".join(options.inputs)
        raise UsageError(f"{inputs}: a result is not what this version writes ({error!r})") from error
    if options.form:
        sys.stdout.write(visible(texts[options.form](data)))
    else:
        print_tables(tables, comparison.notes(data))
    if options.out:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        RunFolder(folder).write_text("table.json", as_table(rows))
        RunFolder(folder).write_text("table.md", comparison.markdown(data))
        try:
            comparison.draw(data, folder / "curves.png")
        except MissingExtra as error:  # the tables do not depend on it
            sys.stderr.write(f"mulligan: curves.png was not drawn: {error}\n")
    return 0
