"""Stopping a long run: asked once, it saves its last update first; asked again, it stops at once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_SAME_REQUEST = 1.0
"""Seconds within which two signals ask for one thing."""


class Polite:
    """Whether somebody has asked to stop. Before the first step there is nothing to save, and it stops at once."""

    def __init__(self) -> None:
        self.was_asked = self.has_begun = False
        self.under_way = "update"

    def on_update(self, metrics: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or "demonstrations" not in metrics
        self.under_way = "step" if metrics.get("warmstart", 0) < metrics.get("steps", 0) else "update"

    def is_asked(self) -> bool:
        return self.was_asked

    def ask(self, *_: object) -> None:
        if self.was_asked or not self.has_begun:
            raise KeyboardInterrupt
        self.was_asked = True
        sys.stderr.write(f"stopping after this {self.under_way}; once more to stop at once\n")


@contextmanager
def stopping_politely() -> Iterator[Polite]:
    """Inside, Ctrl-C and the signal by which schedulers end a job ask for a stop."""
    polite = Polite()
    if threading.current_thread() is not threading.main_thread():
        yield polite
        return
    before = {number: signal.signal(number, polite.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield polite
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Inside, the signal by which schedulers end a job does what Ctrl-C does.

    What comes within a second of the first is the same request: `timeout` signals the process, then its group.
    """
    first: float | None = None

    def interrupt(*_: object) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None or now - first > _SAME_REQUEST:
            first = now
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
