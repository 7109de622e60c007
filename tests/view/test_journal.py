"""The pages of a journal in a real browser: read, filtered, on a phone; and notes that hold payloads are text."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.hostile.test_pages import PAYLOADS
from tests.view.conftest import WAY, across, barriers, serving
from tests.view.test_safety import ALL, LOOK

import mulligan
from mulligan.journal.schema import CLASSES, NOTES
from mulligan.view.journals import JournalPages

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "agent.db"
    with mulligan.Journal(f"sqlite:///{path}", namespace="shop", hold_out=0.5) as journal:
        for number in range(60):
            with journal.episode(f"refund {number}", "refund", id=f"r{number}") as episode:
                shown = episode.context()
                episode.choose(["ask first", "look up first"])
                episode.finish(reward=float(bool(shown) or number % 4 == 0), reflection={"plan": "look it up first"})
        hostile = journal.in_namespace("hostile")
        with hostile.writing() as scope:  # past all that would refuse it
            texts = dict.fromkeys(("task", "reason", "superseded_by", "source"), ALL)
            rows = [
                {"id": f"{number} {payload}", "task_class": ALL, "text_key": str(number), "state": "quarantined",
                 "fields": {payload: payload, ALL: ALL}, "written": 1.0, **texts}
                for number, payload in enumerate(PAYLOADS)
            ]  # fmt: skip
            scope.insert(NOTES, rows)
            scope.insert(CLASSES, [{"task_class": ALL, "because": ALL, "alarm": ALL, "journal_on": False}])
    return path


@pytest.fixture(scope="module")
def address(database: Path, tmp_path_factory: pytest.TempPathFactory):
    (runs := tmp_path_factory.mktemp("runs")).joinpath("x").mkdir()
    with serving(runs, JournalPages(str(database), ["shop", "hostile"])) as url:
        yield url


def test_from_the_runs_to_what_a_note_is_worth(open_tab, address):
    tab = open_tab()
    tab.goto(address)
    tab.get_by_role("link", name="The journal").click()
    expect(tab.locator("tbody tr")).to_have_count(1)
    tab.get_by_role("link", name="refund", exact=True).click()
    expect(tab.locator(".lead")).to_have_text("It helps: the whole interval lies above 0.")
    expect(tab.locator("main")).to_contain_text("look up first")
    tab.get_by_role("link", name="Its notes").click()
    expect(tab.locator(".note-card")).to_have_count(1)
    expect(tab.locator(".note-card")).to_contain_text("Written 60 times")
    tab.get_by_label("State").select_option("quarantined")
    expect(tab.locator("main")).to_contain_text("No note is like that.")
    tab.get_by_label("Namespace").select_option("hostile")
    expect(tab.locator(".note-card")).to_have_count(min(50, len(PAYLOADS)))


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_notes_are_text_and_readable(open_tab, address, scheme, width):
    tab = open_tab(color_scheme=scheme, viewport={"width": width, "height": 844})
    pages = [("journal", {"namespace": "shop"}), ("class", {"namespace": "shop", "class": "refund"})]
    hostile = {"namespace": "hostile"}
    pages += [
        ("journal", hostile),
        ("class", {**hostile, "class": ALL}),
        ("notes", {**hostile, "state": "quarantined"}),
    ]
    for page, params in pages:
        tab.goto("about:blank")
        tab.goto(f"{address}#/{page}?{urlencode(params)}")
        expect(tab.locator("main h1")).to_be_visible()
        expect(tab.locator("main")).not_to_contain_text("cannot be shown")
        *found, _ = tab.evaluate(LOOK)
        assert list(filter(None, found)) == [], page
        assert ("<script>" in tab.locator("main").inner_text()) == (params["namespace"] == "hostile")
        assert across(tab) <= width, page
        assert not barriers(tab), page


def test_a_journal_alone_begins_at_its_page(open_tab, database):
    with serving(JournalPages(str(database), ["shop"]), home="#/journal") as url:
        tab = open_tab()
        tab.goto(url)
        expect(tab.locator("h1")).to_have_text("Journal")
        expect(tab.get_by_role("link", name="refund", exact=True)).to_be_visible()
