"""Between threads and event loops: blocking calls from coroutines, and coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Hung(Exception):
    """No result in time. Not `TimeoutError`, which the called function may raise itself."""


async def call_in_thread(
    function: Callable[[Argument], Result], argument: Argument, seconds: float | None = None
) -> Result:
    """`function(argument)` in a thread of its own; raises what it raises, or `Hung` after `seconds`.

    The thread is a daemon: if it hangs, it does not block the end of the program, as an executor's would.
    """
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled: the thread may always set it
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(context.run(function, argument))
        except StopIteration as error:  # asyncio does not accept it
            outcome.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name=f"mulligan-{getattr(function, '__name__', 'call')}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(outcome), seconds)
    except TimeoutError:
        if outcome.done():  # the function's own, or the loop itself was blocked meanwhile
            return outcome.result()
        raise Hung from None


class EventLoop:
    """Runs coroutines from synchronous code; what is under way when one ends is continued with the next one.

    Where this thread is inside an event loop already (a notebook), it is in a thread of its own.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1) if loop_is_running() else None
        self.runner = asyncio.Runner()

    def run(self, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self.thread is None:
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
