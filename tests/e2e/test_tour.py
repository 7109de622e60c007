"""docs/tour.md: every command that it names runs, and its Python too; training is shorter here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.e2e.command import call

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLAYED_BY_A_PERSON = ("mulligan play minesweeper", "mulligan view")
SMALLER = {
    "--run.updates 12": "--run.updates 1 --run.tasks 2 --model.name nano:hidden=32,layers=1",
    "256": "8",
    "64": "8",
}


@pytest.mark.slow
def test_every_command_of_the_tour_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "tour.md").read_text()
    blocks = [(kind, text) for kind, text in BLOCK.findall(page)]
    commands = [line.partition("  #")[0] for _, text in blocks for line in text.splitlines() if "mulligan " in line[:9]]
    assert len(commands) >= 8
    for command in commands:
        if command.strip() not in PLAYED_BY_A_PERSON:
            for usual, quick in SMALLER.items():
                command = command.replace(usual, quick)
            assert call(*shlex.split(command)[1:]) == 0, command
    assert (tmp_path / "runs" / "own" / "report.html").is_file()
    [python] = [text for kind, text in blocks if kind]
    exec(compile(python, "docs/tour.md", "exec"), {})
    assert "<Trial of minesweeper/6x6/4" in capsys.readouterr().out
