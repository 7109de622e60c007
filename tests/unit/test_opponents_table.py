"""The table of results/opponents: what a row says, of evaluations and of sweeps' arms."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import mulligan
from gamblers import MAGE, Gambler
from mulligan.app.sweep.worker import _summaries
from mulligan.report.run import RunFolder, to_json

FOLDER = Path(__file__).parents[2] / "results" / "opponents"
ROW = {"game", "method", "opponents", "seed", "hand", "value", "static", "optimal", "clairvoyant", "share"}


@pytest.fixture(scope="module")
def collect() -> Any:
    """Another results folder has a module of this name too."""
    others = sys.modules.pop("collect", None)
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("collect")
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("collect", None)
        if others is not None:
            sys.modules["collect"] = others


def evaluated(opponent: str = MAGE, **options: Any) -> mulligan.EvalResult:
    given = {"params": {"opponent": opponent}, "memory": "history", "controls": (), "room": False, "tasks": 32}
    return mulligan.evaluate("kuhn", Gambler(), **{**given, **options})


def write_arm(folder: Path, seed: int) -> mulligan.EvalResult:
    """An arm as a sweep leaves it, of a policy that was not trained."""
    result, unseen = evaluated(), evaluated("always-bet,always-pass")
    folder.mkdir(parents=True)
    arm = {"name": "meta-RL, history", "seed": seed, **_summaries(result), "also": {"unseen": _summaries(unseen)}}
    (folder / "arm.json").write_text(json.dumps(arm))
    RunFolder.create(folder, {"kind": "train", "task": {"env": "kuhn", "params": {"opponent": MAGE}}})
    return result


def test_rows_of_a_sweep(collect, tmp_path):
    pytest.importorskip("pyspiel")
    result = write_arm(tmp_path / "kuhn" / "01-a-seed0", seed=0)
    write_arm(tmp_path / "kuhn" / "02-a-seed1", seed=1)
    rows = collect.read([tmp_path])
    assert len(rows) == 12  # two seeds, seen and unseen, three hands
    assert {(row["game"], row["method"]) for row in rows} == {("kuhn", "meta-RL, history")}
    assert all(row.keys() >= ROW for row in rows)
    (third,) = (row for row in rows if (row["opponents"], row["seed"], row["hand"]) == ("seen", 1, 3))
    ceilings = result.ceilings
    assert third["value"] == pytest.approx(ceilings["value"][2])
    room = third["optimal"] - third["static"]
    assert third["share"] == pytest.approx((third["value"] - third["static"]) / room)
    assert third["is_exact"]
    line = [line for line in collect.text(rows).splitlines() if "unseen" in line]
    assert len(line) == 1
    assert line[0].startswith("| kuhn | unseen | meta-RL, history | 3 | ")


def test_rows_of_evaluations(collect, tmp_path):
    pytest.importorskip("pyspiel")
    for name, params in {"a": {"opponent": "always-bet", "pool": MAGE}, "b": {"opponent": MAGE}}.items():
        result = evaluated(params=params, run=tmp_path / name, seed=7)
        (tmp_path / name / "result.json").write_text(to_json(result.to_dict()))
    rows = collect.read([tmp_path])
    assert [(row["opponents"], row["method"], row["seed"], row["hand"]) for row in rows] == [
        (opponents, "gambler", 7, hand) for opponents in ("seen", "unseen") for hand in (1, 2, 3)
    ]
    # One opponent that never changes leaves nothing to find out: no room, and no share.
    assert [row["share"] for row in rows[3:]] == [None] * 3
    (tmp_path / "table.json").write_text(json.dumps([{**rows[0], "value": 5.0}]))
    later = collect.read([tmp_path / "a", tmp_path / "b", tmp_path / "table.json"])
    assert [row["value"] for row in later] == [5.0, *(row["value"] for row in rows[1:])]


def test_a_folder_without_results_is_refused(collect, tmp_path):
    with pytest.raises(SystemExit, match="holds no results"):
        collect.read([tmp_path])
