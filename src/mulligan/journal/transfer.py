"""A namespace as JSON lines: a header, then a row a line. Rows name no namespace: they belong to whoever reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mulligan.errors import JournalError
from mulligan.journal import schema
from mulligan.journal.forget import namespaced_tables
from mulligan.journal.note_store import recount
from mulligan.journal.notes import Refused, cleaned, text_key
from mulligan.journal.schema import CLASSES, EPISODES, NOTES
from mulligan.journal.store import PAGE, Row, Scope

_HEADER = {"format": "mulligan journal", "schema_version": schema.VERSION}
_OF_THIS_MACHINE = ("namespace", "machine", "process")


def export(scope: Scope, path: str | os.PathLike[str]) -> int:
    """Write all rows; the file appears when it is complete."""
    beside = Path(path).with_name(f"{Path(path).name}.{os.getpid()}.new")
    lines = 0
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(_HEADER) + "\n")
            for table in namespaced_tables():
                for row in _all_rows(scope, table):
                    kept = {name: value for name, value in row.items() if name not in _OF_THIS_MACHINE}
                    file.write(json.dumps({"table": table.name.removeprefix(schema.PREFIX), **kept}) + "\n")
                    lines += 1
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return lines


def load(scope: Scope, path: str | os.PathLike[str], *, trusted: bool, allow: Collection[str]) -> int:
    """Insert the rows of a file, all or none; see `Journal.load`. Notes that may not be stored are left out."""
    merged: dict[str, str] = {}
    """Id of a note in the file -> id of the one here that says the same."""
    left_out: set[str] = set()
    classes: set[str] = set()
    rows = 0
    for table, row in _read(Path(path)):
        if table is NOTES:
            if not _prepare_note(row, trusted=trusted, allow=allow):
                left_out.add(row["id"])
                continue
            same = scope.row(NOTES, NOTES.c.task_class == row["task_class"], NOTES.c.text_key == row["text_key"])
            merged[row["id"]] = same["id"] if same else row["id"]
        elif not trusted and table is not CLASSES:
            continue
        elif table is CLASSES:
            row = {"task_class": row["task_class"]}
        if row.get("note_id") in left_out:
            continue
        if "note_id" in row:
            row["note_id"] = merged.get(row["note_id"], row["note_id"])
        if table is EPISODES and row.get("state") == "open":
            row |= {"state": "abandoned", "remark": "open when it was exported"}
        classes |= {row["task_class"]} if "task_class" in row else set()
        scope.insert(table, [row])
        rows += 1
    for task_class in sorted(classes):
        recount(scope, task_class)
    return rows


def _all_rows(scope: Scope, table: sa.Table) -> Iterator[Row]:
    order, after = list(table.primary_key.columns), None
    while True:
        page = scope.page(table, order=order, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1]


def _prepare_note(row: Row, *, trusted: bool, allow: Collection[str]) -> bool:
    """Check a note as if it were written now; False where it may not be stored."""
    try:
        row["fields"] = cleaned(row["fields"], allow)
    except Refused:
        return False
    row["text_key"] = text_key(row["fields"])
    if not trusted:
        kept = {name: row[name] for name in ("id", "task_class", "fields", "text_key", "written")}
        row.clear()
        row |= {**kept, "record_since": kept["written"], "source": "import", "state": "quarantined"}
        row["reason"] = "from a file that nobody vouched for"
    return True


def _read(path: Path) -> Iterator[tuple[sa.Table, Row]]:
    """The rows of a file, each checked against its table."""
    tables = {table.name.removeprefix(schema.PREFIX): table for table in namespaced_tables()}
    with path.open(encoding="utf-8") as file:
        if _line(path, 1, file.readline()) != _HEADER:
            raise JournalError(f"{path} is not a journal of schema version {schema.VERSION}; write it with export()")
        for number, text in enumerate(file, 2):
            row = _line(path, number, text)
            table = tables.get(str(row.pop("table", "")))
            if table is None or not _fits(table, row):
                raise JournalError(f"{path}, line {number}: no row of a journal")
            yield table, row


def _line(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise JournalError(f"{path}, line {number}: no JSON object; nothing was loaded")
    return row


def _fits(table: sa.Table, row: Row) -> bool:
    """Whether a row has the table's columns, and values of their types."""
    columns = {column.name: column for column in table.columns if column.name not in _OF_THIS_MACHINE}
    return set(row) == set(columns) and all(_is_of(columns[name], value) for name, value in row.items())


def _is_of(column: sa.Column[Any], value: Any) -> bool:
    if value is None:
        return bool(column.nullable)
    if isinstance(column.type, schema.Json):
        return column.name != "fields" or (isinstance(value, dict) and all(isinstance(v, str) for v in value.values()))
    kinds: dict[type, type | tuple[type, ...]] = {
        sa.Text: str,
        sa.Double: (int, float),
        sa.BigInteger: int,
        sa.Boolean: bool,
    }
    return isinstance(value, kinds[type(column.type)]) and isinstance(value, bool) == isinstance(
        column.type, sa.Boolean
    )
