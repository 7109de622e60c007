"""The pages of `mulligan view` in a real browser: what a reader does; from a server, from disk, as a report."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.view.conftest import WAY, across, barriers, played, serving

from mulligan.app.cli import main
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder
from mulligan.view.export import export_site, write_report
from mulligan.view.library import Library

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect
GAMES = ("sokoban", "tictactoe", "leduc", "rps", "expedition", "alfworld")


def training_run(folder: Path, seed: int, estimator: str = "rloo") -> None:
    """The folder of a training run, with what its pages read."""
    config = {
        "kind": "train",
        "run": {"updates": 20, "seed": seed},
        "task": {"env": "minesweeper"},
        "trial": {"episodes": 3},
        "model": {"name": "nano"},
        "algo": {"estimator": estimator},
    }
    run = RunFolder.create(folder, config)
    lines = []
    for update, skill in ((0, 0.0), (10, 0.5), (20, 1.0)):
        run.write_trials(f"validation-{update:05d}", played(4, ExpertPolicy(skill, skill)))
        shares = {f"validation/p@{k}": min(1.0, (k + seed) * (update + 5) / 100) for k in (1, 2, 3)}
        lines.append({"update": update, **shares, "loss/entropy": 2 - update / 20, "time/rollout": 1.0})
    run.write_text("metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "runs"
    for name, policy in (("strong", "expert"), ("weak", "expert:0.3:0")):
        words = ["eval", "minesweeper", "--policy", policy, "--tasks", "60", "--memory", "reflection", "--json"]
        with pytest.raises(SystemExit):
            main([*words, "--env.mines", "4", "--env.view", "compact", "--run", str(folder / name)])
    for seed in (0, 1):
        training_run(folder / f"train{seed}", seed)
    for env in GAMES:
        run = RunFolder.create(folder / env, {"kind": "eval", "policy": "expert", "env": env, "tasks": 1})
        run.write_trials("main", played(1, ExpertPolicy(0.7), env))
    return folder


@pytest.fixture(scope="module")
def address(root: Path):
    with serving(root) as url:
        yield url


def lost_then_won(root: Path, name: str) -> int:
    """The place of a trial that was lost at first and solved later."""
    trials = RunFolder.open(root / name).trials("main")
    return next(place for place, trial in sorted(trials.items()) if trial.solved_at)


def test_from_the_list_to_two_agents_on_one_task(open_tab, address):
    tab = open_tab()
    tab.goto(address)
    expect(tab.locator(".runs tbody tr")).to_have_count(10)
    tab.get_by_label("Filter").fill("minesweeper evaluation strong")
    expect(tab.locator(".runs tbody tr")).to_have_count(0)
    tab.get_by_label("Filter").fill("minesweeper strong")
    expect(tab.locator(".runs tbody tr")).to_have_count(1)
    tab.get_by_label("Filter").fill("")
    tab.get_by_role("button", name="run", exact=True).click()
    expect(tab.locator(".runs tbody th").first).to_have_text("alfworld")
    tab.get_by_label("Choose strong").check()
    tab.get_by_label("Choose weak").check()
    tab.get_by_role("link", name="Figures and differences").click()
    expect(tab.locator("main")).to_contain_text(re.compile(r"is \d+\.\d points (above|below)"))
    tab.get_by_role("link", name="Their trials on the same tasks").click()
    expect(tab.locator(".lead")).to_contain_text("60 tasks were played by both")
    tab.get_by_label("Show").select_option("first")
    expect(tab.locator("tbody tr").first.locator(".attempts").last).to_have_text("✗✗✗")
    tab.locator("tbody a").first.click()
    expect(tab.locator(".side")).to_have_count(2)
    expect(tab.locator(".side").first).to_contain_text(re.compile("Solved at"))
    expect(tab.locator(".side").last).to_contain_text("Not solved in 3 attempts")
    tab.keyboard.press("ArrowDown")
    expect(tab.locator(".side").last.locator("h3").first).to_contain_text("Attempt 2, turn 1")


def test_runs_are_tagged_and_found_by_their_tags(open_tab, address, root):
    tab = open_tab()
    tab.goto(f"{address}#/run?run=weak")
    tab.get_by_label("Tags").fill("baseline, <b>old</b>")
    tab.get_by_role("button", name="Save", exact=True).click()
    expect(tab.get_by_role("status").last).to_have_text("saved")
    tab.goto(address)
    tab.get_by_label("Choose strong").check()
    tab.get_by_label("Tag", exact=True).first.fill("good")
    tab.get_by_role("button", name="Add").click()
    expect(tab.locator("tr", has_text="strong").locator(".tag")).to_have_text("good")
    tab.locator(".filters").get_by_label("Tag").select_option("<b>old</b>")
    expect(tab.locator(".runs tbody th")).to_have_text(["weak"])
    tab.locator(".filters").get_by_label("Tag").select_option("")
    tab.get_by_role("button", name=re.compile("^tags")).click()
    tab.get_by_role("button", name=re.compile("^tags")).click()
    expect(tab.locator(".runs tbody th").first).to_have_text("strong")
    assert not barriers(tab)
    (root / "tags.json").unlink()


def test_the_runs_of_a_sweep_stand_under_it_by_the_names_of_its_arms(open_tab, tmp_path):
    for number, arm in enumerate(("RL", "meta-RL, gamma_traj 0")):
        folder = tmp_path / "runs" / "study" / f"{number:02}-arm"
        training_run(folder, 0, ("rloo", "grpo")[number])
        (folder / "order.json").write_text(json.dumps({"name": arm}))
        run = RunFolder.create(folder / "evaluation", {"kind": "eval", "policy": str(folder), "env": "minesweeper"})
        run.write_trials("main", played(1, ExpertPolicy()))
    (tmp_path / "runs" / "study" / "table.json").write_text("[]")
    with serving(tmp_path / "runs") as url:
        tab = open_tab()
        tab.goto(url)
        rows = tab.locator(".runs tbody th a")
        expect(rows).to_have_text(["study"])
        button = tab.get_by_role("button", name="4 runs inside study", exact=True)
        expect(button).to_have_text("4 runs inside")
        button.focus()
        button.press("Enter")
        expect(rows).to_have_text(["study", "meta-RL, gamma_traj 0, seed 0", "RL, seed 0"])
        expect(button).to_be_focused()
        expect(tab.locator(".runs tbody tr").last).to_contain_text("study/00-arm")
        assert not barriers(tab)
        for name in ("00", "01"):
            tab.get_by_label(f"Choose study/{name}-arm", exact=True).check()
        tab.get_by_role("link", name="Curves").click()
        first = tab.locator("figure").first
        expect(first.locator(".legend li").first).to_contain_text("RL, seed 0: p@1")
        styles = {each.get_attribute("class") for each in first.locator(".legend path").all()}
        assert styles == {"line c2", "line c4"}  # both are meta-RL, of which one alone has its colour
        tab.go_back()
        tab.get_by_role("button", name="None", exact=True).click()
        tab.get_by_label("Filter").fill("RL evaluation")
        expect(rows).to_have_text(["meta-RL, gamma_traj 0, seed 0: evaluation", "RL, seed 0: evaluation"])
        expect(tab.locator(".runs tbody tr").last).to_contain_text("of 00-arm")
        assert str(tmp_path) not in tab.locator("main").inner_text()
        for name in ("00", "01"):
            tab.get_by_label(f"Choose study/{name}-arm/evaluation").check()
        tab.get_by_role("link", name="Trials side by side").click()
        expect(tab.locator("h1")).to_have_text(
            "RL, seed 0: evaluation beside meta-RL, gamma_traj 0, seed 0: evaluation"
        )


def test_trials_are_filtered_and_paged_with_the_keyboard_too(open_tab, address, root):
    solved = [trial.solved_at for trial in RunFolder.open(root / "weak").trials("main").values()]
    tab = open_tab()
    tab.goto(f"{address}#/trials?run=weak&arm=main")
    expect(tab.locator(".paging")).to_contain_text("1–50 of 60")
    tab.keyboard.press("ArrowRight")
    expect(tab.locator(".paging")).to_contain_text("51–60 of 60")
    tab.get_by_label("Result").select_option("2")
    expect(tab.locator(".trials tbody tr")).to_have_count(solved.count(1))
    tab.get_by_label("Result").select_option("lost")
    expect(tab.locator(".paging")).to_contain_text(f"of {solved.count(None)}")
    tab.get_by_role("button", name="turns").click()
    expect(tab.locator("th[aria-sort=ascending]")).to_have_text("turns")
    tab.get_by_role("button", name="turns").click()
    expect(tab.locator("th[aria-sort=descending]")).to_have_text("turns")


def test_every_task_is_seen_at_a_glance_and_opened_from_there(open_tab, address, root):
    trials = RunFolder.open(root / "weak").trials("main")
    solved = [trial.solved_at for _, trial in sorted(trials.items())]
    tab = open_tab()
    tab.goto(f"{address}#/run?run=weak")
    cells = tab.locator(".glance .tasks .task")
    expect(cells).to_have_text(["✗" if at is None else str(at + 1) for at in solved])
    never = tab.locator(".glance .legend li", has_text="not solved")
    expect(never.locator("b")).to_have_text(str(solved.count(None)))
    never.get_by_role("link").click()
    expect(tab.locator(".paging")).to_contain_text(f"of {solved.count(None)}")
    tab.go_back()
    cells.nth(7).click()
    expect(tab.locator("main")).to_contain_text("Task 8 ·")


def test_a_link_leads_to_the_very_turn_and_keys_move_from_it(open_tab, address, root):
    place = lost_then_won(root, "strong")
    trial = RunFolder.open(root / "strong").trials("main")[place]
    tab = open_tab()
    tab.goto(f"{address}#/trial?run=strong&arm=main&place={place}&episode=2&turn=1")
    expect(tab.locator(".stage h2")).to_have_text(re.compile("^Attempt 2, turn 1 of"))
    first = trial.episodes[1].turns[0]
    action = first.reply.text.replace("<action>", "").replace("</action>", "")
    expect(tab.locator(".stage .does")).to_contain_text(action)
    expect(tab.locator(".stage .chosen")).to_have_attribute("title", action)
    expect(tab.locator(".stage .memory")).to_contain_text(trial.episodes[0].reflection.text.splitlines()[0])
    expect(tab.locator(".column")).to_have_count(len(trial.episodes))
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator(".stage h2")).to_have_text("Attempt 1, the end")
    expect(tab.locator(".stage .note")).to_contain_text(trial.episodes[0].reflection.text)
    assert "episode=1&turn=end" in tab.url
    tab.reload()
    expect(tab.locator(".stage h2")).to_have_text("Attempt 1, the end")
    tab.keyboard.press("n")
    expect(tab.locator("main")).to_contain_text(f"Task {place + 2}")


def test_the_slider_follows_one_task_over_training(open_tab, address, root):
    tab = open_tab()
    tab.goto(f"{address}#/run?run=train0")
    tab.get_by_role("link", name="Follow one task over training").click()
    expect(tab.locator(".over")).to_contain_text("before the first update")
    expect(tab.locator(".point")).to_have_count(3)
    slider = tab.get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    expect(tab.locator(".over")).to_contain_text("after update 10")
    slider.press("ArrowRight")  # the slider keeps the focus
    expect(tab.locator(".over")).to_contain_text("after update 20")
    place = int(re.search(r"place=(\d+)", tab.url)[1])
    trials = [RunFolder.open(root / "train0").trials(f"validation-{update:05}")[place] for update in (0, 20)]
    assert [trial.solved_at is not None for trial in trials] == [False, True]  # one that training changed
    expect(tab.locator(".column")).to_have_count(len(trials[1].episodes))


def test_curves_of_seeds_are_one_line_with_a_band_and_files(open_tab, address):
    tab = open_tab()
    tab.goto(f"{address}#/curves?runs=train0%0Atrain1")
    figure = tab.locator("figure").first
    expect(figure.locator(".band")).to_have_count(3)
    expect(figure.locator(".legend")).to_contain_text("meta-RL, 2 seeds: p@3")
    with tab.expect_download() as saved:
        figure.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(io.StringIO(Path(saved.value.path()).read_text())))
    # p@1 after 10 updates: 1 * 15 / 100 and 2 * 15 / 100, of which 0.225 is the mean
    assert (rows[2][0], float(rows[2][1])) == ("10", pytest.approx(0.225))
    with tab.expect_download() as saved:
        figure.get_by_role("button", name="PNG").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    with tab.expect_download() as saved:
        figure.get_by_role("button", name="SVG").click()
    assert 'stroke="rgb' in Path(saved.value.path()).read_text()


def test_what_changes_while_a_page_is_read_is_shown_a_little_later(open_tab, tmp_path):
    """The list had been read, and not yet been looked at again, when a run was begun."""
    RunFolder.create(tmp_path / "one", {"kind": "eval", "policy": "p", "env": "bandit", "tasks": 1})
    with serving(tmp_path) as url:
        tab = open_tab()
        asked = []

        def delayed(route):
            asked.append(route.request.url)
            if len(asked) == 2:
                RunFolder.create(tmp_path / "two", {"kind": "eval", "policy": "p", "env": "bandit", "tasks": 1})
            route.continue_()

        tab.route(re.compile("/api/runs"), delayed)
        tab.goto(url)
        expect(tab.locator(".runs tbody tr")).to_have_count(2)
        assert len(asked) >= 2


def test_a_page_follows_a_run_that_goes_on(open_tab, tmp_path):
    with pytest.raises(SystemExit):
        main(["eval", "bandit", "--policy", "random", "--tasks", "3", "--json", "--run", str(tmp_path / "live")])
    run = RunFolder.open(tmp_path / "live")
    trials = run.trials("main")
    with serving(tmp_path) as url, run.held():
        tab = open_tab()
        tab.goto(f"{url}#/trials?run=live&arm=main")
        expect(tab.locator(".trials tbody tr")).to_have_count(3)
        expect(tab.locator("#live")).to_have_text("live")
        writer = run.writer("main")
        writer.write(3, trials[0])
        writer.flush()
        expect(tab.locator(".trials tbody tr")).to_have_count(4)
        tab.goto(url)
        expect(tab.locator(".runs .pulse")).to_be_visible()
    with serving(tmp_path) as url:
        tab.goto(url)
        expect(tab.locator(".runs tbody tr")).to_have_count(1)
        RunFolder.create(tmp_path / "new", {"kind": "eval", "policy": "p", "env": "bandit", "tasks": 1})
        expect(tab.locator(".runs tbody tr")).to_have_count(2)


@pytest.mark.parametrize("env", GAMES)
def test_every_game_can_be_read(open_tab, address, env):
    tab = open_tab()
    tab.goto(f"{address}#/trial?run={env}&arm=main&place=0")
    expect(tab.locator(".stage .words")).to_contain_text("It wrote")
    tab.locator(".moment.end").first.click()
    expect(tab.locator(".stage .words")).to_contain_text("The attempt ended")
    expect(tab.locator(".stage .drawn")).to_have_count(1)


@pytest.fixture(scope="module")
def still(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages without a server."""
    folder = tmp_path_factory.mktemp("still")
    export_site(Library(root), folder / "site", trials=60)
    write_report([root / "weak", root / "strong"], folder / "report.html", trials=60)
    return {"site": (folder / "site" / "index.html").as_uri(), "report": (folder / "report.html").as_uri()}


@pytest.mark.parametrize("kind", ["site", "report"])
def test_pages_without_a_server_say_the_same(open_tab, still, address, root, kind):
    place = lost_then_won(root, "strong")
    pages = [
        "#/",
        "#/run?run=strong",
        "#/trials?run=weak&arm=main&result=lost&sort=-turns",
        "#/pair?run=weak&run2=strong&only=second",
        f"#/trial?run=strong&arm=main&place={place}&episode=1&turn=end",
        "#/compare?runs=weak%0Astrong",
    ]
    here, there = open_tab(), open_tab()
    for page in pages:
        for tab, base in ((here, address), (there, still[kind])):
            tab.goto("about:blank")
            tab.goto(base + page)
            expect(tab.locator("h1")).to_be_visible()
            expect(tab.locator("main")).not_to_contain_text("cannot be shown")
        if page != "#/" and "run?" not in page:
            assert text(here) == text(there), page
    there.goto("about:blank")
    there.goto(still[kind])
    expect(there.locator("main")).to_contain_text("points above" if kind == "report" else "10 runs")


def text(tab: Any) -> str:
    """What the page says, but for what only a server can do."""
    tab.evaluate("() => document.querySelectorAll('.live-only').forEach((each) => each.remove())")
    return tab.locator("main").inner_text()


PAGES = {
    "runs": "#/",
    "evaluation": "#/run?run=strong",
    "training": "#/run?run=train0",
    "trials": "#/trials?run=weak&arm=main",
    "trial": "#/trial?run=strong&arm=main&place=0",
    "slider": "#/trial?run=train0&arm=validation-00010&place=0&episode=1&turn=end",
    "both": "#/both?run=weak&arm=main&place=1&run2=strong&arm2=main&place2=1",
    "compare": "#/compare?runs=weak%0Astrong",
    "cards": "#/trial?run=leduc&arm=main&place=0",
}


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier_for_readers(open_tab, address, scheme, width):
    """By axe-core, on every kind of page."""
    tab = open_tab(color_scheme=scheme, viewport={"width": width, "height": 844})
    found = []
    for name, page in PAGES.items():
        tab.goto("about:blank")
        tab.goto(address + page)
        expect(tab.locator("h1")).to_be_visible()
        assert across(tab) <= width, f"{name} needs sideways scrolling"
        found += [(name, *barrier) for barrier in barriers(tab)]
    assert not found
