"""A model's server that answers with exactly the bytes that a test gives it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    line: str
    headers: dict[str, str]
    """Names in lower case."""
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)


Answer = Callable[[Asked], AsyncIterator[bytes]]
"""Yields pieces of the answer's bytes, head and all; the connection is closed when it ends."""


def plain(body: Any, status: str = "200 OK", headers: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def chat(text: str) -> Any:
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}


EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: r1\r\nConnection: close\r\n\r\n"


async def says_hi(asked: Asked) -> AsyncIterator[bytes]:
    yield plain(chat("hi"))


@dataclass
class Upstream:
    """The server; use it in a ``with`` block."""

    answer: Answer = says_hi
    asked: list[Asked] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when a client closes its connection while it is being answered."""

    def __enter__(self) -> Upstream:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = starting.result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(line, headers, content))
            answering = asyncio.ensure_future(self._answer(writer))
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.hung_up.set()
            answering.cancel()
            gone.cancel()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        async for piece in self.answer(self.asked[-1]):
            writer.write(piece)
            await writer.drain()
