"""Notes are found by meaning where a journal is told to; needs the extra `similarity`."""

from __future__ import annotations

import sys

import pytest

import mulligan
from mulligan.errors import MissingExtra, UnknownName

LESSONS = {
    "refund for an order that arrived broken": "ask for a photo",
    "cancel a subscription before the next payment": "check the notice period",
    "find a flight from Paris to Rome": "sort by arrival",
    "reduce the memory use of a Python script": "read the file in pieces",
}
OTHER_WORDS = {
    "a customer wants money back because the parcel was damaged": "ask for a photo",
    "stop the monthly plan so that nothing more is charged": "check the notice period",
    "look for a plane ticket between Paris and Rome": "sort by arrival",
    "a program in Python takes too much RAM": "read the file in pieces",
}
ROUNDS = 15


def first_notes(journal: mulligan.Journal) -> float:
    """The share of episodes on tasks in other words whose first note is the right one."""
    right = []
    for task, plan in OTHER_WORDS.items():
        for number in range(ROUNDS):
            with journal.episode(task, "support", id=f"{task} {number}") as ep:
                right.append(plan in ep.context().splitlines()[2])
    return sum(right) / len(right)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_task_in_other_words_finds_the_note_of_the_task(make):
    pytest.importorskip("wordllama", reason="the extra similarity is not installed")
    plain = make()
    for task, plan in LESSONS.items():
        with plain.episode(task, "support") as ep:
            ep.finish(0.5, reflection={"plan": plan})
        plain.confirm(plain.notes()[0].id)
    # By chance 1 of 4; with a likeness of about 1 against 0.1 at weight 2, and draws of 0.5 each, nearly all.
    assert first_notes(plain) < 0.5
    for task in OTHER_WORDS:
        plain.delete(task=task)
    assert first_notes(make(similarity="wordllama")) > 0.8


def test_likeness_is_between_0_and_1_whatever_the_text():
    pytest.importorskip("wordllama", reason="the extra similarity is not installed")
    from mulligan.journal.similarity import similarity_named

    alike = similarity_named("wordllama")
    texts = ["", "refund", "a refund, please", "\x00\ud800", "Quantenchromodynamik", "refund " * 3_000]
    assert alike("refund", texts)[1] == 1.0
    assert all(0 <= value <= 1 for task in texts for value in alike(task, texts))
    assert alike("", texts) == [0.0] * len(texts)
    assert alike("refund", []) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_mistakes_name_the_way_out(make, monkeypatch):
    with pytest.raises(UnknownName, match="unknown similarity 'wordlama'"):
        make(similarity="wordlama")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setattr("mulligan.journal.similarity._LOADED", {})
    with pytest.raises(MissingExtra, match="needs the extra 'similarity'"):
        make(similarity="wordllama")
