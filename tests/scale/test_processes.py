"""Several processes train as one does; they go on in another number; what ends one of them is said."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from mulligan.report.run import RunFolder
from mulligan.training import checkpoint
from mulligan.training.metrics import MetricsFile

pytestmark = pytest.mark.scale
UPDATES = 3
SETTINGS = {
    "model.name": "nano:hidden=32,layers=2",
    "warmstart.trials": 60,
    "warmstart.steps": 4,
    "warmstart.batch": 16,
    "run.tasks": 3,  # which two processes cannot share evenly
    "run.group": 4,
    "run.updates": UPDATES,
    "run.threads": 1,
    "run.checkpoint_every": 1,
    "run.keep": 9,
    "run.validate_every": 3,
    "run.validation_tasks": 3,
    "run.save_trials_every": 1,
    "optim.minibatches": 2,
    "algo.kl_weight": 0.01,
}
BEGIN = ["bandit", "--preset", "cpu", *(word for key, value in SETTINGS.items() for word in (f"--{key}", str(value)))]
TOLERANCE = 2e-6
"""Of a weight after three updates: sums of floats in another order. Weights move by 0.0008 here."""


def begin(words: Sequence[object], count: int, **options: Any) -> list[subprocess.Popen[str]]:
    """So many processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mulligan", "train", *map(str, words)]
    around = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return [subprocess.Popen(command, env={**around, "RANK": str(rank)}, **pipes, **options) for rank in range(count)]


def run(words: Sequence[object], count: int) -> list[str]:
    processes = begin(words, count)
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, outputs
    return outputs


def difference(one: Path, other: Path) -> float:
    """The largest difference between two checkpoints' weights."""
    weights, others = (load_file(path / "weights.safetensors") for path in (one, other))
    assert weights.keys() == others.keys()
    return max(float((weights[name] - others[name]).abs().max()) for name in weights)


def newest(run: Path) -> Path:
    path = checkpoint.newest(run)
    assert path is not None
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def one(folder: Path) -> Path:
    run([*BEGIN, "--run", folder / "one"], 1)
    return folder / "one"


@pytest.fixture(scope="module")
def two(folder: Path) -> Path:
    outputs = run([*BEGIN, "--run", folder / "two"], 2)
    assert f"{UPDATES} updates done" in outputs[0]
    assert "updates done" not in outputs[1], "the first process says it all"
    return folder / "two"


def test_two_processes_train_the_weights_of_one(one, two):
    assert newest(one).name == newest(two).name == f"update-{UPDATES:05d}"
    assert difference(newest(one), newest(two)) < TOLERANCE
    assert difference(newest(one), one / "checkpoints" / "update-00000") > 100 * TOLERANCE
    lines = [MetricsFile(path / "metrics.jsonl").read() for path in (one, two)]
    for here, there in zip(*lines, strict=True):
        assert here.keys() == there.keys()
        for name in [name for name in here if not name.startswith(("time/", "warning"))]:
            assert here[name] == pytest.approx(there[name], rel=1e-3, abs=1e-5), name
    played = [list(RunFolder.open(path).trials("update-00001").values()) for path in (one, two)]
    assert [texts(trial) for trial in played[0]] == [texts(trial) for trial in played[1]]


def texts(trial: Any) -> list[str]:
    return [turn.reply.text for episode in trial.episodes for turn in episode.turns]


def test_another_number_of_processes_goes_on(one, two, folder):
    """Two make the first update, one the second, two the third."""
    path = folder / "changing"
    shutil.copytree(two, path)
    for count, done in ((1, 1), (2, 2)):
        for later in checkpoint.kept(path):
            if int(later.name[-5:]) > done:
                shutil.rmtree(later)
        run(["--resume", path], count)
    parts = [len(list(kept.glob("optimiser-*-of-2.safetensors"))) for kept in checkpoint.kept(path)]
    assert parts == [0, 2, 0, 2]  # after the warm start, and after each update
    assert difference(newest(path), newest(one)) < TOLERANCE


def test_a_process_that_dies_ends_the_others_with_one_line(folder):
    path = folder / "dying"
    processes = begin([*BEGIN, "--run.updates", 1000, "--run", path], 2)
    while not list(path.glob("checkpoints/update-00001")):
        assert processes[0].poll() is None
        time.sleep(0.1)
    processes[1].send_signal(signal.SIGKILL)
    output, _ = processes[0].communicate(timeout=120)
    processes[1].communicate()
    assert processes[0].returncode == 2
    assert "another process of this run has ended; its own last line says why; continue with --resume" in output
    assert "Traceback" not in output


def test_a_full_disk_at_a_checkpoint_is_said_and_loses_no_earlier_one(two, folder):
    """The second process may write small files only: not its part of the optimiser."""
    path = folder / "full"
    shutil.copytree(two, path)
    shutil.rmtree(newest(path))
    processes = begin(["--resume", path], 2)
    resource.prlimit(processes[1].pid, resource.RLIMIT_FSIZE, (1000, 1000))
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], outputs
    for output in outputs:
        assert "update-00003.tmp cannot be written" in output
        assert "make room, and continue with --resume" in output
        assert "Traceback" not in output
    assert newest(path).name == "update-00002"
    assert run(["--resume", path], 2)
    assert difference(newest(path), newest(two)) < TOLERANCE


def test_what_one_process_alone_can_train_is_refused(folder):
    processes = begin([*BEGIN, "--algo.estimator", "ppo", "--run", folder / "ppo"], 2)
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert "algo.estimator=ppo has a critic, which one process alone can train" in outputs[0]
    assert not (folder / "ppo").exists()
