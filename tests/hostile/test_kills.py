"""SIGKILL at random moments, resumed, and again: the result is that of a process that was left alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.chat_server import ChatServer
from tests.e2e.test_kill import Host, contents, player, whole  # noqa: F401 (the fixtures)
from tests.e2e.test_sweep import WITHOUT_WARM_START

COMMAND = [sys.executable, "-m", "mulligan"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_training_is_killed(row, player: Host, whole: Path, tmp_path):  # noqa: F811
    """From outside, by the clock: also in the middle of what tests/e2e/test_kill.py knows nothing of."""
    one, draw, kills = row("Kills", "SIGKILL of a training run"), random.Random(1), 0
    expected = contents(whole)
    while kills < 8:  # a run may be through before it is killed
        run = tmp_path / f"run{kills}"
        for _ in range(min(4, 8 - kills)):
            kills += player.play(run, after=draw.uniform(0.0, 0.7)) == -signal.SIGKILL
        assert player.play(run) == 0
        differing = [name for name, content in contents(run).items() if content != expected.get(name)]
        for _ in range(kills - sum(one.counts.values())):
            one.lost(f"{differing} differ") if differing else one.unharmed()


def killed(words: list[str], begun: Path, draw: random.Random, seconds: float) -> bool:
    """Start a command and kill it, with all that it has started, a moment after it has written into a folder;
    returns whether it was still at work."""
    before = state(begun)
    with subprocess.Popen(
        [*COMMAND, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        while process.poll() is None and state(begun) == before:
            time.sleep(0.01)  # it is still importing
        time.sleep(draw.uniform(0.0, seconds))
        if process.poll() is None and draw.random() < 0.5:
            process.kill()  # what it has started ends by itself
        elif process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[1].decode()
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode != 0


def state(folder: Path) -> list[tuple[str, int]]:
    """What changes when a run goes on."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            found.append((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:  # renamed in the meantime
            continue
    return found


def finished(words: list[str]) -> None:
    done = subprocess.run([*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def figures(file: Path) -> dict[str, Any]:
    """A result but for times and counts of requests."""
    result = json.loads(file.read_text())
    timed = ("seconds", "evaluation_seconds", "turns_per_second", "requests", "spent", "run", "tokens", "cost")
    return {name: value for name, value in result.items() if name not in timed}


def test_a_paid_evaluation_is_killed(row, tmp_path, monkeypatch):
    """Its result is that of one that was left alone, and no reply that was stored is paid for again."""
    monkeypatch.chdir(tmp_path)
    one, draw = row("Kills", "SIGKILL of a paid evaluation"), random.Random(2)
    with ChatServer(hold=0.02) as server:
        words = ["eval", "minesweeper", "--tasks", "20", "--policy", "endpoint:m", "--base-url", server.base_url]
        words += ["--concurrency", "4", "--no-room", "--run"]
        finished([*words, "alone"])
        alone, kills = server.answered, 0
        while kills < 8:
            kills += killed(
                [*words, "run"] if not kills else ["eval", "--resume", "run", "--trust"], Path("run"), draw, 0.4
            )
        finished(["eval", "--resume", "run", "--trust"])
    lines = [line for file in Path("run/paid").iterdir() for line in file.read_text().splitlines()]
    replies = Counter(line.partition(" ")[2].partition("{")[0] for line in lines)  # conversation, number and messages
    twice = [key for key, count in replies.items() if count > 1]
    in_flight = server.answered - 2 * alone
    for _ in range(kills):
        if twice or not 0 <= in_flight <= 4 * kills:
            one.lost(f"{len(twice)} replies that were stored were paid for again, {in_flight} others")
        elif figures(Path("run/result.json")) != figures(Path("alone/result.json")):
            one.lost("another result")
        else:
            one.unharmed()


def test_a_sweep_is_killed(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, draw = row("Kills", "SIGKILL of a sweep"), random.Random(3)
    Path("sweep.toml").write_text(WITHOUT_WARM_START.replace('"run.updates" = 1', '"run.updates" = 6'))
    words = ["sweep", "sweep.toml", "--cores", "2", "--run"]
    finished([*words, "alone"])
    kills = 0
    while kills < 4:
        shutil.rmtree("run", ignore_errors=True)
        for _ in range(4 - kills):
            kills += killed([*words, "run"], Path("run"), draw, 6.0)
        finished([*words, "run"])
        differing = [
            file.parent.name
            for file in sorted(Path("alone").glob("*/arm.json"))
            if figures(file) != figures(Path("run", file.parent.name, "arm.json"))
        ]
        for _ in range(kills - sum(one.counts.values())):
            one.lost(f"{differing} differ") if differing else one.unharmed()
