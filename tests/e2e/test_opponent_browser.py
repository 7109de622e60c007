"""Who the opponent may be, on the page of `play --web` in a real browser: the belief moves with what was seen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WORDS = ("rps", "--opponent", "rising,copies", "--env.throws", "3", "--episodes", "1", "--web", "--no-browser")


@pytest.fixture
def tab():
    driving = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; 'make test-slow' does it")
    if CHROMIUM is None:
        pytest.skip("there is no chromium here; 'make test-slow' installs it where apt-get can")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [sys.executable, "-m", "mulligan", "play", *WORDS]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        driving.sync_playwright() as playwright,
    ):
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
            opened = browser.new_context(java_script_enabled=False).new_page()
            opened.goto(re.search(r"http://\S+/", process.stdout.readline())[0])
            yield opened
            browser.close()
        finally:
            process.kill()


def test_the_belief_settles_on_who_it_was(tab):
    from playwright.sync_api import expect

    rows = tab.locator("#beliefs tr")
    expect(rows).to_have_count(2)
    for row in rows.all():
        expect(row).to_contain_text("50%")
        expect(row.locator("meter")).to_have_attribute("value", "0.5000")
    for number in range(3):  # always rock: against one that copies, rock comes back; a rising one goes on
        tab.get_by_role("button", name="rock", exact=True).first.click()
        expect(tab.locator("body")).to_contain_text("The match is over" if number == 2 else f"Throw {number + 2} of 3")
    who = re.search(r"The opponent was (\w+)", tab.locator("#opponent").inner_text())[1]
    likeliest = rows.first
    expect(likeliest.locator("th")).to_have_text(who)
    expect(likeliest).to_contain_text(re.compile("(9[0-9]|100)%"))
    assert likeliest.bounding_box()["width"] > 0
