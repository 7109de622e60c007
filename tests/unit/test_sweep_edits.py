"""An edited sweep file: what was run with other settings is refused by arm and setting; new arms are welcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mulligan.app.cli import main
from mulligan.app.sweep import schedule
from mulligan.app.sweep.arms import Arm, Sweep, Work, plan_work, read_result, refuse_edits
from mulligan.report.run import RunFolder
from mulligan.training.resolve import resolve, to_tree

FILE = """
preset = "test"
seeds = [0, 1]
tasks = 8
[settings]
"task.env" = "bandit"
"warmstart.steps" = 0
[also."one"]
episodes = 1
[arms."RL"]
"trial.episodes" = 1
[arms."meta"]
"algo.gamma_traj" = 0.9
also = ["one"]
[arms."more"]
"run.group" = 6
"""


def _begin(work: Work) -> None:
    """As a worker that was interrupted leaves its folder."""
    RunFolder.create(work.folder, {"kind": "train", **to_tree(resolve(work.preset, None, work.settings))})
    (work.folder / "order.json").write_text(json.dumps(work.order))


def _finish(work: Work, failed: int = 0) -> None:
    """As a worker leaves its folder."""
    outcomes = {"outcomes": [[1]] * 8, "worlds": [*range(8)], "tasks_digest": "x", "effective": [8]}
    figures = {"p": [0.5], "ci": [[0.1, 0.9]], "trials": 8, "valid": 1.0, "failed": failed, "failure": "broken world"}
    part = {"kind": "solve", "main": {**figures, **outcomes}, "controls": {}, "by_class": {}}
    result = {"name": work.name, "seed": work.seed, "settings": dict(work.settings), "preset": work.preset}
    result |= {"evaluation": work.evaluation, "updates": 1, "curve": [], "seconds": 1.0, "memory": "none"}
    also = {"also": dict.fromkeys(work.evaluation.get("also", ()), part)}
    _begin(work)
    (work.folder / "arm.json").write_text(json.dumps({**result, "seed_set": "validation", **part, **also}))


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Runs `mulligan sweep` on a file's text without any training."""
    monkeypatch.chdir(tmp_path)

    def run_work(work, cores, on_progress, seconds):
        for each in work:
            if read_result(each.folder) is None:
                _finish(each, failed=int(each.name == "more"))
        return {each.folder: read_result(each.folder) for each in work}

    monkeypatch.setattr(schedule, "run_work", run_work)

    def call(text: str, *words: str) -> int:
        Path("sweep.toml").write_text(text)
        with pytest.raises(SystemExit) as stopped:
            main(["sweep", "sweep.toml", "--run", "out", *words])
        return int(stopped.value.code or 0)

    return call


def _rows() -> set[tuple[str, int]]:
    return {(row["name"], row["seed"]) for row in json.loads(Path("out/table.json").read_text())}


def test_the_table_has_what_earlier_commands_made_too(sweep, capsys):
    assert sweep(FILE, "--seeds", "0", "--only", "RL") == 0
    assert _rows() == {("RL", 0)}
    assert sweep(FILE, "--seeds", "1", "--only", "meta") == 0
    assert _rows() == {("RL", 0), ("meta", 1)}
    assert "meta" in Path("out/table.md").read_text()
    assert capsys.readouterr().err == ""


def test_trials_that_failed_outside_the_agent_are_reported(sweep, capsys):
    assert sweep(FILE, "--seeds", "0") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "03-more-seed0" in line
    assert "broken world" in line


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("0.9", "0.1", ["'meta'", "algo.gamma_traj was 0.9, is 0.1"]),
        ('also = ["one"]', "", ["'meta'", "also was"]),
        ("tasks = 8", "tasks = 9", ["tasks was 8, is 9"]),
        ('preset = "test"', 'preset = "cpu"', ["preset was test, is cpu"]),
    ],
)
def test_an_edited_arm_is_refused_by_name_and_setting(sweep, capsys, before, after, names):
    assert sweep(FILE, "--seeds", "0") == 0
    capsys.readouterr()
    assert sweep(FILE.replace(before, after), "--seeds", "1") == 2
    message = capsys.readouterr().err
    assert all(name in message for name in names)
    assert not Path("out/02-meta-seed1").exists()


def test_an_arm_at_the_end_of_the_file_is_added(sweep):
    assert sweep(FILE, "--seeds", "0") == 0
    assert sweep(FILE + '[arms."last"]\n"algo.gamma_traj" = 0.3\n', "--seeds", "0") == 0
    assert ("last", 0) in _rows()


def test_a_sweep_made_in_python_finds_its_own_results_again(tmp_path):
    """Lists there may be tuples; a file gives lists back."""
    further = {"long": {"episodes": 4, "controls": ("independent",)}}
    arm = Arm("a", {"task.env": "bandit", "warmstart.steps": "0"}, also=("long",))
    (work,) = plan_work(Sweep([arm], preset="test", tasks=8, controls=("removed",), also=further), tmp_path)
    _finish(work)
    refuse_edits([work])
