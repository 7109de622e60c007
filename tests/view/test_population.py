"""The page of a population in a real browser: ratings, games, scores, lineage; names in its logs are text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.hostile.test_pages import PAYLOADS
from tests.view.conftest import WAY, across, barriers, serving
from tests.view.test_safety import ALL, LOOK

from mulligan.report.run import RunFolder
from mulligan.view.export import export_site
from mulligan.view.library import Library

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect
CONFIG = {
    "run": {"updates": 40, "seed": 0},
    "task": {"env": "kuhn"},
    "trial": {"episodes": 3},
    "model": {"name": "nano"},
    "algo": {"estimator": "rloo"},
    "population": {"agents": 2},
}


def lines(rows: list[dict]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def population(folder: Path, word: str, opponent: str) -> None:
    """A population of two, with the files of docs/population.md; `word` stands where text can stand."""
    run = RunFolder.create(folder, {"kind": "population", **CONFIG})
    for number in (0, 1):
        RunFolder.create(folder / f"agent-{number}", {"kind": "train", **CONFIG})
    begun = [{"update": 0, "agent": n, "event": "begun", "settings": {"optim.lr": 0.1, word: word}} for n in (0, 1)]
    scored = [
        {"update": 20 * k, "agent": n, "event": "scored", "value": k / 4 + n, "error": 0.1, "episodes": [0.1]}
        for k in (1, 2)
        for n in (0, 1)
    ]
    copied = [{"update": 20, "agent": 0, "event": "copied", "from": 1, "settings": {"optim.lr": 0.2, word: word}}]
    failed = [{"update": 40, "agent": 1, "event": "replaced", "from": 0, "why": word, "settings": {}}]
    run.write_text("lineage.jsonl", lines([*begun, *scored, *copied, *failed]))
    games = [
        {"update": 1, "agent": 0, "opponent": opponent, "games": 10, "score": 1.0},  # too long ago
        {"update": 39, "agent": 0, "opponent": "agent/1", "games": 30, "score": 0.6},
        {"update": 40, "agent": 0, "opponent": "agent/1", "games": 10, "score": 1.0},
        {"update": 40, "agent": 1, "opponent": opponent, "games": 8, "score": 0.25},
    ]
    run.write_text("matches.jsonl", lines(games))
    rated = {"agent/1": (1600.0, 20.0), "agent/0": (1500.0, 30.0), opponent: (1400.0, 40.0)}
    ratings = {
        name: {"value": value, "deviation": spread, "volatility": 0.06} for name, (value, spread) in rated.items()
    }
    run.write_text("ratings.json", json.dumps({"update": 40, "ratings": ratings}))
    run.write_text("population.json", json.dumps({"agents": 2, "best": 1, "update": 40, "standings": [0.2, 0.5]}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("population") / "runs"
    population(folder / "two", "cautious", "conservative")
    population(folder / "hostile", ALL, PAYLOADS[1])
    return folder


@pytest.fixture(scope="module")
def address(root: Path):
    with serving(root) as url:
        yield url


@pytest.mark.parametrize("kind", ["server", "site"])
def test_who_is_strong_who_wins_and_who_came_of_whom(open_tab, address, root, tmp_path, kind):
    if kind == "site":
        export_site(Library(root, patience=60.0), tmp_path / "site", 4)
    tab = open_tab()
    tab.goto((tmp_path / "site" / "index.html").as_uri() if kind == "site" else address)
    expect(tab.locator(".runs tbody tr", has=tab.get_by_role("link", name="two", exact=True))).to_contain_text(
        "best: agent 1"
    )
    tab.get_by_role("link", name="two", exact=True).click()
    rating = tab.get_by_role("region", name="Ratings").locator("tbody tr")
    expect(rating).to_have_count(3)
    expect(rating.first).to_contain_text(["agent 1"][0])
    expect(rating.first).to_contain_text("1600 ±40")
    # Agent 0 against agent 1: (30 · .6 + 10 · 1) / 40 = 70 %, and 30 % seen from the other side.
    matrix = tab.locator(".matrix")
    expect(matrix.locator("thead th")).to_have_text(["", "conservative", "agent/0", "agent/1"])
    expect(matrix.locator("tbody tr").nth(0).locator("td")).to_have_text(["–", "–", "70 percent of 40 games"])
    expect(matrix.locator("tbody tr").nth(1).locator("td")).to_have_text(
        ["25 percent of 8 games", "30 percent of 40 games", "–"]
    )
    expect(tab.locator("main")).to_contain_text("Score on held-out tasks")
    tab.get_by_text("2 copies, in words").click()
    expect(tab.locator("main")).to_contain_text("After update 20, agent 0 became a copy of agent 1.")
    tab.get_by_role("link", name="agent 1", exact=True).first.click()
    expect(tab.locator("h1")).to_contain_text("agent-1")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_it_is_read_by_everybody_and_names_are_text(open_tab, address, scheme, width):
    tab = open_tab(color_scheme=scheme, viewport={"width": width, "height": 844})
    for name in ("two", "hostile"):
        tab.goto("about:blank")
        tab.goto(f"{address}#/run?run={name}")
        expect(tab.locator(".matrix")).to_be_visible()
        tab.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true })")
        *found, _ = tab.evaluate(LOOK)
        assert list(filter(None, found)) == []
        assert ("<script>" in tab.locator("main").inner_text()) == (name == "hostile")
        assert across(tab) <= width
        assert not barriers(tab), name
