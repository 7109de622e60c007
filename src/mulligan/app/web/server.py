"""The page over HTTP, for this machine alone, and the table at which the trial asks and whoever looks at it answers.

The trial runs in an event loop, requests come in threads of their own. Refused are requests under another host name (a
foreign page whose name was pointed here) and answers that come from another page than ours.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs

from mulligan.app.web.page import GOOD_BYE, WAIT, card
from mulligan.errors import UsageError
from mulligan.text import escape

ADDRESS = "127.0.0.1"
LARGEST = 2_000_000
"""Bytes of an answer: 100,000 characters, each written as up to twelve, and room."""
_PATIENCE = 20.0
"""Seconds that a request waits for the world to answer."""
LONGEST_REQUEST = 60.0
"""Seconds until a connection is closed, however it passes them: sent byte by byte, a request would hold its thread."""
MOST_CONNECTIONS = 32
"""Beyond these, the oldest is closed: browsers open a few."""
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
Render = Callable[[str], str]
"""Name of a page, which its answers give -> its HTML."""


class Table:
    """The present page, and the way back to whoever asked.

    Each question has a number, which its answer names: of two clicks on the same page only the first is an answer.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        """Names this table, so that pages of an earlier one, or of others, cannot answer."""
        self.number, self.html, self.is_over = 0, "", False
        self.left = threading.Event()
        """Set when the person is done with the last page."""
        self._changed = threading.Condition()
        self._answer: Future[str] | None = None

    async def ask(self, render: Render) -> str:
        answer: Future[str] = Future()
        self._show(render, answer)
        waiting = asyncio.wrap_future(answer)
        # Ctrl-C between the last line of Python and the loop's sleep would be slept through: it wakes every second.
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=1.0)
        return waiting.result()

    def finish(self, render: Render) -> None:
        """Show the last page, which asks for nothing."""
        self._show(render, None)

    def answer(self, page: str, text: str) -> None:
        """Answer the question that `page` shows; nothing happens where that is not the present one."""
        with self._changed:
            if page == self.page and self._answer is not None and not self._answer.done():
                self._answer.set_result(text)

    def present(self, seconds: float) -> str:
        """The present page; empty while the world takes longer than `seconds`."""

        def is_settled() -> bool:
            return self.is_over or (self._answer is not None and not self._answer.done())

        with self._changed:
            return self.html if self._changed.wait_for(is_settled, timeout=seconds) else ""

    @property
    def page(self) -> str:
        return f"{self.token}.{self.number}"

    def _show(self, render: Render, answer: Future[str] | None) -> None:
        with self._changed:
            self.number += 1
            self.html, self._answer, self.is_over = render(self.page), answer, answer is None
            self._changed.notify_all()


@contextmanager
def serving(table: Table, port: int = 0) -> Iterator[str]:
    """Inside, `table` can be seen at the address this gives; `port` 0 takes any that is free."""
    handler = type("TableHandler", (_Handler,), {"table": table})
    try:
        server = _Server((ADDRESS, port), handler)
    except (OSError, OverflowError) as failure:
        raise UsageError(f"port {port} of {ADDRESS}: {failure}; give another --port") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{ADDRESS}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(socketserver.ThreadingTCPServer):  # an HTTPServer would ask the network for this machine's name
    allow_reuse_address = True
    request_queue_size = MOST_CONNECTIONS
    daemon_threads = True  # connections that a browser only keeps open must not keep the program

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.opened: dict[socket.socket, float] = {}
        """Connections, the oldest first, and when they began."""

    def process_request(self, request: Any, client_address: Any) -> None:
        self.opened[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.opened.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called after each connection, and ten times a second: ends those that are too old or too many."""
        opened = self.opened.copy()
        for number, (request, since) in enumerate(opened.items()):
            if len(opened) - number > MOST_CONNECTIONS or time.monotonic() - since > LONGEST_REQUEST:
                with suppress(OSError):  # it may have just ended by itself
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Browsers drop connections as they like; anything else is a mistake of ours to be seen."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    table: ClassVar[Table]
    timeout = 30
    server_version, sys_version = "mulligan", ""

    def do_GET(self) -> None:
        if self._is_ours():
            self._send(200, self.table.present(_PATIENCE) or card(WAIT))

    def do_POST(self) -> None:
        if not self._is_ours():
            return
        form = self._form()
        name = form.get("page", "")
        if "leave" in form and self.table.is_over and name == self.table.page:
            self._send(200, card(GOOD_BYE))
            self.wfile.flush()
            self.table.left.set()
            return
        self.table.answer(name, form.get("before", "") + form.get("say", "") + form.get("after", ""))
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the terminal is for the person, not for requests."""

    def _is_ours(self) -> bool:
        """Whether the request is meant for this page; answers it otherwise."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        if host.rpartition(":")[0] not in (ADDRESS, "localhost") and host not in (ADDRESS, "localhost"):
            self._refuse(403, f"This page is for {ADDRESS} only.")
        elif origin is not None and origin != f"http://{host}":
            self._refuse(403, "Answers must come from this page.")
        elif self.path.partition("?")[0] != "/":
            self._refuse(404, "There is no such page.")
        else:
            return True
        return False

    def _form(self) -> dict[str, str]:
        """The fields that were sent, as far as an answer may be long."""
        header = self.headers.get("Content-Length", "")
        length = min(int(header[:9]), LARGEST) if header.isdecimal() else 0
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the answer was cut off, and would be another one")
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        return {name: values[0] for name, values in fields.items()}

    def _refuse(self, status: int, reason: str) -> None:
        self._send(status, card(f'<h1>{escape(reason)}</h1><p><a href="/">To the page</a></p>'))

    def _send(self, status: int, html: str) -> None:
        body = html.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
