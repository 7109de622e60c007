"""Between threads and event loops: blocking calls from coroutines, and coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Hung(Exception):
    """No result in time. Not `TimeoutError`, which the called function may raise itself."""


async def call_in_thread(
    function: Callable[[Argument], Result], argument: Argument, seconds: float | None = None
) -> Result:
    """`function(argument)` in a thread of its own; raises what it raises, or `Hung` after `seconds`.

    The thread is a daemon. After a cancellation or a timeout it may run on, but it blocks neither the event loop nor
    the end of the program, which the threads of an executor would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not future.done():
            set_outcome(outcome)

    def work() -> None:
        set_outcome: Callable[[Any], None] = future.set_result
        outcome: object
        try:
            outcome = context.run(function, argument)
        except StopIteration as error:  # a future does not accept it
            set_outcome, outcome = future.set_exception, RuntimeError(f"StopIteration: {error}")
        except BaseException as error:
            set_outcome, outcome = future.set_exception, error
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, set_outcome, outcome)

    threading.Thread(target=work, name=f"mulligan-{getattr(function, '__name__', 'call')}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.shield(future), seconds)
    except TimeoutError:
        # If the loop itself was blocked meanwhile, a result that came in time is delivered only now.
        await asyncio.sleep(0)
        if future.done():
            return future.result()
        raise Hung from None
    finally:
        future.cancel()


class EventLoop:
    """Runs coroutines from synchronous code; what is under way when one ends is continued with the next one.

    Where this thread is inside an event loop already (a notebook), it is in a thread of its own.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1) if loop_is_running() else None
        self.runner = asyncio.Runner()

    def run(self, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the coroutine."""
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
    """The result of one coroutine, from synchronous code."""
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
