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
from dataclasses import dataclass
from typing import Literal

from mulligan.types import Message

SceneKind = Literal["play", "pause", "reflection", "over"]


@dataclass(frozen=True, slots=True)
class Stage:
    """The world as a page shows it while it can be played."""

    html: str
    """Its buttons belong to the form ``act``, its text fields to the form ``ask``."""
    actions: tuple[str, ...] = ()
    """What an agent can answer now, without tags."""


@dataclass(frozen=True, slots=True)
class Past:
    """An episode that is over."""

    number: int
    """Counted from 1."""
    ended: str
    turns: int
    reward: float
    won: bool = False
    note: str = ""
    """Its reflection."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be seen at one moment of the trial, and what is asked."""

    kind: SceneKind
    """A turn; the end of an episode, without and with a reflection; the end of the trial."""
    title: str
    episode: int
    """Counted from 1."""
    episodes: int
    turns: int
    left: int
    """Turns that are left of `turns`."""
    observation: str
    stage: Stage | None = None
    """In a turn."""
    messages: tuple[Message, ...] = ()
    """What an agent would be given at this moment."""
    sent: str = ""
    """The answer before this moment."""
    was_move: bool = True
    """Whether that answer counted as a move."""
    feedback: str = ""
    """What the environment said of it."""
    memory: str = ""
    """What this episode was given of earlier ones."""
    past: tuple[Past, ...] = ()
    longest: int = 0
    """Characters that a reflection may have."""


class Table:
    """The present scene, and the way back to whoever asked."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        """Names this table, so that pages of an earlier one, or of others, cannot answer."""
        self.scene: Scene | None = None
        self.number = 0
        self.left = threading.Event()
        """Set when the person is done with the last page."""
        self._changed = threading.Condition()
        self._deliver: Callable[[str], object] | None = None

    async def ask(self, scene: Scene) -> str:
        """Show `scene` and wait for its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def settle(text: str) -> None:
            if not answer.done():
                answer.set_result(text)

        self._show(scene, lambda text: loop.call_soon_threadsafe(settle, text))
        try:
            return await answer
        finally:
            with self._changed:
                self._deliver = None

    def finish(self, scene: Scene) -> None:
        """Show the last scene, which asks for nothing."""
        self._show(scene, None)

    def answer(self, page: str, text: str) -> None:
        """Answer the question that `page` shows; nothing happens where that is not the present one."""
        with self._changed:
            if self._deliver is None or page != self.page:
                return
            deliver, self._deliver = self._deliver, None
        with suppress(RuntimeError):  # the trial was stopped just now
            deliver(text)

    def present(self, seconds: float) -> tuple[str, Scene | None]:
        """The name of the present page, and its scene; None while the world takes longer than `seconds`."""
        with self._changed:
            settled = self._changed.wait_for(lambda: self._deliver is not None or self.is_over, timeout=seconds)
            return self.page, self.scene if settled else None

    @property
    def page(self) -> str:
        """The name of the present page, which its answers give."""
        return f"{self.token}.{self.number}"

    @property
    def is_over(self) -> bool:
        return self.scene is not None and self.scene.kind == "over"

    def _show(self, scene: Scene, deliver: Callable[[str], object] | None) -> None:
        with self._changed:
            self.number += 1
            self.scene, self._deliver = scene, deliver
            self._changed.notify_all()
