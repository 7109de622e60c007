"""``mulligan sweep`` and ``mulligan demo``, in this process where no process is what is tested.

``make test-slow`` has real ones, and the demonstration in full.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mulligan
from mulligan.app.cli import main
from mulligan.app.sweep import demo, schedule
from mulligan.app.sweep.arms import Sweep, Work, plan_work, read_result, read_sweep
from mulligan.app.sweep.worker import LEFT, MEMORY_FULL, exit_code, work
from mulligan.engine.slots import SlotEngine
from mulligan.errors import DeviceLost, MemoryFull, PolicyError
from mulligan.report.run import RunFolder, load_trials
from scripted_play import ScriptedPolicy

SWEEP = """
title = "two arms"
preset = "test"
seeds = [0]
tasks = 12
[settings]
"task.env" = "bandit"
"trial.max_tokens" = 2
"run.updates" = 1
"run.tasks" = 2
"run.group" = 2
"run.validate_every" = 1
"run.validation_tasks" = 2
"warmstart.steps" = 1
"warmstart.trials" = 4
[also."longer"]
episodes = 4
arms = 3
[arms."RL"]
"trial.episodes" = 1
also = ["longer"]
[arms."meta-RL"]
"""


WITHOUT_WARM_START = SWEEP.replace('"warmstart.steps" = 1', '"warmstart.steps" = 0')


def run_here(arms, cores, on_progress, seconds=0.0):
    """Work arms off one after the other in this process, where torch is already loaded."""
    for arm in arms:
        if read_result(arm.folder) is None:
            work(arm.order, lambda progress: None)
    return {arm.folder: read_result(arm.folder) for arm in arms}


@pytest.fixture
def in_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schedule, "run_work", run_here)


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """The folder in which the sweep is done, as ``out``, and what it printed; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        patch.setattr(schedule, "run_work", run_here)
        Path("sweep.toml").write_text(SWEEP)
        assert call("sweep", "sweep.toml", "--run", "out", "--json") == 0
    return folder, json.loads(printed.getvalue())


def test_a_sweep_trains_evaluates_and_is_not_done_twice(finished, in_process, tmp_path, capsys):
    folder, data = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    shown = [[row["name"] for row in section["rows"]] for section in data["sections"]]
    assert shown == [["warm start", "RL", "meta-RL"], ["RL, longer"]]
    assert [(section["tasks"], section["episodes"]) for section in data["sections"]] == [(12, 3), (12, 4)]
    (further,) = Path("out").glob("*/evaluation-longer")
    assert {trial.task["arms"] for trial in load_trials(further)} == {3}
    curves = {curve["name"]: [update for update, _ in curve["seeds"]["0"]] for curve in data["curves"]}
    assert curves["RL"] == curves["meta-RL"] == [0, 1]
    assert "| meta-RL |" in Path("out/table.md").read_text()
    for row in json.loads(Path("out/table.json").read_text()):  # of 4 arms, three pulls find the one that pays in 75 %
        assert row["share_of_optimum"] == pytest.approx(row["p"][2] / 0.75)
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("*/arm.json")}
    assert call("sweep", "sweep.toml", "--run", "out", "--only", "RL") == 0
    assert "| meta-RL |" not in capsys.readouterr().out
    assert "| meta-RL |" in Path("out/table.md").read_text()  # which keeps what was found before
    assert before == {path: path.stat().st_mtime_ns for path in Path("out").glob("*/arm.json")}


WRITERS = (
    SWEEP[: SWEEP.index("[also")].replace("seeds = [0]", "seeds = [0]\ncontrols = []")
    + """
"trial.memory" = "reflection"
"trial.reflection_tokens" = 4
[also."untrained"]
writer = "untrained"
[also."scripted"]
writer = "expert:1:1"
[arms."player"]
[arms."writer"]
player = "player"
also = ["untrained", "scripted"]
"""
)


def test_a_sweep_trains_a_writer_for_a_frozen_player_and_compares_who_writes_the_notes(in_process, tmp_path, capsys):
    Path("writers.toml").write_text(WRITERS)
    assert call("sweep", "writers.toml", "--run", "out", "--json") == 0
    (section,) = json.loads(capsys.readouterr().out)["sections"]  # one: all played the same tasks with notes
    names = ["warm start", "player", "writer", "writer, untrained", "writer, scripted"]
    assert [row["name"] for row in section["rows"]] == names
    assert [row["method"] for row in section["rows"]] == ["warm start", "meta-RL", "writer", "writer", "writer"]
    first = Path("out/02-writer-seed0")
    assert 'player = "../01-player-seed0@1"' in (first / "config.toml").read_text()
    notes = {
        name: [
            e.reflection.completion.ids for trial in load_trials(first / name) for e in trial.episodes if e.reflection
        ]
        for name in ("evaluation", "evaluation-untrained", "evaluation-scripted")
    }
    assert all(notes.values())
    assert {name: all(ids is None for ids in each) for name, each in notes.items()} == {
        "evaluation": False, "evaluation-untrained": False, "evaluation-scripted": True}  # fmt: skip
    assert not any(ids is None for name in ("evaluation", "evaluation-untrained") for ids in notes[name])
    Path("out").rename("moved")
    assert call("eval", "bandit", "--policy", "moved/02-writer-seed0", "--tasks", "2", "--run", "looked") == 0
    assert "01-player-seed0@1, advised by moved/02-writer-seed0" in Path("looked/config.toml").read_text()


WITHOUT_END = WITHOUT_WARM_START.replace(
    '"run.updates" = 1', '"run.updates" = 100000\n"run.checkpoint_every" = 100000'
).replace('"run.validate_every" = 1', '"run.validate_every" = 0')
ONLY_RL = ["sweep", "sweep.toml", "--run", "out", "--only", "RL"]


def test_an_arm_that_is_asked_to_leave_saves_what_it_trained_and_the_sweep_says_how_to_continue(
    tmp_path, monkeypatch, capsys
):
    """In this process; how processes are asked to leave is in tests/unit/test_sweep_schedule.py."""

    def run_work(arms, cores, on_progress, seconds=0.0):
        (arm,) = arms
        work(arm.order, lambda progress: done.append(progress["done"]), lambda: len(done) >= 2)
        raise KeyboardInterrupt

    done: list[int] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schedule, "run_work", run_work)
    Path("sweep.toml").write_text(WITHOUT_END)
    assert call(*ONLY_RL) == 130
    assert capsys.readouterr().err == f"interrupted; continue with: mulligan {' '.join(ONLY_RL)}\n"
    folder = tmp_path / "out" / "01-rl-seed0"
    assert done == [1, 2, 3]
    assert (folder / "checkpoints" / "update-00003").is_dir()
    assert json.loads((folder / "spent.json").read_text())["seconds"] > 0


@pytest.mark.slow
def test_a_sweep_that_is_ended_saves_what_it_trained_and_says_how_to_continue(tmp_path, monkeypatch):
    """By the signals of a real process, which has another one train."""
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(WITHOUT_END)
    command = [sys.executable, "-m", "mulligan", *ONLY_RL]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    folder = tmp_path / "out" / "01-rl-seed0"
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 4):
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)  # as `timeout` does: once to the process, and once to all of its group
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert "mulligan sweep sweep.toml --run out --only RL" in said
    last = json.loads(metrics.read_text().splitlines()[-1])["update"]
    assert (folder / "checkpoints" / f"update-{last:05d}").is_dir()
    assert json.loads((folder / "spent.json").read_text())["seconds"] > 0


def test_a_sweep_whose_time_is_over_says_how_to_continue(tmp_path, monkeypatch, capsys):
    def run_work(arms, cores, on_progress, seconds):
        raise schedule.TimeOver(f"{seconds:g} seconds are over")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schedule, "run_work", run_work)
    Path("sweep.toml").write_text(SWEEP)
    words = ["sweep", "sweep.toml", "--run", "out", "--minutes", "0.5"]
    assert call(*words) == 75
    assert capsys.readouterr().err == f"30 seconds are over; continue with: mulligan {' '.join(words)}\n"
    assert call("sweep", "sweep.toml", "--minutes", "0") == 2
    assert call("sweep", "sweep.toml", "--only", "RK") == 2
    assert call("sweep", "sweep.toml", "--seeds", "0,1") == 2
    assert "--seeds" in capsys.readouterr().err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Work, dict[str, Any]]:
    """An arm without a warm start, and what it comes to in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "sweep.toml").write_text(WITHOUT_WARM_START)
    arm = plan_work(read_sweep(folder / "sweep.toml"), folder)[0]
    work(arm.order, lambda progress: None)
    return arm, json.loads((arm.folder / "arm.json").read_text())


def test_an_arm_in_pieces_ends_as_one_in_one_go(undisturbed, tmp_path):
    arm, whole = undisturbed
    order, done = {**arm.order, "folder": str(tmp_path / "parts")}, []
    work(order, done.append, lambda: True)
    assert not (tmp_path / "parts").exists()
    work(order, done.append, lambda: bool(done))  # it is trained then, and not yet evaluated
    assert (tmp_path / "parts" / "spent.json").exists()
    assert not (tmp_path / "parts" / "arm.json").exists()
    work(order, lambda progress: None)
    found = json.loads((tmp_path / "parts" / "arm.json").read_text())
    assert found["main"] == whole["main"]
    assert found["curve"] == whole["curve"]


def test_an_arm_that_was_interrupted_goes_on_and_names_its_start_as_seen_from_its_folder(
    finished, in_process, tmp_path, capsys
):
    Path("sweep.toml").write_text(SWEEP)
    warm, rl, _ = plan_work(read_sweep("sweep.toml"), tmp_path / "out")
    shutil.copytree(finished[0] / "out" / warm.folder.name, warm.folder)

    def interrupt(progress: dict[str, object]) -> None:
        if progress["stage"] == "evaluation" and progress["done"]:  # 32 of 36: in the further evaluation
            raise InterruptedError

    with pytest.raises(InterruptedError):
        work(rl.order, interrupt)
    assert len(load_trials(rl.folder / "evaluation")) == 12
    assert len(load_trials(rl.folder / "evaluation-longer")) > 0
    assert not (rl.folder / "arm.json").exists()
    assert 'name = "../00-warm-start-1-seed0"' in (rl.folder / "config.toml").read_text()
    assert call("sweep", "sweep.toml", "--run", "out", "--only", "RL") == 0
    assert (rl.folder / "arm.json").exists()
    (tmp_path / "out").rename(tmp_path / "moved")  # what was trained can be played from there
    assert call("eval", "bandit", "--policy", "moved/01-rl-seed0", "--tasks", "2", "--run", "looked") == 0
    shutil.rmtree("moved/00-warm-start-1-seed0")
    capsys.readouterr()
    assert call("eval", "bandit", "--policy", "moved/01-rl-seed0", "--tasks", "2") == 2
    assert "00-warm-start-1-seed0" in capsys.readouterr().err


def test_a_sweep_is_not_made_inside_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(SWEEP)
    RunFolder.create("mine", {"kind": "train"})
    for words in (("sweep", "sweep.toml"), ("demo",)):
        assert call(*words, "--run", "mine") == 2
        assert "mine is a run itself" in capsys.readouterr().err


STAND_IN = """
import sys, time, types
sys.modules["torch"] = types.ModuleType("torch")
from mulligan.app.sweep import worker

def work(order, report, stop):
    print("what an environment prints")
    while not stop():
        report({"stage": "training", "done": 1, "total": 2})
        time.sleep(0.01)

worker.work = work
worker.main()
"""
"""A worker for whom training, and loading torch, takes no time."""


def _begin(folder: Path, settings: dict[str, str], program: Sequence[str]) -> subprocess.Popen[str]:
    order = {"name": "a", "folder": str(folder), "preset": "test", "settings": settings, "evaluation": {}}
    folder.mkdir()
    (folder / "order.json").write_text(json.dumps(order))
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *program, str(folder)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_worker_that_is_asked_to_leave_says_so_by_its_exit_code(tmp_path):
    worker = _begin(tmp_path / "arm", {}, ["-c", STAND_IN])
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["stage"] == "training"
    worker.stdin.write("leave\n")
    worker.stdin.flush()
    try:
        worker.wait(timeout=120)  # before its input is closed, which ends a worker at once
        said, log = worker.communicate()
    finally:
        worker.kill()
    assert worker.returncode == LEFT
    assert all(json.loads(line)["stage"] == "training" for line in said.splitlines())
    assert log == "what an environment prints\n"


@pytest.mark.parametrize(
    "program",
    [["-c", STAND_IN], pytest.param(["-m", "mulligan.app.sweep.worker"], marks=pytest.mark.slow)],
    ids=["stand-in", "real"],
)
def test_a_worker_leaves_when_nobody_listens_any_more(tmp_path, program):
    worker = _begin(tmp_path / "arm", {"task.env": "bandit", "run.updates": "1000000"}, program)
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["stage"] in ("demonstrations", "warm start", "training")
    worker.stdin.close()
    worker.stdin = None
    try:
        worker.communicate(timeout=120)  # its output is read: it leaves because nobody is there, not for a broken pipe
    finally:
        worker.kill()
    assert worker.returncode == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryFull("0 GiB are free"), MEMORY_FULL),
        (torch.OutOfMemoryError("CUDA out of memory"), MEMORY_FULL),
        (torch.AcceleratorError("CUDA error: out of memory"), MEMORY_FULL),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), MEMORY_FULL),
        (DeviceLost("in a step (CUDA out of memory)"), MEMORY_FULL),
        (PolicyError("no reply: CUDA out of memory"), MEMORY_FULL),
        (PolicyError("no reply"), 1),
        (DeviceLost("the device failed"), 1),
    ],
)
def test_a_worker_says_by_its_exit_code_whether_it_can_be_begun_again(error, code):
    assert exit_code(error) == code


def test_trials_for_which_memory_ran_out_are_no_result_and_are_played_again(undisturbed, tmp_path, monkeypatch):
    """One step of the engine without memory fails all trials under way, which would count as not solved."""
    arm, real, evaluated = replace(undisturbed[0], folder=tmp_path / "arm"), SlotEngine.step, [0, 0]

    def step(engine: SlotEngine, asking: list[object]) -> None:
        evaluated[1] += evaluated[0]
        if evaluated[1] == 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        real(engine, asking)

    def say(progress: dict[str, object]) -> None:
        evaluated[0] = int(progress["stage"] == "evaluation")

    with monkeypatch.context() as cramped:
        cramped.setattr(SlotEngine, "step", step)
        with pytest.raises(MemoryFull, match=r"of 12 trials"):
            work(arm.order, say)
    assert not (arm.folder / "arm.json").exists()
    work(arm.order, lambda progress: None)
    assert json.loads((arm.folder / "arm.json").read_text())["main"] == undisturbed[1]["main"]


def test_a_warm_start_that_is_asked_to_leave_keeps_the_steps_it_has_taken(tmp_path):
    settings = {"task.env": "bandit", "warmstart.steps": "100000", "warmstart.trials": "4", "run.updates": "0"}
    order = {"name": "a", "folder": str(tmp_path / "warm"), "preset": "test", "settings": settings, "evaluation": {}}
    done: list[int] = []
    for reports in (4, 8):
        work(order, lambda progress: done.append(progress["done"]), lambda reports=reports: len(done) >= reports)
        kept = json.loads(next((tmp_path / "warm/checkpoints").glob("warmstart-*/state.json")).read_text())["steps"]
        assert kept == done[-1]
    assert done == [0, 1, 2, 3, 4, 0, 5, 6, 7]  # the second time demonstrations come first, and it goes on


def smaller(sweep: Sweep, **settings: str) -> Sweep:
    quick = {"warmstart.steps": "1", "warmstart.trials": "4", "run.tasks": "2", "run.updates": "1"}
    quick |= {"model.name": "nano:hidden=32,layers=1", **settings}
    arms = [replace(arm, settings={**arm.settings, "run.group": "2"}) for arm in sweep.arms]
    return replace(sweep, arms=arms, settings={**sweep.settings, "run.group": "2", **quick})


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory) -> tuple[dict[str, Any], str, Path]:
    """The demonstration with the smallest training there is: its JSON, its text, and its folder."""
    boards, doors = demo.demo_sweep, demo.signpost_sweep
    board_settings = {"run.validation_tasks": "2", "env.turns": "2"}
    words = ("demo", "--updates", "1", "--tasks", "4", "--longer", "--run", "out")
    folder, printed = tmp_path_factory.mktemp("demo"), []
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr(schedule, "run_work", run_here)
        patch.setattr(demo, "demo_sweep", lambda seed, **asked: smaller(boards(seed, **asked), **board_settings))
        patch.setattr(demo, "signpost_sweep", lambda seed, tasks: smaller(doors(seed, tasks)))
        patch.setenv("COLUMNS", "120")
        for more in (["--json"], []):  # the second time all is there: it only shows it again
            with contextlib.redirect_stdout(io.StringIO()) as said:
                assert call(*words, *more) == 0
            printed.append(said.getvalue())
    return json.loads(printed[0]), printed[1], folder / "out"


def test_the_demonstration_in_small(small_demo):
    """Every row, the page and the JSON; what it learns is for the slow test."""
    data, text, out = small_demo
    names = [row["method"] for row in data["rows"]]
    assert names[1:] == [
        "warm start",
        "RL",
        "RL, independent retries",
        "RL, 2x updates",
        "meta-RL, gamma_traj 0",
        "meta-RL",
        "meta-RL, independent retries",
    ]
    assert all(row["tasks"] == 4 and len(row["p"]) == len(row["ci"]) == 3 for row in data["rows"])
    assert data["minutes"] > 0
    assert {row["method"]: row["updates"] for row in data["rows"]}["RL, 2x updates"] == 2
    page = (out / "report.html").read_text()
    assert all(name in page for name in names)
    assert "how well 4 boards measure" in page
    assert "of new boards within 3 attempts" in page
    assert "RL, 2x updates" in text


def test_the_second_act_in_small(small_demo):
    """The same arms between doors, the optimum below them, and the sentence that both acts lead to, last."""
    data, text, out = small_demo
    act = data["signpost"]
    *agents, each_alone, optimum = act["rows"]
    assert [row["method"] for row in agents] == ["warm start", "RL", "meta-RL, gamma_traj 0", "meta-RL"]
    assert all(row["tasks"] == 4 for row in agents)
    # One of 8 doors: at random 1, 2 and 3 of 8. By the sign none, and then all.
    assert [round(share, 9) for share in each_alone["p"]] == [1 / 8, 2 / 8, 3 / 8]
    assert [round(share, 9) for share in optimum["p"]] == [0, 1, 1]
    boards, _, doors = text.partition("Signpost, 8 doors")
    assert "MineSweeper 4x5" in boards
    assert "4 tasks never trained on, 3 attempts at each" in " ".join(doors.split())
    assert "meta-RL against RL at p@3: " in doors
    assert "optimum (exact)" in doors
    sentence = "Memory is learned by training with memory; exploring is learned by credit across attempts."
    assert doors.index("First attempts that read the sign: RL") < doors.index(sentence) < doors.index("out/report.html")
    assert sentence in (out / "report.html").read_text()
    assert len(list(out.glob("*/arm.json"))) == 5  # `mulligan compare out` is about the boards


def test_the_tasks_to_watch_are_those_that_one_agent_alone_solved():
    """Four that the second solved after a failure, and two that the first solved; none that both did, or neither."""
    task = mulligan.make_task("bandit", 3, params={"arms": 2, "turns": 1})
    right = next(arm for arm in "12" if mulligan.make(task).step(f"<action>{arm}</action>").won)
    wrong = "21"[int(right) - 1]

    def played(*replies: str) -> mulligan.Trial:
        policy = ScriptedPolicy([f"<action>{reply}</action>" for reply in replies])
        return mulligan.run_trial_sync(task, policy, episodes=2, memory="history")

    at_once, late, never = played(right), played(wrong, right), played(wrong, wrong)
    first = [never, late, never, at_once, never, never, never, never, at_once, late, late]
    second = [late, late, at_once, late, never, late, late, late, never, never, never]
    folders = {"RL": Path("demo/01-rl"), "meta-RL": Path("demo/02-meta")}
    found = demo.pairs("board", ("RL", "meta-RL"), (first, second), folders)
    assert [each["place"] for each in found] == [0, 5, 6, 7, 8, 9]
    assert found[0]["runs"] == ["01-rl/evaluation", "02-meta/evaluation"]
    assert found[0]["text"] == "board 1: RL does not solve it, meta-RL solves it at attempt 2"


@pytest.mark.longest
@pytest.mark.slow
def test_who_gets_credit_across_attempts_reads_the_sign(tmp_path, monkeypatch, capsys):
    """The second act as a newcomer sees it, in processes of its own, on half of the tasks; the first one in small."""
    boards, in_processes = demo.demo_sweep, schedule.run_work
    small_boards = {"run.validation_tasks": "2", "env.turns": "2"}
    monkeypatch.setattr(
        demo, "demo_sweep", lambda seed, **asked: smaller(replace(boards(seed, **asked), tasks=4), **small_boards)
    )

    def run_work(arms, cores, on_progress, seconds=0.0):
        run = in_processes if arms[0].folder.parent.name == "signpost" else run_here
        return run(arms, cores, on_progress, seconds)

    monkeypatch.setattr(schedule, "run_work", run_work)
    monkeypatch.chdir(tmp_path)
    assert call("demo", "--updates", "1", "--tasks", "256", "--run", "out", "--json") == 0
    assert_signs_are_read(json.loads(capsys.readouterr().out)["signpost"], 256)


def assert_signs_are_read(act: dict[str, Any], tasks: int) -> None:
    """Whoever trains with credit across attempts reads the sign, and nobody else."""
    doors = {row["method"]: row["p"] for row in act["rows"]}
    assert act["tasks"] == tasks
    assert act["reads_first"]["meta-RL"] >= 0.95
    assert doors["meta-RL"][1] >= 0.95
    for name in ("RL", "meta-RL, gamma_traj 0"):
        assert act["reads_first"][name] <= 0.1
        assert doors[name][2] <= 0.5


@pytest.mark.longest
@pytest.mark.seeds
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_meta_rl_beats_rl_where_it_counts(seed, tmp_path, monkeypatch, capsys):
    """The demonstration as a newcomer runs it, and with other seeds; results/demo has what it came to."""
    monkeypatch.chdir(tmp_path)
    assert call("demo", "--seed", str(seed), "--run", "out", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in data["rows"]}
    rl, meta, alone = rows["RL"], rows["meta-RL"], rows["meta-RL, independent retries"]
    assert rl["tasks"] == meta["tasks"] == 512
    # 0.16 to 0.26 in seven runs (results/demo): another processor rounds otherwise, which is as another seed.
    assert meta["p"][2] - rl["p"][2] >= 0.10
    assert meta["ci"][2][0] > rl["ci"][2][1], "the intervals overlap"
    assert rl["p"][0] >= meta["p"][0] - 0.06, "more than 512 boards leave to chance"
    assert meta["p"][2] - alone["p"][2] >= 0.15, "the gain is not the memory's"
    assert_signs_are_read(data["signpost"], 512)
