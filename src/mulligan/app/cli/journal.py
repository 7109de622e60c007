"""Read and mend a journal: what it is worth, its notes, and what is to be corrected, forgotten or carried away"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.app.cli.options import Parser, print_tables
from mulligan.errors import OtherVersion, UnknownName, UsageError, extra_named
from mulligan.text import visible

if TYPE_CHECKING:
    from mulligan.journal.journal import Journal
    from mulligan.journal.proof import Estimate
    from mulligan.journal.report import ClassReport

_FORGET = ("note", "episode", "task", "class", "person", "everything")
_OPTIONS = ("task_class", "state", "trusted", "json", *(name for name in _FORGET if name != "class"))
_HEEDED = {
    "report": ("task_class", "json"),
    "notes": ("task_class", "state", "json"),
    "add": ("task_class",),
    "forget": ("task_class", *_FORGET),
    "load": ("trusted",),
}
"""Which of `_OPTIONS` an action reads; what it would ignore is refused."""
_CREATES = ("add", "load")
"""Actions that may begin a journal; the others want one that is there."""
Options = argparse.Namespace


def add_options(parser: Parser) -> None:
    parser.add_argument("action", metavar="ACTION", help="see below")
    parser.add_argument("words", nargs="*", metavar="WORD", help="ids of notes, PART=TEXT, or a file: see below")
    where = parser.add_argument_group("which journal")
    where.add_argument("--journal", default="journal.db", metavar="DB", help="SQLite file or address (journal.db)")
    where.add_argument("--namespace", default="default", metavar="NAME", help="the tenant (default)")
    where.add_argument("--reward-range", type=float, nargs=2, metavar=("LOW", "HIGH"), help="of outcomes (0 1)")
    what = parser.add_argument_group("what")
    what.add_argument("--class", dest="task_class", metavar="NAME", help="only this class; of add, the note's")
    what.add_argument("--state", metavar="S", help="notes: quarantined, confirmed, retired or superseded")
    for name, meaning in (("note", "id"), ("episode", "id"), ("task", "in words"), ("person", "id")):
        what.add_argument(f"--{name}", metavar="X", help=f"forget: {meaning}")
    what.add_argument("--everything", action="store_true", help="forget: the whole namespace")
    what.add_argument("--trusted", action="store_true", help="load: take over episodes and records, not notes alone")
    what.add_argument("--json", action="store_true", help="report, notes: for programs")
    lines = [f"  {usage:<38} {meaning}" for usage, meaning, _ in _ACTIONS.values()]
    parts = "parts of a note: strategy, plan, applies, not_when, …"
    parser.epilog = "\n".join(["actions:", *lines, "", parts])


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    if options.action not in _ACTIONS:
        raise UnknownName("action", options.action, _ACTIONS)
    usage, _, act = _ACTIONS[options.action]
    placeholders = usage.partition(" --")[0].split()[1:]
    fewest, is_list = len(placeholders), usage.partition(" --")[0].endswith("…")
    if len(options.words) < fewest or (len(options.words) > fewest and not is_list):
        raise UsageError(f"the action is: mulligan journal {usage}")
    with extra_named("mulligan journal", "journal"):
        from mulligan.journal.journal import Journal
        from mulligan.journal.store import Store
    file = options.journal.removeprefix("sqlite:///")
    if options.action not in _CREATES and "://" not in file and not Path(file).exists():
        raise UsageError(f"there is no journal {options.journal}; name it with --journal")
    for option in _OPTIONS:
        if getattr(options, option) and option not in _HEEDED.get(options.action, ()):
            raise UsageError(f"{options.action} does not heed --{option.replace('task_class', 'class')}")
    if options.action not in _CREATES:
        with suppress(OtherVersion):
            Store(options.journal, read_only=True)  # in a database without a journal none is to begin
    bounds = tuple(options.reward_range) if options.reward_range else (0.0, 1.0)
    with Journal(options.journal, options.namespace, reward_range=bounds) as journal:
        act(journal, options)
    return 0


def _report(journal: Journal, options: Options) -> None:
    from rich.text import Text

    from mulligan.journal.report import plain
    from mulligan.report.tables import empty_table

    reports = journal.classes(options.task_class)
    if options.json:
        sys.stdout.write(json.dumps([plain(report) for report in reports], indent=1) + "\n")
        return
    table = empty_table(f"journal {options.journal}, namespace {journal.namespace}")
    for name in ("class", "outcomes", "mean", "journal", "uplift, 95 % at any time", "abandoned on, off", "notes"):
        table.add_column(name, overflow="fold")
    for report in reports:
        cells = (
            report.task_class,
            str(report.outcomes),
            _means(report),
            "on" if report.journal_on else "off",
            _interval(report.uplift),
            f"{report.abandoned.get(True, 0)}, {report.abandoned.get(False, 0)}",
            ", ".join(f"{count} {state}" for state, count in sorted(report.notes.items())),
        )
        table.add_row(*(Text(visible(cell)) for cell in cells))
    print_tables([table], [line for report in reports for line in _lines(report)])


def _means(report: ClassReport) -> str:
    """The recent mean of every agent; where there is one alone, without its name."""
    means = {agent: f"{baseline.mean:.3g}" for agent, baseline in report.baselines.items()}
    return ", ".join(mean if len(means) == 1 else f"{agent or '-'} {mean}" for agent, mean in means.items())


def _interval(estimate: Estimate) -> str:
    if not estimate.episodes or math.isnan(estimate.mean):
        return "not measured"
    return f"{estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}], {_counted(estimate.episodes, 'episode')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _lines(report: ClassReport) -> list[str]:
    lines = [f"{report.task_class}: {words}" for words in (report.because, report.alarm) if words]
    for decision, strategies in report.strategies.items():
        for option, value in strategies.items():
            name = f"{decision}: {option}" if decision else option
            lines.append(f"{report.task_class}: {name}: {value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]")
    return lines


def _notes(journal: Journal, options: Options) -> None:
    from mulligan.journal.context import words_of
    from mulligan.journal.report import plain

    states = ("quarantined", "confirmed", "retired", "superseded")
    if options.state is not None and options.state not in states:
        raise UnknownName("state of notes", options.state, states)
    notes = journal.notes(options.task_class, state=options.state)
    if options.json:
        sys.stdout.write(json.dumps([plain(note) for note in notes], indent=1) + "\n")
        return
    for note in notes:
        written = time.strftime("%Y-%m-%d", time.localtime(note.written))
        head = f"{note.id}  {note.task_class}  {note.state}: {note.reason} ({note.source}, {written})"
        sys.stdout.write(f"{visible(head)}\n  {visible(words_of(note))}\n")


def _parts(words: Sequence[str]) -> dict[str, str]:
    """``PART=TEXT`` as a dictionary; an empty text removes the part."""
    from mulligan.journal.notes import check_fields

    pairs = [word.partition("=") for word in words]
    for word, (_, equals, _) in zip(words, pairs, strict=True):
        if not equals:
            raise UsageError(f"a part of a note is PART=TEXT, such as plan='look up the order first' (got {word!r})")
    parts = {name: text for name, _, text in pairs}
    check_fields(parts)
    return parts


def _add(journal: Journal, options: Options) -> None:
    if options.task_class is None:
        raise UsageError("add needs --class NAME: the class that the note is for")
    sys.stdout.write(f"{journal.add_note(options.task_class, **_parts(options.words))}\n")


def _rewrites(method: str) -> Callable[[Journal, Options], None]:
    def act(journal: Journal, options: Options) -> None:
        note_id, *parts = options.words
        new = getattr(journal, method)(note_id, **_parts(parts))
        sys.stdout.write(f"{new or note_id}\n")

    return act


def _marks(method: str) -> Callable[[Journal, Options], None]:
    def act(journal: Journal, options: Options) -> None:
        for note_id in options.words:
            getattr(journal, method)(note_id)

    return act


def _forget(journal: Journal, options: Options) -> None:
    names = {"class": "task_class"}
    given = {names.get(name, name): getattr(options, names.get(name, name)) for name in _FORGET}
    chosen = {name: value for name, value in given.items() if value}
    if len(chosen) != 1:
        raise UsageError(f"forget takes exactly one of {', '.join(f'--{name}' for name in _FORGET)}")
    deleted = journal.delete(**chosen)
    sys.stdout.write(f"deleted {_counted(deleted.episodes, 'episode')} and {_counted(deleted.notes, 'note')}\n")


def _export(journal: Journal, options: Options) -> None:
    [path] = options.words
    sys.stdout.write(f"wrote {journal.export(path)} lines to {visible(path)}\n")


def _load(journal: Journal, options: Options) -> None:
    [path] = options.words
    sys.stdout.write(f"read {journal.load(path, trusted=options.trusted)} rows of {visible(path)}\n")


_ACTIONS: dict[str, tuple[str, str, Callable[[Journal, Options], None]]] = {
    "report": ("report", "each class: is the journal worth it, is it on, strategies", _report),
    "notes": ("notes --state quarantined", "the notes with their records; those that wait for you", _notes),
    "add": ("add PART=TEXT… --class C", "a note of yours, confirmed at once; prints its id", _add),
    "correct": ("correct NOTE PART=TEXT…", "other words; the earlier ones are gone", _rewrites("correct")),
    "supersede": ("supersede NOTE PART=TEXT…", "another note in its place; prints its id", _rewrites("supersede")),
    "confirm": ("confirm NOTE…", "let notes be shown", _marks("confirm")),
    "quarantine": ("quarantine NOTE…", "show notes no more until a person, or an outcome, confirms them",
                   _marks("quarantine")),
    "retire": ("retire NOTE…", "show notes no more", _marks("retire")),
    "forget": ("forget --person ID", "delete, also by --class, --task, --episode, --note, --everything", _forget),
    "export": ("export FILE", "the namespace as JSON lines", _export),
    "load": ("load FILE --trusted", "read such a file; without --trusted its notes alone, in quarantine", _load),
}  # fmt: skip
"""Action -> how it is called, what it does, and what does it."""
