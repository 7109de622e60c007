"""Worlds that hang: Ctrl-C ends every command, and a time limit ends the episode."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mulligan.app.cli import main

pytest.importorskip("torch")
WORLD = f"{Path(__file__).parent / 'hanging_world.py'}:Hanging"
TINY = [
    *("--preset", "cpu", "--model.name", "nano:hidden=32,layers=1", "--model.device", "cpu", "--warmstart.steps", "0"),
    *("--run.threads", "1", "--run.tasks", "2", "--run.group", "2", "--run.updates", "2", "--run.validate-every", "0"),
    *("--engine.slots", "8", "--trial.style", "bare", "--trial.memory", "history", "--trial.max-tokens", "1"),
    *("--trial.episodes", "2", "--optim.epochs", "1", "--optim.minibatches", "1"),
]
SECONDS = 60
"""Far more than ending takes on a busy machine."""


def interrupted(words: list[str], folder: Path, *, times: int = 1) -> tuple[int, str]:
    """Exit code and standard error of a command that gets Ctrl-C when the world hangs; -1 where it does not end."""
    command = [sys.executable, "-m", "mulligan", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=env,
        # A shell that runs the tests in the background has them, and all that they start, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    ) as process:
        said = ""
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if line == "it hangs\n":
                    break
            for _ in range(times - 1):
                process.send_signal(signal.SIGINT)
                said += process.stderr.readline()  # the command says that it has heard
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=SECONDS)
            return process.returncode, said + rest
        except subprocess.TimeoutExpired:
            return -1, said
        finally:
            process.kill()


EVAL = ["eval", WORLD, "--policy", "random", "--tasks", "6", "--concurrency", "1", "--controls", "off", "--run", "run"]
COMMANDS = {
    "eval": (EVAL, "interrupted: 3 trials are in run; continue with: mulligan eval --resume run"),
    "eval in a loop": ([*EVAL, "--env.how", "loop"], "interrupted: 3 trials are in run"),
    "eval at a lock": ([*EVAL, "--env.how", "lock"], "interrupted: 3 trials are in run"),
    "eval in reset": ([*EVAL, "--env.where", "reset"], "interrupted: 3 trials are in run"),
    "eval with a time limit": ([*EVAL, "--env-timeout", "900"], "interrupted: 3 trials are in run"),
    "play": (["play", WORLD, "--policy", "random", "--seed", "5"], "it hangs"),
    "check": (["check", WORLD], "interrupted"),
    "train before it begins": (["train", WORLD, *TINY, "--run", "run"], "interrupted"),
    "train": (
        ["train", WORLD, *TINY, "--env.free", "8", "--run", "run"],
        "interrupted: the run is in run; continue with",
    ),
}
"""What hangs -> the command, and what it says at Ctrl-C."""


@pytest.mark.parametrize("is_eval", [True, False])
def test_ctrl_c_ends_a_command_whose_world_hangs(tmp_path, row, is_eval):
    attack = row("Environments", f"Ctrl-C while a step hangs, in {'eval' if is_eval else 'train, play and check'}")
    for number, (what, (words, line)) in enumerate(COMMANDS.items()):
        if what.startswith("eval") != is_eval:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        code, said = interrupted(words, folder, times=1 + (what == "train"))
        if code == 130 and line in said and "Traceback" not in said:
            attack.told()
        else:
            attack.lost(f"{what}: {code} {said[-300:]}")


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


LIMIT = ["--env-timeout", "0.2"]


@pytest.mark.filterwarnings("default::mulligan.errors.FaultyWorld")
def test_a_time_limit_ends_the_episode_and_the_run_goes_on(tmp_path, row, capfd, monkeypatch):
    attack = row("Environments", "a step, a start or a world that hangs, with a time limit")
    monkeypatch.chdir(tmp_path)
    for where in ("__init__", "reset", "step"):
        for how in ("sleep", "loop", "lock"):
            run = f"{where}-{how}"
            world = [WORLD, "--env.where", where, "--env.how", how]
            policy = ["--policy", "random", "--tasks", "6", "--controls", "off", "--run", run]
            code = call("eval", *world, *policy, *LIMIT)
            result = json.loads(Path(run, "result.json").read_text()) if code == 0 else {}
            # The second of three episodes is not begun where the first one hangs.
            if result.get("stop_reasons") == {"env_hung": 3, "lost": 9} and call("show", run, "6") == 0:
                attack.told()
            else:
                attack.lost(f"eval, {run}: {code} {result.get('stop_reasons')} {capfd.readouterr().err[-300:]}")
    for where in ("__init__", "reset", "step"):
        code = call("play", WORLD, "--env.where", where, "--policy", "random", "--seed", "5", *LIMIT)
        said = "".join(capfd.readouterr())
        attack.told() if "no answer within 0.2 s" in said else attack.lost(f"play, {where}: {code} {said[-300:]}")
        code = call("check", WORLD, "--env.where", where, *LIMIT)
        said = "".join(capfd.readouterr())
        attack.told() if code == 2 and "no answer within 0.2 s" in said else attack.lost(
            f"check, {where}: {said[-300:]}"
        )


def test_a_time_limit_keeps_training_going(tmp_path, row, capfd, monkeypatch):
    attack = row("Environments", "half of the worlds hang in training, with a time limit")
    monkeypatch.chdir(tmp_path)
    half = [*TINY, "--run.tasks", "5", "--env.half", "true", "--trial.env-timeout", "0.2"]
    for where in ("__init__", "reset", "step"):
        code = call("train", WORLD, "--env.where", where, "--env.free", "0", *half, "--run", where)
        metrics = (
            [json.loads(line) for line in Path(where, "metrics.jsonl").read_text().splitlines()] if not code else []
        )
        hung = sum(line.get("failures/env_hung", 0) for line in metrics)
        if len(metrics) == 2 and hung:
            attack.told()
        else:
            attack.lost(f"{where}: {code} {metrics} {capfd.readouterr().err[-300:]}")
