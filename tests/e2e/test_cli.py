"""The command line as a person meets it: tables, JSON, one-line errors, interruption, a terminal to play at."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mulligan
from mulligan.cli import main
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from mulligan.cli import main; main()"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


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
    assert call("eval", "bandit", "--tasks", "20", "--json", "--episodes", "2") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["env"], data["policy"], data["tasks"], data["episodes"]) == ("bandit", "random", 20, 2)
    assert len(data["p"]) == len(data["ci"]) == 2


def test_eval_resumes_from_the_folder_alone(capsys, folder):
    call("eval", "bandit", "--policy", "expert:0.5", "--tasks", "30", "--run", "mine", "--json", "--seed", "4")
    whole = json.loads(capsys.readouterr().out)
    file = folder / "mine" / "trials" / "main.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-30])  # a kill in the middle of a write
    assert call("eval", "--resume", "mine", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["p"] == whole["p"]
    assert again["stop_reasons"] == whole["stop_reasons"]


@pytest.mark.parametrize(
    "words",
    [["bandit"], ["--tasks", "9"], ["--memory=both"], ["--policy", "random"], ["--env.arms", "4"], ["--no-room"]],
)
def test_a_resumed_evaluation_stays_what_it_was(capsys, words):
    call("eval", "bandit", "--tasks", "3", "--run", "mine", "--json", "--no-room")
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
    assert call("eval", "--resume", "mine", "--json") == 0
    same = json.loads(capsys.readouterr().out)
    assert (same["cost"], same["trials"], same["turns_per_second"]) == (pytest.approx(0.004), 4, None)
    assert call("eval", "--resume", "mine", "--max-cost", "1") == 0
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
    assert call("eval", "--resume", "mine", "--max-cost", "0.006", "--json") == 0
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
    assert capsys.readouterr().err == "mulligan: config.toml is not that of a whole evaluation: it has no 'trial'\n"
    (folder / "file").write_text("")
    assert call("eval", "bandit", "--run", "file") == 2
    assert capsys.readouterr().err.startswith("mulligan: file cannot be made a run folder")


def test_parameters_may_stand_before_the_environment(capsys):
    assert call("eval", "--env.arms", "3", "bandit", "--tasks", "4", "--run", "r", "--json") == 0
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
        ("mine.py", "name the policy in it: mine.py:NAME"),
        ("mine.py:Needy", "without arguments"),
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
    assert "snake.py:Snake: 2 tasks" in said
    assert "the first: ValueError: it bit its tail" in said
    assert call("play", "snake.py:Shy", "--policy", "mine.py:go") == 2
    assert "snake.py:Shy cannot be built: TypeError" in capsys.readouterr().err


def test_a_trained_policy_without_torch_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert call("eval", "bandit", "--policy", "nano") == 2
    assert "-e '.[train]'" in capsys.readouterr().err


def test_errors_of_the_system_are_one_line(capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "runs/x")

    monkeypatch.setattr("mulligan.report.run.TrialWriter.flush", full)
    assert call("eval", "bandit", "--tasks", "3") == 2
    assert capsys.readouterr().err == "mulligan: runs/x: No space left on device\n"


def test_styles_and_memory(capsys):
    call("eval", "bandit", "--tasks", "8", "--style", "reflexion", "--json", "--no-room")
    assert json.loads(capsys.readouterr().out)["memory"] == "reflection"
    call("eval", "bandit", "--tasks", "8", "--style", "zero-shot", "--json", "--no-room")
    assert json.loads(capsys.readouterr().out)["memory"] == "none"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate"], "'eval'"),
        (["eval"], "which environment"),
        (["eval", "minesweper"], "'minesweeper'"),
        (["eval", "minesweeper", "--policy", "exprt"], "'expert'"),
        (["eval", "minesweeper", "--policy", "smolm2"], "'smollm2'"),
        (["eval", "minesweeper", "--taks", "5"], "'--tasks'"),
        (["eval", "minesweeper", "--tasks", "many"], "invalid int value"),
        (["eval", "minesweeper", "--tasks", "0"], "tasks=0"),
        (["eval", "minesweeper", "--episodes", "0"], "episodes=0"),
        (["eval", "minesweeper", "--env.mines", "36"], "mines=36"),
        (["eval", "minesweeper", "--env.mines", "few"], "not of type int"),
        (["eval", "minesweeper", "--env.mimes", "3"], "'mines'"),
        (["eval", "minesweeper", "--env.mines"], "needs a value"),
        (["eval", "minesweeper", "--style", "reakt"], "'react'"),
        (["eval", "minesweeper", "--seed-set", "test"], "eval"),
        (["eval", "minesweeper", "--controls", "forein"], "'foreign'"),
        (["eval", "minesweeper", "--policy", "endpoint:m"], "--base-url"),
        (["eval", "minesweeper", "--policy", "nowhere.py:f"], "no file"),
        (["eval", "minesweeper", "--max-cost", "1"], "price"),
        (["eval", "minesweeper", "--max-cost", "-1", "--price-in", "1"], "max_cost=-1"),
        (["eval", "minesweeper", "--price-in", "-1"], "price of prompt tokens"),
        (["eval", "minesweeper", "--concurrency", "0"], "concurrency=0"),
        (["eval", "minesweeper", "--temperature", "-1"], "temperature=-1"),
        (["eval", "minesweeper", "--top-p", "0"], "top_p=0"),
        (["eval", "minesweeper", "--top-p", "1.5"], "top_p=1.5"),
        (["eval", "minesweeper", "--max-tokens", "0"], "max_tokens=0"),
        (["eval", "minesweeper", "--env-timeout", "0"], "env_timeout=0"),
        (["eval", "--env.mines", "--tasks", "5", "minesweeper"], "needs a value"),
        (["eval", "--resume", "nowhere"], "no run folder nowhere"),
        (["eval", "minesweeper", "--policy", "runs/nowhere"], "no run folder runs/nowhere"),
        (["eval", "minesweeper", "--policy", "hasty"], "known: expert, omniscient"),
        (["eval", "minesweeper", "surplus"], "surplus"),
        (["play", "sokobann"], "'sokoban'"),
        (["play", "bandit", "--memory", "all"], "invalid choice"),
        (["bench", "envs"], "'env'"),
        (["show", "nowhere"], "no run folder nowhere"),
        (["check", "examples.py:Nothing"], "no file"),
    ],
)
def test_mistakes_are_answered_in_one_line_and_leave_nothing_behind(capsys, folder, words, said):
    assert call(*words) == 2
    assert list(folder.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "words",
    [
        "play minesweeper --policy random --episodes 40",
        "eval bandit --tasks 20 --json",
        "eval bandit --tasks 2 --no-room",
        "envs",
        "eval --help",
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


def test_another_broken_pipe_is_an_error_like_others(capsys, monkeypatch):
    def broken(*_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("mulligan.cli.envs.run", broken)
    with pytest.raises(SystemExit) as ended:
        main(["envs"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "mulligan: Broken pipe\n"


def test_debug_shows_the_traceback():
    with pytest.raises(mulligan.envs.registry.UnknownName):
        main(["eval", "minesweper", "--debug"])


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
    assert "no trials yet" in capsys.readouterr().err
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
    call("eval", "dead.py:Dead", "--tasks", "3", "--run", "r", "--no-room", "--json")
    data = json.loads(capsys.readouterr().out)
    assert data["stop_reasons"] == {"env_raised": 3}
    assert call("show", "r", "2") == 0
    assert "no board" in capsys.readouterr().out
    # Only the third task has been played: it is still number 3, and what is shown first.
    folder_of_run = RunFolder.open("r")
    third = folder_of_run.trials("main")[2]
    (folder / "r" / "trials" / "main.jsonl.gz").unlink()
    with folder_of_run.writer("main") as writer:
        writer.write(2, third)
    assert call("show", "r", "3") == 0
    chosen = capsys.readouterr().out
    assert f"seed {third.task.seed}" in chosen
    assert call("show", "r") == 0
    assert capsys.readouterr().out == chosen
    assert call("show", "r", "1") == 2
    assert "no trial of task 1" in capsys.readouterr().err


def test_watching_a_policy(capsys):
    assert (
        call("play", "minesweeper", "--policy", "expert:0", "--seed", "1", "--episodes", "2", "--memory", "both") == 0
    )
    text = capsys.readouterr().out
    assert "> <action>(" in text
    assert "Episode 1:" in text


def test_nobody_at_the_keyboard():
    for words in (["eval", "bandit", "--policy", "human"], ["play", "bandit"]):
        done = subprocess.run(
            [*COMMAND, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 130
        assert "Traceback" not in done.stderr


def test_a_person_sees_what_the_last_turn_did():
    done = subprocess.run(
        [*COMMAND, "play", "minesweeper", "--episodes", "1", "--env.turns", "1"],
        input="nonsense\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count("1 ? ? ? ? ? ?") == 2  # before the turn, and after it
    assert "No turns left" in done.stdout
    assert "Episode 1: turn limit" in done.stdout


HELP_WITHOUT_HEAVY_MODULES = """
import sys
from mulligan.cli import main
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
        (["eval", "bandit", "--policy", "nano", "--tasks", "2"], None, "PASSIVE"),
        (["demo"], None, "PASSIVE"),
        (["train", "bandit", "--preset", "test"], "ACTIVE", "ACTIVE"),
        (["--help"], None, "torch was not loaded"),
        (["train", "--help"], None, "torch was not loaded"),
    ],
)
def test_threads_are_told_to_sleep_before_torch_is_loaded(folder, words, told, heard):
    """OpenMP reads the variable when torch loads it, and never again; what the user set stays."""
    (folder / "first").mkdir()
    (folder / "first" / "torch.py").write_text(
        "import os\nraise SystemExit(os.environ.get('OMP_WAIT_POLICY', 'nothing was said'))\n"
    )
    program = "import sys; sys.path.insert(0, 'first'); from mulligan.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if told is None else {"OMP_WAIT_POLICY": told}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.stderr.strip() or "torch was not loaded") == heard


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
    assert "--resume r" in said
    assert "Traceback" not in said
    assert 0 < len(mulligan.load_trials("r")) < 400


class Terminal:
    """A program on a real pseudo-terminal: type and read."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [*COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.text, self.looked_at = "", 0

    def until(self, wanted: str, seconds: float = 30.0) -> str:
        """Read until `wanted` has appeared after what was looked at before; returns what came up to it."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text[self.looked_at :] and time.monotonic() < deadline:
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                break
        found = self.text.find(wanted, self.looked_at)
        assert found >= 0, f"{wanted!r} did not come; the screen shows: {self.text[-800:]}"
        fresh, self.looked_at = self.text[self.looked_at : found], found + len(wanted)
        return fresh

    def type(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def rest(self) -> str:
        """What is still to be read of a program that has ended."""
        self.process.wait(timeout=30)
        while select.select([self.master], [], [], 0.2)[0]:
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                break
        return self.text[self.looked_at :]

    def end(self) -> int:
        code = self.process.wait(timeout=30)
        os.close(self.master)
        return code


@pytest.mark.parametrize(
    ("env", "move"),
    [("minesweeper", "(1, 1)"), ("sokoban", "up"), ("tictactoe", "(2, 2)"), ("kuhn", "pass"), ("bandit", "1")],
)
def test_a_person_can_play_every_game(env, move):
    terminal = Terminal("play", env, "--seed", "2", "--episodes", "1")
    terminal.until("\n> ")
    terminal.type("h")
    hints = terminal.until("\n> ")
    assert move in hints or "more" in hints
    terminal.type("nonsense")
    if env != "bandit":  # its only turn is spent
        terminal.until("\n> ")
        terminal.type(move)
        terminal.until("\n")
        terminal.type("q")
    assert terminal.end() in (0, 130)


def test_a_person_sees_colour_and_is_asked_for_a_note():
    terminal = Terminal("play", "bandit", "--episodes", "2", "--seed", "1")
    wrong = 1 if mulligan.make("bandit", 1).paying != 1 else 2
    terminal.until("> ")
    terminal.type(str(wrong))
    terminal.until("note> ")
    terminal.type("not that one")
    terminal.until("not that one")
    terminal.until("> ")
    terminal.type(str(mulligan.make("bandit", 1).paying))
    terminal.until("Episode 2: won")
    terminal.until("You won.")
    assert terminal.end() == 0
    board = Terminal("play", "minesweeper", "--seed", "3")
    screen = board.until("\n> ")
    assert "\x1b[" in screen  # colours
    while board.process.poll() is None:  # once is enough, unless it comes just before the terminal is read
        board.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    assert "Traceback" not in board.rest()
    assert board.end() == 130
