"""A small server that speaks ``/v1/chat/completions`` on 127.0.0.1, and fails in all the ways that real ones do.

``with ChatServer(faults=[429, "ok", "cut"]) as server: EndpointPolicy("m", server.base_url)``
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mulligan.seeding import derive

Messages = list[dict[str, Any]]
Answer = str | dict[str, Any]
"""A reply's text, or its message with all that a server may put there."""
Fault = int | str
"""A status, or one of: ok; slow (the client gives up first); cut (closes in the middle of the body); drop (closes
without a word); garbage (not JSON); error (status 200 with an error inside); context (too long); quota (the account is
empty); empty (null content); length (the token limit was reached); no-usage."""
_ANSWERED = ("ok", "empty", "length", "no-usage")
"""What a provider would send a bill for."""


SALT = 2
"""Decides which cells are opened; tests want games that last more than one move."""


@dataclass(frozen=True)
class Received:
    """One request as it came in."""

    number: int
    attempt: int
    """How many times the very same body had come before."""
    path: str
    port: int
    """The client's: equal ports, one connection."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: dict[str, Any]


def play(messages: Messages) -> str:
    """A closed cell of the board last shown, or a reflection where one is asked for; depends on the messages alone."""
    last = messages[-1]["content"]
    # Boards, replies and notes decide, not the wording around them.
    facts = [re.findall(r"^\d [?*0-8 ]+$|guess \d+|\d+ of \d+ begins", m["content"], re.MULTILINE) for m in messages]
    draw = derive(json.dumps(facts), SALT)
    if "Write a short reflection" in last:
        return f"<reflection>\nstrategy: guess {draw % 100}\noutcome: lost\nplan: guess again\n</reflection>"
    rows = re.findall(r"^(\d+) ([?*0-8](?: [?*0-8])*)$", last, re.MULTILINE)
    closed = [(y, x) for y, row in rows for x, cell in enumerate(row.split(), 1) if cell == "?"]
    y, x = closed[draw % len(closed)] if closed else (1, 1)
    return f"I open one.\n<action>({y}, {x})</action>"


def usage_of(messages: Messages, text: str) -> dict[str, int]:
    """Words, for tokens."""
    said = sum(len((message["content"] or "").split()) for message in messages)
    return {"prompt_tokens": said, "completion_tokens": len(text.split())}


@dataclass
class ChatServer:
    """The server; use it in a ``with`` block."""

    answer: Callable[[Messages], Answer] = play
    faults: Sequence[Fault] | Callable[[Received], Fault] = ()
    """What happens to each request, in the order they arrive; "ok" after the last."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every refusal: ``{"Retry-After": "0.01"}``."""
    message: str = "try later"
    """What a refusal says."""
    error: Mapping[str, Any] = field(default_factory=dict)
    """All that it says, if that is more."""
    hold: float = 0.0
    """Seconds every request stays in flight."""
    received: list[Received] = field(default_factory=list)
    answered: int = 0
    """Requests that were answered in full: the ones that cost money."""
    usage: list[dict[str, int]] = field(default_factory=list)
    """What each answer said it used."""
    most_in_flight: int = 0

    def __enter__(self) -> ChatServer:
        self._lock, self._closing, self._in_flight = threading.Lock(), threading.Event(), 0
        self._seen: dict[str, int] = {}
        self._http = _Threads(("127.0.0.1", 0), type("Handler", (_Handler,), {"chat": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.received]

    def take(self, path: str, port: int, headers: Mapping[str, str], content: bytes) -> tuple[Received, Fault]:
        """Record a request and decide what becomes of it."""
        body = json.loads(content)
        with self._lock:
            key = json.dumps(body)
            attempt = self._seen.get(key, 0)
            self._seen[key] = attempt + 1
            request = Received(len(self.received), attempt, path, port, headers, body)
            self.received.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        if callable(self.faults):
            return request, self.faults(request)
        return request, self.faults[request.number] if request.number < len(self.faults) else "ok"

    def leave(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the server's end."""
        self._closing.wait(seconds)

    def completion(self, request: Received, fault: Fault) -> dict[str, Any]:
        """The body of an answer, counted as paid for."""
        answer = self.answer(request.body["messages"])
        message = {"content": answer, "reasoning_content": "hm"} if isinstance(answer, str) else answer
        usage = usage_of(request.body["messages"], str(message.get("content") or ""))
        with self._lock:
            self.answered += 1
            self.usage.append(usage)
        message = {"role": "assistant", **message, **({"content": None} if fault == "empty" else {})}
        finish = "length" if fault == "length" else "stop"
        found = {"id": f"chat-{request.number}", "object": "chat.completion", "model": request.body["model"]}
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        return {**found, "choices": choices, **({} if fault == "no-usage" else {"usage": usage})}


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client may keep its connection open
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    chat: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 10

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request, fault = self.chat.take(self.path, self.client_address[1], headers, content)
        self.chat.wait(30 if fault == "slow" else self.chat.hold)
        self.chat.leave()  # before the answer: with it the client may send the next request
        try:
            self._respond(request, fault)
        except OSError:
            self.close_connection = True  # the client has hung up

    def _respond(self, request: Received, fault: Fault) -> None:
        if fault in ("slow", "drop"):
            self.close_connection = True
        elif fault == "cut":
            self._send(200, b'{"choices": [{"message": {"content": "<acti', missing=100)
            self.close_connection = True
        elif fault == "garbage":
            self._send(200, b"<html>Bad gateway</html>")
        elif fault == "error":
            self._send(200, json.dumps({"error": {"message": self.chat.message, "code": 502}}).encode())
        elif fault in ("context", "quota"):
            status, code = {"context": (400, "context_length_exceeded"), "quota": (429, "insufficient_quota")}[fault]
            self._send(status, json.dumps({"error": {"message": "refused", "code": code}}).encode())
        elif fault in _ANSWERED:
            self._send(200, json.dumps(self.chat.completion(request, fault)).encode())
        elif isinstance(fault, int):
            error = self.chat.error or {"message": self.chat.message}
            self._send(fault, json.dumps({"error": error}).encode(), self.chat.headers)
        else:
            raise ValueError(f"unknown fault {fault!r}")

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None, missing: int = 0) -> None:
        lines = {"Content-Type": "application/json", "Content-Length": str(len(body) + missing), **(headers or {})}
        head = f"HTTP/1.1 {status} {self.responses.get(status, ['Odd'])[0]}\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in lines.items()
        )
        self.wfile.write(f"{head}\r\n".encode() + body)  # in one piece: two would wait for each other on some systems

    def log_message(self, format: str, *args: object) -> None:
        pass
