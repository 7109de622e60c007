"""Makes the pictures of docs/view.md: trains RL and meta-RL for some minutes, evaluates both, photographs the pages.

Run with `make screenshots`, in which chromium and playwright are installed. Runs that are there already are kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from mulligan.report.run import RunFolder

IMAGES = Path(__file__).parent / "images"
PRESETS = {"rl": "cpu-rl", "meta-rl": "cpu"}
TRAINING = ["--run.updates", "40", "--run.validate_every", "5", "--run.validation_tasks", "64", "--run.threads", "1"]


def make_runs(folder: Path) -> None:
    for seed in (0, 1):
        for name, preset in PRESETS.items():
            run = folder / f"{name}-seed{seed}"
            if not run.exists():
                options = ["--preset", preset, "--run", str(run), "--run.seed", str(seed), *TRAINING]
                mulligan("train", "minesweeper", *options)
    for name in PRESETS:
        run = folder / f"eval-{name}"
        if not run.exists():
            mulligan("eval", "minesweeper", "--policy", f"{folder / name}-seed0", "--tasks", "64", "--run", str(run))


def mulligan(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "mulligan", *words], check=True)


def addresses(folder: Path) -> dict[str, tuple[str, int, int, str]]:
    """Picture -> the page it shows, its width and height, and the colours."""
    followed = {"run": "meta-rl-seed0", "arm": "validation-00010", "place": follows(folder), "episode": 2, "turn": 1}
    place = differs(folder)
    trained = urlencode({"runs": "\n".join(f"{name}-seed{seed}" for name in PRESETS for seed in (0, 1))})
    both = {"run": "eval-rl", "arm": "main", "place": place, "run2": "eval-meta-rl", "arm2": "main", "place2": place}
    return {
        "runs": ("#/", 1200, 620, "light"),
        "curves": (f"#/curves?{trained}", 1200, 600, "light"),
        "over-training": ("#/trial?" + urlencode(followed), 1200, 720, "light"),
        "side-by-side": ("#/both?" + urlencode({**both, "episode": 3, "turn": 2}), 1200, 720, "dark"),
        "phone": ("#/trial?" + urlencode({"run": "eval-meta-rl", "arm": "main", "place": place}), 390, 780, "light"),
    }  # fmt: skip


def differs(folder: Path) -> int:
    """The first board that RL did not solve and meta-RL solved at the third attempt."""
    one, other = (RunFolder.open(folder / f"eval-{name}").trials("main") for name in PRESETS)
    return next(place for place in sorted(one) if one[place].solved_at is None and other[place].solved_at == 2)


def follows(folder: Path) -> int:
    """The first validation board that was not solved before training and was solved after it."""
    run = RunFolder.open(folder / "meta-rl-seed0")
    first, last = (run.trials(arm) for arm in ("validation-00000", "validation-00040"))
    return next(
        place for place in sorted(first) if first[place].solved_at is None and last[place].solved_at is not None
    )


@contextmanager
def served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "mulligan", "view", str(folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+?/", process.stdout.readline())
        assert found, "it prints its address"
        try:
            yield found[0]
        finally:
            process.terminate()


def photograph(folder: Path) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    IMAGES.mkdir(exist_ok=True)
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for name, (page, width, height, scheme) in addresses(folder).items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            tab.goto(address + page)
            tab.wait_for_selector("main h1")
            tab.wait_for_timeout(500)
            path = IMAGES / f"view-{name}.png"
            tab.screenshot(path=path)
            Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)  # a third of the bytes
            tab.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/screenshots"))
    options = parser.parse_args()
    make_runs(options.folder)
    photograph(options.folder)
