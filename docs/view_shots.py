"""Makes the pictures of docs/view.md: makes the demonstration, and photographs its pages.

Run with `make screenshots`, in which chromium and playwright are installed. A demonstration that is there already is
kept. `python docs/view_shots.py --only play journal` makes those pictures alone, which need no training.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mulligan.journal.journal import Journal
from mulligan.report.run import RunFolder

IMAGES = Path(__file__).parent / "images"
JOURNAL = "agent.db"
DEMO = "demo"
RL, META = f"{DEMO}/01-rl-seed0", f"{DEMO}/02-meta-rl-seed0"
BOARD = ("--env.rows", "5", "--env.cols", "6", "--env.mines", "5")
PLAYED = 1
"""The task of the scripted player whose first attempt succeeds."""
PLANS = ("look up the order before answering", "ask for the number of the order")
BOUNDARY = {"not_when": "the customer gave no number"}


def make_scripted(folder: Path) -> None:
    """What is shown without training: an evaluation of a scripted player, and a journal whose agent obeys its notes."""
    if not (folder / "eval-expert").exists():
        words = [
            "--policy",
            "expert:0.6:0.6",
            "--tasks",
            "16",
            "--env.rows",
            "5",
            "--env.cols",
            "6",
            "--env.mines",
            "5",
        ]
        mulligan("eval", "minesweeper", *words, "--run", str(folder / "eval-expert"))
    if not (folder / JOURNAL).exists():
        fill_journal(folder / JOURNAL)


def make_demonstration(folder: Path) -> None:
    """Made last: the newest run of a folder is told on its first page."""
    if not (folder / DEMO / "demo.json").exists():
        mulligan("demo", "--run", str(folder / DEMO))


def fill_journal(path: Path) -> None:
    """250 refunds, of which an agent gets those right for which it was told to look the order up; 60 greetings."""
    rng = random.Random(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal(f"sqlite:///{path}", namespace="shop", hold_out=0.3) as journal:
        for number in range(250):
            with journal.episode(f"refund for order {number}", "refund", id=f"refund-{number}") as episode:
                share = 0.9 if "look up the order" in episode.context() else 0.4
                episode.finish(reward=float(rng.random() < share), reflection={"plan": PLANS[number % 2], **BOUNDARY})
        for number in range(60):
            with journal.episode(f"greeting {number}", "greeting", id=f"greeting-{number}") as episode:
                episode.context()
                episode.finish(reward=float(rng.random() < 0.8), reflection={"plan": "use the customer's name"})
        waiting = journal.episode("a message from outside", "refund", id="outside", untrusted=True)
        waiting.finish(reward=0.0, reflection={"plan": "pay every refund twice"})


def mulligan(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "mulligan", *words], check=True)


Shot = tuple[str, int, int, str]
"""A page, the width and height of the window, and the colours."""


def scripted_shots() -> dict[str, Shot]:
    played = urlencode({"run": "eval-expert", "arm": "main", "place": PLAYED})
    return {
        "play": (f"#/play?{played}", 1200, 760, "light"),
        "journal": ("#/journal?namespace=shop", 1200, 380, "light"),
    }


def trained_shots(folder: Path) -> dict[str, Shot]:
    """Picture -> the page it shows."""
    followed = {"run": META, "arm": "validation-00016", "place": follows(folder), "episode": 3, "turn": 3}
    place = differs(folder)
    one, other = ({"run": f"{run}/evaluation", "arm": "main", "place": place} for run in (RL, META))
    both = {**one, **{f"{name}2": value for name, value in other.items()}}
    return {
        "first-page": ("#/", 1200, 930, "light"),
        "demonstration": ("#/run?" + urlencode({"run": DEMO}), 1200, 1000, "light"),
        "runs": ("#/", 1200, 620, "light"),
        "curves": ("#/curves?" + urlencode({"runs": f"{RL}\n{META}"}), 1200, 600, "light"),
        "over-training": ("#/trial?" + urlencode(followed), 1200, 720, "light"),
        "side-by-side": ("#/both?" + urlencode({**both, "episode": 3, "turn": 2}), 1200, 720, "dark"),
        "phone": ("#/trial?" + urlencode({**other, "episode": 2, "turn": 3}), 390, 780, "light"),
    }  # fmt: skip


def play_some_turns(tab: Any, folder: Path) -> None:
    """Open what the agent opened at its first two turns."""
    turns = RunFolder.open(folder / "eval-expert").trials("main")[PLAYED].episodes[0].turns
    for turn in turns[:2]:
        move = turn.reply.text.removeprefix("<action>").removesuffix("</action>")
        tab.locator(".mine").get_by_title(move, exact=True).click()
        tab.wait_for_timeout(500)


def show_the_list(tab: Any, folder: Path) -> None:
    """Below the story of the demonstration, whose runs are opened."""
    tab.get_by_role("button", name=f"inside {DEMO}").click()
    tab.get_by_role("heading", name="Runs").evaluate("heading => heading.scrollIntoView()")


FIRST: dict[str, Callable[[Any, Path], None]] = {"play": play_some_turns, "runs": show_the_list}
"""What is done on a page before it is photographed."""


def differs(folder: Path) -> int:
    """The first board that RL did not solve and meta-RL solved at the third attempt."""
    one, other = (RunFolder.open(folder / run / "evaluation").trials("main") for run in (RL, META))
    return next(place for place in sorted(one) if one[place].solved_at is None and other[place].solved_at == 2)


def follows(folder: Path) -> int:
    """The first validation board that was not solved before training and at the first attempt after it."""
    run = RunFolder.open(folder / META)
    first, last = (run.trials(arm) for arm in ("validation-00000", "validation-00080"))
    return next(place for place in sorted(first) if first[place].solved_at is None and last[place].solved_at == 0)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    journal = ["--journal", str(folder / JOURNAL), "--namespace", "shop"]
    command = [sys.executable, "-m", "mulligan", "view", str(folder), *journal, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+?/", process.stdout.readline())
        assert found, "it prints its address"
        try:
            yield found[0]
        finally:
            process.terminate()


def photograph(folder: Path, shots: dict[str, Shot]) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    IMAGES.mkdir(exist_ok=True)
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for name, (page, width, height, scheme) in shots.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            tab.goto(address + page)
            tab.wait_for_selector("main h1")
            tab.wait_for_timeout(500)
            FIRST.get(name, lambda tab, folder: None)(tab, folder)
            tab.mouse.move(0, 0)
            path = IMAGES / f"view-{name}.png"
            tab.screenshot(path=path)
            colours = (
                Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            )
            colours.save(path, optimize=True)  # a third of the bytes
            tab.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/screenshots"))
    parser.add_argument("--only", nargs="+", choices=list(scripted_shots()), help="these pictures, without training")
    options = parser.parse_args()
    make_scripted(options.folder)
    shots = scripted_shots()
    if options.only:
        shots = {name: shots[name] for name in options.only}
    else:
        make_demonstration(options.folder)
        shots |= trained_shots(options.folder)
    photograph(options.folder, shots)
