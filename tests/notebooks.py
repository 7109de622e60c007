"""A cell of a notebook that is interrupted."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import pytest


def interrupt() -> None:
    """As Ctrl-C does: the main thread alone hears of it."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def run_interrupted(cell: Coroutine[Any, Any, None]) -> str:
    """Run a cell that is interrupted in a loop like a notebook's, and expect that it ends so; returns what it says."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    loop = asyncio.new_event_loop()  # asyncio.run would take the signal itself; a notebook's loop does not
    try:
        with pytest.raises(KeyboardInterrupt) as interrupted:
            loop.run_until_complete(cell)
        return str(interrupted.value)
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
