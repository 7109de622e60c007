"""A run of 1,000 updates and 100,000 trials in the viewer: how long it takes to open it, and to page through it.

The run is made up: trials of the scripted expert on MineSweeper, written as training writes them, with other seeds.
Every answer is what the browser asks the server for, without the network.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mulligan.api import run_trial_sync
from mulligan.app.bench import Cell, Report, seconds
from mulligan.envs.registry import task_of
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.files import compressed
from mulligan.report.run import RunFolder, trial_to_dict
from mulligan.view.library import Library

UPDATES, TRIALS = 1_000, 100
_PLAYED = 50
"""Trials that are played; the others differ from them in their seeds."""
_RUN = "big"


def run() -> Report:
    with tempfile.TemporaryDirectory() as place, _cache_in(Path(place) / "cache"):
        root = Path(place) / "runs"
        size = make_run(root / _RUN, UPDATES, TRIALS)
        rows: list[dict[str, Cell]] = [{"what": "packed size of the trials, MB", "value": size / 1e6}]
        first = Library(root)
        rows.append(_row("first opening, without an index", lambda: first.answer("run", {"run": _RUN})))
        last_arm = f"update-{UPDATES:05d}"
        rows.append(_row("first trials of the last update", lambda: _trials(first, arm=last_arm)))
        indexing = Library(root, patience=float("inf"))
        rows.append(
            {"what": "building the index, once, in the background, s", "value": seconds(lambda: indexing.index(_RUN))}
        )
        library = Library(root)
        rows += [
            _row("the list of runs", lambda: library.answer("runs", {})),
            _row("the run's page", lambda: library.answer("run", {"run": _RUN})),
            _row("its curves", lambda: library.answer("curves", {"run": _RUN})),
            _row("the first 50 of all trials", lambda: _trials(library)),
            _row("50 trials from 90,000 on", lambda: _trials(library, offset="90000")),
            _row("lost ones, longest first", lambda: _trials(library, result="lost", sort="-turns")),
            _row("one trial of 100,000", lambda: _trial(library, last_arm)),
        ]
    return Report(f"mulligan view: {UPDATES:,} updates, {UPDATES * TRIALS:,} trials", rows)


def _row(what: str, work: Callable[[], Any]) -> dict[str, Cell]:
    return {"what": f"{what}, ms", "value": 1e3 * seconds(work)}


def _trials(library: Library, **params: str) -> Any:
    return library.answer("trials", {"run": _RUN, **params})


def _trial(library: Library, arm: str) -> Any:
    return library.answer("trial", {"run": _RUN, "arm": arm, "place": str(TRIALS - 1)})


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Keep the index out of the user's cache."""
    before = os.environ.get("MULLIGAN_CACHE")
    os.environ["MULLIGAN_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("MULLIGAN_CACHE")
        if before is not None:
            os.environ["MULLIGAN_CACHE"] = before


def make_run(folder: Path, updates: int, trials: int) -> int:
    """A made-up training run that keeps all its trials; returns the bytes of their files."""
    config = {
        "kind": "train",
        "run": {"updates": updates, "seed": 0},
        "task": {"env": "minesweeper"},
        "trial": {"episodes": 3},
        "model": {"name": "made up"},
        "algo": {"estimator": "none"},
    }
    RunFolder.create(folder, config)
    tasks = [task_of("minesweeper", seed, {}) for seed in range(_PLAYED)]
    policy = ExpertPolicy(0.5, 0.5)
    played = [trial_to_dict(run_trial_sync(task, policy, episodes=3, memory="history")) for task in tasks]
    size = 0
    for update in range(1, updates + 1):
        content = compressed(_lines(played, update, trials))
        (folder / "trials" / f"update-{update:05d}.jsonl.gz").write_bytes(content)
        size += len(content)
    lines = [json.dumps(_metrics(update, updates)) for update in range(1, updates + 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return size


def _lines(played: list[dict[str, Any]], update: int, count: int) -> Iterator[str]:
    for place in range(count):
        trial = played[(update + place) % len(played)]
        task = {**trial["task"], "seed": place}
        yield json.dumps({"place": place, **trial, "task": task}, separators=(",", ":"))


def _metrics(update: int, updates: int) -> dict[str, float]:
    share = update / updates
    return {
        "update": update,
        **{f"validation/p@{k}": share / (4 - k) for k in (1, 2, 3)},
        **{f"reward/{k}": share / 2 for k in (1, 2, 3)},
        "loss/entropy": 2 - share,
        "loss/kl_old": 0.01,
        "time/rollout": 1.0,
        "time/update": 2.0,
    }
