"""The shop in a real browser, without JavaScript: an episode fails, a reflection is written, the next one profits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mulligan.envs import registry
from shirts import NOTE, item, shop_of

pytestmark = pytest.mark.slow

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    driving = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; 'make test-slow' does it")
    if CHROMIUM is None:
        pytest.skip("there is no chromium here; 'make test-slow' installs it where apt-get can")
    # Chromium refuses its sandbox to root, which is who runs tests in a container.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with driving.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


class Shop:
    """The command as a person starts it, in a shop of twelve shirts."""

    def __init__(self, folder: str, cache: str, *words: str) -> None:
        params = [f"--env.catalogue={folder}", "--env.goal=0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mulligan", "play", "webshop", "--web", "--no-browser", *params, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MULLIGAN_CACHE": cache},
        )
        self.address = re.search(r"http://\S+/", self.process.stdout.readline())[0]
        self.goal = registry.make("webshop", 0, catalogue=folder, goal=0).goal


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))
    where = shop_of(tmp_path, [item(number) for number in range(1, 13)], {"B03": NOTE})
    opened = Shop(where, str(tmp_path / "cache"))
    yield opened
    opened.process.kill()
    opened.process.communicate()


@pytest.fixture
def tab(browser, shop):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1200, "height": 800})
    opened = context.new_page()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    opened.goto(shop.address)
    yield opened
    context.close()
    outside = [url for url in asked if not url.startswith((shop.address, "data:"))]
    assert not outside, "the page loads nothing from elsewhere"


def test_shop_fail_reflect_and_win(tab, shop):
    from playwright.sync_api import expect

    def press(*names: str) -> None:
        for name in names:
            tab.get_by_role("button", name=name, exact=True).first.click()
            expect(tab.locator("#sent")).to_have_text(f"click[{name}]")

    def search(words: str) -> None:
        tab.get_by_label("search the shop").fill(words)
        tab.get_by_label("search the shop").press("Enter")
        expect(tab.locator("#sent")).to_have_text(f"search[{words}]")

    colour, size = shop.goal.options.values()
    other = "blue" if colour == "red" else "red"
    expect(tab.locator(".wanted")).to_contain_text(shop.goal.instruction)
    expect(tab.locator("#left")).to_have_text("12 turns left")
    search("cotton shirt")
    expect(tab.locator(".product")).to_have_count(10)
    press("next >")
    expect(tab.locator(".product")).to_have_count(2)
    press("< prev")
    expect(tab.locator("#agent")).to_contain_text("Results for 'cotton shirt', page 1 of 2, 12 found")
    tab.get_by_role("button", name="b03").click()
    press(other, size)
    expect(tab.locator("[aria-pressed=true]")).to_have_text([other, size])
    press("features")
    expect(tab.locator(".shop")).to_contain_text("Easy care")
    press("< prev", "buy now")
    # Both attributes, one option of two, the price: 4 of 5.
    expect(tab.locator("#reward")).to_have_text("0.8")

    tab.get_by_label("Your reflection.").fill(f"plan: the same shirt, but {colour}")
    tab.get_by_role("button", name="Remember this").click()
    expect(tab.locator(".memory")).to_contain_text(f"plan: the same shirt, but {colour}")
    expect(tab.locator("#agent")).to_contain_text(f"plan: the same shirt, but {colour}")
    expect(tab.locator("header")).to_contain_text("Episode 2 of 3")
    search("cotton shirt")
    tab.get_by_role("button", name="b03").click()
    press(colour, size)
    tab.get_by_role("button", name="buy now").click()
    expect(tab.locator("h1")).to_have_text("You won.")
    tab.get_by_role("button", name="Finish").click()
    expect(tab.locator("h1")).to_have_text("Good bye.")
    out, _ = shop.process.communicate(timeout=30)
    assert shop.process.returncode == 0
    assert re.findall(r"Episode (\d): (\w+) after (\d+) turns, reward ([\d.]+)", out) == [
        ("1", "lost", "9", "0.8"),
        ("2", "won", "5", "1"),
    ]


def test_a_second_tab_and_the_back_button_cannot_act_twice(tab, shop):
    from playwright.sync_api import expect

    tab.get_by_label("search the shop").fill("cotton")
    tab.get_by_role("button", name="search", exact=True).click()
    tab.get_by_role("button", name="b04").click()
    expect(tab.get_by_role("button", name="buy now")).to_be_visible()
    second = tab.context.new_page()
    second.goto(shop.address)
    tab.get_by_role("button", name="buy now").click()
    expect(tab.locator("#reward")).to_have_text("0.4")
    second.get_by_role("button", name="buy now").click()
    expect(second.locator("#reward")).to_have_text("0.4")
    tab.go_back()
    expect(tab.locator("#reward")).to_have_text("0.4")
    tab.get_by_role("button", name="Remember this").click()
    expect(tab.locator("#left")).to_have_text("12 turns left")
    tab.reload()
    expect(tab.locator("#left")).to_have_text("12 turns left")
