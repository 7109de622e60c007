"""What models, worlds and folders say is text on all pages: whatever it holds, nothing of it runs in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_pages import ELSEWHERE, PAYLOADS
from tests.view.conftest import WAY, serving

from mulligan.errors import Fault, StopReason
from mulligan.report.run import RunFolder
from mulligan.types import Completion, Episode, Reflection, Task, ToolCall, Trial, Turn
from mulligan.view.export import export_site, write_report
from mulligan.view.library import Library

expect = pytest.importorskip("playwright.sync_api", reason=f"playwright is not installed; {WAY}").expect
ALL = "\n".join(PAYLOADS).replace("\x00", "")
LOOK = """() => [window.ran ? 'it ran' : '', ...[...document.querySelectorAll('*')].filter((element) =>
    element.matches('img, iframe, object, embed, video, base, form[action], main script, main style, nav script')
    || element.matches('main a:not([href^="#"])')
    || [...element.attributes].some(({name, value}) => name.startsWith('on') || /^\\s*javascript:/i.test(value))
    ).map((element) => element.outerHTML.slice(0, 200)), document.querySelectorAll('script').length]"""
"""What ran, elements that no page has and no text may become, and the number of scripts."""


def hostile_trial(seed: int) -> Trial:
    call = ToolCall("1", ALL, ALL)
    reply = Completion(f"<action>{ALL[:200]}</action>{ALL}", "length", reasoning=ALL, refusal=ALL, tool_calls=(call,))
    turn = Turn(ALL, reply, 1.0, False, ALL, feedback=ALL, fault=Fault.UNKNOWN_TOOL)
    note = Reflection(ALL, False, completion=Completion(ALL, reasoning=ALL))
    opening = ({"role": "system", "content": ALL}, {"role": "user", "content": ALL})
    one = Episode(0, (turn, turn), ALL, StopReason.LOST, opening, reflection=note, error=ALL)
    two = Episode(1, (turn,), ALL, StopReason.ENV_RAISED, opening, error=ALL, by_stand_in=True)
    params = (("opponent", ALL), ("view", ALL), (ALL, ALL))
    return Trial(Task(["bandit", ALL][seed % 2], seed, 3, f"{seed} {ALL}", params), (one, two), "both")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with payloads in all its texts, and one for each payload in its name."""
    folder = tmp_path_factory.mktemp("hostile") / "runs"
    for number, payload in enumerate(PAYLOADS):
        name = f"{payload.replace('/', chr(0x2215)).replace(chr(0), '')[:80]} {number}"
        RunFolder.create(folder / name, {"kind": "eval", "policy": payload, "env": payload, payload: payload})
    train = {"updates": 2, "seed": 0}
    config = {"task": {"env": ALL}, "trial": {"episodes": 2}, "model": {"name": ALL}, "algo": {"estimator": ALL}}
    run = RunFolder.create(folder / "run", {"kind": "train", "run": train, **config, ALL: ALL})
    arm = PAYLOADS[1].replace("/", "\u2215")
    for each in (arm, "validation-00000", "validation-00001"):
        run.write_trials(each, [hostile_trial(0), hostile_trial(1)])
    line = {"update": 1, "warning": ALL, "validation/p@1": 0.5, "p@1": 0.5, ALL: 1.0}
    run.write_text("metrics.jsonl", f"{json.dumps(line)}\n{json.dumps({**line, 'update': 2})}\n")
    rows = [{"env": ALL, "name": f"{ALL} {seed}", "seed": seed, "p": [0.5, 0.6]} for seed in (0, 1)]
    (folder / "sweep").mkdir()
    (folder / "sweep" / "table.json").write_text(json.dumps(rows))
    return folder


def pages(arm: str) -> list[str]:
    from urllib.parse import urlencode

    trial = {"run": "run", "arm": arm, "place": 1}
    pair = {"run": "run", "arm": "validation-00000", "run2": "run", "arm2": "validation-00001"}
    return [
        "#/",
        "#/run?run=run",
        "#/run?run=sweep",
        f"#/run?{urlencode({'run': PAYLOADS[1].replace('/', chr(0x2215)) + ' 1'})}",
        "#/curves?runs=run",
        f"#/play?{urlencode(trial)}",
        f"#/trials?{urlencode({'run': 'run', 'arm': arm})}",
        f"#/trial?{urlencode(trial)}",
        f"#/trial?{urlencode({**trial, 'arm': 'validation-00001', 'episode': 1, 'turn': 'end'})}",
        f"#/pair?{urlencode(pair)}",
        f"#/both?{urlencode({**pair, 'place': 0, 'place2': 1})}",
        f"#/{PAYLOADS[1]}",
        f"#/run?{urlencode({'run': PAYLOADS[0]})}",
    ]


@pytest.mark.parametrize("kind", ["server", "site", "report"])
def test_nothing_that_is_shown_runs(kind: str, browser: Any, root: Path, tmp_path: Path) -> None:
    if kind == "site":
        export_site(Library(root, patience=60.0), tmp_path / "site", 4)
        look_at_all(browser, (tmp_path / "site" / "index.html").as_uri(), scripts=None)
    elif kind == "report":
        write_report([root / "run", root / "sweep"], tmp_path / "report.html", 4)
        look_at_all(browser, (tmp_path / "report.html").as_uri(), scripts=2)
    else:
        with serving(root) as address:
            look_at_all(browser, address, scripts=17)


def look_at_all(browser: Any, address: str, scripts: int | None) -> None:
    """Open every page and every fold of it; `scripts` is how many of them a page has."""
    context = browser.new_context()
    context.add_init_script("window.alert = () => { window.ran = true }")
    tab = context.new_page()
    urls: list[str] = []
    tab.on("request", lambda asked: urls.append(asked.url))
    tab.on("dialog", lambda dialog: (urls.append("a dialog"), dialog.dismiss()))
    arm = PAYLOADS[1].replace("/", "\u2215")
    shown = 0
    for page in pages(arm):
        tab.goto("about:blank")
        tab.goto(address + page)
        expect(tab.locator("main h1")).to_be_visible()
        tab.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true })")
        *found, count = tab.evaluate(LOOK)
        assert list(filter(None, found)) == [], page
        assert scripts in (count, None), page
        text = tab.locator("main").inner_text()
        shown += "<script>" in text
    assert shown >= 6, "payloads stand on most pages as text"
    assert not [url for url in urls if url.startswith(ELSEWHERE) or url == "a dialog"]
    context.close()
