"""Between threads and event loops: blocking calls from coroutines, and coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
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


def run_async(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of a coroutine, from synchronous code; inside a running event loop (a notebook) it gets a thread."""
    if not loop_is_running():
        return asyncio.run(start())
    tasks: list[asyncio.Task[Any]] = []

    async def work() -> Result:
        tasks.extend(asyncio.all_tasks())  # this one
        return await start()

    with ThreadPoolExecutor(max_workers=1) as executor:
        result = executor.submit(lambda: asyncio.run(work()))
        try:
            return result.result()
        except KeyboardInterrupt:  # a notebook interrupts its own thread only: the other one would go on to the end
            for task in tasks:
                with suppress(RuntimeError):  # its loop has just closed
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise


def loop_is_running() -> bool:
    """Whether this thread is inside an event loop, as a notebook's is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
