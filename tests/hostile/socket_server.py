"""A server on 127.0.0.1 that answers every request with the bytes it is given, and need not speak HTTP at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

Pieces = bytes | Iterable[bytes]
"""What is sent, piece by piece; an empty piece is a pause of 50 ms. The connection is closed after the last."""


def http(body: bytes, *headers: str, status: str = "200 OK", length: object = None) -> bytes:
    """A response; `length` is what it says of its body."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat(content: Any = "<action>1</action>", **fields: Any) -> bytes:
    """The body of an answer; `fields` replace its own."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"id": "1", "model": "m", "choices": [choice], **fields}).encode()


class SocketServer:
    """Use it in a ``with`` block."""

    def __init__(self, answer: Callable[[], Pieces]) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        """As they came, heads and bodies."""
        self.sent = 0
        """Bytes."""
        self.connections = 0

    def __enter__(self) -> SocketServer:
        self._closing = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with socket.create_connection(self._listening.getsockname()):
            pass  # wakes `accept`
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _listen(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            if self._closing.is_set():
                connection.close()
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(20.0)
        with connection:
            try:
                self.requests.append(self._request(connection))
                answer = self.answer()
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    if self._closing.is_set():
                        break
                    if not piece:
                        self._closing.wait(0.05)
                    connection.sendall(piece)
                    self.sent += len(piece)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # closing with unread bytes would reset the connection
                    pass
            except OSError:
                pass  # the client has hung up

    def _request(self, connection: socket.socket) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                return received
            received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        while len(body) < length and (piece := connection.recv(65536)):
            received, body = received + piece, body + piece
        return received
