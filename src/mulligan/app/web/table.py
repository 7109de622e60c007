"""Where the trial and the browser meet: the trial asks, whoever looks at the page answers, once.

The trial runs in an event loop, requests come in threads of their own. Each question has a number; an answer names the
number it was written for, so that of two clicks on the same page only the first is an answer.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future

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
        self._answer: Future[str] | None = None

    async def ask(self, render: Render) -> str:
        answer: Future[str] = Future()
        self._show(render, answer)
        return await asyncio.wrap_future(answer)

    def finish(self, render: Render) -> None:
        """Show the last page, which asks for nothing."""
        self.is_over = True
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
            self.html, self._answer = render(self.page), answer
            self._changed.notify_all()
