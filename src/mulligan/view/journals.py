"""A journal as pages: its classes with their uplift, its notes with their records. It is only read.

Only the namespaces are shown that the command line names: whoever may see the page may not be every tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.journal.evidence import class_proof
from mulligan.journal.note_store import notes_in
from mulligan.journal.notes import Note, State
from mulligan.journal.proof import Bounds
from mulligan.journal.report import class_reports, plain
from mulligan.journal.schema import CLASSES, NOTES
from mulligan.journal.store import Row, Scope, Store

PAGE = 50
_MOST_CLASSES = 500
_MOST_NOTES = 10_000
_UNKNOWN_BOUNDS: Bounds = (0.0, 1.0)
"""Of rewards, for a class whose proof has not begun."""
STATES: tuple[State, ...] = ("quarantined", "confirmed", "retired", "superseded")
Params = Mapping[str, str]


class JournalPages:
    """Answers to what pages ask about a journal's database."""

    def __init__(self, url: str, namespaces: Sequence[str] = ("default",)) -> None:
        self.store = Store(url, read_only=True)
        self.namespaces = list(dict.fromkeys(namespaces))
        self.answers: Mapping[str, Callable[[Params], Any]] = {
            "journal": self._overview,
            "journal-class": self._class,
            "journal-notes": self._notes,
        }

    def answer(self, question: str, params: Params) -> Any:
        """Where there are no runs beside it."""
        if question == "runs":
            return {"root": "", "runs": [], "hasJournal": True}
        if question not in self.answers:
            raise UsageError("no folder of runs is shown here; mulligan view FOLDER --journal DB shows both")
        try:
            return self.answers[question](params)
        except (OverflowError, ValueError) as error:
            raise UsageError(f"{question}: {error}") from error

    def change(self, change: str, given: Params) -> Any:
        raise UsageError("a journal is only read here; mulligan journal changes one")

    def _about(self, params: Params) -> tuple[str, dict[str, Any]]:
        """The namespace that is asked for, and what every page says of the journal."""
        namespace = params.get("namespace") or self.namespaces[0]
        if namespace not in self.namespaces:
            raise UnknownName("namespace of this page (--namespace)", namespace, self.namespaces)
        return namespace, {
            "address": str(self.store),
            "namespace": namespace,
            "namespaces": self.namespaces,
        }

    def _overview(self, params: Params) -> dict[str, Any]:
        namespace, about = self._about(params)
        with self.store.reading(namespace) as scope:
            rows = scope.rows(CLASSES, order=(CLASSES.c.outcomes.desc(), CLASSES.c.task_class), limit=_MOST_CLASSES)
            counts = _counts(scope)
            return {**about, "classes": [_class_row(scope, row, counts) for row in rows]}

    def _class(self, params: Params) -> dict[str, Any]:
        namespace, about = self._about(params)
        name = params.get("class", "")
        with self.store.reading(namespace) as scope:
            row = scope.row(CLASSES, CLASSES.c.task_class == name)
            if row is None:
                raise ParameterError(f"namespace {namespace} has no class {name!r}")
            [report] = class_reports(scope, name, _bounds(row))
            summary = _class_row(scope, row, _counts(scope))
        return {**about, **summary, **plain(report), "bounds": _bounds(row)}

    def _notes(self, params: Params) -> dict[str, Any]:
        """A page of notes, the newest first."""
        namespace, about = self._about(params)
        name, state, offset = params.get("class") or None, params.get("state", ""), params.get("offset") or "0"
        if state and state not in STATES:
            raise UnknownName("state of notes", state, STATES)
        if not (offset.isascii() and offset.isdigit() and int(offset[:9]) < _MOST_NOTES):
            raise ParameterError(f"offset must be a whole number below {_MOST_NOTES} (got {offset!r})")
        first = int(offset)
        with self.store.reading(namespace) as scope:
            notes = notes_in(scope, name, (state,) if state else None, first + PAGE)
            counts = _counts(scope)
        counted = counts.get(name, Counter()) if name else sum(counts.values(), Counter())
        return {
            **about,
            "class": name or "",
            "classes": sorted(counts),
            "states": {each: counted[each] for each in STATES},
            "total": counted[state] if state else counted.total(),
            "offset": first,
            "notes": [_note(note) for note in notes[first:]],
        }


def _bounds(row: Row) -> Bounds:
    """The range of rewards that the class's proof was made for."""
    proof = row["proof"]
    return (float(proof["bounds"][0]), float(proof["bounds"][1])) if proof else _UNKNOWN_BOUNDS


def _class_row(scope: Scope, row: Row, counts: Mapping[str, Counter[str]]) -> dict[str, Any]:
    bounds = _bounds(row)
    proof = class_proof(scope, row, row["task_class"], bounds)[0].proof
    return {
        "class": row["task_class"],
        "outcomes": row["outcomes"],
        "mean": row["reward_sum"] / row["outcomes"] if row["outcomes"] else None,
        "on": bool(row["journal_on"]),
        "because": row["because"],
        "alarm": row["alarm"],
        "uplift": plain(proof.uplift()),
        "width": bounds[1] - bounds[0],
        "notes": {state: counts.get(row["task_class"], Counter())[state] for state in STATES},
    }


def _counts(scope: Scope) -> dict[str, Counter[str]]:
    """Class -> state -> notes."""
    counts: dict[str, Counter[str]] = {}
    for row in scope.rows(NOTES, columns=(NOTES.c.task_class, NOTES.c.state)):
        counts.setdefault(row["task_class"], Counter())[row["state"]] += 1
    return counts


def _note(note: Note) -> dict[str, Any]:
    return {**plain(note), "fields": [[name.replace("_", " "), text] for name, text in note.fields.items()]}
