"""Stopping a long run: Ctrl-C finishes and saves the current update; a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_SAME_REQUEST = 1.0
"""Seconds within which two signals are one request."""


class Polite:
    """Whether a stop was asked for. Before the first step there is nothing to save, and the run stops at once."""

    def __init__(self) -> None:
        self.was_asked = self.has_begun = False

    def on_update(self, metrics: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or "demonstrations" not in metrics

    def ask(self, *_: object) -> None:
        if self.was_asked or not self.has_begun:
            raise KeyboardInterrupt
        self.was_asked = True
        sys.stderr.write("stopping after this step or update; once more to stop at once\n")


@contextmanager
def handling(handler: Callable[..., None]) -> Iterator[None]:
    """Inside, `handler` gets Ctrl-C and the signal by which schedulers end a job."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def interrupt_once() -> Callable[..., None]:
    """A handler that interrupts; a second signal within a second is the same request.

    `timeout` signals the process, then its group.
    """
    last = -_SAME_REQUEST

    def interrupt(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SAME_REQUEST:
            last = now
            raise KeyboardInterrupt

    return interrupt
