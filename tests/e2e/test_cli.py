"""The command line as a person meets it: one-line errors, help, lists, kept trials, output that nobody reads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, call

import mulligan
from mulligan.app.cli import main
from mulligan.errors import UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder

pytestmark = pytest.mark.usefixtures("folder")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate"], "'eval'"),
        (["eval"], "environment"),
        (["eval", "minesweper"], "'minesweeper'"),
        (["eval", "minesweeper", "--policy", "exprt"], "'expert'"),
        (["eval", "minesweeper", "--policy", "smolm2"], "'smollm2'"),
        (["eval", "minesweeper", "--taks", "5"], "'--tasks'"),
        (["eval", "minesweeper", "--tasks", "many"], "many"),
        (["eval", "minesweeper", "--tasks", "0"], "tasks=0"),
        (["eval", "minesweeper", "--episodes", "0"], "episodes=0"),
        (["eval", "minesweeper", "--env.mines", "36"], "mines=36"),
        (["eval", "minesweeper", "--env.mines", "few"], "mines"),
        (["eval", "minesweeper", "--env.mimes", "3"], "'mines'"),
        (["eval", "minesweeper", "--env.mines"], "--env.mines"),
        (["eval", "minesweeper", "--style", "reakt"], "'react'"),
        (["eval", "minesweeper", "--seed-set", "test"], "eval"),
        (["eval", "minesweeper", "--controls", "forein"], "'foreign'"),
        (["eval", "minesweeper", "--policy", "endpoint:m"], "--base-url"),
        (["eval", "minesweeper", "--policy", "nowhere.py:f"], "nowhere.py"),
        (["eval", "minesweeper", "--max-cost", "1"], "price"),
        (["eval", "minesweeper", "--max-cost", "-1", "--price-in", "1"], "max_cost"),
        (["eval", "minesweeper", "--price-in", "-1"], "price"),
        (["eval", "minesweeper", "--concurrency", "0"], "concurrency"),
        (["eval", "minesweeper", "--temperature", "-1"], "temperature"),
        (["eval", "minesweeper", "--top-p", "0"], "top_p"),
        (["eval", "minesweeper", "--top-p", "1.5"], "top_p"),
        (["eval", "minesweeper", "--max-tokens", "0"], "max_tokens"),
        (["eval", "minesweeper", "--env-timeout", "0"], "env_timeout"),
        (["eval", "--env.mines", "--tasks", "5", "minesweeper"], "--env.mines"),
        (["eval", "--resume", "nowhere"], "nowhere"),
        (["eval", "minesweeper", "--policy", "runs/nowhere"], "runs/nowhere"),
        (["eval", "minesweeper", "--policy", "hasty"], "expert"),
        (["eval", "minesweeper", "surplus"], "surplus"),
        (["play", "sokobann"], "'sokoban'"),
        (["play", "bandit", "--memory", "all"], "all"),
        (["bench", "envs"], "'env'"),
        (["show", "nowhere"], "nowhere"),
        (["check", "examples.py:Nothing"], "examples.py"),
    ],
)
def test_mistakes_are_answered_in_one_line_and_leave_nothing_behind(capsys, folder, words, said):
    """`said` is what the line names: a name, or name=value."""
    if words[0] == "eval" and not {"--policy", "--resume"} & set(words):
        words = [*words, "--policy", "random"]
    assert call(*words) == 2
    assert list(folder.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(part in captured.err for part in said.split("="))
    assert "Traceback" not in captured.err


def test_an_evaluation_says_who_plays(capsys):
    assert call("eval", "bandit", "--tasks", "2") == 2
    assert "--policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "play minesweeper --policy random --episodes 40",
        "eval bandit --policy random --tasks 20 --json",
        "envs",
    ],
)
def test_output_that_nobody_reads_any_more_is_not_a_success(words, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # short output is then written at the very end
    command = [*COMMAND, *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert (b"Error" in said, process.wait()) == (False, 141)


def test_debug_shows_the_traceback():
    with pytest.raises(UnknownName):
        main(["eval", "minesweper", "--policy", "random", "--debug"])


@pytest.mark.parametrize("name", mulligan.envs.registry.names())
def test_an_environment_tells_all_its_parameters(name, capsys):
    assert call("envs", name) == 0
    told = capsys.readouterr().out.split("--env.NAME", 1)[1]
    for parameter in mulligan.envs.registry.spec(name).defaults:
        assert re.search(rf"^(?:[\w, ]*\b)?{parameter}\b|: {parameter}\b", told, re.MULTILINE), parameter


def test_other_commands(capsys):
    assert call("envs") == 0
    listed = capsys.readouterr().out
    for name in ("minesweeper", "sokoban", "tictactoe", "kuhn", "bandit"):
        assert name in listed
    assert call("envs", "--json") == 0
    assert {"name", "summary", "params"} <= json.loads(capsys.readouterr().out)[0].keys()
    assert call("check", f"{ROOT / 'examples' / 'my_env.py'}:GuessNumber") == 0
    assert "keeps the contract" in capsys.readouterr().out
    assert call("--help") == 0
    assert "mulligan eval" in capsys.readouterr().out
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("mulligan 0.")


def test_show_reads_a_trial(capsys):
    call("eval", "minesweeper", "--policy", "expert:0.2", "--tasks", "4", "--run", "r", "--memory", "both")
    capsys.readouterr()
    assert call("show", "r", "2") == 0
    text = capsys.readouterr().out
    assert "episode 1" in text
    assert "[agent]\n<action>(" in text
    assert call("show", "r", "9") == 2


def test_show_reads_the_last_update_that_a_training_run_kept(capsys, folder):
    run = RunFolder.create("t", {"kind": "train"})
    assert call("show", "t") == 2
    assert "save_trials_every" in capsys.readouterr().err
    for update in (5, 10):
        task = mulligan.make_task("bandit", update)
        run.write_trials(f"update-{update:05}", [mulligan.run_trial_sync(task, ExpertPolicy())])
    assert call("show", "t") == 0
    assert "seed 10" in capsys.readouterr().out
    assert call("show", "t", "--arm", "update-00005") == 0
    assert "seed 5" in capsys.readouterr().out


def test_show_finds_a_task_by_its_number_and_an_episode_without_turns(capsys, folder):
    (folder / "dead.py").write_text(
        "from mulligan.envs.bandit import Bandit\n\n\nclass Dead(Bandit):\n"
        "    def reset(self, chance=0):\n        raise RuntimeError('no board')\n"
    )
    call("eval", "dead.py:Dead", "--policy", "random", "--tasks", "3", "--run", "r", "--no-room", "--json")
    data = json.loads(capsys.readouterr().out)
    assert data["stop_reasons"] == {"env_raised": 3}
    assert call("show", "r", "2") == 0
    assert "no board" in capsys.readouterr().out
    # Only the third task has been played: it is still number 3, and what is shown first.
    folder_of_run = RunFolder.open("r")
    third = folder_of_run.trials("main")[2]
    (folder / "r" / "trials" / "main.jsonl.gz").unlink()
    writer = folder_of_run.writer("main")
    writer.write(2, third)
    writer.flush()
    assert call("show", "r", "3") == 0
    chosen = capsys.readouterr().out
    assert f"seed {third.task.seed}" in chosen
    assert call("show", "r") == 0
    assert capsys.readouterr().out == chosen
    assert call("show", "r", "1") == 2
    assert "task 1" in capsys.readouterr().err


HELP_WITHOUT_HEAVY_MODULES = """
import sys
from mulligan.app.cli import main
from mulligan.errors import UnknownName
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"torch", "numpy", "httpx", "rich", "pyspiel"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_is_light():
    """`mulligan --help` must not load what is heavy."""
    subprocess.run([sys.executable, "-c", HELP_WITHOUT_HEAVY_MODULES], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "told", "heard"),
    [
        (["train", "bandit", "--preset", "test"], None, "PASSIVE"),
        (["train", "bandit", "--preset", "test"], "ACTIVE", "ACTIVE"),
        (["train", "--help"], None, "torch was not loaded"),
    ],
)
def test_threads_are_told_to_sleep_before_torch_is_loaded(folder, words, told, heard):
    """OpenMP reads the variable when torch loads it, and never again; what the user set stays."""
    (folder / "first").mkdir()
    (folder / "first" / "torch.py").write_text(
        "import os\nraise SystemExit(os.environ.get('OMP_WAIT_POLICY', 'nothing was said'))\n"
    )
    program = "import sys; sys.path.insert(0, 'first'); from mulligan.app.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if told is None else {"OMP_WAIT_POLICY": told}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.stderr.strip() or "torch was not loaded") == heard
