"""Where a journal is kept: SQLite or PostgreSQL through SQLAlchemy, one namespace at a time.

All statements of the journal are built by `Scope`, which adds the namespace to each of them.

SQLite is used in WAL mode, where readers do not wait for writers, with ``synchronous=FULL``: a commit is on the disk
when it returns, so that it survives SIGKILL and a power cut. ``NORMAL`` would survive SIGKILL alone. The difference is
one fsync for each of the two or three commits of an episode, beside model calls that take seconds.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mulligan.errors import JournalError, MissingExtra, OtherVersion, ParameterError
from mulligan.journal import schema

BUSY_SECONDS = 60
"""How long a transaction waits for others before it fails: SQLite has one writer at a time."""
PAGE = 500
"""Rows that are read at a time."""
_CREATE_LOCK = 7_020_265_461
"""Number of PostgreSQL's advisory lock under which tables are made and migrated."""
Row = dict[str, Any]


class Store:
    """A database of journals; safe for threads and for processes, forked ones too."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """read_only: nothing is created, migrated or written, by the database's own word."""
        self.url = _parsed(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        options = {"connect_args": {"timeout": BUSY_SECONDS}} if self.is_sqlite else {"pool_pre_ping": True}
        opened = _read_only(self.url, options) if read_only else self.url
        try:
            self.engine = sa.create_engine(opened, pool_timeout=BUSY_SECONDS, **options)
        except ModuleNotFoundError as error:
            raise MissingExtra("a journal in PostgreSQL", "postgresql") from error
        if self.is_sqlite:
            sa.event.listen(self.engine, "connect", _by_hand if read_only else _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        _renew_after_fork(self.engine)
        if read_only:
            self._check_version()
        else:
            self._create_or_migrate()

    def __str__(self) -> str:
        return self.url.set(query={}).render_as_string(hide_password=True)  # a query may hold a password too

    @contextmanager
    def writing(self, namespace: str) -> Iterator[Scope]:
        """A transaction; what it wrote is on the disk when the block ends."""
        with self._connected() as connection, connection.begin():
            yield Scope(connection, namespace)

    @contextmanager
    def reading(self, namespace: str) -> Iterator[Scope]:
        """A transaction that only reads, and waits for no writer."""
        with self._connected() as connection, connection.execution_options(**_READING).begin():
            yield Scope(connection, namespace)

    def erase_traces(self) -> None:
        """Rewrite the files without what was deleted.

        SQLite: ``secure_delete`` overwrites deleted rows, but a page that was rebalanced may keep stale bytes, and the
        WAL holds earlier versions of pages; VACUUM writes the pages anew, and the checkpoint empties the WAL.
        PostgreSQL: VACUUM FULL rewrites the tables; its own WAL and backups are for their administrator.
        """
        with self._connected() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                for table in schema.METADATA.sorted_tables:
                    connection.exec_driver_sql(f"VACUUM FULL {table.name}")
                return
            cursor = connection.connection.cursor()  # SQLite's own: outside any transaction
            cursor.execute("VACUUM")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            [(blocked, *_)] = cursor.fetchall()
            if blocked:
                raise JournalError(
                    f"{self}: deleted, but another process reads an older state, and {self.url.database}-wal still "
                    "holds traces; delete again when it has ended"
                )

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, sqlite3.Error) as error:
            cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise JournalError(f"journal {self}: {cause}") from error

    def _check_version(self) -> None:
        with self.reading("") as scope:
            version = _version(scope._connection)
        if version is None:
            raise JournalError(f"journal {self}: no journal")
        if version != schema.VERSION:
            is_newer = version > schema.VERSION
            way_on = "made by a newer Mulligan" if is_newer else "mulligan journal report brings it up to date"
            raise OtherVersion(f"journal {self}: schema version {version}, and {schema.VERSION} is read here; {way_on}")

    def _create_or_migrate(self) -> None:
        with self._connected() as connection:
            if _version(connection.execution_options(**_READING)) == schema.VERSION:
                return
        with self._connected() as connection, connection.begin():
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})")
            version = _version(connection)  # another process may have been first
            if version is None:
                schema.METADATA.create_all(connection)
                connection.execute(schema.META.insert().values(name="schema_version", value=str(schema.VERSION)))
                return
            if version > schema.VERSION:
                raise JournalError(
                    f"journal {self} has schema version {version}, made by a newer Mulligan; "
                    f"this one reads up to {schema.VERSION}"
                )
            for step in range(version, schema.VERSION):
                for statement in schema.MIGRATIONS[step]:
                    connection.exec_driver_sql(statement)
            connection.execute(schema.META.update().values(value=str(schema.VERSION)))


class Scope:
    """One transaction in one namespace. Every statement on journal rows is built here, and names the namespace."""

    def __init__(self, connection: sa.Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace

    def rows(
        self,
        table: sa.Table,
        *conditions: sa.ColumnElement[bool],
        columns: Sequence[sa.ColumnElement[Any]] = (),
        join: sa.Table | None = None,
        order: Sequence[sa.ColumnElement[Any]] = (),
        limit: int | None = None,
        lock: bool = False,
    ) -> list[Row]:
        """Rows as dictionaries; a joined table is matched by its foreign key, which has the namespace in it.

        With `lock` nobody else changes or deletes them until the transaction ends. Episodes are locked before classes,
        and classes before notes, by id: transactions that wait for each other's rows would never end.
        """
        statement = sa.select(*(columns or table.c)).select_from(table if join is None else table.join(join))
        statement = statement.where(table.c.namespace == self._namespace, *conditions).order_by(*order).limit(limit)
        if lock:  # SQLite has no such clause: there, whoever writes has locked everything
            statement = statement.with_for_update(of=table)
        result = self._connection.execute(statement)
        names = list(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def row(self, table: sa.Table, *conditions: sa.ColumnElement[bool], lock: bool = False) -> Row | None:
        return next(iter(self.rows(table, *conditions, limit=1, lock=lock)), None)

    def page(
        self,
        table: sa.Table,
        *conditions: sa.ColumnElement[bool],
        order: Sequence[sa.Column[Any]],
        after: Row | None,
    ) -> list[Row]:
        """The next `PAGE` rows by `order` after a row, or the first ones; the columns of `order` must name a row."""
        if after is not None:
            last = sa.tuple_(*(sa.literal(after[column.name], column.type) for column in order))
            conditions = (*conditions, sa.tuple_(*order) > last)
        return self.rows(table, *conditions, order=order, limit=PAGE)

    def insert(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of this namespace; those that are there already stay as they are."""
        if rows:
            is_sqlite = self._connection.dialect.name == "sqlite"
            statement = sqlite.insert(table) if is_sqlite else postgresql.insert(table)
            values = [{**row, "namespace": self._namespace} for row in rows]
            self._connection.execute(statement.on_conflict_do_nothing(), values)

    def update(self, table: sa.Table, values: Mapping[str, Any], *conditions: sa.ColumnElement[bool]) -> int:
        """Change rows; returns how many."""
        statement = sa.update(table).where(table.c.namespace == self._namespace, *conditions).values(values)
        return self._connection.execute(statement).rowcount

    def delete(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
        """Delete rows and what hangs on them; returns how many rows of the table went."""
        statement = sa.delete(table).where(table.c.namespace == self._namespace, *conditions)
        return self._connection.execute(statement).rowcount


_READING: dict[str, Any] = {"mulligan_reads": True}


def _parsed(url: str) -> sa.URL:
    """The address of a store; a path alone is a SQLite file."""
    try:
        parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
    except sa.exc.ArgumentError as error:
        raise ParameterError(f"{url!r} is no address of a journal; give sqlite:///agent.db or a path") from error
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise ParameterError(f"a journal is kept in sqlite or postgresql+psycopg (got {parsed.drivername})")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ParameterError("a journal outlives its process: name a file, as in sqlite:///agent.db")
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _read_only(url: sa.URL, options: dict[str, Any]) -> sa.URL:
    """The address of a store that is only read; what else its driver needs is put into `options`."""
    if url.get_backend_name() == "sqlite":
        path = os.path.abspath(str(url.database)).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"})
    options["connect_args"] = {"options": "-c default_transaction_read_only=on"}
    return url


def _by_hand(connection: Any, _: object) -> None:
    connection.isolation_level = None  # sqlite3 itself begins no transaction: `_begin_sqlite` does


def _prepare_sqlite(connection: Any, _: object) -> None:
    _by_hand(connection, None)
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Writers take the lock at once: one that reads first could not wait for it, because its reading grows old."""
    reads = connection.get_execution_options().get("mulligan_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _renew_after_fork(engine: sa.Engine) -> None:
    """A forked process must not use its parent's connections: it makes new ones."""
    reference = weakref.ref(engine)

    def renew() -> None:
        if (alive := reference()) is not None:
            alive.dispose(close=False)

    os.register_at_fork(after_in_child=renew)


def _version(connection: sa.Connection) -> int | None:
    """The schema version of a store; None of an empty one."""
    if not sa.inspect(connection).has_table(schema.META.name):
        return None
    row = connection.execute(sa.select(schema.META.c.value).where(schema.META.c.name == "schema_version")).scalar()
    return None if row is None else int(row)
