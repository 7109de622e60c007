"""Calls of somebody's own environment: what they raise, what text they may give, and how long they may take."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from mulligan.text import storable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
LONGEST_TEXT = 1_000_000
"""Characters that an environment may say at a time."""
_LONGEST_ERROR = 2_000
"""Characters of an error's text that are kept."""

under_way = False
"""Whether an environment is being called in the main thread, which Ctrl-C must then interrupt: it may never return."""


class Hung(Exception):
    """No result in time. Not `TimeoutError`, which the called function may raise itself."""


class Ended(Exception):
    """An environment raised what is no `Exception`: `sys.exit()` in it ends its episode, not the program."""


def call(function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
    """`function(…)`; raises only an `Exception`, or `KeyboardInterrupt` at Ctrl-C."""
    global under_way
    if threading.current_thread() is not threading.main_thread():
        return _called(function, *arguments, **options)
    before, under_way = under_way, True
    try:
        return _called(function, *arguments, **options)
    finally:
        under_way = before


def _called(function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
    try:
        return function(*arguments, **options)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Ended(described(error)) from error


def call_within(seconds: float | None, function: Callable[..., Result], *arguments: Any) -> Result:
    """`function(*arguments)`; raises `Hung` where that takes longer than `seconds`, which may be None."""
    if seconds is None:
        return call(function, *arguments)
    thread = Thread(function, *arguments)
    result: Result
    try:
        result = thread.outcome.result(seconds)
    except TimeoutError:
        result = thread.late(seconds)
    return result


class Thread:
    """A call in a thread of its own, which is a daemon: if it hangs, it does not block the end of the program."""

    def __init__(self, function: Callable[..., Result], *arguments: Any) -> None:
        self.outcome: Future[Any] = Future()
        self.outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled: the thread may always set it
        work = partial(contextvars.copy_context().run, self._work, function, arguments)
        name = f"mulligan-{getattr(function, '__name__', 'call')}"
        self.thread = threading.Thread(target=work, name=name, daemon=True)
        self.thread.start()

    def _work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self.outcome.set_result(function(*arguments))
        except (Exception, KeyboardInterrupt) as error:
            is_iterator_end = isinstance(error, StopIteration)  # which asyncio does not accept
            self.outcome.set_exception(RuntimeError(described(error)) if is_iterator_end else error)
        except BaseException as error:
            self.outcome.set_exception(Ended(described(error)))

    def late(self, seconds: float | None) -> Any:
        """After the time limit: raises `Hung`, unless the call has ended nevertheless (a `TimeoutError` of its own)."""
        if self.outcome.done():
            return self.outcome.result()
        # Ends a loop in Python, which would take the processor from all others; a call that waits goes on waiting.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread.ident or 0), ctypes.py_object(SystemExit))
        raise Hung(f"no answer within {seconds} s")


def text_of(source: str, value: object) -> str:
    """What an environment says, as plain text that can be stored and shown."""
    if not isinstance(value, str):
        raise TypeError(f"{source} must be text (got {type(value).__name__})")
    text = str.__str__(value)  # a subclass may do anything when it is compared or printed
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{source} has {len(text):,} characters; at most {LONGEST_TEXT:,} are read")
    text.encode()  # half a surrogate pair can neither be stored nor sent
    return text


def described(error: BaseException) -> str:
    """An error in words that can be stored, whatever its text is."""
    try:
        text = storable(str(error))
    except Exception:
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text[:_LONGEST_ERROR]}"
