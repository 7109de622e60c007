"""Calls into an environment that may hang, each in a thread that can be given up.

The thread is a daemon: one that never returns costs its memory, but neither the event loop nor the end of the program.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
Given = TypeVar("Given")


class Hung(Exception):
    """No answer in time. Not `TimeoutError`, which an environment may raise itself."""


async def call_with_timeout(seconds: float, function: Callable[[Given], Answer], given: Given) -> Answer:
    """`function(given)`, or `Hung` after `seconds`; what it raises is raised here."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def deliver(result: Answer | None, error: BaseException | None) -> None:
        if answer.done():
            return  # given up long ago
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: Answer | None = None
        error: BaseException | None = None
        try:
            result = function(given)
        except StopIteration as raised:  # futures do not take it: the answer would never come
            error = RuntimeError(f"StopIteration: {raised}")
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name="mulligan-env", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.shield(answer), seconds)
    except TimeoutError:
        # Where the loop itself rested meanwhile, an answer that came in time is delivered only now.
        await asyncio.sleep(0)
        if answer.done():
            return answer.result()
        raise Hung from None
    finally:
        answer.cancel()
