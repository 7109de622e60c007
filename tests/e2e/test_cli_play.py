"""`mulligan play` as a person meets it: a policy to watch, a terminal to play at."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, call

import mulligan

pytestmark = pytest.mark.usefixtures("folder")


def test_watching_a_policy(capsys):
    assert (
        call("play", "minesweeper", "--policy", "expert:0", "--seed", "1", "--episodes", "2", "--memory", "both") == 0
    )
    text = capsys.readouterr().out
    assert "> <action>(" in text
    assert "Episode 1:" in text


def test_nobody_at_the_keyboard(monkeypatch, capsys):
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        for words in (["eval", "bandit", "--policy", "human"], ["play", "bandit"]):
            assert call(*words) == 130
            assert "Traceback" not in capsys.readouterr().err


def test_a_person_sees_what_the_last_turn_did():
    done = subprocess.run(
        [*COMMAND, "play", "minesweeper", "--episodes", "1", "--env.turns", "1"],
        input="nonsense\n(1, 1)\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count("  1 2 3 4 5 6") == 2  # before the turn and after it, not after the typing error
    assert "after 1 turns" in done.stdout


def test_a_person_is_told_that_they_lost(monkeypatch, capsys):
    env = mulligan.make("minesweeper", 1)
    cell = min(env.mines)
    monkeypatch.setattr("builtins.input", lambda prompt: f"({cell // env.board.cols + 1}, {cell % env.board.cols + 1})")
    assert call("play", "minesweeper", "--seed", "1", "--episodes", "1") == 0
    assert "\nEpisode lost.\n" in capsys.readouterr().out


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
        self.press(f"{line}\n")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

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
    terminal.type("nonsense")  # costs no turn, also where an episode has only one
    terminal.until("\n> ")
    terminal.type(move)
    if env != "bandit":
        terminal.until("\n")
        terminal.type("q")
    assert terminal.end() == 0


def test_arrow_keys_move_where_moves_are_directions():
    terminal = Terminal("play", "sokoban", "--episodes", "1")
    terminal.until("\n> ")
    terminal.press("\x1b[A")
    terminal.until("up")
    terminal.until("\n> ")
    terminal.press("\x1bOD")
    terminal.until("left")
    terminal.until("\n> ")
    terminal.type("q")
    assert terminal.end() == 0


def test_a_line_can_be_edited():
    terminal = Terminal("play", "minesweeper", "--episodes", "1")
    terminal.until("\n> ")
    terminal.press("(1, 2)\x1b[D\x1b[D\x7f")  # left, left, backspace: the comma's space goes
    terminal.press("\x05\x15(3, 4)\n")  # to the end, all cleared and typed anew
    assert "not a move" not in terminal.until("\n> ")
    terminal.press("\x1b[A")  # the line before
    terminal.until("(3, 4)")
    terminal.press("\x15q\n")
    assert terminal.end() == 0


def test_a_random_task_says_which_it_is(capsys):
    seeds = set()
    for _ in range(3):
        assert call("play", "bandit", "--policy", "random", "--seed", "random", "--episodes", "1") == 0
        seeds.add(re.search(r"seed (\d+)", capsys.readouterr().out)[1])
    assert len(seeds) > 1
    assert call("play", "bandit", "--seed", "many") == 2


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
    assert terminal.end() == 0
    board = Terminal("play", "minesweeper", "--seed", "3")
    screen = board.until("\n> ")
    assert "\x1b[" in screen  # colours
    while board.process.poll() is None:  # once is enough, unless it comes just before the terminal is read
        board.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    assert "Traceback" not in board.rest()
    assert board.end() == 130
