"""Escape sequences of models, servers and foreign run folders: none reaches the terminal; and long texts to be read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hostile.conftest import Row
from tests.hostile.socket_server import SocketServer, chat, http
from tests.hostile.test_endpoints import CONTROL, GAMES

import mulligan
from mulligan.app.cli import main
from mulligan.app.cli.show import transcript
from mulligan.app.web.page import Scene, page
from mulligan.app.web.stage import board_class
from mulligan.app.web.visitor import _HEADING, _split
from mulligan.envs import registry
from mulligan.policy.human import painted
from mulligan.report.run import RunFolder
from mulligan.text import storable, visible
from mulligan.trial.reflection import parse_reflection
from mulligan.types import Completion

SEQUENCES = {
    "the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "the clipboard, ended otherwise": "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "the title": "\x1b]0;root@host\x07",
    "a link": "\x1b]8;;http://elsewhere.example\x1b\\here\x1b]8;;\x1b\\",
    "a notification": "\x1b]9;hello\x07",
    "a file": "\x1b]1337;File=name=eA==:AAAA\x07",
    "the colours": "\x1b]4;1;?\x07",
    "an emptied screen": "\x1b[2J\x1b[3J\x1b[H",
    "the cursor": "\x1b[10A\x1b[2K",
    "another screen": "\x1b[?1049h",
    "a question": "\x1b[6n\x1b[c",
    "the keys": "\x1b[?1000h\x1b[>1u",
    "a reset": "\x1bc",
    "a string for the device": "\x1bP+q544e\x1b\\",
    "a command of the program": "\x1b_Gf=32\x1b\\",
    "other letters": "\x0e\x1b(0",
    "one byte for two": "\x9b2J\x9d52;c;aGk=\x9c",
    "a bell": "\x07",
    "back": "won\b\b\blost",
    "the line's beginning": "lost\rwon ",
    "a page": "\x0b\x0c",
    "nothing": "\x00\x7f",
    "from right to left": "\u202egnp.exe\u202c",
    "turned around": "\u2067abc\u2069\u200f\u061c",
    "half a character": "\ud83d",
    "lines of other alphabets": "a\x85b\u2028c",
}


def try_command(row: Row, name: str, capsys: pytest.CaptureFixture[str], *words: str, shows: str = "") -> None:
    """Run a command on something that holds a sequence; `shows`: what stood beside it must be printed."""
    try:
        main(list(words))
    except SystemExit:
        printed = "".join(capsys.readouterr())
        if match := CONTROL.search(printed):
            row.let_in(f"{name}: {words[0]} printed {printed[max(match.start() - 20, 0) :][:50]!r}")
        elif shows not in printed:
            row.lost(f"{name}: {shows!r} is not in {printed[-300:]!r}")
        else:
            row.unharmed()
    except Exception as error:
        row.lost(f"{name}: {words[0]}: {error!r}")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_sequences_of_a_model(row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = row("Terminal and pages", "escape sequences of a model")
    run = tmp_path / "run"
    replies = [
        f"<reflection>plan: {text} MARK</reflection><action>1</action> MARK {text}" for text in SEQUENCES.values()
    ]
    waiting = iter([chat(reply) for reply in replies for _ in range(3)])
    with SocketServer(lambda: http(next(waiting))) as server:
        policy = ["--policy", "endpoint:m", "--base-url", f"http://{server.host}"]
        words = ["--tasks", str(len(replies)), "--concurrency", "1", "--no-room", "--controls", "", "--stop", "never"]
        try_command(one, "all", capsys, "eval", "bandit", *policy, *words, "--episodes", "2", "--run", str(run))
    for number, name in enumerate(SEQUENCES, 1):
        try_command(one, name, capsys, "show", str(run), str(number), shows="MARK")
        try_command(one, name, capsys, "show", str(run), str(number), "--json", shows="MARK")
    for name, reply in zip(SEQUENCES, replies, strict=True):
        answer = http(chat(reply))
        with SocketServer(lambda answer=answer: answer) as server:
            words = ["--policy", "endpoint:m", "--base-url", f"http://{server.host}", "--episodes", "2"]
            try_command(one, name, capsys, "play", "bandit", *words, shows="MARK")


def test_sequences_of_a_server(row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = row("Terminal and pages", "escape sequences in a server's error")
    for number, (name, text) in enumerate(SEQUENCES.items()):
        answer = http(json.dumps({"error": {"message": f"MARK {text}", "code": text}}).encode(), status="400 Bad")
        with SocketServer(lambda answer=answer: answer) as server:
            words = ["--policy", "endpoint:m", "--base-url", f"http://{server.host}", "--episodes", "1"]
            try_command(one, name, capsys, "play", "bandit", *words, shows="MARK")
            words += ["--tasks", "1", "--no-room", "--controls", "", "--run", str(tmp_path / str(number))]
            try_command(one, name, capsys, "eval", "bandit", *words, shows="MARK")


def test_sequences_in_names(row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run folder of somebody else: its configuration, its results and its trials say what they like."""
    one = row("Terminal and pages", "escape sequences in the names of a run folder")
    made = tmp_path / "made"
    mulligan.evaluate("bandit", "random", tasks=2, controls=(), room=False, run=made)
    trials = RunFolder.open(made).trials("main")
    main_words = [
        "eval",
        "bandit",
        "--policy",
        "random",
        "--tasks",
        "2",
        "--no-room",
        "--run",
        str(tmp_path / "evaluated"),
    ]
    with pytest.raises(SystemExit):
        main(main_words)
    capsys.readouterr()
    result = json.loads((tmp_path / "evaluated" / "result.json").read_text())
    config = (tmp_path / "evaluated" / "config.toml").read_text()
    for number, (name, text) in enumerate(SEQUENCES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        marked = f"MARK {text}"
        renamed = {**result, "policy": marked, "env": marked, "run": marked, "game": {marked: marked}}
        (folder / "result.json").write_text(json.dumps(renamed))
        (folder / "config.toml").write_text(config.replace('"random"', json.dumps(f"MARK{storable(text)}")))
        for form in ([], ["--markdown"], ["--latex"], ["--csv"], ["--json"]):
            try_command(one, name, capsys, "compare", str(folder), str(folder), *form, shows="MARK")
        try_command(one, name, capsys, "eval", "--resume", str(folder))
        try_command(one, name, capsys, "show", str(folder))
        if "\x00" not in text and "\ud83d" not in text:
            try_command(one, name, capsys, "show", str(tmp_path / f"MARK {text.replace('/', '')}"), shows="MARK")
        endpoint = ["--base-url", "http://127.0.0.1:9", "--retries", "0"]
        try_command(one, name, capsys, "play", "bandit", "--policy", f"endpoint:[/] {marked}", *endpoint, shows="MARK")
        shown = visible(transcript(trials[0]) + marked)
        one.let_in(name) if CONTROL.search(shown) else one.unharmed()


# --- Long texts

SHAPES: dict[str, Callable[[int], str]] = {
    "blanks": lambda n: " " * n,
    "lines": lambda n: "\n" * n,
    "letters": lambda n: "a" * n,
    "colons": lambda n: "a: " * (n // 3),
    "dashes": lambda n: "- " * (n // 2),
    "fields": lambda n: "<reflection>" + "plan: x\n" * (n // 9) + "</reflection>",
    "one field of many lines": lambda n: "<reflection>plan: a\n" + "b\n" * (n // 2 - 20) + "</reflection>",
    "long lines": lambda n: "<reflection>" + (" " * 1990 + "a\n") * (n // 1993) + "</reflection>",
    "tags": lambda n: "<action>" * (n // 8),
    "closed tags": lambda n: "<action>1</action>" * (n // 18),
    "reflections": lambda n: "<reflection>" * (n // 12),
    "braces": lambda n: "<reflection>" + "{" * (n - 40) + "</reflection>",
    "beginnings": lambda n: "Episode 1 of 3 begins.\n" * (n // 23),
    "digits before a beginning": lambda n: "Episode " + "1" * n,
    "memory": lambda n: "What you remember of " + " " * n,
    "a blank opening": lambda n: "What you remember of episode 1:\n" + " " * n + "Episode 2 of 3 begins.\nboard",
    "escapes": lambda n: "\x1b[" * (n // 2),
    "brackets": lambda n: "search[" * (n // 7),
    "boards": lambda n: "1 2 3\n1 ? ?\n" * (n // 12),
    "commas": lambda n: "up, " * (n // 4),
}


def scene_of(text: str) -> str:
    scene = Scene(
        "title", 3, 10, observation=text, messages=[{"role": "user", "content": text}], sent=text, memory=text
    )
    return page(scene, "name")


READERS: dict[str, Callable[[str], object]] = {
    "the opening of an episode": lambda text: _HEADING.sub("", _split(text)[0]),
    "whether it is a board": board_class,
    "the page": scene_of,
    "the terminal": lambda text: painted(text, {"1": "red"}),
    "what is visible": visible,
    "a reflection": lambda text: parse_reflection(Completion(text)),
    "a bare reflection": lambda text: parse_reflection(Completion(text), bare=True),
}


def seconds_of(reader: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    reader(text)
    return time.process_time() - started


def grows_faster_than_the_text(reader: Callable[[str], object], text: Callable[[int], str], length: int) -> bool:
    """Whether four times the text takes over ten times the work; a busy machine may try twenty times."""
    long, short = seconds_of(reader, text(length)), float("inf")
    for _ in range(20):
        short = min(short, seconds_of(reader, text(length // 4)))
        if long < 0.2 or long < 10 * short:
            return False
        long = min(long, seconds_of(reader, text(length)))
    return True


def test_long_texts(row) -> None:
    """Four times the text takes about four times the work: something quadratic would take sixteen times."""
    one = row("Terminal and pages", "long texts that are slow to read")
    readers = dict(READERS)
    for game in GAMES:
        name, *params = game.split()
        env = registry.make(name, 0, **dict(param.split("=") for param in params))
        env.reset(0)
        readers[game] = env.step
    for name, reader in readers.items():
        for shape, text in SHAPES.items():
            for length in (99_000, 1_000_000) if name == "a reflection" else (99_000,):
                if grows_faster_than_the_text(reader, text, length):
                    one.let_in(f"{name} of {shape}: {length:,} characters")
                else:
                    one.unharmed()
