"""What a Tinker server may send that is no reply, without a server; `tests/remote` asks a real one."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from mulligan.engine.base import Stream
from mulligan.engine.tinker import TinkerEngine, checked, connect
from mulligan.errors import RequestFailed, UsageError


def stream_with_room(room: int, stop=(9,)) -> Stream:
    stream = Stream(TinkerEngine(None, slots=1, context=32), 0)
    stream.room, stream.stop, stream.rng = room, stop, random.Random(0)
    return stream


def sent(tokens, logprobs):
    return [SimpleNamespace(tokens=tokens, logprobs=logprobs)]


def test_a_reply_ends_with_a_stop_token_or_at_its_limit():
    stream = stream_with_room(3)
    assert checked(sent([4, 9], [-0.5, -0.1]), stream).finish == "stop"
    assert checked(sent([4, 5, 6], [-0.5, -0.1, -0.2]), stream).finish == "length"


@pytest.mark.parametrize(
    ("sequences", "reason"),
    [
        (sent([4, 5], [-0.5, -0.1]), "cut off after 2 of 3 tokens"),
        (sent([4, 5, 6], [-0.5, -0.1]), "3 tokens came with 2 log-probabilities"),
        (sent([4, 9], None), "2 tokens came with no log-probabilities"),
        (sent([], []), "a reply of 0 tokens"),
        ([], "0 replies"),
    ],
)
def test_a_sample_that_lacks_a_part_is_no_reply(sequences, reason):
    with pytest.raises(ValueError, match=reason):
        checked(sequences, stream_with_room(3))


def test_an_update_waits_for_replies_that_nobody_waits_for_any_more(monkeypatch):
    """A trial that is cancelled leaves its request with the server, where it would meet other weights."""
    pytest.importorskip("tinker")
    requested: list[Future] = []

    class Client:
        def sample(self, **_):
            requested.append(Future())
            return requested[-1]

    engine = TinkerEngine(Client(), slots=1, context=32)

    async def abandon() -> None:
        stream = await engine.open()
        stream.room, stream.rng = 1, random.Random(0)
        engine.ask(stream)
        await asyncio.sleep(0.01)
        stream.close()
        await asyncio.sleep(0.01)

    asyncio.run(abandon())
    assert not requested[0].cancelled()
    assert engine.under_way == set(requested)
    monkeypatch.setattr("mulligan.engine.tinker.PATIENCE", 0.01)
    with pytest.raises(RequestFailed, match="has not answered 1 requests"):
        engine.settle()
    requested[0].set_result(None)
    engine.settle()
    assert not engine.under_way


def test_a_server_that_is_not_there_is_told_at_once():
    pytest.importorskip("tinker")
    with pytest.raises(UsageError, match=r"no Tinker server answers at 'http://127\.0\.0\.1:9'"):
        connect("http://127.0.0.1:9")
