"""Where the trial and the browser meet: the trial asks, whoever looks at the page answers, once.

The trial runs in an event loop, requests come in threads of their own. Each question has a number; an answer names the
number it was written for, so that of two clicks on the same page only the first is an answer.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress

Render = Callable[[str], str]
"""Name of a page, which its answers give -> its HTML."""


class Table:
    """The present page, and the way back to whoever asked."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        """Names this table, so that pages of an earlier one, or of others, cannot answer."""
        self.number, self.html, self.is_over = 0, "", False
        self.left = threading.Event()
        """Set when the person is done with the last page."""
        self._changed = threading.Condition()
        self._deliver: Callable[[str], object] | None = None

    async def ask(self, render: Render) -> str:
        """Show a page and wait for its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def settle(text: str) -> None:
            if not answer.done():
                answer.set_result(text)

        self._show(render, lambda text: loop.call_soon_threadsafe(settle, text))
        try:
            return await answer
        finally:
            with self._changed:
                self._deliver = None

    def finish(self, render: Render) -> None:
        """Show the last page, which asks for nothing."""
        self.is_over = True
        self._show(render, None)

    def answer(self, page: str, text: str) -> None:
        """Answer the question that `page` shows; nothing happens where that is not the present one."""
        with self._changed:
            if self._deliver is None or page != self.page:
                return
            deliver, self._deliver = self._deliver, None
        with suppress(RuntimeError):  # the trial was stopped just now
            deliver(text)

    def present(self, seconds: float) -> str:
        """The present page; empty while the world takes longer than `seconds`."""
        with self._changed:
            settled = self._changed.wait_for(lambda: self._deliver is not None or self.is_over, timeout=seconds)
            return self.html if settled else ""

    @property
    def page(self) -> str:
        """The name of the present page."""
        return f"{self.token}.{self.number}"

    def _show(self, render: Render, deliver: Callable[[str], object] | None) -> None:
        with self._changed:
            self.number += 1
            self.html, self._deliver = render(self.page), deliver
            self._changed.notify_all()
