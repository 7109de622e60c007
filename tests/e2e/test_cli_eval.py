"""`mulligan eval` as a person meets it: tables, JSON, resuming, policies and worlds from files, interruption."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from tests.e2e.command import COMMAND, call

import mulligan
from mulligan.errors import DamagedFile

pytestmark = pytest.mark.usefixtures("folder")


def test_eval_prints_a_table_and_keeps_the_trials(capsys, folder):
    assert call("eval", "minesweeper", "--policy", "expert:0.7", "--tasks", "60", "--env.mines", "4") == 0
    text = capsys.readouterr().out
    for word in ("p@1", "p@2", "p@3", "ceiling", "independent retries", "expert, perfect memory", "Stopped:"):
        assert word in text
    (run,) = (folder / "runs").iterdir()
    assert len(mulligan.load_trials(run)) == 60
    assert json.loads((run / "result.json").read_text())["tasks"] == 60
    assert dict(mulligan.load_trials(run)[0].task.params)["mines"] == 4


def test_eval_json_is_only_json(capsys):
    assert call("eval", "bandit", "--policy", "random", "--tasks", "20", "--json", "--episodes", "2") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["env"], data["policy"], data["tasks"], data["episodes"]) == ("bandit", "random", 20, 2)
    assert len(data["p"]) == len(data["ci"]) == 2


def test_eval_resumes_from_the_folder_alone(capsys, folder):
    call("eval", "bandit", "--policy", "expert:0.5", "--tasks", "30", "--run", "mine", "--json", "--seed", "4")
    whole = json.loads(capsys.readouterr().out)
    file = folder / "mine" / "trials" / "main.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-30])  # a kill in the middle of a write
    with pytest.warns(DamagedFile):
        assert call("eval", "--resume", "mine", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["p"] == whole["p"]
    assert again["stop_reasons"] == whole["stop_reasons"]


@pytest.mark.parametrize(
    "words",
    [["bandit"], ["--tasks", "9"], ["--memory=both"], ["--policy", "random"], ["--env.arms", "4"], ["--no-room"]],
)
def test_a_resumed_evaluation_stays_what_it_was(capsys, words):
    call("eval", "bandit", "--policy", "random", "--tasks", "3", "--run", "mine", "--json", "--no-room")
    capsys.readouterr()
    assert call("eval", "--resume", "mine", *words) == 2
    said = capsys.readouterr().err
    assert words[0].partition("=")[0] in said
    assert said.count("\n") == 1


def test_prices_are_kept_for_resuming(capsys, folder):
    (folder / "paid.py").write_text(
        "from mulligan.types import Completion\n\nclass Paid:\n    name = 'paid'\n\n"
        "    def start(self, task, seed):\n        return self\n\n    def close(self):\n        pass\n\n"
        "    async def reply(self, messages, sampling):\n"
        "        return Completion('<action>1</action>', prompt_tokens=1000)\n"
    )
    words = ("--policy", "paid.py:Paid", "--tasks", "20", "--run", "mine", "--price-in", "1", "--max-cost", "0.004")
    assert call("eval", "bandit", "--json", *words, "--concurrency", "1", "--episodes", "1") == 0
    first = json.loads(capsys.readouterr().out)
    # A call costs 1,000 tokens · 1 / 10^6 = 0.001; after four of them nothing new is begun.
    assert (first["cost"], first["trials"], first["complete"]) == (pytest.approx(0.004), 4, False)
    assert first["gains"] == {}  # one episode has no control
    assert call("eval", "--resume", "mine", "--trust", "--json") == 0
    same = json.loads(capsys.readouterr().out)
    assert (same["cost"], same["trials"], same["turns_per_second"]) == (pytest.approx(0.004), 4, None)
    assert call("eval", "--resume", "mine", "--trust", "--max-cost", "1") == 0
    table = capsys.readouterr().out
    assert "cost 0.0200" in table
    assert "Incomplete" not in table


def test_a_resumed_evaluation_has_no_more_under_way_than_before(capsys, folder):
    """What is under way when the money ends is finished: with one trial at a time, nothing is paid beyond it."""
    (folder / "paid.py").write_text(
        "import asyncio\nfrom mulligan.types import Completion\n\nclass Paid:\n    name = 'paid'\n\n"
        "    def start(self, task, seed):\n        return self\n\n    def close(self):\n        pass\n\n"
        "    async def reply(self, messages, sampling):\n        await asyncio.sleep(0.001)\n"
        "        return Completion('<action>1</action>', prompt_tokens=1000)\n"
    )
    words = ("--policy", "paid.py:Paid", "--tasks", "40", "--run", "mine", "--price-in", "1", "--max-cost", "0.004")
    assert call("eval", "bandit", "--json", *words, "--concurrency", "1", "--episodes", "1") == 0
    capsys.readouterr()
    assert call("eval", "--resume", "mine", "--trust", "--max-cost", "0.006", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cost"] == pytest.approx(0.006)


def test_half_a_character_in_a_functions_reply_can_be_shown(capsys, folder):
    """JSON of a reply that was cut inside an emoji holds one half of it, which no terminal and no file takes."""
    (folder / "half.py").write_text("def half(messages):\n    return '\\ud83d <action>(1, 1)</action>'\n")
    assert call("eval", "minesweeper", "--policy", "half.py:half", "--tasks", "1", "--run", "mine", "--no-room") == 0
    assert call("show", "mine") == 0
    assert "? <action>(1, 1)</action>" in capsys.readouterr().out


def test_a_policys_file_may_have_dataclasses(capsys, folder):
    (folder / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\nclass Notes:\n"
        "    arm: int = 1\n\ndef pull(messages):\n    return f'<action>{Notes().arm}</action>'\n"
    )
    assert call("eval", "bandit", "--policy", "mine.py:pull", "--tasks", "2", "--no-room") == 0
    assert capsys.readouterr().err == ""


def test_folders_that_cannot_be_resumed_say_why(capsys, folder):
    mulligan.evaluate("bandit", "random", tasks=3, run="python", room=False)
    assert call("eval", "--resume", "python") == 2
    assert "from Python" in capsys.readouterr().err
    (folder / "torn").mkdir()
    (folder / "torn" / "config.toml").write_text('schema_version = 1\nkind = "eval"\n')
    assert call("eval", "--resume", "torn") == 2
    assert "'trial'" in capsys.readouterr().err
    (folder / "file").write_text("")
    assert call("eval", "bandit", "--policy", "random", "--run", "file") == 2
    assert capsys.readouterr().err.startswith("mulligan: file")


def test_parameters_may_stand_before_the_environment(capsys):
    assert call("eval", "--env.arms", "3", "bandit", "--policy", "random", "--tasks", "4", "--run", "r", "--json") == 0
    assert dict(mulligan.load_trials("r")[0].task.params)["arms"] == 3


def test_policies_from_files(capsys, folder):
    (folder / "mine.py").write_text(
        "class Pull:\n    def __call__(self, messages):\n        return '<action>1</action>'\n\n"
        "class Needy:\n    def __init__(self, model):\n        pass\n"
    )
    (folder / "broken.py").write_text("raise ValueError('one\\ntwo')\n")
    assert call("eval", "bandit", "--policy", "mine.py:Pull", "--tasks", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "Pull"
    for policy, said in (
        ("mine.py", "mine.py:NAME"),
        ("mine.py:Needy", "Needy"),
        ("broken.py:f", "ValueError: one"),
    ):
        assert call("eval", "bandit", "--policy", policy) == 2
        captured = capsys.readouterr().err
        assert said in captured
        assert captured.count("\n") == 1


def test_an_environment_of_ones_own_that_fails_says_what_it_said(capsys, folder):
    """And its name is not read as markup: ``:Snake`` is no emoji."""
    (folder / "snake.py").write_text(
        "class Snake:\n    def __init__(self, task):\n        self.task = task\n\n"
        "    def rules(self):\n        return ''\n\n"
        "    def reset(self, chance=0):\n        return ''\n\n"
        "    def step(self, reply):\n        raise ValueError('it bit its tail')\n\n\n"
        "class Shy(Snake):\n    def __init__(self):\n        pass\n"
    )
    (folder / "mine.py").write_text("def go(messages):\n    return 'on'\n")
    assert call("eval", "snake.py:Snake", "--policy", "mine.py:go", "--tasks", "2") == 1
    said = capsys.readouterr().out
    assert "snake.py:Snake" in said
    assert "ValueError: it bit its tail" in said
    assert call("play", "snake.py:Shy", "--policy", "mine.py:go") == 2
    assert re.search("snake.py:Shy .*TypeError", capsys.readouterr().err)


def test_a_trained_policy_without_torch_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert call("eval", "bandit", "--policy", "nano") == 2
    assert "-e '.[train]'" in capsys.readouterr().err


def test_errors_of_the_system_are_one_line(capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "runs/x")

    monkeypatch.setattr("mulligan.report.run.TrialWriter.flush", full)
    assert call("eval", "bandit", "--policy", "random", "--tasks", "3") == 2
    assert capsys.readouterr().err == "mulligan: runs/x: No space left on device\n"


def test_styles_and_memory(capsys):
    call("eval", "bandit", "--policy", "random", "--tasks", "8", "--style", "reflexion", "--json", "--no-room")
    assert json.loads(capsys.readouterr().out)["memory"] == "reflection"
    call("eval", "bandit", "--policy", "random", "--tasks", "8", "--style", "zero-shot", "--json", "--no-room")
    assert json.loads(capsys.readouterr().out)["memory"] == "none"


def test_ctrl_c_keeps_what_was_played(folder):
    slow = folder / "slow.py"
    slow.write_text(
        "import asyncio\n\nasync def answer(messages):\n"
        "    await asyncio.sleep(0.02)\n    return '<action>1</action>'\n"
    )
    words = ["eval", "bandit", "--policy", "slow.py:answer", "--tasks", "400", "--run", "r", "--concurrency", "2"]
    process = subprocess.Popen(
        [*COMMAND, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore Ctrl-C, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )
    file = folder / "r" / "trials" / "main.jsonl.gz"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert ", and all replies that were paid for; continue with: mulligan eval --resume r --trust\n" in said
    assert "Traceback" not in said
    assert 0 < len(mulligan.load_trials("r")) < 400
