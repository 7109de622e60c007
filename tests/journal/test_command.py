"""`mulligan journal`: what somebody who looks after an agent reads and mends from a terminal."""

from __future__ import annotations

import json

import pytest

import mulligan
from e2e.command import call


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with mulligan.Journal("sqlite:///agent.db", "shop", hold_out=0.5) as opened:
        for number in range(6):
            with opened.episode("refund", "refund", id=f"e{number}", person=f"p{number}") as ep:
                ep.context()
                ep.choose(["ask", "look"])
                ep.finish(number % 2, reflection={"plan": f"look up the order {number}"})
        yield opened


WHERE = ("--journal", "agent.db", "--namespace", "shop")


def test_the_report_says_what_the_journal_says(journal, capsys):
    assert call("journal", "report", *WHERE) == 0
    text = capsys.readouterr().out
    [report] = journal.classes()
    assert f"{report.uplift.mean:+.3f}" in text
    assert f"refund: look: {report.strategies['']['look'].mean:.3f} [" in text
    assert call("journal", "report", "--json", *WHERE) == 0
    [said] = json.loads(capsys.readouterr().out)
    assert (said["outcomes"], said["notes"], said["uplift"]["mean"]) == (6, dict(report.notes), report.uplift.mean)


def test_notes_are_mended_and_forgotten(journal, tmp_path, capsys):
    assert call("journal", "add", "plan=ask for the number", "--class", "refund", *WHERE) == 0
    note = capsys.readouterr().out.strip()
    assert call("journal", "correct", note, "plan=ask twice", "applies=refunds", *WHERE) == 0
    assert call("journal", "notes", "--state", "confirmed", *WHERE) == 0
    assert "plan: ask twice | applies: refunds [no record yet]" in capsys.readouterr().out
    assert call("journal", "quarantine", note, *WHERE) == 0
    with journal.episode("refund", "refund", id="later") as ep:
        assert "ask twice" not in ep.context()
    assert call("journal", "confirm", note, *WHERE) == 0
    assert call("journal", "supersede", note, "plan=ask three times", *WHERE) == 0
    states = {each.fields["plan"]: each.state for each in journal.notes()}
    assert (states["ask twice"], states["ask three times"]) == ("superseded", "confirmed")
    capsys.readouterr()
    assert call("journal", "forget", "--person", "p3", *WHERE) == 0
    assert capsys.readouterr().out == "deleted 1 episode and 1 note\n"
    assert call("journal", "export", "shop.jsonl", *WHERE) == 0
    assert call("journal", "load", "shop.jsonl", "--trusted", "--journal", "copy.db", "--namespace", "other") == 0
    with mulligan.Journal(tmp_path / "copy.db", "other") as copy:
        assert {each.text for each in copy.notes()} == {each.text for each in journal.notes()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "there is no journal journal.db"),
        (["reprot", *WHERE], "unknown action 'reprot'"),
        (["correct", "x", *WHERE], "mulligan journal correct NOTE PART=TEXT"),
        (["correct", "x", "plan", *WHERE], "a part of a note is PART=TEXT"),
        (["correct", "x", "plan=a", *WHERE], "the journal has no note 'x'"),
        (["retire", *WHERE], "mulligan journal retire NOTE"),
        (["notes", "--state", "odd", *WHERE], "unknown state of notes 'odd'"),
        (["add", "plan=a", *WHERE], "add needs --class"),
        (["forget", "--person", "p1", "--everything", *WHERE], "forget takes exactly one of"),
        (["export", "a", "b", *WHERE], "mulligan journal export FILE"),
    ],
)
def test_mistakes_are_one_line_and_make_no_file(journal, tmp_path, capsys, words, said):
    assert call("journal", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "journal.db").exists()
