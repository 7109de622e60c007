"""The table, texts and pictures of docs/exploration.md: what a row says, what agrees with theory, what is committed."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.envs.registry import task_of
from mulligan.report.run import RunFolder

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "exploration"
TABLES = sorted(FOLDER.glob("table.json"))


@pytest.fixture(scope="module")
def tables() -> Any:
    return loaded("tables")


@pytest.fixture(scope="module")
def collect() -> Any:
    return loaded("collect")


def loaded(name: str) -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def played(world: str, first: int, later: int, view: str = "plain") -> mulligan.Trial:
    """A trial whose first reply is the `first` of the actions, and whose others are the `later` one."""
    task = task_of("expedition", 5, {"world": world, "view": view})
    replies = mulligan.make(task).legal()
    given: list[str] = []

    def policy(messages: Any) -> str:
        given.append(replies[later if given else first])
        return given[-1]

    return mulligan.run_trial_sync(task, policy, memory="history")


@pytest.mark.parametrize("view", ["plain", "compact"])
@pytest.mark.parametrize(
    ("world", "first", "later", "finds_out"),
    [  # the places come first among the actions, then the sign or the tower, then the sure thing
        ("signpost", -1, 0, True), ("signpost", 0, -1, False),
        ("lookout", -1, 0, True), ("lookout", 0, 1, False),
        ("toolbox", 0, -1, True), ("toolbox", -1, 0, False),
        ("camp", -2, -1, True), ("camp", -1, -1, False), ("camp", 0, -1, False),
    ],
)  # fmt: skip
def test_a_first_attempt_that_finds_out_is_told_from_one_that_does_not(collect, world, first, later, finds_out, view):
    assert collect.finds_out_first(played(world, first, later, view)) is finds_out


def write_arm(folder: Path, policy: Any, name: str, gamma_traj: float = 0.6) -> None:
    """An arm as a sweep leaves it, of a policy that was not trained."""
    params = {"world": "signpost"}
    result = mulligan.evaluate(
        "expedition",
        policy,
        params=params,
        tasks=8,
        controls=(),
        room=False,
        memory="history",
        run=folder / "evaluation",
    )
    arm = {
        "name": name, "seed": 0, "updates": 1, "seconds": 60.0, "curve": [], "preset": "nano-expedition-signpost",
        "settings": {"algo.gamma_traj": str(gamma_traj)}, "evaluation": {}, "memory": "history", "seed_set": "eval",
        "main": {**asdict(result.main), "optimum": result.optimum}, "controls": {},
    }  # fmt: skip
    (folder / "arm.json").write_text(json.dumps(arm))
    algo = {"form": "paper", "estimator": "grpo"}
    RunFolder.create(folder, {"kind": "train", "task": {"env": "expedition", "params": params}, "algo": algo})


def test_a_row_says_what_was_played(collect, tmp_path):
    """Half of the first attempts read the sign; all of the second ones do, and the third ones open a door."""
    counts: dict[str, int] = {}

    def policy(messages: Any) -> str:
        doors = messages[-1]["content"].partition("Doors: ")[2].partition(".")[0].split(", ")
        attempt = counts[doors[0]] = counts.get(doors[0], 0) + 1
        number = list(counts).index(doors[0])
        reads = attempt == 2 or (attempt == 1 and number % 2)
        return "<action>read sign</action>" if reads else f"<action>open {doors[0]}</action>"

    write_arm(tmp_path / "law-signpost" / "01-a-seed0", policy, "meta-RL, gamma_traj 0.6")
    (row,) = collect.read([tmp_path])
    named = {name: row[name] for name in ("study", "world", "arm", "gamma_traj", "seed", "form", "estimator", "tasks")}
    assert named == {
        "study": "law", "world": "signpost", "arm": "meta-RL", "gamma_traj": 0.6, "seed": 0, "form": "paper",
        "estimator": "grpo", "tasks": 8,
    }  # fmt: skip
    assert row["informative"] == 0.5
    assert row["returns"][1] == 0.0
    won = sum(task[2] for task in row["outcomes"])
    assert row["returns"][2] == pytest.approx((won + 0.1 * (8 - won)) / 8)
    assert row["share_of_optimum"] == pytest.approx(sum(row["returns"]) / 2)  # the optimum is 0 + 1 + 1


def test_names_lose_what_has_a_column_of_its_own(collect):
    assert collect.arm_name("meta-RL, gamma_traj 0.3, sure 0.4") == "meta-RL"
    assert collect.arm_name("meta-RL, gamma_traj 0, sure 0.4") == "meta-RL, gamma_traj 0"
    assert collect.arm_name("8 arms, meta-RL, gamma_traj 0.6") == "meta-RL"
    assert collect.arm_name("meta-RL, from nothing") == "meta-RL, from nothing"
    assert collect.world_of("examples/i_spy.py:ISpy", {}) == "i_spy"
    assert collect.world_of("bandit", {"arms": 8}) == "bandit, 8 arms"
    assert collect.world_of("minesweeper", {"rows": 4, "price": 0.5}) == "minesweeper, price 0.5"


def test_a_later_row_replaces_the_same_arm_and_seed(collect, tmp_path):
    row = {"study": "law", "world": "toolbox", "arm": "RL", "gamma_traj": None, "seed": 0, "sure": 0.3}
    row |= {"form": "paper", "estimator": "grpo", "informative": 0.0}
    (tmp_path / "a.json").write_text(json.dumps([row, {**row, "seed": 1}]))
    (tmp_path / "b.json").write_text(json.dumps([{**row, "informative": 1.0}]))
    rows = collect.read([tmp_path / "a.json", tmp_path / "b.json"])
    assert [(each["seed"], each["informative"]) for each in rows] == [(0, 1.0), (1, 0.0)]


def test_folders_of_no_study_are_refused_by_name(collect, tmp_path):
    (tmp_path / "other" / "arm").mkdir(parents=True)
    (tmp_path / "other" / "arm" / "arm.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"must begin with one of law, .* \(got 'other'\)"):
        collect.read([tmp_path])


def test_the_border_ends_where_trying_always_or_never_pays(tables):
    """Of 4 unknown tools one pays 1: a try is worth .25 now, and .25 + .5 + .75 = 3 · .5 in three attempts."""
    assert tables.border("signpost") == pytest.approx(0.2589, abs=1e-4)
    assert tables.border("toolbox", 0.2) == -math.inf
    assert tables.border("toolbox", 0.25) == pytest.approx(0.0, abs=1e-3)
    assert tables.border("toolbox", 0.3) == pytest.approx(0.1784, abs=1e-4)
    assert tables.border("toolbox", 0.5) == pytest.approx(1.0, abs=1e-3)
    assert tables.border("toolbox", 0.6) == math.inf


def test_cells_away_from_the_border_agree_or_not(tables):
    """γ* of signpost is .259: of four runs, .3 is within .1 of it, and the one at .6 does not explore."""
    runs = [(0.0, 0.1), (0.3, 0.2), (0.6, 0.4), (1.0, 0.9)]
    rows = [{"world": "signpost", "sure": None, "gamma_traj": gamma, "informative": share} for gamma, share in runs]
    for away, counted, wrong in ((0.0, 4, [0.3, 0.6]), (0.1, 3, [0.6])):
        cells, disagreeing = tables.agreement(rows, away)
        assert len(cells) == counted
        assert [row["gamma_traj"] for row in disagreeing] == wrong


def test_a_title_claims_only_what_holds():
    pytest.importorskip("matplotlib")
    row = {"world": "signpost", "sure": None, "gamma_traj": 1.0}
    for exploring, holds in ((19, True), (18, False)):
        rows = [{**row, "informative": float(number < exploring)} for number in range(20)]
        words = f"{exploring} of 20 agents at least 0.1 from γ* do what theory says"
        assert loaded("pictures").agreement_in_words(rows) == (holds, words)


@pytest.mark.parametrize("world", ["signpost", "bandit, 4 arms"])
def test_theory_beside_the_shares(tables, world):
    shares = [tables.theory_share(world, gamma_traj) for gamma_traj in (None, 0.0, 0.6, 1.0)]
    assert (
        shares
        == {
            # alone 3 · .2125 of 2, myopic (.2125 + .325 + .4375) of 2
            "signpost": ["31.9 to 48.8", "48.8", "100.0", "100.0"],
            # retries 1 − .75³ of .75
            "bandit, 4 arms": ["77.1 to 100.0", "100.0", "100.0", "100.0"],
        }[world]
    )


@pytest.mark.parametrize("table", TABLES, ids=["table.json"] * len(TABLES))
def test_the_committed_table_is_consistent(tables, table):
    """Shares come from outcomes, table.md from the rows, and the tables of the document from table.md."""
    rows = json.loads(table.read_text())
    for row in rows:
        solved = [sum(any(task[:k]) for task in row["outcomes"]) for k in range(1, len(row["p"]) + 1)]
        assert [count / row["tasks"] for count in solved] == pytest.approx(row["p"])
        if row["optimum"] is not None:
            assert sum(row["totals"]) / row["tasks"] / row["optimum"] == pytest.approx(row["share_of_optimum"])
        assert row["seed_set"] == "eval"
    text = (FOLDER / "table.md").read_text()
    assert tables.text(rows) == text
    shown = [line for line in (ROOT / "docs" / "exploration.md").read_text().splitlines() if line.startswith("| `")]
    assert [line for line in shown if " ± " in line and line not in text.splitlines()] == []
