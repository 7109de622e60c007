"""The pages without a server: as a folder of files, or as one file that holds everything.

Both hold the answers to what the pages will ask, under the question's own words. Files come as scripts, since a page
that is opened from disk may load scripts and nothing else; a report has its answers in itself as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mulligan.errors import MulliganError, UsageError
from mulligan.report.files import replace_file
from mulligan.report.run import finite
from mulligan.view.folder import MARKS, stamp
from mulligan.view.library import Library, usual_arm
from mulligan.view.noted_turns import RUNS, TRIALS, notes_of

PAGES = Path(__file__).with_name("pages")
_SCRIPT = re.compile(r'<script defer src="([a-z]+\.js)"></script>\n')
_MOST_RUNS = 200
_MOST_ARMS = 40
"""Arms of a run: of more, some at even distances."""
_WHERE = ("arm", "place", "episode", "turn")
Answers = Iterator[tuple[str, Any]]


def export_site(library: Library, folder: Path, trials: int, notes: int = TRIALS) -> int:
    """Write the pages and their data into `folder`; returns the number of runs."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "data" / "manifest.js").is_file():
        raise UsageError(f"{folder} is not empty and no earlier export; choose another folder")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for earlier in (folder / "data").glob("*.js"):
        earlier.unlink()
    manifest: dict[str, str] = {}
    for number, (key, answer) in enumerate(answers(library, trials, notes)):
        manifest[key] = f"{number}.js"
        text = f"mulligan.receive({as_script(key)},{as_script(answer)});\n"
        (folder / "data" / manifest[key]).write_text(text, encoding="utf-8")
    for page in sorted(PAGES.iterdir()):
        if page.suffix in (".js", ".css", ".svg"):
            replace_file(folder / page.name, page.read_bytes())
    (folder / "data" / "manifest.js").write_text(f"mulligan.manifest={as_script(manifest)};\n", encoding="utf-8")
    text = (PAGES / "index.html").read_text(encoding="utf-8")
    policy = _policy("script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data: blob:")
    text = text.replace('<html lang="en">', '<html lang="en" data-site>').replace("<head>\n", f"<head>\n{policy}")
    manifest_tag = '<script defer src="data/manifest.js"></script>\n'
    text = text.replace(
        '<script defer src="data.js"></script>\n', f'<script defer src="data.js"></script>\n{manifest_tag}'
    )
    replace_file(folder / "index.html", text.encode())
    return sum(key.startswith("run?") for key in manifest)


def write_report(runs: Sequence[Path], target: Path, trials: int, notes: int = TRIALS) -> int:
    """Write one file about these runs; returns its bytes."""
    for path in runs:
        if not path.is_dir() or not any(stamp(path / mark)[1] for mark in MARKS):
            raise UsageError(f"{path} is no run: none of {', '.join(MARKS)} is in it")
    root, names = _common(runs)
    library = Library(root, patience=float("inf"))
    content = one_page(dict(answers(library, trials, notes, names)), _home(names))
    replace_file(target, content)
    return len(content)


def _common(runs: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that all runs are in, and their names there."""
    paths = [path.resolve() for path in runs]
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return root, [path.relative_to(root).as_posix() for path in paths]


def _home(names: Sequence[str]) -> str:
    """Where a report begins: at the only run, or with all of them side by side."""
    return (
        f"#/run?{urlencode({'run': names[0]})}"
        if len(names) == 1
        else f"#/compare?{urlencode({'runs': _lines(names)})}"
    )


def _lines(names: Sequence[str]) -> str:
    return "\n".join(names)


def one_page(data: Mapping[str, Any], home: str) -> bytes:
    """All of the pages in one: its scripts are named by their hashes, so that no other one would run."""
    text = (PAGES / "index.html").read_text(encoding="utf-8")
    scripts = "".join(f"{(PAGES / name).read_text(encoding='utf-8')}\n" for name in _SCRIPT.findall(text))
    style = (PAGES / "style.css").read_text(encoding="utf-8")
    icon = base64.b64encode((PAGES / "icon.svg").read_bytes()).decode()
    policy = _policy(f"script-src {_hash(scripts)}; style-src {_hash(style)}; img-src data: blob:")
    text = _SCRIPT.sub("", text).replace("<head>\n", f"<head>\n{policy}")
    text = text.replace('href="icon.svg"', f'href="data:image/svg+xml;base64,{icon}"')
    text = text.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    text = text.replace('<html lang="en">', f'<html lang="en" data-home="{html.escape(home)}">')
    # In JSON "<" can stand in strings alone, where it can be escaped: nothing in it ends the element.
    block = f'<script type="application/json" id="answers">{as_script(data)}</script>\n'
    return text.replace("</body>", f"{block}<script>{scripts}</script>\n</body>").encode("utf-8", "replace")


def as_script(data: Any) -> str:
    """JSON that can stand in a script: nothing in it ends the element, or a line."""
    text = json.dumps(finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(sources: str) -> str:
    content = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">\n'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def question(name: str, **params: Any) -> str:
    """A question as the pages write it: parameters by name, those without a value left out."""
    given = sorted((key, str(value)) for key, value in params.items() if value not in (None, ""))
    encoded = urlencode(given, errors="replace")
    return f"{name}?{encoded.replace('%2A', '*').replace('~', '%7E')}"  # as browsers do


def answers(library: Library, trials: int, notes: int, names: Sequence[str] | None = None) -> Answers:
    """What the pages will ask of the runs, or of those with these names and what is inside them."""
    weighed = 0
    listed = library.answer("runs", {})
    cards = [card for card in listed["runs"] if names is None or _is_within(card["id"], names)][:_MOST_RUNS]
    yield question("runs"), {**listed, "runs": cards}
    ids = [card["id"] for card in cards]
    for card in cards:
        try:
            about = library.answer("run", {"run": card["id"]})
        except MulliganError:  # one that cannot be read stands in the list, which says so
            continue
        for related in ("inside", "evaluations", "measured"):
            about[related] = [each for each in about[related] if each["id"] in ids]
        arms = _some([arm["name"] for arm in about["trials"]["arms"]])
        about["trials"]["arms"] = [arm for arm in about["trials"]["arms"] if arm["name"] in arms]
        for arm in about["trials"]["arms"]:
            arm["trials"] = min(arm["trials"], trials)
        noted = _noted(library, card["id"], arms, trials, notes) if weighed < RUNS else []
        weighed += bool(noted)
        about["noted"] = [{key: each[key] for key in _WHERE} | {"moved": each["moved"]["none"]} for each in noted]
        about["glance"]["readable"] = trials
        if way := about["followed"]:
            kept = [arm for arm in arms if arm.startswith("validation-")]
            way |= {"arm": way["arm"] if way["arm"] in kept else kept[0], "place": way["place"] % trials}
        yield question("run", run=card["id"]), about
        for each in noted:
            yield question("noted", run=card["id"], **{key: each[key] for key in _WHERE}), each
        if card["kind"] == "population":
            yield question("population", run=card["id"]), library.answer("population", {"run": card["id"]})
        if card["kind"] in ("train", "population"):
            yield question("curves", run=card["id"]), library.answer("curves", {"run": card["id"]})
        yield from _trials(library, card["id"], arms, trials, about["noted"])
    if names is not None and len(names) > 1:
        yield question("compare", runs=_lines(names)), library.answer("compare", {"runs": _lines(names)})
    finished = [card["id"] for card in cards if card["kind"] != "train" and card["figures"]]
    for first, second in ((one, other) for one in finished[:8] for other in finished[:8] if one < other):
        for pair in ((first, second), (second, first)):
            yield question("compare", runs=_lines(pair)), library.answer("compare", {"runs": _lines(pair)})


def _noted(library: Library, run: str, arms: Sequence[str], trials: int, notes: int) -> list[dict[str, Any]]:
    """What the note changed in some trials of the run's usual arm."""
    arm = usual_arm([*arms])
    if not (arm and notes and library.knows_model(run)):
        return []
    rows = library.answer("trials", {"run": run, "arm": arm, "limit": str(trials)})["rows"]
    return [*notes_of(library, rows, run, notes)]


def _trials(library: Library, run: str, arms: Sequence[str], most: int, noted: Sequence[Mapping[str, Any]]) -> Answers:
    """The trials of each arm, the first of all its tasks, as a list and one by one."""
    everything: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    for arm in arms:
        last = library.answer("trials", {"run": run, "arm": arm, "limit": str(most)})
        last["state"]["arms"] = [each for each in last["state"]["arms"] if each["name"] in arms]
        yield question("trials", run=run, arm=arm), last
        everything += last["rows"]
        places = [row["place"] for row in last["rows"]]
        for place in places:
            try:
                trial = library.answer("trial", {"run": run, "arm": arm, "place": str(place)})
            except MulliganError:
                continue
            trial["before"], trial["after"] = (
                each if each in places else None for each in (trial["before"], trial["after"])
            )
            trial["same"] = [each for each in trial["same"] if each["arm"] in arms and each["place"] in places]
            trial["noted"] = [
                [each["episode"], each["turn"]] for each in noted if (each["arm"], each["place"]) == (arm, place)
            ]
            yield question("trial", run=run, arm=arm, place=place), trial
    if last:
        yield question("trials", run=run), {**last, "rows": everything, "total": len(everything)}


def _is_within(run: str, names: Sequence[str]) -> bool:
    return any(run == name or run.startswith(f"{name}/") or name == "." for name in names)


def _some(arms: list[str]) -> list[str]:
    """All arms, or so many at even distances, the first and the last among them."""
    if len(arms) <= _MOST_ARMS:
        return arms
    return [arms[round(number * (len(arms) - 1) / (_MOST_ARMS - 1))] for number in range(_MOST_ARMS)]
