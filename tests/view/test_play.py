"""A person plays a trial's task in the browser: by clicks on the board, by arrow keys, by typing; beside the agent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.view.conftest import WAY, across, barriers, played, serving

from mulligan.envs import registry
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder
from mulligan.types import Step, Trial

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect
GAMES = ("minesweeper", "sokoban", "tictactoe", "alfworld")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("play") / "runs"
    for env in GAMES:
        run = RunFolder.create(folder / env, {"kind": "eval", "policy": "expert", "env": env, "tasks": 1})
        run.write_trials("main", played(1, ExpertPolicy(0.5, 0.5), env))
    return folder


@pytest.fixture(scope="module")
def address(root: Path):
    with serving(root) as url:
        yield url


def stored(root: Path, env: str) -> Trial:
    return RunFolder.open(root / env).trials("main")[0]


def plain(reply: str) -> str:
    return reply.replace("<action>", "").replace("</action>", "")


def replies(trial: Trial) -> dict[str, Step]:
    """What each first move leads to."""
    world = registry.build(trial.task)
    world.reset()
    steps = {}
    for reply in world.legal():
        world.reset()
        steps[plain(reply)] = world.step(reply)
    return steps


def test_a_board_is_played_by_clicks_until_a_note_helps(open_tab, address, root):
    steps = replies(stored(root, "minesweeper"))
    safe = next(move for move, step in steps.items() if not step.done)
    mine = next(move for move, step in steps.items() if step.done and not step.won)
    tab = open_tab()
    tab.goto(f"{address}#/trial?run=minesweeper&arm=main&place=0")
    tab.get_by_role("link", name="Play it yourself").click()
    you = tab.locator(".mine")
    expect(you.locator("button.cell")).to_have_count(20)
    you.get_by_title(safe, exact=True).click()
    expect(you.locator("h2")).to_have_text(re.compile("turn 2 of"))
    expect(you.locator("details pre").first).to_have_text(steps[safe].observation)
    expect(tab.locator(".side h3").first).to_contain_text("Attempt 1, turn 1")
    you.get_by_title(mine, exact=True).click()
    expect(you.locator(".does")).to_contain_text("lost")
    assert not barriers(tab)
    you.get_by_label("What will you remember?").fill(f"not {mine}")
    you.get_by_role("button", name="Next attempt").click()
    expect(you.locator("h2")).to_contain_text("attempt 2 of 3")
    expect(you.locator(".note")).to_contain_text(f"not {mine}")
    you.get_by_title(mine, exact=True).click()
    you.get_by_role("button", name="Next attempt").click()
    expect(you.locator("h2")).to_contain_text("attempt 3 of 3")
    you.get_by_title(mine, exact=True).click()
    expect(you.locator(".lead")).to_contain_text("You did not solve it in 3 attempts; the agent")
    you.get_by_role("button", name="Play it again").click()
    expect(you.locator("h2")).to_contain_text("attempt 1 of 3, turn 1")


def test_arrow_keys_move_in_sokoban(open_tab, address, root):
    steps = replies(stored(root, "sokoban"))
    tab = open_tab(viewport={"width": 390, "height": 844}, color_scheme="dark")
    tab.goto(f"{address}#/play?run=sokoban&arm=main&place=0")
    expect(tab.locator(".arrows button")).to_have_count(4)
    name = next(name for name in ("up", "down", "left", "right") if name in steps)
    tab.keyboard.press(f"Arrow{name.capitalize()}")
    expect(tab.locator(".mine h2")).to_contain_text("turn 2 of")
    expect(tab.locator(".mine details pre").first).to_have_text(steps[name].observation)
    assert across(tab) <= 390
    assert not barriers(tab)


def test_text_is_typed_and_what_is_mistyped_costs_no_turn(open_tab, address, root):
    steps = replies(stored(root, "alfworld"))
    tab = open_tab()
    tab.goto(f"{address}#/play?run=alfworld&arm=main&place=0")
    tab.get_by_label("Type a move").fill("fly away")
    tab.keyboard.press("Enter")
    expect(tab.locator(".mine .bad")).to_be_visible()
    expect(tab.locator(".mine h2")).to_contain_text("turn 1 of")
    move = next(iter(steps))
    tab.get_by_label("Type a move").fill(move)
    tab.keyboard.press("Enter")
    expect(tab.locator(".mine h2")).to_contain_text("turn 2 of")
    expect(tab.locator(".mine details pre").first).to_have_text(steps[move].observation.strip())


def test_an_opponent_answers(open_tab, address, root):
    tab = open_tab()
    tab.goto(f"{address}#/play?run=tictactoe&arm=main&place=0")
    cells = tab.locator(".mine .cell:has-text('X'), .mine .cell:has-text('O')")
    before = cells.count()
    tab.locator(".mine button.cell").first.click()
    expect(cells).to_have_count(before + 2)
    assert not barriers(tab)
