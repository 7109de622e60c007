"""A way to a server on which requests and answers meet with mishaps that a test chooses."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Body = dict[str, Any]
DROPPED = -1
"""As the status of an answer: the connection is closed without one."""


@dataclass
class FaultyWay:
    """A proxy on a port of its own. Where nothing is chosen, requests and answers pass as they are."""

    target: str
    before: Callable[[str, Body], tuple[int, Body] | None] = lambda call, body: None
    """Called with the name of a call (``asample``) and its body, which it may change; what it returns is the answer."""
    after: Callable[[str, Body, Body], Body] = lambda call, body, answer: answer
    """Called with the server's answer as well; returns the one that is passed on."""
    calls: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> FaultyWay:
        way = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                way.answer(self)

            def do_POST(self) -> None:
                way.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.client = httpx.Client(base_url=self.target, timeout=400)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.client.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        content = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        body: Body = json.loads(content) if content else {}
        call = request.path.rpartition("/")[2]
        self.calls[call] += 1
        status, answer = self.before(call, body) or self._passed(request, call, body)
        if status == DROPPED:
            request.close_connection = True
            return
        payload = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(payload)))
        request.end_headers()
        request.wfile.write(payload)

    def _passed(self, request: BaseHTTPRequestHandler, call: str, body: Body) -> tuple[int, Body]:
        try:
            passed = self.client.request(request.command, request.path, json=body or None)
        except httpx.HTTPError:  # the server is away
            return DROPPED, {}
        answer = passed.json()
        return passed.status_code, self.after(call, body, answer) if passed.is_success else answer
