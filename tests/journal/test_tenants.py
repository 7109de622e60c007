"""Namespaces never see each other: whatever one does, the other's rows stay as they are and are not shown."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import UsageError
from mulligan.journal.episode import JournalEpisode
from mulligan.journal.journal import Journal

MARK = {"shop": "Quetzal", "bank": "Ocelot"}
"""A word in every text of a namespace."""
IDS = [f"episode-{number}" for number in range(6)]
"""The same in both: who knows the ids of another namespace must gain nothing by it."""


def fill(journal: Journal) -> None:
    mark = MARK[journal.namespace]
    for number, id in enumerate(IDS):
        with journal.episode(f"refund {mark}", "refund", id=id, person="p1", untrusted=number == 1) as ep:
            ep.context()
            ep.choose(["ask", "look"])
            if number < 5:
                ep.finish(number % 2, f"done {mark}", [mark], {"plan": f"lesson {number} {mark}"})
    journal.confirm(journal.notes()[0].id)


def note_ids(journal: Journal) -> list[str]:
    return [note.id for note in journal.notes()]


Act = Callable[[Journal, list[str], Path], Any]


def snapshot(journal: Journal) -> Any:
    with journal.reading() as scope:
        return journal.snapshot(scope, "refund")


ACTS: dict[str, Act] = {
    "episode": lambda journal, notes, file: journal.episode("other", "refund"),
    "attach": lambda journal, notes, file: journal.attach(IDS[0]),
    "episodes": lambda journal, notes, file: list(journal.episodes("refund")),
    "notes": lambda journal, notes, file: journal.notes(),
    "classes": lambda journal, notes, file: journal.classes(),
    "add_note": lambda journal, notes, file: journal.add_note("refund", plan="something new"),
    "correct": lambda journal, notes, file: journal.correct(random.Random(0).choice(notes), plan="corrected"),
    "supersede": lambda journal, notes, file: journal.supersede(notes[0], plan="superseded"),
    "confirm": lambda journal, notes, file: journal.confirm(notes[1]),
    "quarantine": lambda journal, notes, file: journal.quarantine(notes[1]),
    "retire": lambda journal, notes, file: journal.retire(notes[2]),
    "delete": lambda journal, notes, file: [
        journal.delete(note=notes[0]),
        journal.delete(episode=IDS[0]),
        journal.delete(person="p1"),
        journal.delete(task=f"refund {MARK['shop']}"),
        journal.delete(task_class="refund"),
        journal.delete(everything=True),
    ],
    "export": lambda journal, notes, file: (journal.export(file), file.read_text())[1],
    "load": lambda journal, notes, file: journal.load(file, trusted=True),
    "close": lambda journal, notes, file: journal.close(),
    "budget_of": lambda journal, notes, file: journal.budget_of("refund"),
    "reading": lambda journal, notes, file: None,  # the scopes themselves: tests/unit/journal/test_store.py
    "writing": lambda journal, notes, file: None,
    "log": lambda journal, notes, file: None,
    "in_namespace": lambda journal, notes, file: None,  # what a namespace is: the tests here
    "snapshot": lambda journal, notes, file: snapshot(journal),
}
EPISODE_ACTS: dict[str, Callable[[JournalEpisode], Any]] = {
    "context": lambda episode: episode.context(10_000),
    "choose": lambda episode: episode.choose(["ask", "look", "wait"]),
    "finish": lambda episode: episode.finish(1.0, reflection="another lesson"),
    "why": lambda episode: episode.why(),
    "keep": lambda episode: episode.keep(["other words"]),
    "reflect": lambda episode: episode.reflect(lambda messages: "<reflection>plan: a third lesson</reflection>"),
}


@pytest.fixture
def tenants(make) -> tuple[Journal, Journal]:
    shop, bank = make("shop"), make("bank")
    fill(shop)
    fill(bank)
    return shop, bank


def test_every_public_method_is_tried_here():
    assert {name for name in vars(Journal) if not name.startswith("_")} == set(ACTS)
    assert {name for name in vars(JournalEpisode) if not name.startswith("_")} == set(EPISODE_ACTS)


def test_nothing_that_one_namespace_does_is_seen_in_or_changes_another(tenants, tmp_path):
    shop, bank = tenants
    bank.export(tmp_path / "before.jsonl")
    shop.export(tmp_path / "shop.jsonl")
    own_notes, foreign_notes = note_ids(shop), note_ids(bank)
    order = sorted(ACTS, key=lambda name: name == "delete")  # it leaves nothing to do for the others
    for notes in (foreign_notes, own_notes):
        for name in order:
            result: Any = None
            with suppress(UsageError):  # a note of another namespace is one that does not exist
                result = ACTS[name](shop, notes, tmp_path / "shop.jsonl")
            assert MARK["bank"] not in repr(result), name
            with suppress(UsageError):
                episode = shop.attach(IDS[5])
                for act in EPISODE_ACTS.values():
                    assert MARK["bank"] not in repr(act(episode))
    bank.export(tmp_path / "after.jsonl")
    assert (tmp_path / "after.jsonl").read_text() == (tmp_path / "before.jsonl").read_text()
    assert MARK["shop"] not in (tmp_path / "after.jsonl").read_text()


def test_an_id_of_another_namespace_does_not_exist(tenants):
    shop, bank = tenants
    [foreign, *_] = set(note_ids(bank)) - set(note_ids(shop))
    bank.episode("private", "refund", id="of-the-bank")
    for act in (
        lambda: shop.attach("of-the-bank"),
        lambda: shop.correct(foreign, plan="x"),
        lambda: shop.supersede(foreign, plan="x"),
        lambda: shop.confirm(foreign),
        lambda: shop.retire(foreign),
    ):
        with pytest.raises(UsageError, match="the journal has no"):
            act()
    assert shop.delete(note=foreign) == (0, 0)
    assert shop.delete(episode="of-the-bank") == (0, 0)
    assert shop.episode("mine", "refund", id="of-the-bank").id == "of-the-bank"


def test_a_namespace_is_not_a_pattern(make):
    for name in ("shop", "shop%", "sh_p", "SHOP", "shop ", "'; DROP TABLE mulligan_notes; --"):
        make(name).add_note("refund", plan=f"note of {len(name)} {name.strip('%; -')[:4]}")
        assert len(make(name).notes()) == 1
