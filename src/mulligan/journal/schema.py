"""The journal's tables, their version, and the steps from one version to the next.

Every table but `meta` has its namespace in the primary key, and references carry it along: a row cannot point into
another namespace.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

VERSION = 2
MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE mulligan_pending (namespace TEXT NOT NULL, episode_id TEXT NOT NULL, task_class TEXT NOT NULL, "
        "started DOUBLE PRECISION NOT NULL, PRIMARY KEY (namespace, episode_id), FOREIGN KEY (namespace, episode_id) "
        "REFERENCES mulligan_episodes (namespace, id) ON DELETE CASCADE)",
        "CREATE INDEX mulligan_pending_by_class ON mulligan_pending (namespace, task_class, started, episode_id)",
        "ALTER TABLE mulligan_classes RENAME COLUMN drift TO proof",
        "ALTER TABLE mulligan_classes DROP COLUMN checked",
        "ALTER TABLE mulligan_classes ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0",
        "UPDATE mulligan_classes SET proof = NULL",
    ),
}
"""Version -> the SQL that makes a store of it one of the next version, the same for SQLite and PostgreSQL."""


class Json(sa.TypeDecorator[Any]):
    """JSON as ASCII text: PostgreSQL stores no NUL and no half of a surrogate pair, and here both are escaped."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


METADATA = sa.MetaData()
PREFIX = "mulligan_"
"""Of all tables: a team's database may hold other tables too."""
Text, Number, Count, Truth = sa.Text, sa.Double, sa.BigInteger, sa.Boolean


def _table(name: str, keys: tuple[str, ...], *items: sa.schema.SchemaItem) -> sa.Table:
    key_columns = [sa.Column(key, Text, primary_key=True) for key in ("namespace", *keys)]
    return sa.Table(PREFIX + name, METADATA, *key_columns, *items)


def _of(table: str, column: str) -> sa.ForeignKeyConstraint:
    """The row of `table` that `column` names; both go together."""
    target = [f"{PREFIX}{table}.namespace", f"{PREFIX}{table}.id"]
    return sa.ForeignKeyConstraint(["namespace", column], target, ondelete="CASCADE")


def _column(name: str, kind: Any, default: Any = None) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=default is None, default=default)


META = sa.Table(
    f"{PREFIX}meta",
    METADATA,
    sa.Column("name", Text, primary_key=True),
    sa.Column("value", Text, nullable=False),
)

EPISODES = _table(
    "episodes",
    ("id",),
    _column("task", Text, ""),
    _column("task_class", Text, ""),
    _column("agent", Text, ""),
    _column("person", Text, ""),
    _column("untrusted", Truth, False),
    _column("journal_on", Truth, True),
    _column("chance", Number, 1.0),
    _column("state", Text, "open"),
    _column("started", Number, 0.0),
    _column("ended", Number),
    _column("reward", Number),
    _column("outcome", Text, ""),
    _column("transcript", Json),
    _column("remark", Text, ""),
    _column("machine", Text, ""),
    _column("process", Text, ""),
    sa.Index("mulligan_episodes_by_class", "namespace", "task_class", "started", "id"),
    sa.Index("mulligan_episodes_by_state", "namespace", "state"),
    sa.Index("mulligan_episodes_by_person", "namespace", "person"),
)
NOTES = _table(
    "notes",
    ("id",),
    _column("task", Text, ""),
    _column("task_class", Text, ""),
    _column("written", Number, 0.0),
    _column("fields", Json),
    _column("text_key", Text, ""),
    _column("source", Text, ""),
    _column("state", Text, ""),
    _column("reason", Text, ""),
    _column("superseded_by", Text, ""),
    _column("seen", Count, 1),
    _column("shown", Count, 0),
    _column("outcomes", Count, 0),
    _column("reward_sum", Number, 0.0),
    _column("record_since", Number, 0.0),
    _column("class_outcomes", Count, 0),
    _column("class_sum", Number, 0.0),
    sa.UniqueConstraint("namespace", "task_class", "text_key"),
    sa.Index("mulligan_notes_by_state", "namespace", "task_class", "state", "written"),
)
ORIGINS = _table(
    "origins",
    ("note_id", "episode_id"),
    _of("notes", "note_id"),
    _of("episodes", "episode_id"),
    sa.Index("mulligan_origins_by_episode", "namespace", "episode_id"),
)
SHOWINGS = _table(
    "showings",
    ("episode_id", "note_id"),
    _of("notes", "note_id"),
    _of("episodes", "episode_id"),
    sa.Index("mulligan_showings_by_note", "namespace", "note_id"),
)
PENDING = _table(
    "pending",
    ("episode_id",),
    _column("task_class", Text, ""),
    _column("started", Number, 0.0),
    _of("episodes", "episode_id"),
    sa.Index("mulligan_pending_by_class", "namespace", "task_class", "started", "episode_id"),
)
"""Finished episodes that the proof of their class has not seen yet."""
CHOICES = _table(
    "choices",
    ("episode_id", "decision"),
    _column("option", Text, ""),
    _column("propensities", Json),
    _column("explored", Truth, False),
    _column("reason", Text, ""),
    _column("made", Number, 0.0),
    _of("episodes", "episode_id"),
)
CLASSES = _table(
    "classes",
    ("task_class",),
    _column("outcomes", Count, 0),
    _column("reward_sum", Number, 0.0),
    _column("reward_squares", Number, 0.0),
    _column("journal_on", Truth, True),
    _column("because", Text, ""),
    _column("proof", Json),
    _column("alarm", Text, ""),
    _column("outcomes_at_alarm", Count, 0),
    _column("stamp", Count, 0),
)
