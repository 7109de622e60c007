"""What only a server can go through: several machines that make the tables at once, cut connections, its own files."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import sqlalchemy as sa

import mulligan

pytestmark = [pytest.mark.journal, pytest.mark.parametrize("database", ["postgresql"], indirect=True)]
SECRET = "Quetzalcoatl"


def _open_and_write(url: str, number: int) -> None:
    with mulligan.Journal(url, "shop") as journal, journal.episode("a", "refund", id=f"e{number}") as ep:
        ep.finish(1.0, reflection="the same lesson")


def test_many_processes_may_make_the_tables_and_write_at_once(make, database):
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_open_and_write, args=(database, number)) for number in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 6
    journal = make()
    assert [record.state for record in journal.episodes()] == ["finished"] * 6
    assert [note.seen for note in journal.notes()] == [6]
    assert journal.classes()[0].outcomes == 6


def test_a_cut_connection_is_made_anew(make, postgresql, database):
    journal = make()
    journal.add_note("refund", plan="ask first")
    engine = sa.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    name = sa.make_url(database).database
    with engine.connect() as connection:
        cut = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"
        assert connection.exec_driver_sql(cut).scalar_one() >= 1
    engine.dispose()
    assert [note.fields["plan"] for note in journal.notes()] == ["ask first"]


def test_what_is_deleted_is_gone_from_the_tables_files(make, postgresql, database):
    journal = make()
    for number in range(20):
        with journal.episode(f"refund {number}", "refund", person=f"p{number}") as ep:
            text = SECRET if number == 7 else "other"
            ep.finish(1.0, f"paid {text}", [text * 500], {"plan": f"ask {text} {number}"})
    folder = Path(str(postgresql.query["host"])) / "data" / "base"
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT")

    def is_on_disk() -> bool:
        with engine.connect() as connection:
            connection.exec_driver_sql("CHECKPOINT")
        return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())

    assert is_on_disk()
    assert journal.delete(person="p7") == (1, 1)
    assert not is_on_disk()
    engine.dispose()
    assert len(list(journal.episodes())) == 19
