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


def run_async(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of a coroutine, from synchronous code; inside a running event loop (a notebook) it gets a thread."""
    if not loop_is_running():
        return asyncio.run(start())
    cancel: Callable[[], object] = bool

    async def work() -> Result:
        nonlocal cancel
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        cancel = lambda: loop.call_soon_threadsafe(task.cancel)  # noqa: E731
        return await start()

    with ThreadPoolExecutor(max_workers=1) as executor:
        result = executor.submit(lambda: asyncio.run(work()))
        try:
            return result.result()
        except KeyboardInterrupt:  # a notebook interrupts its own thread only: the other one would go on to the end
            with suppress(RuntimeError):  # its loop has just closed
                cancel()
            raise


def loop_is_running() -> bool:
    """Whether this thread is inside an event loop, as a notebook's is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
