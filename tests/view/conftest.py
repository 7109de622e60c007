"""A real browser, and the pages of a folder of runs in it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.api import run_trial_sync
from mulligan.policy.base import Policy
from mulligan.types import Trial

AXE = Path(__file__).parents[2] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WAY = "make test-view installs it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is for `make test-view`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("view")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    driving = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip(f"there is no chromium here; {WAY} where apt-get can")
    driving.expect.set_options(timeout=30_000)  # machines are slow at times
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # chromium refuses it to root
    with driving.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("MULLIGAN_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@contextmanager
def serving(root: Any, journal: Any = None, home: str = "") -> Iterator[str]:
    """The pages of a folder, with a journal beside it, or of a journal alone; gives their address."""
    import uvicorn

    from mulligan.view.library import Library
    from mulligan.view.server import application, listen

    bound = listen("127.0.0.1", 0)
    library = Library(root, patience=60.0, journal=journal) if isinstance(root, Path) else root
    config = uvicorn.Config(application(library, home=home), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    bound.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs; whatever goes wrong in one of them (an error, a refused script, a foreign request) fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        context.set_default_timeout(15_000)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
        foreign = ("http://127.0.0.1:", "file:", "data:", "blob:")
        tab.on("request", lambda asked: asked.url.startswith(foreign) or wrong.append(asked.url))
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def barriers(tab: Any) -> list[tuple[str, str, list[Any]]]:
    """What axe-core finds serious on the page that is shown; skips where axe-core is not installed."""
    if not AXE.is_file():
        pytest.skip(f"axe-core is not in {AXE.parents[3]}; {WAY} where npm is")
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    violations = tab.evaluate("() => axe.run()")["violations"]
    return [
        (each["id"], each["impact"], [node["target"] for node in each["nodes"]][:3])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]


def across(tab: Any) -> int:
    """How wide the page is, in pixels."""
    return int(tab.evaluate("() => document.documentElement.scrollWidth"))


def played(count: int, policy: Policy, env: str = "minesweeper") -> list[Trial]:
    params = {"rows": 4, "cols": 5, "mines": 4, "view": "compact"} if env == "minesweeper" else {}
    tasks = [mulligan.make_task(env, seed, params=params) for seed in range(count)]
    return [run_trial_sync(task, policy, episodes=3, memory="reflection") for task in tasks]
