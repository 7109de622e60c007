"""What an earlier process found counts where it was made with the planned settings, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mulligan.cli import main
from mulligan.errors import UsageError
from mulligan.report.run import RunFolder
from mulligan.sweep import schedule
from mulligan.sweep.arms import Arm, Sweep, Work, plan_work
from mulligan.sweep.match import read_result
from mulligan.sweep.worker import _is_begun_with
from mulligan.train.resolve import resolve, to_tree

FILE = """
preset = "test"
seeds = [0, 1]
tasks = 8
[settings]
"warmstart.steps" = 0
[also."one"]
episodes = 1
[arms."RL"]
"trial.episodes" = 1
[arms."meta"]
"algo.gamma_traj" = 0.9
also = ["one"]
[arms."more"]
from = "meta"
"""


def _done(work: Work) -> None:
    """As a worker leaves it; p@1 says by which γ it was made."""
    gamma = float(work.settings.get("algo.gamma_traj", 0.5))
    part = {"main": {"p": [gamma], "trials": 10, "valid": 1.0}, "controls": {}, "by_class": {}}
    own = {"name": work.name, "seed": work.seed, "settings": dict(work.settings), "preset": work.preset}
    own |= {"evaluation": dict(work.evaluation), "updates": 1, "curve": [], "seconds": 1.0, "memory": "none"}
    also = {"also": dict.fromkeys(work.evaluation.get("also", ()), part)} if "also" in work.evaluation else {}
    work.folder.mkdir(parents=True, exist_ok=True)
    (work.folder / "arm.json").write_text(json.dumps({**own, **part, **also}))


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Runs `mulligan sweep` on a file's text without any training."""
    monkeypatch.chdir(tmp_path)

    def run_work(work, cores, on_progress, seconds):
        for each in work:
            if not schedule._is_done(each):
                _done(each)

    monkeypatch.setattr(schedule, "run_work", run_work)

    def call(text: str, *words: str) -> int:
        Path("sweep.toml").write_text(text)
        with pytest.raises(SystemExit) as stopped:
            main(["sweep", "sweep.toml", "--run", "out", *words])
        return int(stopped.value.code or 0)

    return call


def _rows() -> dict[str, dict[str, list[float]]]:
    return {row["method"]: row["seeds"] for row in json.loads(Path("out/sweep.json").read_text())["rows"]}


def test_the_table_has_only_what_was_made_with_its_settings(sweep, capsys):
    assert sweep(FILE, "--seeds", "0") == 0
    assert capsys.readouterr().err == ""
    assert sweep(FILE.replace("0.9", "0.1"), "--seeds", "1") == 0
    rows = _rows()
    assert rows["meta"] == {"1": [0.1]}
    assert rows["RL"] == {"0": [0.5], "1": [0.5]}
    assert rows["more"] == {"1": [0.5]}, "what went on from a run of other settings is no result of these"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "02-meta-seed0" in said[0]
    assert "algo.gamma_traj was 0.9, is 0.1" in said[0]
    assert "03-more-seed0" in said[1]


def test_a_further_evaluation_can_be_taken_out_between_two_runs(sweep, capsys):
    assert sweep(FILE, "--seeds", "0") == 0
    assert sweep(FILE.replace('also = ["one"]', ""), "--seeds", "1") == 0
    assert _rows()["meta"] == {"1": [0.9]}
    assert "evaluation.also was" in capsys.readouterr().err


def test_a_refusal_names_the_settings_that_differ(sweep, capsys):
    assert sweep(FILE, "--only", "meta") == 0
    assert sweep(FILE.replace("0.9", "0.1"), "--only", "meta") == 2
    said = capsys.readouterr().err
    assert "made with other settings (algo.gamma_traj was 0.9, is 0.1)" in said
    assert "trial.episodes" not in said


def _warm(*, memory: str = "history", **settings: str) -> Work:
    named = {"trial.memory": memory, **{name.replace("__", "."): value for name, value in settings.items()}}
    return plan_work(Sweep([Arm("a", named)], preset="test", tasks=8), Path("out").absolute())[0]


def test_a_finished_warm_start_stays_where_only_training_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _done(_warm())
    assert schedule._is_done(_warm(run__updates="7", algo__gamma_traj="0.1", optim__lr="1e-4", run__group="8"))
    with pytest.raises(UsageError, match=r"\(warmstart.steps was 5, is 6\)"):
        schedule._is_done(_warm(warmstart__steps="6", algo__gamma_traj="0.1"))
    with pytest.raises(UsageError, match=r"env.turns was 5, is 4"):
        schedule._is_done(_warm(env__turns="4"))
    with pytest.raises(UsageError, match=r"trial.memory was history, is none"):  # it was evaluated with it
        schedule._is_done(_warm(memory="none", warmstart__memory="history"))


def test_a_warm_start_under_way_goes_on_where_only_training_changed(tmp_path):
    begun = resolve("test", None, _warm().settings)
    RunFolder.create(tmp_path / "warm", {"kind": "train", **to_tree(begun)})
    other = resolve("test", None, _warm(algo__gamma_traj="0.1").settings)
    assert _is_begun_with(other, tmp_path / "warm", None)
    assert not _is_begun_with(resolve("test", None, _warm(warmstart__lr="0.1").settings), tmp_path / "warm", None)


def test_a_sweep_made_in_python_finds_its_own_results_again(tmp_path):
    """Lists there may be tuples; a file gives lists back."""
    further = {"long": {"episodes": 4, "controls": ("independent",)}}
    arm = Arm("a", {"warmstart.steps": "0"}, also=("long",))
    (work,) = plan_work(Sweep([arm], preset="test", tasks=8, controls=("removed",), also=further), tmp_path)
    _done(work)
    assert schedule._is_done(work)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"settings": {}}', "\udcff"], ids=repr)
def test_a_result_that_cannot_be_understood_is_none(tmp_path, text):
    (tmp_path / "arm.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_result(tmp_path) is None
