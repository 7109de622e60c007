"""See runs in a browser: what they reached, their curves, and their trials turn by turn; live while they go on.

The pages change nothing but tags (tags.json beside the runs). --export writes them as files that open from disk or from
any web server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.app.cli.options import Parser
from mulligan.errors import MissingExtra, UsageError, extra_named
from mulligan.text import visible

if TYPE_CHECKING:
    from mulligan.view.journals import JournalPages
    from mulligan.view.library import Answering

_PORT = 8520
"""The same each time, so that a link to a turn holds."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LEAST_TOKEN = 16


def add_options(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", help="a run, a folder of runs (runs), or a journal")
    parser.add_argument("--journal", metavar="DB", help="a journal beside the runs: SQLite file or address")
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="a tenant of the journal to show; may be repeated (default)",
    )
    parser.add_argument("--port", type=int, default=_PORT, metavar="N", help=f"port; 0: any that is free ({_PORT})")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen at (127.0.0.1)")
    parser.add_argument(
        "--token-env", metavar="NAME", help="variable that holds a token, which every reader then needs"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--export", metavar="DIR", help="write the pages as files there, and end")
    parser.add_argument(
        "--notes",
        type=int,
        default=4,
        metavar="N",
        help="with --export: trials of each run for which its model is asked what the note changed (4); 0: none",
    )
    parser.add_argument(
        "--trials", type=int, default=100, metavar="N", help="with --export: trials of each arm of a run at most (100)"
    )


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.view.library import Library

    options = parser.parse_args(words)
    is_journal = "://" in options.folder or Path(options.folder).is_file()
    if is_journal and options.journal:
        raise UsageError("view: the journal is given twice; give a folder of runs with --journal")
    address = options.folder if is_journal else options.journal
    if options.export and address:
        raise UsageError("view: --export writes runs; a journal is shown by the server alone")
    if options.notes < 0:
        raise UsageError(f"view: --notes must be >= 0 (got {options.notes})")
    if options.namespace and not address:
        raise UsageError("view: --namespace needs --journal")
    journal = _journal(address, options.namespace or ["default"]) if address else None
    answering: Answering
    if is_journal and journal is not None:
        answering = journal
    else:
        answering = library = Library(Path(options.folder), journal=journal)
    if options.export:
        from mulligan.view.export import export_site

        count = export_site(library, Path(options.export), options.trials, options.notes)
        sys.stdout.write(visible(f"{count} runs: {Path(options.export) / 'index.html'}\n"))
        return 0
    token = _token(options.token_env, options.host)
    try:
        from mulligan.view.server import application, listen, serve
    except ImportError:
        raise MissingExtra("mulligan view", "view") from None
    bound = listen(options.host, options.port)
    name = f"[{options.host}]" if ":" in options.host else options.host
    url = f"http://{name}:{bound.getsockname()[1]}/"
    what = str(journal.store) if is_journal and journal is not None else options.folder
    sys.stdout.write(visible(f"{what} at {url}{'?token=…' if token else ''}; Ctrl-C ends it\n"))
    sys.stdout.flush()
    if not options.no_browser and not token:
        import webbrowser

        webbrowser.open(url)
    serve(application(answering, token=token, home="#/journal" if is_journal else ""), bound)
    return 0


def _journal(address: str, namespaces: list[str]) -> JournalPages:
    with extra_named("mulligan view --journal", "journal"):
        from mulligan.view.journals import JournalPages
    file = address.removeprefix("sqlite:///")
    if "://" not in file and not Path(file).is_file():
        raise UsageError(f"there is no journal {address}")
    return JournalPages(address, namespaces)


def _token(variable: str | None, host: str) -> str:
    """The token that readers need; without one the pages are for this machine alone."""
    if variable is None:
        if host not in _LOOPBACK:
            raise UsageError(
                f"view: --host {host} is open to other machines, and needs a token: export a secret as a variable and "
                "name it: --token-env NAME"
            )
        return ""
    token = os.environ.get(variable, "")
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isalnum():
        raise UsageError(
            f"view: the variable {variable} of --token-env must hold {_LEAST_TOKEN} or more letters and digits"
        )
    return token
