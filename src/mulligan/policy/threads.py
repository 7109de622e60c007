"""Between threads and event loops: blocking calls from coroutines, and coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

from mulligan import calls
from mulligan.calls import Thread

Argument = TypeVar("Argument")
Result = TypeVar("Result")


async def call_in_thread(
    function: Callable[[Argument], Result], argument: Argument, seconds: float | None = None
) -> Result:
    """`function(argument)` in a thread of its own; raises what it raises, or `Hung` after `seconds`."""
    thread = Thread(function, argument)
    try:
        return cast(Result, await asyncio.wait_for(asyncio.wrap_future(thread.outcome), seconds))
    except TimeoutError:  # perhaps the function's own, or the loop itself was blocked meanwhile
        return cast(Result, thread.late(seconds))


class EventLoop:
    """Runs coroutines from synchronous code; what is under way when one ends is continued with the next one.

    Where this thread is inside an event loop already (a notebook), it is in a thread of its own.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1) if loop_is_running() else None
        self.runner = asyncio.Runner()

    def run(self, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self.thread is None:
            loop = self.runner.get_loop()
            loop.set_exception_handler(_report)
            with _interrupting_worlds(loop):
                return self.runner.run(start())
        under_way: list[asyncio.Task[Any] | None] = []

        async def work() -> Result:
            under_way.append(asyncio.current_task())
            return await start()

        result = self.thread.submit(lambda: self.runner.run(work()))
        try:
            return result.result()
        except KeyboardInterrupt:  # a notebook interrupts its own thread only: the other one would go on to the end
            for task in filter(None, under_way):
                self.runner.get_loop().call_soon_threadsafe(task.cancel)
            raise

    def close(self) -> None:
        if self.thread is None:
            self.runner.close()
        else:
            self.thread.submit(self.runner.close).result()
            self.thread.shutdown()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody awaited; but not a Ctrl-C, which whoever runs the loop gets anyway."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


@contextmanager
def _interrupting_worlds(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Inside, Ctrl-C interrupts a call of an environment, which may never return.

    At any other moment asyncio's own handler, which it sets when the loop begins, cancels what is awaited.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or before is not signal.default_int_handler:  # as asyncio: whoever has set a handler knows better
        yield
        return

    def set_handler() -> None:
        usual = signal.getsignal(signal.SIGINT)

        def interrupt(number: int, frame: FrameType | None) -> None:
            if calls.under_way or not callable(usual):
                raise KeyboardInterrupt
            usual(number, frame)

        signal.signal(signal.SIGINT, interrupt)

    loop.call_soon(set_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_async(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    loop = EventLoop()
    try:
        return loop.run(start)
    finally:
        loop.close()


def loop_is_running() -> bool:
    """Whether this thread is inside an event loop, as a notebook's is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
