"""Listening: a socket of our own, a bound on what comes before a request's body, and uvicorn."""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mulligan.errors import UsageError

LONGEST_HEAD = 512 * 1024
"""Bytes of a connection that has no complete head of a request: uvicorn itself sets no limit, whoever asks."""
_GRACE = 10
"""Seconds that requests have to end once the server is asked to stop."""


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's own, which closes a connection whose head does not end."""

    _head = 0

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        if self._head > LONGEST_HEAD:
            self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._head = -sys.maxsize  # what follows is a body, which has a limit of its own
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()


def bound(host: str, port: int) -> socket.socket:
    """A socket that is bound; `port` 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off, which would hold up answers by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as failure:
        listener.close()
        raise UsageError(f"port {port} of {host}: {failure}; give another --port") from None
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: Any) -> uvicorn.Server:
    """Without uvicorn's own lines for each request: paths and queries may hold keys."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_GRACE,
            backlog=1024,
        )
    )
