"""Plain functions as policies: in threads, as many at a time as trials; coroutine functions on the event loop."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

import mulligan
from mulligan.errors import StopReason, UsageError
from mulligan.types import Message

ACTION = "<action>1</action>"


def test_calls_of_a_plain_function_overlap():
    """Each call waits until another one has begun; played one after the other, the barrier would break."""
    barrier = threading.Barrier(2)

    def agent(messages: list[Message]) -> str:
        barrier.wait(timeout=30)
        return ACTION

    result = mulligan.evaluate("bandit", agent, tasks=4, episodes=1, concurrency=2, controls=(), room=False)
    assert (result.main.trials, result.main.failed) == (4, 0)


def test_no_more_calls_overlap_than_trials():
    lock, running, most = threading.Lock(), set(), []

    def agent(messages: list[Message]) -> str:
        with lock:
            running.add(threading.get_ident())
            most.append(len(running))
        with lock:
            running.discard(threading.get_ident())
        return ACTION

    mulligan.evaluate("bandit", agent, tasks=20, episodes=1, concurrency=3, controls=(), room=False)
    assert len(most) == 20
    assert max(most) <= 3


def test_the_order_of_calls_changes_no_result():
    def agent(messages: list[Message]) -> str:
        return f"<action>{1 + len(messages[-1]['content']) % 3}</action>"

    results = [
        mulligan.evaluate("bandit", agent, tasks=12, concurrency=concurrency, room=False) for concurrency in (1, 6)
    ]
    assert results[0].main == results[1].main
    assert results[0].trials == results[1].trials


class Callable:
    def __init__(self) -> None:
        self.threads: list[int] = []

    async def __call__(self, messages: list[Message]) -> str:
        self.threads.append(threading.get_ident())
        await asyncio.sleep(0)
        return ACTION


def test_coroutine_functions_stay_on_the_loop_and_other_functions_leave_it():
    threads: dict[str, int] = {}

    async def asynchronous(messages: list[Message]) -> str:
        threads["async"] = threading.get_ident()
        return ACTION

    def plain(messages: list[Message]) -> str:
        threads["plain"] = threading.get_ident()
        return ACTION

    agent = Callable()
    for policy in (asynchronous, plain, agent, functools.partial(asynchronous)):
        trial = mulligan.run_trial_sync(mulligan.make_task("bandit"), policy, episodes=1)
        assert trial.episodes[0].turns[0].reply.text == ACTION
    here = threading.get_ident()
    assert threads["async"] == agent.threads[0] == here
    assert threads["plain"] != here


def test_what_a_function_raises_is_kept_and_what_it_returns_is_checked():
    def stops(messages: list[Message]) -> str:
        return next(iter(()))

    with pytest.warns(UserWarning, match="StopIteration"):
        trial = mulligan.run_trial_sync(mulligan.make_task("bandit"), stops, episodes=1)
    assert trial.episodes[0].stop is StopReason.REQUEST_FAILED
    with pytest.raises(UsageError, match="NoneType"):
        mulligan.run_trial_sync(mulligan.make_task("bandit"), lambda messages: None, episodes=1)  # type: ignore


def test_a_cancelled_trial_does_not_wait_for_its_function():
    called, release = threading.Event(), threading.Event()

    def hangs(messages: list[Message]) -> str:
        called.set()
        release.wait(60)
        return ACTION

    async def cancel() -> None:
        task = asyncio.ensure_future(mulligan.run_trial(mulligan.make_task("bandit"), hangs))
        await asyncio.to_thread(called.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not release.is_set()
    release.set()  # the thread ends after its loop has closed, without an error
