"""The demonstration's report in a real browser: what somebody sees who has read nothing."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from tests.view.conftest import WAY, across, barriers, serving

from mulligan.app.cli import main
from mulligan.view.export import write_report

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect

ROWS = {"warm start": [0.2, 0.25, 0.3], "RL": [0.38, 0.5, 0.604], "meta-RL": [0.393, 0.66, 0.768]}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A demonstration whose figures are made up, with trials of two scripted players."""
    folder = tmp_path_factory.mktemp("demonstration") / "demo"
    for name, policy in (("01-rl", "expert:0.3:0"), ("02-meta", "expert")):
        words = ["eval", "minesweeper", "--policy", policy, "--tasks", "12", "--memory", "history", "--json"]
        with pytest.raises(SystemExit):
            main([*words, "--env.mines", "4", "--run", str(folder / name / "evaluation")])
    rows = [{"method": name, "p": p, "ci": [[each - 0.05, each + 0.05] for each in p]} for name, p in ROWS.items()]
    gap = {"points": 16.4, "ci": [11.5, 21.3]}
    runs = ["01-rl/evaluation", "02-meta/evaluation"]
    act = {
        "title": "MineSweeper", "tasks": 512, "episodes": 3, "rows": rows, "gap": gap,
        "pairs": [{"place": 2, "runs": runs, "text": "board 3: RL does not solve it, meta-RL solves it at attempt 2"}],
    }  # fmt: skip
    curve = [{"update": 0, "p": [0.2, 0.3, 0.4]}, {"update": 80, "p": [0.4, 0.6, 0.7]}]
    boards = {**act, "ceiling": 0.94, "curves": {"RL": curve, "meta-RL": curve}, "about": ["A note."], "command": "it"}
    doors = {**act, "reads_first": {"RL": 0.002, "meta-RL": 0.994}, "sentence": "The sentence.", "about": "About."}
    (folder / "demo.json").write_text(json.dumps({**boards, "minutes": 7.2, "signpost": doors}))
    write_report([folder], folder / "report.html", 24)
    return (folder / "report.html").as_uri()


def test_the_title_is_the_finding_and_a_task_can_be_watched(open_tab, report):
    tab = open_tab()
    tab.goto(report)
    title = (
        "Trained across attempts (meta-RL), an agent solves 76.8 % of new boards within 3 attempts; trained on single"
    )
    expect(tab.locator("h1")).to_contain_text(title)
    expect(tab.locator("main")).to_contain_text("+16.4 points (95 % interval +11.5 to +21.3) on the same boards")
    expect(tab.locator("main")).to_contain_text("meta-RL reads the sign first in 99.4 % of the tasks; RL, 0.2 %")
    expect(tab.locator("figure.chart-card")).to_have_count(4)  # both acts, and two over training
    firsts = tab.locator("article.first")
    expect(firsts).to_have_count(2)  # the second act has no trials here
    expect(firsts.locator("h4")).to_have_text(["RL", "meta-RL"])
    expect(firsts.first).to_contain_text("It played (")
    expect(firsts.first.locator(".drawn.board")).to_have_count(1)
    tab.get_by_role("link", name="board 3").first.click()
    expect(tab.locator("h1")).to_have_text("One task, two agents")
    expect(tab.locator(".side")).to_have_count(2)
    for _ in range(3):
        tab.get_by_role("button", name="next turn").click()
    expect(tab.locator(".side").first).to_contain_text("It wrote")


def test_the_first_page_tells_it_in_words_and_charts(open_tab, report):
    """Above the list of runs, with ways to what can be watched."""
    folder = Path(url2pathname(urlparse(report).path)).parent
    with serving(folder.parent) as url:
        tab = open_tab(viewport={"width": 390, "height": 844})
        tab.goto(url)
        story = tab.locator(".story")
        expect(story.locator("h1")).to_contain_text("76.8 % of new boards within 3 attempts")
        acts = story.locator(".act")
        expect(acts).to_have_count(2)
        expect(acts.first).to_contain_text("plays MineSweeper")
        expect(acts.first.locator(".chart-card .legend li")).to_have_text(["RL60.4 %", "meta-RL76.8 %"])
        expect(acts.last.locator(".chart-card")).to_have_count(1)
        expect(tab.locator(".runs tbody tr")).to_have_count(1)  # the evaluations stand under it
        assert across(tab) <= 390
        assert barriers(tab) == []
        story.get_by_role("link", name="Watch two agents at one task").first.click()
        expect(tab.locator(".side")).to_have_count(2)


def test_it_can_be_read_by_everybody(open_tab, report):
    tab = open_tab(viewport={"width": 390, "height": 844})
    tab.goto(report)
    expect(tab.locator("h1")).to_contain_text("meta-RL")
    assert across(tab) <= 390
    assert barriers(tab) == []
