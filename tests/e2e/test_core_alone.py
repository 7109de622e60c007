"""The core without any extra: installs, answers --help, evaluates MineSweeper, and says what an extra is for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


WITHOUT_EXTRAS = """
import sys
EXTRAS = ("torch", "transformers", "pyspiel", "Stemmer", "pandas", "matplotlib", "sqlalchemy", "uvicorn", "aiohttp")
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from mulligan.app.cli import main
main()
"""


@pytest.fixture(scope="module", params=["hidden", pytest.param("not installed", marks=pytest.mark.slow)])
def core(request, tmp_path_factory):
    """The command where extras are hidden, and in a new virtual environment with the core alone."""
    if request.param == "hidden":
        return [sys.executable, "-c", WITHOUT_EXTRAS]
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", ROOT], check=True, timeout=300)
    return [folder / "venv" / "bin" / "mulligan"]


@pytest.fixture
def call(core, tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*core, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run


def test_core_evaluates_minesweeper(call):
    done = call("eval", "minesweeper", "--policy", "expert", "--tasks", "50", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["p"][0] > 0.6


def test_core_answers_help_and_lists_environments(call):
    assert "mulligan eval" in call("--help").stdout
    assert "tictactoe" in call("envs").stdout


def test_core_says_which_extra_a_game_needs(call):
    done = call("eval", "tictactoe", "--policy", "random", "--tasks", "5")
    assert done.returncode == 2
    assert ".[games]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_core_says_which_extra_the_proxy_needs(call):
    done = call("serve", "--upstream", "http://127.0.0.1:1/v1")
    assert done.returncode == 2
    assert ".[serve]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_core_says_which_extra_a_journal_needs(call):
    done = call("eval", "minesweeper", "--policy", "expert", "--tasks", "5", "--journal", "agent.db")
    assert done.returncode == 2
    assert ".[journal]" in done.stderr
    assert done.stderr.count("\n") == 1
