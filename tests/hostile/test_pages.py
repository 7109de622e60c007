"""Scripts in what models, worlds and people write, in a real browser; and requests that are meant to hold a server."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.conftest import Row
from tests.unit.webshop.test_web import Visit

import mulligan
from mulligan import notebook
from mulligan.app.web import server
from mulligan.app.web.server import Table, serving
from mulligan.envs import registry
from mulligan.envs.bandit import Bandit
from mulligan.policy.base import FunctionPolicy
from mulligan.report.run import RunFolder, to_json
from mulligan.view.export import write_report
from shirts import NOTE, item, shop_of

RUN = "alert('ran')"
ELSEWHERE = "http://elsewhere.example/"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f'"><script>{RUN}</script>',
    f"'><img src=x onerror={RUN}>",
    f"</pre><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f'" autofocus onfocus="{RUN}',
    f"' autofocus onfocus='{RUN}",
    f'" onmouseover="{RUN}" style="position:fixed;inset:0',
    f'<iframe src="javascript:{RUN}">',
    f'<iframe srcdoc="&lt;script&gt;{RUN}&lt;/script&gt;">',
    f'<a href="javascript:{RUN}" autofocus onfocus={RUN}>here</a>',
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video>",
    f'<object data="data:text/html,<script>{RUN}</script>">',
    f"<math><mtext></form><form><mglyph><style></math><img src=x onerror={RUN}>",
    f"<embed src={ELSEWHERE}>",
    f"<img src={ELSEWHERE}>",
    f"<link rel=stylesheet href={ELSEWHERE}>",
    f'<meta http-equiv=refresh content="0;url={ELSEWHERE}">',
    f"<base href={ELSEWHERE}>",
    f"<form action={ELSEWHERE}><button autofocus>",
    f"<style>*{{background:url({ELSEWHERE})}}</style>",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;script&#62;{RUN}&#60;/script&#62;",
    f"<scr\x00ipt>{RUN}</scr\x00ipt>",
    f"+ADw-script+AD4-{RUN}+ADw-/script+AD4-",
    "<%= 1 %>{{constructor.constructor('alert(1)')()}}${alert(1)}",
]
TAGS = "script, img, iframe, object, embed, video, math, base, meta[http-equiv], body style"
LOOK = f"""() => [window.ran ? ['it ran'] : [], document.documentElement.textContent,
    [...document.querySelectorAll('*')].filter(element => element.matches('{TAGS}')
        || [...element.attributes].some(({{name, value}}) => name.startsWith('on') || /^ *javascript:/i.test(value))
    ).map(element => element.outerHTML)]"""
"""What ran, what is written, and elements that no page of ours has and that no text may become."""


OF_A_REPORT = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';',
    '<script type="application/json" id="answers">{',
    '<script>"use strict";\n/* Elements from tags',
)
"""How the elements begin that every report has; no payload begins so."""


class Tab:
    """A browser's tab with JavaScript, in which whatever runs and whatever is asked for is noted."""

    def __init__(self, browser: Any) -> None:
        self.context = browser.new_context()
        self.context.add_init_script("window.alert = () => { window.ran = true }")
        self.page = self.context.new_page()
        self.urls: list[str] = []
        self.context.on("request", lambda request: self.urls.append(request.url))
        self.page.on("dialog", lambda dialog: (self.urls.append("a dialog"), dialog.dismiss()))

    def judge(self, row: Row, url: str, payload: str) -> None:
        """Open `url`, a page on which `payload`, or its beginning, should stand as text."""
        self.urls.clear()
        self.page.goto(url)
        ran, text, elements = self.page.evaluate(LOOK)
        elements = [each for each in elements if not each.startswith(OF_A_REPORT)]
        wrong = ran + elements + [asked for asked in self.urls if not asked.startswith((url, "data:"))]
        if wrong:
            row.let_in(f"{payload}: {wrong}")
        elif payload[:30].replace("\x00", "\ufffd") in text.replace(
            "\x00", "\ufffd"
        ):  # titles and options of the shop are cut
            row.unharmed()
        else:
            row.lost(f"{payload} is not on the page {url}")


@pytest.fixture
def tab() -> Iterator[Tab]:
    driving = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; make test-hostile does it"
    )
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no chromium here; make test-hostile installs it where apt-get can")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # chromium refuses it to root
    with driving.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        opened = Tab(browser)
        yield opened
        opened.context.close()
        browser.close()


class Marked(Bandit):
    """A game whose every word is `payload`."""

    def __init__(self, payload: str) -> None:
        super().__init__(replace(registry.task_of("bandit", 1, {"turns": 2}), task_class=payload))
        self.payload = payload

    def rules(self) -> str:
        return self.payload

    def reset(self, chance: int = 0) -> str:
        return self.payload

    def step(self, reply: str) -> mulligan.Step:
        return super().step(reply)._replace(observation=self.payload, feedback=self.payload)

    def legal(self) -> list[str]:
        return [self.payload]


def test_scripts_on_the_pages_of_a_game(row, tab: Tab) -> None:
    one = row("Terminal and pages", "scripts on the pages of a game, in a browser")
    for payload in PAYLOADS:
        with Visit(Marked(payload), episodes=2) as visit:
            for _ in range(6):  # two turns, the reflection, two turns, the end
                page = visit.look()
                tab.judge(one, f"http://{visit.address}/", payload)
                if visit.trial is None:
                    visit.send(page, say=payload)


def test_scripts_on_the_pages_of_the_shop(row, tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = row("Terminal and pages", "scripts on the pages of the shop, in a browser")
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))
    for number, payload in enumerate(PAYLOADS):
        options = {payload[:50]: [{"value": "first"}, {"value": payload[:60]}]}
        shirt = item(
            1, name=f"Shirt {payload}", full_description=payload, small_description=[payload],
            customization_options=options, query=payload, product_category=payload,
        )  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        catalogue = shop_of(folder, [shirt], {"B01": {**NOTE, "instruction": f"Find me {payload}"}})
        with Visit(registry.make("webshop", 0, catalogue=catalogue, goal=0), episodes=1) as visit:
            tab.judge(one, f"http://{visit.address}/", payload)
            visit.search(visit.look(), "shirt")
            tab.judge(one, f"http://{visit.address}/", payload)
            for click in (["b01"], ["description"], ["< prev", "features"]):
                visit.click(*click)
                tab.judge(one, f"http://{visit.address}/", payload)


def test_scripts_in_reports(row, tab: Tab, tmp_path: Path) -> None:
    one = row("Terminal and pages", "scripts in reports, in a browser")
    task = mulligan.make_task("bandit", 1)
    for number, payload in enumerate(PAYLOADS):
        with ThreadPoolExecutor() as threads:  # the browser's event loop runs in this one
            playing = threads.submit(
                mulligan.run_trial_sync, task, FunctionPolicy(lambda _, text=payload: text), episodes=2
            )
        folder = tmp_path / f"demo{number}"
        run = RunFolder.create(folder / "rl" / "evaluation", {"kind": "eval", "policy": payload, "env": payload})
        run.write_trials("main", [playing.result()])
        (folder / "demo.json").write_text(to_json(demonstration(payload)), encoding="utf-8")
        write_report([folder], tmp_path / "report.html", 4)
        (tmp_path / "notebook.html").write_text(
            "<!DOCTYPE html>" + notebook.to_html(payload, [{payload: payload}]).replace("\x00", "\ufffd")
        )
        for name in ("report", "notebook"):
            tab.judge(one, (tmp_path / f"{name}.html").as_uri(), payload)


def demonstration(payload: str) -> dict[str, Any]:
    """What a demonstration writes, with a payload wherever text may stand."""
    ends = (("RL", 0.4), ("meta-RL", 0.5), (payload, 0.3))
    rows = [{"method": method, "p": [0.3, end], "ci": [[0.2, 0.4], [end - 0.1, end + 0.1]]} for method, end in ends]
    gap = {"points": 10.0, "ci": [5.0, 15.0]}
    pairs = [{"place": 0, "runs": ["rl/evaluation", payload], "text": payload}]
    act = {"title": payload, "tasks": 512, "episodes": 2, "rows": rows, "gap": gap, "pairs": pairs}
    doors = {**act, "reads_first": {payload: 0.1, "meta-RL": 0.9}, "sentence": payload, "about": payload}
    curve = [{"update": 0, "p": [0.2, 0.3]}, {"update": 8, "p": [0.3, 0.4]}]
    boards = {**act, "ceiling": 0.9, "curves": {payload: curve}, "about": [payload], "command": payload, "minutes": 4.7}
    return {**boards, "signpost": doors}


# --- The server


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A page that asks for something, and hangs up on a request after three seconds."""
    monkeypatch.setattr(server, "LONGEST_REQUEST", 3.0)
    table = Table()
    table.finish(lambda name: f"The present page is {name}.")
    with serving(table) as url:
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        yield host, int(port)


def answer_to(address: tuple[str, int], *pieces: bytes, pause: float = 0.0) -> bytes:
    """What the server answers to a request that comes in pieces, until it hangs up."""
    with socket.create_connection(address, timeout=30) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received
        except OSError:
            return b""


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


def test_requests_that_trickle_in(row, address: tuple[str, int]) -> None:
    one = row("Terminal and pages", "requests that never end")
    modes: dict[str, list[bytes]] = {
        "nothing": [],
        "half a line": [b"GET /"],
        "a trickled line": [b"GET /"] + [b"a"] * 100,
        "trickled headers": [GET] + [b"X-A: b\r\n"] * 90,
        "a trickled body": [POST + b"Content-Length: 1000\r\n\r\n"] + [b"a"] * 100,
        "a body that stops": [POST + b"Content-Length: 1000\r\n\r\nsay=half"],
        "a body that is said to be large": [POST + b"Content-Length: 999999999\r\n\r\n"],
        "headers without number": [GET + b"X-A: b\r\n" * 10_000 + b"\r\n"],
        "a header without end": [GET + b"X-A: " + b"b" * 10_000_000],
        "a line without end": [b"GET /" + b"a" * 10_000_000],
    }
    threads = threading.active_count()
    for name, pieces in modes.items():
        received = answer_to(address, *pieces, pause=0.05)
        if b" 200 " in received or b" 303 " in received:
            one.let_in(f"{name}: {received[:50]!r}")
        elif b"The present page" not in answer_to(address, GET + b"\r\n"):
            one.lost(f"{name}: the page does not answer any more")
        else:
            one.told()
    if not within_seconds(20, lambda: threading.active_count() <= threads):
        one.let_in("threads were left")


def test_connections_without_number(row, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    one = row("Terminal and pages", "connections without number")
    monkeypatch.setattr(server, "LONGEST_REQUEST", 600.0)
    threads = threading.active_count()
    connections = []
    for number in range(200):
        connections.append(socket.create_connection(address, timeout=30))
        connections[-1].sendall(b"GET / HTTP/1.1\r\n")
        if number % 50 == 49:
            if b"The present page" not in answer_to(address, GET + b"\r\n"):
                one.lost(f"{number + 1} connections: the page does not answer any more")
            elif not within_seconds(20, lambda: threading.active_count() <= threads + server.MOST_CONNECTIONS):
                one.let_in(f"{number + 1} connections: {threading.active_count() - threads} threads")
            else:
                one.unharmed()
    for connection in connections:
        connection.close()


def test_requests_of_foreign_pages(row, address: tuple[str, int]) -> None:
    one = row("Terminal and pages", "requests of foreign pages")
    hosts = [
        "shop.example",
        f"shop.example:{address[1]}",
        "127.0.0.1.shop.example",
        "",
        "[::1]",
        "0.0.0.0",
        "localhost.",
    ]
    origins = ["http://shop.example", "null", "http://127.0.0.1:1", "https://localhost", "http://localhost.example"]
    heads = [f"Host: {host}\r\n" for host in hosts] + [f"Host: localhost\r\nOrigin: {origin}\r\n" for origin in origins]
    for head in heads:
        for method in ("GET", "POST"):
            received = answer_to(address, f"{method} / HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n".encode())
            if b" 403 " in received and b"The present page" not in received:
                one.told()
            else:
                one.let_in(f"{method} {head!r}: {received[:50]!r}")


def within_seconds(seconds: float, is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
