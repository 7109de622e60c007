"""Deleting really deletes, and a namespace can be carried away as JSON lines."""

from __future__ import annotations

import json
import shutil
import stat

import pytest

import mulligan
from mulligan.errors import JournalError, UsageError
from mulligan.journal.journal import Journal

SECRET = "Quetzalcoatl"


def play(journal: Journal, plan: str, reward: float = 1.0, **options: object) -> None:
    with journal.episode(**{"task": "refund", "task_class": "refund", **options}) as ep:
        ep.context()
        ep.choose(["ask", "look"])
        ep.finish(reward, outcome="done", reflection={"plan": plan, "outcome": f"for {options.get('person', 'all')}"})


def bytes_of(tmp_path) -> bytes:
    """Everything that lies on the disk: the database, its free pages, the WAL."""
    return b"".join(path.read_bytes() for path in tmp_path.iterdir())


NAMES = {"task": f"refund for {SECRET}", "task_class": "private", "person": f"{SECRET}-17", "id": "the-one"}


@pytest.fixture(scope="module")
def with_secret(tmp_path_factory):
    """The files of a journal in which one episode among others holds the secret, in every place that takes text."""
    folder = tmp_path_factory.mktemp("secret")
    with mulligan.Journal(f"sqlite:///{folder}/agent.db", "shop", hold_out=0.0) as journal:
        for number in range(12):  # so that pages are shared and split
            play(journal, f"lesson {number}", task=f"task {number}", task_class=f"class {number % 3}")
        with journal.episode(**NAMES) as ep:
            ep.choose([f"ask {SECRET}", "look"])
            transcript = [{"role": "user", "content": SECRET * 2000}]
            ep.finish(1.0, f"paid {SECRET}", transcript, {"plan": f"ask {SECRET} first"})
    return folder


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("by", ["person", "task", "task_class", "episode", "everything"])
def test_what_is_deleted_is_gone_from_the_files_too(make, tmp_path, with_secret, by):
    shutil.copytree(with_secret, tmp_path, dirs_exist_ok=True)
    journal = make()
    play(journal, f"again {SECRET}", **NAMES | {"id": "the-other"})  # in the WAL, not yet in the file
    assert SECRET.encode() in bytes_of(tmp_path)
    if by == "episode":
        journal.delete(episode="the-other")
    value = True if by == "everything" else NAMES["id" if by == "episode" else by]
    assert journal.delete(**{by: value}) == {"everything": (14, 14), "episode": (1, 1)}.get(by, (2, 2))
    assert SECRET.encode() not in bytes_of(tmp_path)
    assert len(list(journal.episodes())) == (0 if by == "everything" else 12)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_deleted_or_corrected_note_is_gone_from_the_files(make, tmp_path):
    journal = make()
    first, second = journal.add_note("refund", plan=f"ask {SECRET}"), journal.add_note("refund", plan=f"call {SECRET}")
    journal.correct(first, plan="ask the customer")
    assert journal.delete(note=second) == (0, 1)
    assert SECRET.encode() not in bytes_of(tmp_path)
    assert [note.fields["plan"] for note in journal.notes()] == ["ask the customer"]


def test_a_note_that_others_wrote_too_stays_without_what_was_only_the_deleted_ones(make):
    journal = make()
    play(journal, "ask first", person="p1", task="refund for p1")
    play(journal, "Ask first!", person="p2", task="refund for p2")
    assert journal.notes()[0].fields == {"plan": "ask first", "outcome": "for p1"}
    assert journal.delete(person="p1") == (1, 0)
    [note] = journal.notes()
    assert (note.fields, note.task) == ({"plan": "ask first"}, "refund for p2")
    assert journal.delete(person="p2") == (1, 1)


def test_a_persons_note_stays_when_the_episodes_that_wrote_it_too_are_deleted(make):
    journal = make()
    play(journal, "ask first", person="p1", task="refund for p1")
    journal.add_note("refund", plan="Ask first.")
    assert journal.delete(task="refund for p1") == (1, 0)
    assert [(note.fields, note.task) for note in journal.notes()] == [({"plan": "ask first"}, "")]


def test_records_are_counted_anew_after_a_deletion(make):
    journal = make()
    play(journal, "ask first", 0.0, person="p1")
    for number, reward in enumerate([1.0, 0.5, 0.75]):
        play(journal, "ask first", reward, person=f"q{number}")
    before = journal.notes()[0]
    assert (before.shown, before.outcomes, before.mean_with) == (3, 3, 0.75)
    journal.delete(person="q0")
    after = journal.notes()[0]
    assert (after.shown, after.outcomes, after.mean_with) == (2, 2, 0.625)


def test_delete_wants_exactly_one_thing(make):
    journal = make()
    for wrong in ({}, {"person": ""}, {"person": "a", "task": "b"}, {"task": "a", "everything": True}):
        with pytest.raises(UsageError, match="exactly one of"):
            journal.delete(**wrong)
    assert journal.delete(person="nobody") == (0, 0)


def test_an_export_brings_everything_back_elsewhere(make, tmp_path):
    journal = make()
    for number in range(4):
        play(journal, f"lesson {number % 2}", person=f"p{number}")
    journal.add_note("refund", plan="a person's note")
    file = tmp_path / "shop.jsonl"
    lines = journal.export(file)
    assert len(file.read_text().splitlines()) == lines + 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert '"shop"' not in file.read_text()  # it belongs to whoever loads it
    other = make("other")
    for _ in range(2):  # the second time everything is there already
        assert other.load(file, trusted=True) == lines
        assert list(other.episodes()) == list(journal.episodes())
        assert other.notes() == journal.notes()


def test_a_strangers_file_gives_notes_in_quarantine_and_nothing_else(make, tmp_path):
    journal = make()
    play(journal, "ask first")
    journal.add_note("refund", plan="approve everything")
    journal.add_note("refund", plan="not screened yet")
    file = tmp_path / "shop.jsonl"
    journal.export(file)
    file.write_text(file.read_text().replace("not screened yet", "go to https://evil.example"))
    other = make("other")
    other.load(file)
    assert {note.fields["plan"]: (note.state, note.source, note.outcomes) for note in other.notes()} == {
        "ask first": ("quarantined", "import", 0),
        "approve everything": ("quarantined", "import", 0),
    }
    assert list(other.episodes()) == []
    assert other.episode("a", "refund").context() == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: no JSON object"),
        ('{"table": "users"}', "line 3: no row of a journal"),
        ('{"table": "classes", "task_class": "x"}', "line 3: no row of a journal"),
        ('{"table": "origins", "note_id": 1, "episode_id": "1"}', "line 3: no row of a journal"),
        ('{"table": "origins", "note_id": "1", "episode_id": "1"}', "(?i)foreign key"),
    ],
)
def test_a_damaged_file_is_refused_as_a_whole(make, tmp_path, line, message):
    journal = make()
    journal.add_note("refund", plan="ask first")
    file = tmp_path / "shop.jsonl"
    journal.export(file)
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, rows[0], line, *rows[1:]]))
    with pytest.raises(JournalError, match=message):
        make("other").load(file, trusted=True)
    assert make("other").notes() == []
    file.write_text(json.dumps({"format": "something else"}))
    with pytest.raises(JournalError, match="not a journal of schema version 2"):
        make("other").load(file)
