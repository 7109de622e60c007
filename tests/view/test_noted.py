"""The page that tells what the note changed, over a run that was trained for seconds."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.small_runs import small, trial
from tests.view.conftest import WAY, across, barriers, serving
from tests.view.test_safety import ALL, LOOK

import mulligan
from mulligan.report.run import RunFolder
from mulligan.training.config import TaskConfig
from mulligan.training.loop import train
from mulligan.types import Trial
from mulligan.view.export import export_site, write_report
from mulligan.view.library import Library

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect


def first_later_attempt(trials: dict[int, Trial]) -> tuple[int, int]:
    """The place of a trial, and its attempt from 1, that began with a memory and a valid move."""
    return next(
        (place, episode.index + 1)
        for place, each in sorted(trials.items())
        for episode in each.episodes[1:]
        if episode.turns and episode.turns[0].valid
    )


def with_payloads(played: Trial) -> Trial:
    """The trial with payloads in all that was remembered."""
    episodes = []
    for episode in played.episodes:
        if episode.opening:
            *before, last = episode.opening
            content = f"{ALL}\n{episode.turns[0].observation if episode.turns else ''}"
            episode = replace(episode, opening=(*before, {**last, "content": content}))
        episodes.append(episode)
    return replace(played, episodes=tuple(episodes))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noted") / "runs"
    params = {"rows": 4, "cols": 4, "mines": 2, "view": "compact", "turns": 4}
    settings = trial(episodes=3, memory="history", style="bare", max_tokens=1, reflection_tokens=3)
    train(small(task=TaskConfig(env="minesweeper", params=params), trial=settings), folder / "trained")
    mulligan.evaluate("minesweeper", str(folder / "trained"), tasks=8, params=params, run=folder / "evaluated")
    run = RunFolder.open(folder / "evaluated")
    run.write_trials("hostile", [with_payloads(each) for _, each in sorted(run.trials("main").items())])
    return folder


@pytest.fixture(scope="module")
def address(root: Path):
    with serving(root) as url:
        yield url


def test_from_a_turn_to_the_chances_of_its_moves(open_tab, address, root):
    trials = RunFolder.open(root / "evaluated").trials("main")
    place, attempt = first_later_attempt(trials)
    at = {"run": "evaluated", "arm": "main", "place": place, "turn": 1}
    tab = open_tab()
    tab.goto(f"{address}#/trial?{urlencode({**at, 'episode': 1})}")
    expect(tab.locator(".stage h2")).to_contain_text("Attempt 1")
    expect(tab.get_by_role("link", name="What the note changed here")).to_have_count(0)
    tab.goto(f"{address}#/trial?{urlencode({**at, 'episode': attempt})}")
    tab.get_by_role("link", name="What the note changed here").click()
    chance = math.exp(sum(trials[place].episodes[attempt - 1].turns[0].reply.logprobs))
    expect(tab.locator(".lead")).to_contain_text(f"{100 * chance:.0f} % with what it remembered")
    expect(tab.locator(".noted .board")).to_have_count(3)
    expect(tab.locator("tr.main td").first).to_have_text(re.compile(rf"^\s*{100 * chance:.1f} %$"))
    expect(tab.locator(".noted .board .chosen")).to_have_count(3)
    assert not barriers(tab)


def test_it_is_in_pages_without_a_server_too(open_tab, address, root, tmp_path):
    export_site(Library(root, patience=60.0), tmp_path / "site", 100)
    write_report([root / "evaluated"], tmp_path / "report.html", 24)
    site = f"file://{tmp_path / 'site' / 'index.html'}#/run?run=evaluated"
    for start in (site, f"file://{tmp_path / 'report.html'}"):
        tab, live = open_tab(), open_tab()
        tab.goto(start)
        tab.get_by_role("link", name=re.compile(r"^Task \d+, attempt \d, turn \d$")).first.click()
        expect(tab.locator("h1")).to_have_text("What the note changed")
        live.goto(f"{address}#{tab.url.partition('#')[2]}")
        expect(live.locator("tr.main td, tbody tr td")).not_to_have_count(0)
        expect(tab.locator(".lead")).to_have_text(live.locator(".lead").inner_text())
        expect(tab.locator(".noted .board")).to_have_count(3)
        tab.get_by_role("link", name="To the trial").click()
        tab.get_by_role("link", name="What the note changed here").click()
        expect(tab.locator("h1")).to_have_text("What the note changed")
    assert not barriers(tab)  # of the report: axe-core would fetch a site's style sheet, which its policy forbids
    tab.goto(f"{site.partition('#')[0]}#/trial?run=evaluated&arm=hostile&place=0&episode=2&turn=1")
    expect(tab.locator(".stage h2")).to_contain_text("Attempt")
    expect(tab.get_by_role("link", name="What the note changed here")).to_have_count(0)


def test_tokens_are_shaded_by_probability_and_by_advantage(open_tab, address, root):
    reply = RunFolder.open(root / "trained").trials("update-00002")[0].episodes[0].turns[0].reply
    tab = open_tab()
    tab.goto(f"{address}#/trial?run=trained&arm=update-00002&place=0")
    tab.get_by_label("Shade tokens by").select_option("probability")
    expect(tab.locator(".stage .token")).to_have_count(len(reply.ids))
    expect(tab.locator(".stage .token").first).to_have_attribute("title", f"{100 * math.exp(reply.logprobs[0]):.1f} %")
    tab.get_by_label("Shade tokens by").select_option("advantage")
    expect(tab.locator(".stage .wrote small")).to_have_text(re.compile(r"advantage [+−]\d"))
    tab.keyboard.press("Tab")
    assert not barriers(tab)


def test_it_is_read_on_a_phone_and_memories_are_text(open_tab, address, root):
    place, attempt = first_later_attempt(RunFolder.open(root / "evaluated").trials("main"))
    at = {"run": "evaluated", "arm": "hostile", "place": place, "episode": attempt, "turn": 1}
    tab = open_tab(viewport={"width": 390, "height": 844}, color_scheme="dark")
    tab.goto(f"{address}#/noted?{urlencode(at)}")
    expect(tab.locator(".memory pre").first).to_contain_text("<script>")
    *found, _ = tab.evaluate(LOOK)
    assert list(filter(None, found)) == []
    assert across(tab) <= 390
    assert not barriers(tab)
