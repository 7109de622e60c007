"""The journal's store: what it promises of its files, versions, namespaces and processes."""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys

import pytest

from mulligan.errors import JournalError, MissingExtra, ParameterError
from mulligan.journal import schema
from mulligan.journal.schema import EPISODES, NOTES, ORIGINS
from mulligan.journal.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store(f"sqlite:///{tmp_path}/agent.db")
    yield opened
    opened.close()


def episode(store: Store, namespace: str, id: str, **values: object) -> None:
    with store.writing(namespace) as scope:
        scope.insert(EPISODES, [{"id": id, **values}])


def ids(store: Store, namespace: str) -> list[str]:
    with store.reading(namespace) as scope:
        return [row["id"] for row in scope.rows(EPISODES, order=(EPISODES.c.id,))]


def test_a_commit_is_on_the_disk_and_readers_do_not_wait(store):
    with store.engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}  # 2 is FULL
    episode(store, "shop", "1")
    with store.writing("shop") as scope:
        scope.insert(EPISODES, [{"id": "2"}])
        assert ids(store, "shop") == ["1"]  # beside a writer that has not committed
    assert ids(store, "shop") == ["1", "2"]


def test_what_fails_half_way_leaves_nothing(store):
    twice = [{"id": "1", "task": ""}, {"id": "2", "task": None}]  # a task is never null
    with pytest.raises(JournalError, match="NOT NULL"), store.writing("shop") as scope:
        scope.insert(EPISODES, twice)
    assert ids(store, "shop") == []


def test_a_statement_sees_and_changes_its_namespace_alone(store):
    for namespace in ("shop", "bank"):
        episode(store, namespace, "same-id", task=namespace)
    with store.writing("shop") as scope:
        assert [row["task"] for row in scope.rows(EPISODES)] == ["shop"]
        assert scope.update(EPISODES, {"outcome": "changed"}) == 1
        assert scope.delete(EPISODES) == 1
    with store.reading("bank") as scope:
        assert [(row["task"], row["outcome"]) for row in scope.rows(EPISODES)] == [("bank", "")]


def test_a_row_cannot_point_into_another_namespace(store):
    episode(store, "shop", "1")
    with store.writing("bank") as scope:
        scope.insert(NOTES, [{"id": "n"}])
    with pytest.raises(JournalError, match="FOREIGN KEY"), store.writing("bank") as scope:
        scope.insert(ORIGINS, [{"note_id": "n", "episode_id": "1"}])


def test_an_older_store_is_migrated_once_when_it_is_opened(store, monkeypatch):
    episode(store, "shop", "1")
    version = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", version + 2)
    steps = {
        version: ("ALTER TABLE mulligan_episodes ADD COLUMN mood TEXT",),
        version + 1: ("UPDATE mulligan_episodes SET mood = 'calm'",),
    }
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    for _ in range(2):  # the second time, adding the column again would fail
        Store(str(store)).close()
    file = sqlite3.connect(store.url.database)
    assert file.execute("SELECT mood, (SELECT value FROM mulligan_meta) FROM mulligan_episodes").fetchall() == [
        ("calm", f"{version + 2}")
    ]
    file.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(store, monkeypatch):
    episode(store, "shop", "1")
    with monkeypatch.context() as patched:
        version = schema.VERSION
        patched.setattr(schema, "VERSION", version + 1)
        patched.setattr(schema, "MIGRATIONS", {version: ("DELETE FROM mulligan_episodes", "no SQL")})
        with pytest.raises(JournalError, match="syntax error"):
            Store(str(store))
    assert ids(Store(str(store)), "shop") == ["1"]


def test_a_newer_store_is_refused(store, monkeypatch):
    monkeypatch.setattr(schema, "VERSION", 0)
    with pytest.raises(JournalError, match="schema version 2, made by a newer Mulligan; this one reads up to 0"):
        Store(str(store))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("mysql://host/db", r"kept in sqlite or postgresql\+psycopg \(got mysql\)"),
        ("://", "no address of a journal"),
    ],
)
def test_an_impossible_address_is_one_line(url, message):
    with pytest.raises(ParameterError, match=message) as error:
        Store(url)
    assert "\n" not in str(error.value)


def test_a_database_that_is_not_there_or_none_is_one_line_without_its_password(tmp_path):
    with pytest.raises(JournalError) as error:
        Store("postgresql://me:secret@127.0.0.1:9/none")
    assert str(error.value).startswith("journal postgresql+psycopg://me:***@127.0.0.1:9/none: ")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    (tmp_path / "text.db").write_text("not a database, but long enough to be taken for one" * 20)
    with pytest.raises(JournalError, match="file is not a database"):
        Store(str(tmp_path / "text.db"))


def _write_in_child(store: Store, id: str) -> None:
    episode(store, "shop", id)


def test_a_forked_process_makes_its_own_connections(store):
    episode(store, "shop", "parent")
    before = store.engine.pool.checkedin()
    children = [
        multiprocessing.get_context("fork").Process(target=_write_in_child, args=(store, f"c{i}")) for i in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert before == 1  # there was one to inherit
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert ids(store, "shop") == ["c0", "c1", "c2", "parent"]


def _open_and_write(url: str, id: str) -> None:
    episode(Store(url), "shop", id)


def test_many_processes_may_open_a_new_store_at_once(tmp_path):
    url = f"sqlite:///{tmp_path}/new.db"
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_open_and_write, args=(url, f"c{i}")) for i in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 6
    assert len(ids(Store(url), "shop")) == 6


def test_without_sqlalchemy_the_extra_is_named(monkeypatch):
    import mulligan.journal

    monkeypatch.setattr(mulligan, "journal", mulligan.journal)  # put back after the failed import has replaced it
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for name in [name for name in sys.modules if name.startswith("mulligan.journal")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"a journal needs the extra 'journal'.*pip install .*\.\[journal\]"):
        mulligan.Journal
