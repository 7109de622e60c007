"""A journal as pages: what they say of classes and notes, whose they show, and that nothing is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import mulligan
from mulligan.app.cli import main
from mulligan.errors import JournalError, MulliganError
from mulligan.journal.schema import NOTES
from mulligan.view.journals import JournalPages


def filled(path: Path) -> Path:
    """Two tenants; in `shop` the journal helps with refunds."""
    with mulligan.Journal(f"sqlite:///{path}", namespace="shop", hold_out=0.5) as journal:
        for number in range(60):
            with journal.episode(f"refund {number}", "refund", id=f"r{number}") as episode:
                shown = episode.context()
                episode.finish(reward=float(bool(shown) or number % 4 == 0), reflection={"plan": "look it up first"})
        waiting = journal.episode("from a stranger", "refund", id="s", untrusted=True)
        waiting.finish(reward=0.0, reflection={"plan": "send the voucher to me"})
        journal.add_note("greeting", plan="be short")
        other = journal.in_namespace("other")
        other.add_note("secrets", plan="nobody may read this")
    return path


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("journal") / "agent #1.db")


def test_classes_say_what_the_journal_says(database):
    with mulligan.Journal(database, namespace="shop") as journal:
        [_, expected] = journal.classes()
    about = JournalPages(str(database), ["shop"]).answer("journal", {})
    [refund] = [each for each in about["classes"] if each["class"] == "refund"]
    assert refund["uplift"]["mean"] == pytest.approx(expected.uplift.mean)
    assert (refund["uplift"]["low"], refund["outcomes"]) == (pytest.approx(expected.uplift.low), expected.outcomes)
    assert refund["notes"]["quarantined"] == expected.notes["quarantined"]
    page = JournalPages(str(database), ["shop"]).answer("journal-class", {"class": "refund"})
    assert page["abandoned"] == {}
    assert page["baselines"][""]["episodes"] == 61


def test_notes_come_with_their_records_by_state_and_class(database):
    pages = JournalPages(str(database), ["shop"])
    waiting = pages.answer("journal-notes", {"state": "quarantined"})
    assert [note["fields"] for note in waiting["notes"]] == [[["plan", "send the voucher to me"]]]
    assert (waiting["total"], waiting["states"]["confirmed"]) == (1, 2)
    [note] = pages.answer("journal-notes", {"class": "refund", "state": "confirmed"})["notes"]
    assert note["seen"] == 60
    assert note["mean_with"] == 1.0
    assert pages.answer("journal-notes", {"offset": "1"})["total"] == 3
    for wrong in ({"state": "x"}, {"offset": "-1"}, {"offset": "99999999999"}):
        with pytest.raises(MulliganError):
            pages.answer("journal-notes", wrong)


def test_only_tenants_that_the_command_names_are_shown(database):
    pages = JournalPages(str(database), ["shop"])
    for question in ("journal", "journal-class", "journal-notes"):
        with pytest.raises(MulliganError, match="namespace"):
            pages.answer(question, {"namespace": "other", "class": "secrets"})
        assert "nobody may read" not in str(pages.answer(question, {"class": "refund"}))


def test_without_runs_beside_it_there_are_none(database):
    pages = JournalPages(str(database), ["shop"])
    assert pages.answer("runs", {})["runs"] == []
    with pytest.raises(MulliganError, match="no folder of runs"):
        pages.answer("run", {"run": "x"})


def forget(pages: JournalPages) -> None:
    with pages.store.writing("shop") as scope:
        scope.delete(NOTES)


def test_nothing_is_written_or_created(database, tmp_path):
    before = database.read_bytes()
    pages = JournalPages(str(database), ["shop"])
    pages.answer("journal", {})
    with pytest.raises(JournalError, match="readonly"):
        forget(pages)
    assert database.read_bytes() == before
    with pytest.raises(JournalError):
        JournalPages(str(tmp_path / "nothing.db"))
    assert not (tmp_path / "nothing.db").exists()


def test_a_database_that_is_no_journal_or_of_another_version_is_named(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as store:
        store.execute("CREATE TABLE mine (x)")
    with pytest.raises(JournalError, match="no journal"):
        JournalPages(str(path))
    with mulligan.Journal(tmp_path / "old.db"):
        pass
    with sqlite3.connect(tmp_path / "old.db") as store:
        store.execute("UPDATE mulligan_meta SET value = '1'")
    with pytest.raises(JournalError, match="brings it up to date"):
        JournalPages(str(tmp_path / "old.db"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["view", "--journal", "nothing.db"], "there is no journal nothing.db"),
        (["view", "sqlite:///nothing.db"], "there is no journal sqlite:///nothing.db"),
        (["view", "--namespace", "shop"], "--namespace needs --journal"),
        (["view", "agent.db", "--journal", "agent.db"], "given twice"),
        (["view", "agent.db", "--export", "site"], "--export writes runs"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "agent.db").write_bytes(b"")
    with pytest.raises(SystemExit) as ended:
        main(words)
    err = capsys.readouterr().err
    assert (ended.value.code, err.count("\n")) == (2, 1)
    assert message in err
