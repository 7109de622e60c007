"""What follows of outcomes: the order they are taken in, the sums that are kept, and what is shown."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

import pytest

import mulligan
from mulligan.journal import evidence
from mulligan.journal.proof import uplift
from mulligan.journal.schema import CLASSES, EPISODES, PENDING


def test_who_ends_first_does_not_decide_whether_a_journal_helps(make):
    """A batch whose failures end first with the journal, and whose successes end first without it; no effect at all."""
    journal = make(hold_out=0.5)
    batch = [journal.episode("a", "refund", id=f"e{number}") for number in range(240)]
    outcomes = {ep.id: float(number % 2) for number, ep in enumerate(batch)}
    for ep in sorted(batch, key=lambda ep: outcomes[ep.id] if ep.journal_on else 1 - outcomes[ep.id]):
        ep.finish(outcomes[ep.id])
        with journal.reading() as scope:
            assert scope.rows(CLASSES)[0]["journal_on"], "switched off for the order in which episodes ended"
    [report] = journal.classes("refund")
    began = list(journal.episodes("refund"))
    columns = ([getattr(record, name) for record in began] for name in ("journal_on", "reward", "chance"))
    assert astuple(report.uplift) == pytest.approx(astuple(uplift(*columns)))
    assert report.uplift.low < 0 < report.uplift.high
    ended = sorted(began, key=lambda record: record.ended or 0)[:130]
    columns = ([getattr(record, name) for record in ended] for name in ("journal_on", "reward", "chance"))
    assert uplift(*columns).high < 0  # what the order of the ends would have shown


def test_the_proof_waits_for_an_open_episode_but_not_for_ever(make, monkeypatch):
    journal = make(hold_out=0.5)
    slow = journal.episode("a", "refund", id="slow")
    for number in range(5):
        with journal.episode("a", "refund", id=f"e{number}") as ep:
            ep.finish(1.0)
    assert journal.classes()[0].uplift.episodes == 0
    monkeypatch.setattr(evidence, "PATIENCE", 0.0)
    assert journal.classes()[0].uplift.episodes == 5
    slow.finish(1.0)
    assert journal.classes()[0].uplift.episodes == 6
    with journal.reading() as scope:
        assert scope.rows(PENDING) == []


def test_kept_sums_are_those_of_all_episodes_after_deletions_and_under_other_bounds(make):
    journal = make(hold_out=0.5, reward_range=(-1, 1))
    for number in range(12):
        with journal.episode("a", "refund", id=f"e{number}", person=f"p{number % 3}") as ep:
            ep.finish(-1.0 if number % 4 else 0.5)
    journal.delete(person="p1")
    with journal.episode("a", "refund", id="last") as ep:
        ep.finish(0.5)
    for bounds in ((-1, 1), (-2, 1)):
        records = list(journal.episodes("refund"))
        columns = ([getattr(record, name) for record in records] for name in ("journal_on", "reward", "chance"))
        kept = make(reward_range=bounds).classes()[0].uplift
        assert astuple(kept) == pytest.approx(astuple(uplift(*columns, bounds=bounds)))


def test_what_is_shown_is_never_older_than_what_others_wrote(make):
    """Each change, made by another journal on the same database, is seen by one that has the class in its memory."""
    journal, other = make(), make()

    def shown() -> str:
        with journal.episode("a", "refund", id=f"e{len(list(journal.episodes()))}") as ep:
            text = ep.context()
        fresh = make()
        with fresh.reading() as scope:
            again = fresh.snapshot(scope, "refund")
        with journal.reading() as scope:
            assert journal.snapshot(scope, "refund").words == again.words
        return text

    assert shown() == ""
    note = other.add_note("refund", plan="first words")
    assert "first words" in shown()
    other.correct(note, plan="second words")
    assert "second words" in shown()
    with other.episode("a", "refund", id="other") as ep:
        ep.context()
        ep.finish(0.5)
    assert "mean reward 0.5 in 1 with it" in shown()
    new = other.supersede(note, plan="third words")
    assert "third words" in shown()
    other.retire(new)
    assert shown() == ""
    other.confirm(new)
    assert "third words" in shown()
    other.delete(note=new)
    assert shown() == ""
    other.add_note("refund", plan="first words")
    assert "first words" in shown()
    other.delete(task_class="refund")
    assert shown() == ""


_BACK_TO_VERSION_1 = """
DROP TABLE mulligan_pending;
ALTER TABLE mulligan_classes RENAME COLUMN proof TO drift;
ALTER TABLE mulligan_classes ADD COLUMN checked BIGINT NOT NULL DEFAULT 12;
ALTER TABLE mulligan_classes DROP COLUMN stamp;
UPDATE mulligan_classes SET drift = '{"seen": 6, "alarm": {"alarms": 0}}';
UPDATE mulligan_meta SET value = '1';
"""


def test_a_journal_of_the_first_schema_goes_on(tmp_path):
    path = tmp_path / "agent.db"
    with mulligan.Journal(path, "shop", hold_out=0.5) as journal:
        for number in range(12):
            with journal.episode("a", "refund", id=f"e{number}") as ep:
                ep.finish(number % 2, reflection="look first")
        before = journal.classes()[0].uplift
    with sqlite3.connect(path) as file:
        file.executescript(_BACK_TO_VERSION_1)
    file.close()
    with mulligan.Journal(path, "shop", hold_out=0.5) as journal:
        assert journal.classes()[0].uplift == before
        with journal.episode("a", "refund", id="e12") as ep:
            ep.context()
            ep.finish(1.0)
        assert journal.classes()[0].outcomes == 13
        with journal.reading() as scope:
            assert len(scope.rows(EPISODES)) == 13
