"""Deleting: episodes, the notes that came of them alone, and everything that hangs on either.

Rows go in the order in which others lock them (`Scope.rows`): episodes, classes, notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from mulligan.journal import schema
from mulligan.journal.note_store import class_totals, keep_lesson, recount, stamp
from mulligan.journal.schema import CLASSES, EPISODES, NOTES, ORIGINS
from mulligan.journal.store import Scope


class Deleted(NamedTuple):
    """How much was deleted."""

    episodes: int
    notes: int


def forget_episodes(scope: Scope, episodes: sa.ColumnElement[bool]) -> Deleted:
    """Delete `episodes`, and the notes that no remaining episode and no person wrote."""
    classes = {row["task_class"] for row in scope.rows(EPISODES, episodes, columns=(EPISODES.c.task_class,))}
    written = {row["note_id"] for row in scope.rows(ORIGINS, episodes, columns=(ORIGINS.c.note_id,), join=EPISODES)}
    episodes_gone, notes_gone = scope.delete(EPISODES, episodes), 0
    for task_class in sorted(classes):
        class_totals(scope, task_class, lock=True)
    for note_id in sorted(written):
        of_note = ORIGINS.c.note_id == note_id
        others = scope.rows(ORIGINS, of_note, columns=(EPISODES.c.task,), join=EPISODES, order=(EPISODES.c.id,))
        if not others:
            notes_gone += scope.delete(NOTES, NOTES.c.id == note_id, NOTES.c.source != "person")
        keep_lesson(scope, note_id, others[0]["task"] if others else "")
    for task_class in sorted(classes):
        recount(scope, task_class)
    return Deleted(episodes_gone, notes_gone)


def forget_note(scope: Scope, note_id: str) -> Deleted:
    for row in scope.rows(NOTES, NOTES.c.id == note_id):
        stamp(scope, row["task_class"])
    return Deleted(0, scope.delete(NOTES, NOTES.c.id == note_id))


def forget_class(scope: Scope, task_class: str) -> Deleted:
    episodes = scope.delete(EPISODES, EPISODES.c.task_class == task_class)
    scope.delete(CLASSES, CLASSES.c.task_class == task_class)
    return Deleted(episodes, scope.delete(NOTES, NOTES.c.task_class == task_class))


def forget_namespace(scope: Scope) -> Deleted:
    episodes = scope.delete(EPISODES)
    scope.delete(CLASSES)
    return Deleted(episodes, scope.delete(NOTES))


def namespaced_tables() -> Sequence[sa.Table]:
    """All tables that hold rows of namespaces, those that others point to first."""
    return [table for table in schema.METADATA.sorted_tables if table is not schema.META]
