"""Notes in the store: written, merged with their duplicates, judged by outcomes, changed by people."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Collection, Mapping

from mulligan.errors import UsageError
from mulligan.journal.notes import Note, Source, State, judged, lesson_of, note_from, text_key
from mulligan.journal.schema import CLASSES, EPISODES, NOTES, ORIGINS, SHOWINGS
from mulligan.journal.store import Row, Scope

MOST_NOTES = 1_000
"""The newest notes of a class that retrieval looks at."""
_NO_OUTCOMES: Row = {
    "outcomes": 0,
    "reward_sum": 0.0,
    "reward_squares": 0.0,
    "journal_on": True,
    "because": "",
    "proof": None,
    "alarm": "",
    "stamp": 0,
}


def new_id() -> str:
    """An id that nobody can guess, and that sorts by time."""
    return f"{time.time_ns():016x}{secrets.token_hex(5)}"


def new_stamp() -> int:
    """A number that no class had before: every transaction that changes what is shown of a class gives it a new one.

    Drawn, not counted: a class that was deleted and begun again must not come back to a number that somebody remembers.
    """
    return secrets.randbits(62) + 1


def stamp(scope: Scope, task_class: str) -> None:
    scope.update(CLASSES, {"stamp": new_stamp()}, CLASSES.c.task_class == task_class)


def class_totals(scope: Scope, task_class: str, *, lock: bool = False) -> Row:
    """What is counted of a class; zeros where there is nothing yet."""
    return scope.row(CLASSES, CLASSES.c.task_class == task_class, lock=lock) or _NO_OUTCOMES


def mean_and_spread(outcomes: int, reward_sum: float, reward_squares: float, otherwise: float) -> tuple[float, float]:
    """Mean and standard deviation of a class's rewards; `otherwise` is the mean without any."""
    if not outcomes:
        return otherwise, 0.0
    mean = reward_sum / outcomes
    return mean, math.sqrt(max(0.0, reward_squares / outcomes - mean * mean))


def notes_in(
    scope: Scope,
    task_class: str | None = None,
    states: Collection[State] | None = None,
    limit: int | None = None,
    *,
    totals: Row | None = None,
) -> list[Note]:
    """Notes with their records, the newest first; `totals` of the class, where they were read already."""
    conditions = [] if task_class is None else [NOTES.c.task_class == task_class]
    conditions += [] if states is None else [NOTES.c.state.in_(states)]
    rows = scope.rows(NOTES, *conditions, order=(NOTES.c.written.desc(), NOTES.c.id), limit=limit)
    if totals is not None:
        return [_with_record(row, totals) for row in rows]
    by_class = {name: class_totals(scope, name) for name in {row["task_class"] for row in rows}}
    return [_with_record(row, by_class[row["task_class"]]) for row in rows]


def notes_from(scope: Scope, person: str) -> set[str]:
    """Ids of the notes that episodes of a person wrote; of nobody in particular, none."""
    if not person:
        return set()
    rows = scope.rows(ORIGINS, EPISODES.c.person == person, columns=(ORIGINS.c.note_id,), join=EPISODES)
    return {row["note_id"] for row in rows}


def note_named(scope: Scope, note_id: str, *, lock: bool = False) -> Note:
    """A note; with `lock` its class is locked before it, as everywhere: two transactions never wait for each other."""
    row = scope.row(NOTES, NOTES.c.id == note_id)
    if lock and row is not None:
        class_totals(scope, row["task_class"], lock=True)
        row = scope.row(NOTES, NOTES.c.id == note_id, lock=True)
    if row is None:
        raise UsageError(f"the journal has no note {note_id!r}")
    return _with_record(row, class_totals(scope, row["task_class"]))


def add_note(
    scope: Scope, task_class: str, fields: Mapping[str, str], source: Source, *, task: str = "", episode_id: str = ""
) -> str:
    """Store a note, or count it where the same one is there; returns its id."""
    key, note_id = text_key(fields), new_id()
    scope.insert(CLASSES, [{"task_class": task_class}])
    stamp(scope, task_class)
    new = {
        "id": note_id,
        "task": task,
        "task_class": task_class,
        "written": time.time(),
        **_new_record(class_totals(scope, task_class)),
        "fields": dict(fields),
        "text_key": key,
        "source": source,
        "state": "confirmed" if source == "person" else "quarantined",
        "reason": "written by a person" if source == "person" else f"new, from source {source!r}",
    }
    scope.insert(NOTES, [new])
    row = scope.rows(NOTES, NOTES.c.task_class == task_class, NOTES.c.text_key == key, lock=True)[0]
    if row["id"] != note_id:
        values: Row = {"seen": NOTES.c.seen + 1}
        if source == "person":
            values |= {"source": source, "state": "confirmed", "reason": "written by a person", "superseded_by": ""}
        elif source == "agent" and row["source"] in ("untrusted", "import"):
            values["source"] = source
        scope.update(NOTES, values, NOTES.c.id == row["id"])
    if episode_id:
        scope.insert(ORIGINS, [{"note_id": row["id"], "episode_id": episode_id}])
    return str(row["id"])


def set_state(scope: Scope, note_id: str, state: State, reason: str, superseded_by: str = "") -> None:
    """Change a note's state by hand; one that may be shown again begins a new record."""
    stamp(scope, note_named(scope, note_id).task_class)
    note = note_named(scope, note_id, lock=True)
    values: Row = {"state": state, "reason": reason, "superseded_by": superseded_by}
    if state in ("confirmed", "quarantined"):
        values |= _new_record(class_totals(scope, note.task_class))
    scope.update(NOTES, values, NOTES.c.id == note_id)


def rewrite(scope: Scope, note_id: str, fields: Mapping[str, str]) -> None:
    """Give a note other words, by hand."""
    note, key = note_named(scope, note_id, lock=True), text_key(fields)
    same = scope.row(NOTES, NOTES.c.task_class == note.task_class, NOTES.c.text_key == key, NOTES.c.id != note_id)
    if same is not None:
        raise UsageError(f"note {same['id']!r} says the same already; supersede {note_id!r} or retire it")
    scope.update(NOTES, {"fields": dict(fields), "text_key": key, "source": "person"}, NOTES.c.id == note_id)
    set_state(scope, note_id, "confirmed", "corrected by a person")


def keep_lesson(scope: Scope, note_id: str, task: str) -> None:
    """Of a note one of whose episodes was deleted, keep what its other episodes wrote too, and the task of one."""
    for row in scope.rows(NOTES, NOTES.c.id == note_id, lock=True):
        scope.update(NOTES, {"fields": lesson_of(row["fields"]), "task": task}, NOTES.c.id == note_id)


def judge_shown(scope: Scope, episode_id: str, task_class: str, reward: float, lowest: float) -> None:
    """Add a reward to the record of every note that the episode was shown, and change their states by it."""
    shown = [row["note_id"] for row in scope.rows(SHOWINGS, SHOWINGS.c.episode_id == episode_id)]
    if not shown:
        return
    totals = class_totals(scope, task_class)
    _, spread = mean_and_spread(totals["outcomes"], totals["reward_sum"], totals["reward_squares"], lowest)
    rows = scope.rows(NOTES, NOTES.c.id.in_(shown), order=(NOTES.c.id,), lock=True)
    record = {"outcomes": NOTES.c.outcomes + 1, "reward_sum": NOTES.c.reward_sum + reward}
    scope.update(NOTES, record, NOTES.c.id.in_(shown))
    for row in rows:
        row |= {"outcomes": row["outcomes"] + 1, "reward_sum": row["reward_sum"] + reward}
        others, others_sum = totals["outcomes"] - row["outcomes"], totals["reward_sum"] - row["reward_sum"]
        baseline = others_sum / others if others > 0 else lowest
        state, reason = judged(_with_record(row, totals), reward, baseline, spread, lowest)
        if state != row["state"]:
            scope.update(NOTES, {"state": state, "reason": reason}, NOTES.c.id == row["id"])


def record_shown(scope: Scope, episode_id: str, task_class: str, note_ids: Collection[str]) -> None:
    """Remember which notes an episode was shown; one that was deleted meanwhile is left out.

    The class is locked first: an episode that ends locks the notes that it was shown, and then the one that it wrote.
    """
    class_totals(scope, task_class, lock=True)
    before = {row["note_id"] for row in scope.rows(SHOWINGS, SHOWINGS.c.episode_id == episode_id)}
    new = NOTES.c.id.in_(set(note_ids) - before)
    existing = [row["id"] for row in scope.rows(NOTES, new, order=(NOTES.c.id,), lock=True)]
    scope.update(NOTES, {"shown": NOTES.c.shown + 1}, NOTES.c.id.in_(existing))
    scope.insert(SHOWINGS, [{"episode_id": episode_id, "note_id": note_id} for note_id in existing])


def recount(scope: Scope, task_class: str) -> None:
    """Count a class and its notes anew, after episodes were deleted or loaded."""
    scope.insert(CLASSES, [{"task_class": task_class}])
    class_totals(scope, task_class, lock=True)
    finished = (EPISODES.c.task_class == task_class, EPISODES.c.state == "finished")
    outcomes = scope.rows(EPISODES, *finished, columns=(EPISODES.c.ended, EPISODES.c.reward))
    rewards = [row["reward"] for row in outcomes]
    totals = {
        "outcomes": len(rewards),
        "reward_sum": math.fsum(rewards),
        "reward_squares": math.fsum(reward * reward for reward in rewards),
        "proof": None,
        "stamp": new_stamp(),
    }
    scope.update(CLASSES, totals, CLASSES.c.task_class == task_class)
    columns = (SHOWINGS.c.note_id, EPISODES.c.ended, EPISODES.c.reward)
    shown: dict[str, list[Row]] = {}
    for row in scope.rows(SHOWINGS, EPISODES.c.task_class == task_class, columns=columns, join=EPISODES):
        shown.setdefault(row["note_id"], []).append(row)
    for note in scope.rows(NOTES, NOTES.c.task_class == task_class, order=(NOTES.c.id,), lock=True):
        since, showings = note["record_since"], shown.get(note["id"], [])
        before = [row["reward"] for row in outcomes if row["ended"] < since]
        with_it = [row["reward"] for row in showings if row["reward"] is not None and row["ended"] >= since]
        values = {
            "shown": len(showings),
            "outcomes": len(with_it),
            "reward_sum": math.fsum(with_it),
            "class_outcomes": len(before),
            "class_sum": math.fsum(before),
        }
        scope.update(NOTES, values, NOTES.c.id == note["id"])


def _new_record(totals: Row) -> Row:
    """A record that begins now: what the class has counted so far is not part of it."""
    return {
        "record_since": time.time(),
        "outcomes": 0,
        "reward_sum": 0.0,
        "class_outcomes": totals["outcomes"],
        "class_sum": totals["reward_sum"],
    }


def _with_record(row: Row, totals: Row) -> Note:
    return note_from(row, totals["outcomes"], totals["reward_sum"])
