"""List the runs of a folder: what each is, when it began, how far it is, and its headline figure.

Runs that lie in the folder of another one stand under it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from mulligan.app.cli.options import Parser, print_tables
from mulligan.errors import UsageError
from mulligan.text import visible


def add_options(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", help="a folder of runs (runs)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only runs with these words in name, game or kind")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import to_json
    from mulligan.view.runs import run_cards

    options = parser.parse_args(words)
    root = Path(options.folder)
    if not root.is_dir():
        raise UsageError(f"there is no folder {options.folder}")
    wanted = options.filter.lower().split()
    cards = [card for card in run_cards(root.absolute()) if all(word in _words_of(card) for word in wanted)]
    if options.json:
        sys.stdout.write(to_json(cards))
    else:
        _print(cards, options.folder)
    return 0


def _words_of(card: dict[str, Any]) -> str:
    return " ".join(str(card[name]) for name in ("name", "kind", "env", "what", "status")).lower()


def _print(cards: list[dict[str, Any]], folder: str) -> None:
    from rich.text import Text

    from mulligan.report.tables import empty_table
    from mulligan.view.runs import as_tree

    table = empty_table(f"{len(cards)} run{'s' if len(cards) != 1 else ''} in {visible(folder)}")
    for name in ("run", "kind", "what", "begun", "status", "solved"):
        table.add_column(name, overflow="fold")
    for depth, card in as_tree(cards):
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(card["began"]))
        what = ", ".join(filter(None, (card["env"], card["what"])))
        style = {"running": "green", "complete": ""}.get(card["status"], "yellow")
        cells = (2 * depth * " " + card["name"], card["kind"], what, begun, card["status"], card["headline"])
        table.add_row(*(Text(visible(cell), style=style if number == 4 else "") for number, cell in enumerate(cells)))
    print_tables([table])
