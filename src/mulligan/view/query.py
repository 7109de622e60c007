"""Pages of trials: filtered and sorted by the index, so that only what is shown is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mulligan.errors import ParameterError
from mulligan.view.index import TrialIndex

PAGE = 50
MOST = 500
"""Trials of a page at most."""
MOST_AT_A_GLANCE = 1_000
_COLUMNS = (
    "place", "env", "seed", "class", "opponent", "task", "outcomes", "solved", "reward", "turns", "invalid", "faults",
    "notes",
)  # fmt: skip
_SORTS = ("place", "seed", "class", "opponent", "solved", "reward", "turns", "invalid")
_RESULTS = {"won": "solved > 0", "lost": "solved = 0", "failed": "instr(outcomes, 'f') > 0"}
_HAS = {"invalid": "invalid > 0", "faults": "faults != ''", "notes": "notes > 0"}


_FACETS = {
    "classes": "class", "opponents": "opponent", "solved": "solved", "faults": "faults", "invalid": "invalid > 0",
}  # fmt: skip
"""What can be chosen from, by what it is in SQL."""
_MOST_FACETS, _MOST_CHOICES = 20_000, 200


@dataclass(frozen=True)
class Wanted:
    """Which trials, in which order."""

    arm: str
    """Empty: those of all arms."""
    result: str = ""
    """won, lost, failed, or the attempt at which it was solved: 1, 2 …"""
    has: str = ""
    """invalid, faults, notes, or the name of a fault."""
    task_class: str = ""
    opponent: str = ""
    task: str = ""
    """The key of a task (`index.task_key`)."""
    text: str = ""
    """A task's number or seed."""
    sort: str = "place"
    """A column; "-reward" for the highest first."""
    offset: int = 0
    limit: int = PAGE

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Wanted:
        """From the words of a request; `ParameterError` for what cannot be."""
        names = {"class": "task_class"}
        words = {names.get(name, name): value for name, value in given.items()}
        numbers: dict[str, int] = {}
        for name in ("offset", "limit"):
            text = words.pop(name, "")
            if text and not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ParameterError(f"{name} must be a whole number (got {text!r})")
            if text:
                numbers[name] = int(text)
        texts = {name: words[name] for name in cls.__dataclass_fields__ if name in words and name != "arm"}
        wanted = replace(cls(words.get("arm", "")), **texts, **numbers)  # type: ignore[arg-type]
        if wanted.sort.removeprefix("-") not in _SORTS:
            raise ParameterError(f"sort must be one of {', '.join(_SORTS)} (got {wanted.sort!r})")
        return wanted

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        parts: list[str] = []
        values: list[Any] = []
        if self.result:
            is_attempt = self.result.isascii() and self.result.isdigit()
            parts.append("solved = ?" if is_attempt else _condition("result", self.result, _RESULTS))
            values += [int(self.result[:6])] if is_attempt else []
        if self.has:
            parts.append(_HAS.get(self.has, "instr(' ' || faults || ' ', ?) > 0"))
            values += [] if self.has in _HAS else [f" {self.has} "]
        for column, value in (("class", self.task_class), ("opponent", self.opponent), ("task", self.task)):
            parts += [f"{column} = ?"] * bool(value)
            values += [value] * bool(value)
        if self.text:
            parts.append("(CAST(seed AS TEXT) = ? OR CAST(place + 1 AS TEXT) = ?)")
            values += [self.text.strip().removeprefix("#")] * 2
        if self.arm:
            parts.append("file = (SELECT id FROM files WHERE arm = ?)")
            values.append(self.arm)
        return " AND ".join(parts) or "1", values

    def order(self) -> str:
        column = self.sort.removeprefix("-")
        direction = "DESC" if self.sort.startswith("-") else "ASC"
        # The trials of all arms by their places are in the order of the files, which needs no sorting.
        return f"file {direction}, place {direction}" if column == "place" else f"{column} {direction}, file, place"


def _condition(name: str, value: str, known: Mapping[str, str]) -> str:
    if value not in known:
        raise ParameterError(f"{name} must be {', '.join(known)} or a number (got {value!r})")
    return known[value]


def page(index: TrialIndex, wanted: Wanted) -> dict[str, Any]:
    """The trials of a page, how many there are, and what can be chosen from."""
    condition, values = wanted.where()
    of_arm, arm_values = Wanted(wanted.arm).where()
    columns = ", ".join(_COLUMNS)
    with index.connected() as store:
        total = store.execute(f"SELECT COUNT(*) FROM trials WHERE {condition}", values).fetchone()[0]
        rows = store.execute(
            f"SELECT (SELECT arm FROM files WHERE id = file), {columns} FROM trials WHERE {condition} "
            f"ORDER BY {wanted.order()} LIMIT ? OFFSET ?",
            [*values, min(wanted.limit, MOST), wanted.offset],
        ).fetchall()
        counted = store.execute(
            f"SELECT {', '.join(_FACETS.values())}, COUNT(*) FROM trials WHERE {of_arm} GROUP BY 1, 2, 3, 4, 5 LIMIT ?",
            [*arm_values, _MOST_FACETS],
        ).fetchall()
    facets = {name: _totals((row[number], row[-1]) for row in counted) for number, name in enumerate(_FACETS)}
    return {
        "total": total,
        "offset": wanted.offset,
        "rows": [dict(zip(("arm", *_COLUMNS), row, strict=True)) for row in rows],
        **facets,
    }


def _totals(pairs: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Value -> how many trials have it, for the values that there are."""
    totals: Counter[Any] = Counter()
    for value, count in pairs:
        totals[value] += count
    return sorted((value, count) for value, count in totals.items() if value is not None)[:_MOST_CHOICES]


def neighbours(index: TrialIndex, arm: str, place: int) -> tuple[int | None, int | None]:
    """The tasks before and after one in its arm."""
    with index.connected() as store:
        of = "FROM trials WHERE file = (SELECT id FROM files WHERE arm = ?) AND place"
        before = store.execute(f"SELECT MAX(place) {of} < ?", (arm, place)).fetchone()[0]
        after = store.execute(f"SELECT MIN(place) {of} > ?", (arm, place)).fetchone()[0]
    return before, after


def same_task(index: TrialIndex, task: str) -> list[dict[str, Any]]:
    """All trials of a task, arm by arm: over training, those of its validations."""
    with index.connected() as store:
        rows = store.execute(
            "SELECT arm, place, outcomes FROM trials JOIN files ON files.id = file WHERE task = ? "
            "ORDER BY arm, place LIMIT 2000",
            (task,),
        ).fetchall()
    return [dict(zip(("arm", "place", "outcomes"), row, strict=True)) for row in rows]


def glance(index: TrialIndex, arm: str) -> dict[str, Any]:
    """What came of the tasks of an arm, attempt by attempt; of many, the first ones."""
    of = "FROM trials WHERE file = (SELECT id FROM files WHERE arm = ?)"
    with index.connected() as store:
        total, games = store.execute(f"SELECT COUNT(*), COUNT(opponent) {of}", (arm,)).fetchone()
        query = f"SELECT place, outcomes {of} ORDER BY place LIMIT ?"
        rows = store.execute(query, (arm, MOST_AT_A_GLANCE)).fetchall()
    return {"arm": arm, "total": total, "areGames": games > 0, "tasks": [list(row) for row in rows]}


def followed(index: TrialIndex, first: str, last: str) -> int:
    """The place in arm `first` of a task that was not solved there and is solved in arm `last`, as early as any; 0:
    there is none."""
    of = "file = (SELECT id FROM files WHERE arm = ?)"
    query = (
        "SELECT before.place FROM trials AS before JOIN trials AS after ON after.task = before.task "
        f"WHERE before.{of} AND after.{of} AND before.solved = 0 AND after.solved > 0 "
        "ORDER BY after.solved, before.place LIMIT 1"
    )
    with index.connected() as store:
        row = store.execute(query, (first, last)).fetchone()
    return int(row[0]) if row else 0
