"""Hostile and broken model servers: no traceback, bounded memory and time, and the key neither kept nor printed."""

from __future__ import annotations

import gzip
import json
import re
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import KEY
from tests.hostile.conftest import Row
from tests.hostile.socket_server import Pieces, SocketServer, chat, http
from tests.tool_worlds import SafeOfTools

import mulligan
from mulligan.app.cli import main
from mulligan.envs import registry
from mulligan.policy import endpoint
from mulligan.report.run import RunFolder, trial_from_dict, trial_to_dict
from mulligan.seeding import generator
from mulligan.trial.reflection import parse_reflection
from mulligan.types import Completion, Trial

MOST_MEMORY, MOST_SENT, MOST_SECONDS = 256 * 2**20, 64 * 2**20, 60.0
"""Of one evaluation; far more than any should take, and far less than an answer without end would."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def attacker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Attacker:
    """A key, no proxy, and short pauses."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(endpoint, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(endpoint, "CONNECT_TIMEOUT", 0.5)
    return Attacker(tmp_path, capsys)


class Attacker:
    """Evaluates a model behind a hostile server, and says of each try how it ended."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.tries = folder, capsys, 0

    @property
    def run(self) -> Path:
        return self.folder / str(self.tries)

    def attack(self, row: Row, name: str, answer: Callable[[], Pieces] | bytes, *words: str) -> SocketServer:
        """One evaluation, in which the server gives `answer` to every request."""
        with SocketServer(answer if callable(answer) else lambda: answer) as server:
            code = self.evaluate(row, name, f"http://{server.host}/v1", *words)
        if server.sent > MOST_SENT:
            row.let_in(f"{name}: {server.sent / 2**20:.0f} MB were read")
        elif code is not None:
            row.told() if code else row.unharmed()
        return server

    def attack_each(self, row: Row, answers: Sequence[bytes], *words: str) -> list[Trial]:
        """One evaluation, each trial of which asks once, and gets another of `answers`; the first gets a good one."""
        waiting = iter([http(chat()), *answers])
        words = ("--tasks", str(len(answers) + 1), "--concurrency", "1", "--retries", "0", *words)
        with SocketServer(lambda: next(waiting)) as server:
            if self.evaluate(row, "one of many", f"http://{server.host}/v1", *words) is None:
                return []
        trials = [trial for _, trial in sorted(RunFolder.open(self.run).trials("main").items())]
        for trial, answer in zip(trials[1:], answers, strict=True):
            episode = trial.episodes[0]
            if episode.error and "\n" not in episode.error:
                row.told()
            elif episode.error or not episode.turns:
                row.lost(f"{answer[:200]!r}: {episode.error}")
            else:
                row.unharmed()
        return trials[1:]

    def evaluate(self, row: Row, name: str, url: str, *words: str) -> int | None:
        """The exit code; None where the try went wrong, which is counted."""
        self.tries += 1
        command = ["eval", "bandit", "--tasks", "1", "--episodes", "1", "--no-room", "--controls", ""]
        started = time.monotonic()
        try:
            main([*command, "--run", str(self.run), "--policy", "endpoint:m", "--base-url", url, *words])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except Exception as error:
            row.lost(f"{name}: {error!r}")
            return None
        finally:
            printed = self.capsys.readouterr()
        errors = [
            line for line in printed.err.splitlines() if not re.fullmatch(r"main: \d+ of \d+ trials|estimate: .*", line)
        ]
        if KEY[:12] in printed.out + printed.err or any(KEY[:12].encode() in text for text in contents_of(self.run)):
            row.let_in(f"{name}: some of the key was kept or printed")
        elif CONTROL.search(printed.out + printed.err):
            row.let_in(f"{name}: control characters were printed")
        elif time.monotonic() - started > MOST_SECONDS:
            row.let_in(f"{name}: {time.monotonic() - started:.0f} s")
        elif len(errors) != bool(code) or not all(line.startswith("mulligan: ") for line in errors):
            row.lost(f"{name}: exit code {code}, {errors}")
        else:
            return code
        return None


def contents_of(folder: Path) -> Iterator[bytes]:
    """Names and contents of all files of a folder, unpacked where they are packed."""
    for path in folder.rglob("*"):
        yield path.name.encode()
        if path.is_file():
            content = path.read_bytes()
            yield content
            if path.suffix == ".gz":
                yield gzip.decompress(content)


def bomb(wbits: int) -> bytes:
    """Zeros, packed: some MB that would be 4 GB."""
    packing = zlib.compressobj(wbits=wbits)
    first, again = (packing.compress(bytes(2**20)) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + 4095 * again


def test_answers_without_end(row, attacker: Attacker) -> None:
    one = row("Endpoints", "answers without end")
    packed, block, pause = bomb(31), b"x" * 65536, b""
    head = b"HTTP/1.1 200 OK\r\n"
    gzip_head, chunked_head = head + b"Content-Encoding: gzip\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\n"
    modes: dict[str, Callable[[], Pieces]] = {
        "a bomb of gzip": lambda: http(packed, "Content-Encoding: gzip"),
        "a bomb of deflate": lambda: http(bomb(15), "Content-Encoding: deflate"),
        "a bomb in a bomb": lambda: http(gzip.compress(packed), "Content-Encoding: gzip, gzip"),
        "a bomb in a refusal": lambda: http(packed, "Content-Encoding: gzip", status="404 Not Found"),
        "unknown packing": lambda: http(packed, "Content-Encoding: br"),
        "bytes after the end of gzip": lambda: chain([gzip_head + gzip.compress(chat())], repeat(block)),
        "gzip of nothing": lambda: chain([gzip_head + gzip.compress(b"")[:10]], repeat(b"\0\0\0\xff\xff" * 10_000)),
        "an endless body": lambda: chain([head + b"\r\n"], repeat(block)),
        "an endless body of blanks": lambda: chain([head + b"\r\n"], repeat(b" " * 65536)),
        "endless chunks": lambda: chain([chunked_head], repeat(b"10000\r\n%b\r\n" % block)),
        "an endless refusal": lambda: chain([b"HTTP/1.1 400 Bad\r\n\r\n"], repeat(block)),
        "a length of nineteen digits": lambda: chain([http(b"", length=10**18)], repeat(block)),
        "a trickled body": lambda: chain([http(b"{", length=1000)], chain.from_iterable(repeat((pause, b" ")))),
        "a trickled head": lambda: chain([head], chain.from_iterable(repeat((pause, b"X-A: b\r\n")))),
        "endless headers": lambda: chain([head], repeat(b"X-A: %b\r\n" % (b"b" * 1000))),
        "an endless header": lambda: chain([head + b"X-A: "], repeat(block)),
        "endless trailers": lambda: chain([chunked_head + b"0\r\n"], repeat(b"X-A: b\r\n")),
        "endless promises": lambda: chain.from_iterable(repeat((b"HTTP/1.1 100 Continue\r\n\r\n", pause))),
        "no first byte": lambda: repeat(pause),
        "a text of 20 MB": lambda: http(chat("a" * 20_000_000)),
        "a text of 3 MB": lambda: http(chat("<action>" * 400_000)),
        "millions of lists": lambda: http(b"[" + b"[]," * 1_300_000 + b"[]]"),
        "lists in lists": lambda: http(b"[" * 4_000_000),
        "objects in objects": lambda: http(b'{"a":' * 800_000),
        "a number of 4 MB": lambda: http(b"1" * 4_000_000),
    }
    for name, answer in modes.items():
        tracemalloc.start()
        attacker.attack(one, name, answer, "--timeout", "1", "--retries", "0")
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if memory > MOST_MEMORY:
            one.let_in(f"{name}: {memory / 2**20:.0f} MB of memory")


def test_answers_that_are_not_http(row, attacker: Attacker) -> None:
    one = row("Endpoints", "answers that are not HTTP")
    good, chunked = http(chat()), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    attacker.attack_each(
        one,
        [
            b"", good[:20], http(chat(), length=10_000), http(chat(), length=10), b"HTTP/1.1 200 OK\r\n\r\n" + chat(),
            http(chat(), length=-5), http(chat(), length="many"), http(chat(), "Content-Length: 7"),
            chunked + b"zzz\r\n" + chat(), chunked + b"-1\r\n" + chat(), chunked + b"fffffffffffffffffff\r\n" + chat(),
            http(chat(), "Transfer-Encoding: chunked"), http(chat(), "Transfer-Encoding: secret"),
            b"SSH-2.0-OpenSSH_9.6\r\n", chat(), b"\x16\x03\x01" + bytes(200),
            *(good.replace(b"HTTP/1.1", version) for version in (b"HTTP/9.9", b"HTTP/2", b"ICY")),
            *(good.replace(b"200 OK", status) for status in (b"099 Odd", b"999 Odd", b"-1 Odd", b"200", b"204 No")),
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
            good.replace(b"Content-Length", b"Nonsense\r\nContent-Length"), http(chat(), "X-A: \x00\x1b[2J\x07"),
            http(b"", status="500 \x1b]52;c;aGk=\x07\x1b[2J"), http(b"", status="400 \x9b2J\u202e"),
            http(gzip.compress(chat())[:-30] + bytes(30), "Content-Encoding: gzip"),
            http(gzip.compress(chat())[:-40], "Content-Encoding: gzip"), http(chat(), "Content-Encoding: gzip"),
            http(chat().decode().encode("utf-16"), "Content-Type: application/json; charset=koi8-r"),
            http(chat("ABC").replace(b"ABC", b"\xff\xfe\xc0\x80")), http(b"\xff\xfe\xc0\x80", status="400 Bad"),
        ],
    )  # fmt: skip
    with SocketServer(lambda: good) as server:
        code = attacker.evaluate(
            one, "TLS to a plain port", f"https://{server.host}", "--retries", "0", "--timeout", "1"
        )
    assert code == 1
    one.told()
    assert attacker.evaluate(one, "nobody there", f"http://{server.host}", "--retries", "0") == 1
    one.told()


def test_refusals(row, attacker: Attacker) -> None:
    one = row("Endpoints", "refusals that ask for an absurd pause")
    pauses = ("1e308", "9" * 400, "inf", "nan", "-1", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 99 Foo 0000", "\x85")
    for status in ("429 Too Many", "503 Unavailable", "401 No", "404 No"):
        for pause in pauses:
            answer = http(b'{"error": {"message": "later"}}', f"Retry-After: {pause}", "Date: never", status=status)
            attacker.attack(one, f"{status}, {pause}", answer, "--retries", "2")


WRONG_VALUES = [
    None, True, -1, 1e308, float("nan"), float("inf"), 10**400, "", "text", "\ud83d", "\x00\x1b[2J", "\u202e\x9b", [],
    [None], [[]], ["text"], {}, {"text": 1}, {"0": {}}, [{"type": "text"}], [{"type": "text", "text": 5}],
]  # fmt: skip


def test_answers_of_a_wrong_form(row, attacker: Attacker) -> None:
    one = row("Endpoints", "answers of a wrong form")
    message = {"role": "assistant", "content": "<action>1</action>"}
    bodies = [b"", b"null", b"5", b'"text"', b"[]", b"{}", b"<html><body>Bad gateway</body></html>", b"NaN", b"\x00"]
    bodies += [b"data: " + chat() + b"\n\ndata: [DONE]\n", chat() + chat(), chat()[:-1] + b', "choices": 5}']
    bodies += [b"[" * 900 + b"]" * 900, b'{"error": ' * 900 + b"1" + b"}" * 900]
    refusals: list[bytes] = []
    for value in WRONG_VALUES:
        bodies += [
            json.dumps({"choices": value}).encode(),
            chat(choices=[value]),
            chat(choices=[{"message": value}]),
            chat(value),
            chat(choices=[{"message": {**message, "tool_calls": value}, "finish_reason": value}]),
            chat(choices=[{"message": {**message, "tool_calls": [{"id": value, "function": value}]}}]),
            chat(choices=[{"message": {**message, "tool_calls": [{"function": {"name": value, "arguments": value}}]}}]),
            chat(choices=[{"message": {"content": value, "reasoning": value, "refusal": value}}]),
            chat(usage=value, model=value, id=value),
            json.dumps({"error": value}).encode(),
        ]
        errors = ({"error": value}, {"error": {"message": value, "code": value, "type": value}}, {"detail": value})
        refusals += [json.dumps(error).encode() for error in errors]
    attacker.attack_each(one, [http(body) for body in bodies])
    for status in ("400 Bad", "500 Oops"):
        attacker.attack_each(one, [http(body, status=status) for body in refusals])


NESTED: Any = {"code": 1}
for _ in range(850):
    NESTED = {"code": NESTED}
CALLS: list[Any] = [
    {"function": {"name": name, "arguments": arguments}, "id": "1"}
    for name in ("listen", "try_code", "", "\x1b[2J", "x" * 10_000, "\ud83d", "</action>")
    for arguments in (
        *WRONG_VALUES, "{}", "{", "[1]", '{"code": 1}', '{"code": 1e999}', '{"code": NaN}', "[" * 5_000, "x" * 100_000,
        '{"code": ' + "9" * 5_000 + "}", '{"code": "</action><action>"}', '{"code": "\\ud83d"}',
        NESTED, json.dumps(NESTED),
    )
]  # fmt: skip


def test_tool_calls(row, attacker: Attacker) -> None:
    """Whatever is called, the world that offers tools gets a call that fits or none, and the trial can be stored."""
    one = row("Endpoints", "tool calls that are none")
    task = mulligan.make_task(SafeOfTools, seed=5, params={"turns": len(CALLS) + 8})
    calls = iter([[call] for call in CALLS] + [CALLS[:2], CALLS[:200], [*CALLS[:1], 5], [{"function": 5}]])

    def answer() -> bytes:
        return http(chat(choices=[{"message": {"content": None, "tool_calls": next(calls, [])}}]))

    with SocketServer(answer) as server:
        policy = endpoint.EndpointPolicy("m", f"http://{server.host}", backoff=0.0)
        trial = mulligan.run_trial_sync(task, policy, episodes=1, window=3)
    (episode,) = trial.episodes
    assert trial_from_dict(json.loads(json.dumps(trial_to_dict(trial)))) == trial
    assert len(episode.turns) == task.turns, episode.error
    for turn in episode.turns:
        if turn.valid:
            one.unharmed()
        elif turn.fault is not None and turn.feedback:
            one.told()
        else:
            one.lost(f"{turn.reply}")
    if max(map(len, server.requests)) > 500_000:
        one.let_in(f"{max(map(len, server.requests)):,} bytes were sent back")


def test_counts_nobody_can_have(row, attacker: Attacker) -> None:
    one = row("Endpoints", "token counts that nobody can have")
    counts = ["9" * 400, "-1", "1.5", "1e999", "NaN", "-Infinity", '"7"', "true", "null", "[]", "{}", "1e308"]
    counts += [str(2**63), str(2**64)]
    usages = [f'{{"prompt_tokens": {count}, "completion_tokens": {count}}}' for count in counts]
    answers = [http(chat()[:-1] + f', "usage": {usage}}}'.encode()) for usage in [*usages, "9" * 4000, "9" * 5000]]
    trials = attacker.attack_each(one, answers, "--price-in", "1", "--price-out", "1")
    replies = [turn.reply for trial in trials for turn in trial.episodes[0].turns]
    assert len(replies) == len(answers) - 1  # a number of 5,000 digits is none that Python reads
    for reply in replies:
        assert type(reply.prompt_tokens) is type(reply.completion_tokens) is int
        assert 10 < reply.prompt_tokens < 1000
        assert 0 < reply.completion_tokens < 10


def test_a_key_that_comes_back(row, attacker: Attacker) -> None:
    one = row("Endpoints", "a key that comes back")
    escaped = "".join(f"\\u{ord(character):04x}" for character in KEY)
    error = json.dumps({"error": {"message": f"Incorrect key: {KEY}", "code": KEY, "type": KEY}}).encode()
    parts = [{"type": "text", "text": KEY[:9]}, {"type": "text", "text": KEY[9:]}]
    full = json.dumps({"error": {"message": f"maximum context length {KEY}"}}).encode()
    answers = [
        http(chat(f"<action>1</action> {KEY} <reflection>plan: {KEY}</reflection>")),
        http(chat("KEY <action>1</action>").replace(b"KEY", escaped.encode())),
        http(chat(parts)),
        http(chat(choices=[{"message": {"content": KEY, "reasoning_content": KEY, "refusal": KEY}}])),
        http(chat(choices=[{"message": {"content": "", "reasoning": "x" * (endpoint.LONGEST_REPLY - 15) + KEY}}])),
        http(chat(choices=[{"message": {"tool_calls": [{"id": KEY, "function": {"name": KEY, "arguments": KEY}}]}}])),
        http(chat(model=KEY, id=KEY, usage={"prompt_tokens": KEY, KEY: 1})),
        http(chat(), f"X-Key: {KEY}", f"Set-Cookie: key={KEY}"),
        http(chat(), KEY),
        f"HTTP/1.1 {KEY}\r\n\r\n".encode(),
        http(chat(), length=KEY),
        http(b"", status=f"500 {KEY}"),
        http(error),
        http(b"[" + error + b"]", status="400 Bad"),
        http(full, status="400 Bad"),
        http(f"who are you, {KEY}?".encode(), status="500 Oops"),
        http(b" " * (1200 - 15) + KEY.encode(), status="500 Oops"),
        http(chat("x" * (endpoint.LONGEST_REPLY - 15) + KEY)),
        *(http(b"x" * length + KEY.encode(), status="400 Bad") for length in range(270, 300, 5)),
        http(json.dumps({"error": {"message": {KEY: [KEY]}}}).encode(), status="400 Bad"),
        *(http(error, status=f"{status} No") for status in (301, 401, 403, 404, 429)),
    ]
    attacker.attack_each(one, answers)


def test_redirects(row, attacker: Attacker) -> None:
    one = row("Endpoints", "redirects to another host")
    with SocketServer(lambda: http(chat())) as elsewhere:
        url = f"http://{elsewhere.host}/v1/chat/completions"
        answers = [http(b"", "Location: /v1/chat/completions", status="307 Temporary")]
        answers += [http(f'<meta http-equiv="refresh" content="0; url={url}">'.encode(), "Content-Type: text/html")]
        for status in (
            "300 Choose",
            "301 Moved",
            "302 Found",
            "303 See",
            "305 Proxy",
            "307 Temporary",
            "308 Permanent",
        ):
            for place in (url, f"//{elsewhere.host}/", f"http://me@{elsewhere.host}/"):
                headers = [f"Location: {place}", f"Refresh: 0; url={place}", f'Alt-Svc: h2="{elsewhere.host}"']
                answers.append(http(b"", *headers, status=status))
        attacker.attack_each(one, answers)
        if elsewhere.connections:
            one.let_in("another host was asked")


def test_cookies(row, attacker: Attacker) -> None:
    one = row("Endpoints", "cookies that pile up")
    numbers = iter(range(10_000))

    def answer() -> bytes:
        return http(chat("no action"), *(f"Set-Cookie: c{next(numbers)}={'x' * 500}" for _ in range(10)))

    server = attacker.attack(one, "cookies", answer, "--env.turns", "9")
    assert len(server.requests) == 9
    if any(b"cookie" in request.lower() for request in server.requests):
        one.let_in("cookies were sent back")


def test_long_replies(row, attacker: Attacker) -> None:
    """A conversation holds all replies, and sends them again with every request."""
    one = row("Endpoints", "long replies that pile up")
    server = attacker.attack(one, "replies", http(chat("x" * 3_000_000)), "--env.turns", "6")
    assert len(server.requests) == 6
    if max(map(len, server.requests)) > 2_000_000:
        one.let_in(f"{max(map(len, server.requests)):,} bytes were sent back")


KEYS = [
    "sk-abc123DEF456ghi789", "sk-proj-" + "aB3_" * 20, "AKIAIOSFODNN7EXAMPLE", "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFM",
    "gsk_abcDEF0123456789", "hf_QWERTYuiopASDF", "xai-0123456789", "0123456789abcdef0123456789abcdef",
    "ABCDEF0123456789ABCDEF0123456789", "Bearer sk-abc123", "sk-\x1b[2J-abc123",
]  # fmt: skip


def test_a_key_given_as_the_name_of_its_variable(row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = row("Endpoints", "a key given as the name of its variable")
    for number, key in enumerate(KEYS):
        for form in (["--api-key-env", key], [f"--api-key-env={key}"]):
            for command in (["eval", "bandit", "--run", str(tmp_path / str(number))], ["play", "bandit"]):
                with pytest.raises(SystemExit) as stopped:
                    main([*command, "--policy", "endpoint:m", "--base-url", "http://127.0.0.1:9", *form])
                printed = capsys.readouterr()
                if key in printed.out + printed.err or any(key.encode() in text for text in contents_of(tmp_path)):
                    one.let_in(f"{key}: {printed.err}")
                elif stopped.value.code == 2 and len(printed.err.splitlines()) == 1:
                    one.told()
                else:
                    one.lost(f"{key}: {printed.err}")


GAMES = [
    "bandit", "kuhn", "minesweeper", "minesweeper view=compact", "sokoban", "sokoban view=cells",
    "tictactoe opponent=random", "webshop", "webshop view=compact", "alfworld",
]  # fmt: skip
PIECES = [
    "<action>", "</action>", "<reflection>", "</reflection>", "<action></action>", "plan:", "{", "}", '{"plan": ', "[",
    "]", "search[", "click[", "(", ")", ",", ":", "-", "=", "0", "1", "9" * 30, "٣", "²", "\x00", "\x1b[2J", "\n", "\t",
    " " * 50, "\ud83d", "\u202e", "😀", "é", "up", "a1", "```", "json", "%s", "\\", '"', "'", "&", "nan", "1e999",
]  # fmt: skip


def test_fuzzed_replies(row) -> None:
    """Every game's parser, and that of reflections, take whatever a model may write."""
    one = row("Endpoints", "fuzzed replies, through every game")
    rng = generator(29, "fuzz")
    for game in GAMES:
        name, *params = game.split()
        env = registry.make(name, 0, **dict(param.split("=") for param in params))
        env.reset(0)
        for _ in range(2_000):
            reply = fuzzed(rng, [*env.legal()])
            try:
                step = env.step(reply)
                parse_reflection(Completion(reply), bare=rng.random() < 0.2)
            except Exception as error:
                one.lost(f"{game}: {reply!r}: {error!r}")
                continue
            one.told() if not step.valid else one.unharmed()
            if step.done:
                env.reset(0)


def fuzzed(rng, legal: list[str]) -> str:
    """Pieces of legal replies and of what parsers look for, in any order, or a legal reply with some of it changed."""
    pieces = [*PIECES, *rng.sample(legal, min(len(legal), 3))]
    if rng.random() < 0.5 and legal:
        text = rng.choice(legal)
        for _ in range(rng.randint(0, 3)):
            start = rng.randrange(len(text) + 1)
            text = text[:start] + rng.choice(pieces) + text[start + rng.randint(0, 4) :]
        return text
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, 12)))
