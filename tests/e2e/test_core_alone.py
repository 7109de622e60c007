"""The core without any extra: installs, answers --help, evaluates MineSweeper, and says what an extra is for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A new virtual environment with the core alone."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", ROOT], check=True, timeout=300)
    return folder


def call(core: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [core / "venv" / "bin" / "mulligan", *words]
    return subprocess.run(command, cwd=core, capture_output=True, text=True, timeout=120, check=False)


def test_core_evaluates_minesweeper(core):
    done = call(core, "eval", "minesweeper", "--policy", "expert", "--tasks", "50", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["p"][0] > 0.6


def test_core_answers_help_and_lists_environments(core):
    assert "mulligan eval" in call(core, "--help").stdout
    assert "tictactoe" in call(core, "envs").stdout


def test_core_says_which_extra_a_game_needs(core):
    done = call(core, "eval", "tictactoe", "--policy", "random", "--tasks", "5")
    assert done.returncode == 2
    assert ".[games]" in done.stderr
    assert done.stderr.count("\n") == 1
