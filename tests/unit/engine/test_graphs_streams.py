"""Streams of the engine for GPUs: what is drawn, where replies end, and what follows one that is given up."""

from __future__ import annotations

import asyncio
import random

import pytest
import torch

from mulligan.engine import plain
from mulligan.engine.graphs import GraphEngine
from mulligan.engine.plain import LENGTH, SCALE, SEED, STATE, STOPS
from mulligan.engine.slots import SlotEngine
from mulligan.errors import ContextFull
from mulligan.types import Sampling
from small_models import DEVICE, a_model, greedy_of


def test_samples_follow_the_distribution():
    """4,000 slots draw from the same logits, each by its own seed."""
    count, vocabulary = 4000, 30
    logits = torch.linspace(-2, 2, vocabulary).sin().mul(3).expand(count, -1)
    state = torch.zeros(count + 1, STATE, dtype=torch.int32)
    state[:, SEED], state[:, LENGTH], state[:, STOPS:] = torch.arange(count + 1) * 7919, 5, -1
    state[:, SCALE] = torch.full((count + 1,), 1 / 0.7).view(torch.int32)
    ids, logprobs = torch.zeros(count, dtype=torch.int32), torch.zeros(count)
    plain.draw(logits, state, torch.arange(count, dtype=torch.int32), ids, logprobs, torch.zeros_like(ids))
    logp = torch.log_softmax(logits[0] / 0.7, -1)
    torch.testing.assert_close(logprobs, logp[ids.long()])
    shares = torch.bincount(ids, minlength=vocabulary) / count
    error = (logp.exp() * (1 - logp.exp()) / count).sqrt()
    assert bool(((shares - logp.exp()).abs() < 4 * error).all())


def test_replies_report_their_logarithm_and_stay_in_the_nucleus():
    model = a_model("llama")
    engine = GraphEngine(model, slots=8)
    ids = [5, 6, 7]
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor([ids], device=DEVICE)).logits[0, -1].float() / 0.5, -1).cpu()

    async def draws(number: int, top_p: float) -> list[tuple[int, float]]:
        stream, rng = await engine.open(), random.Random(number)
        found = []
        for _ in range(5):
            stream.restart()
            got = await stream.extend(ids, Sampling(0.5, top_p, 1), (), rng)
            found.append((got.ids[0], got.logprobs[0]))
        stream.close()
        return found

    async def everybody(top_p: float) -> list[tuple[int, float]]:
        return [one for part in await asyncio.gather(*(draws(n, top_p) for n in range(8))) for one in part]

    found = asyncio.run(everybody(1.0))
    assert all(abs(logprob - logp[token].item()) < 1e-4 for token, logprob in found)
    assert len({token for token, _ in found}) > 5
    # The nucleus: the fewest tokens that reach half of the probability, renormalised.
    order = logp.argsort(descending=True)
    size = int((logp[order].exp().cumsum(0) < 0.5).sum()) + 1
    nucleus = set(order[:size].tolist())
    mass = logp[order[:size]].logsumexp(0).item()
    for token, logprob in asyncio.run(everybody(0.5)):
        assert token in nucleus
        assert abs(logprob - (logp[token].item() - mass)) < 1e-3


def test_a_reply_depends_on_its_own_seed_and_not_on_company():
    model = a_model("llama")

    async def reply(engine: GraphEngine, seed: int) -> tuple[int, ...]:
        stream = await engine.open()
        got = await stream.extend([3, 1, 4], Sampling(1.0, 1.0, 12), (), random.Random(seed))
        stream.close()
        return got.ids

    async def alone() -> list[tuple[int, ...]]:
        return [await reply(GraphEngine(model, slots=1), seed) for seed in range(4)]

    async def together() -> list[tuple[int, ...]]:
        engine = GraphEngine(model, slots=3)
        return await asyncio.gather(*(reply(engine, seed) for seed in range(4)))

    found = asyncio.run(alone())
    assert found == asyncio.run(together())
    assert len(set(found)) == 4


def test_stops_and_limits():
    model = a_model("llama")
    engine = GraphEngine(model, slots=2, context=40)
    told = greedy_of(model, [9, 8, 7], 6)

    async def talk() -> None:
        stream = await engine.open()
        stop = told[3]
        got = await stream.extend([9, 8, 7], Sampling(0.0, 1.0, 30), (499, stop), random.Random(0))
        end = told.index(stop) + 1
        assert (list(got.ids), got.finish) == (told[:end], "stop")
        got = await stream.extend([1], Sampling(0.0, 1.0, 100), (), random.Random(0))
        assert got.finish == "length"
        assert stream.length == 40  # the context is full
        with pytest.raises(ContextFull, match="40"):
            await stream.extend([1], Sampling(0.0, 1.0, 1), (), random.Random(0))
        stream.close()

    asyncio.run(talk())


def test_a_reply_that_is_given_up_leaves_its_slot_to_others():
    model = a_model("llama")
    engine = GraphEngine(model, slots=1)
    want = greedy_of(model, [1, 2], 4)

    async def talk() -> None:
        stream = await engine.open()
        reply = asyncio.ensure_future(stream.extend([5] * 9, Sampling(1.0, 1.0, 50), (), random.Random(0)))
        waits = asyncio.ensure_future(engine.open())
        for _ in range(12):
            await asyncio.sleep(0)
        reply.cancel()
        stream.close()
        other = await waits
        got = await other.extend([1, 2], Sampling(0.0, 1.0, 4), (), random.Random(0))
        assert list(got.ids) == want
        other.close()

    asyncio.run(talk())


def test_a_cancelled_reply_leaves_nothing_in_the_next_one():
    model = a_model("llama")
    want = greedy_of(model, [1, 2, 3], 4)

    async def talk(rounds: int) -> list[int]:
        stream = await GraphEngine(model, slots=2).open()
        reply = asyncio.ensure_future(stream.extend([5] * 9, Sampling(1.0, 1.0, 50), (), random.Random(0)))
        for _ in range(rounds):
            await asyncio.sleep(0)
        reply.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reply
        stream.restart()
        return list((await stream.extend([1, 2, 3], Sampling(0.0, 1.0, 4), (), random.Random(0))).ids)

    for rounds in (1, 2, 6, 12, 20):
        assert asyncio.run(talk(rounds)) == want, rounds


@pytest.mark.parametrize("kind", [GraphEngine, SlotEngine])
def test_closing_a_stream_ends_the_wait_for_its_reply(kind):
    engine = kind(a_model("llama"), slots=1)

    async def talk() -> None:
        stream = await engine.open()
        reply = asyncio.ensure_future(stream.extend([5] * 9, Sampling(1.0, 1.0, 50), (), random.Random(0)))
        for _ in range(6):
            await asyncio.sleep(0)
        stream.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(reply, 20)

    asyncio.run(talk())


@pytest.mark.parametrize("rounds", range(3, 8))
def test_a_stream_that_was_closed_leaves_the_next_one_in_its_place_alone(rounds):
    engine = GraphEngine(a_model("llama"), slots=2)

    async def talk() -> int:
        busy, rng = await engine.open(), random.Random(0)
        going_on = asyncio.ensure_future(busy.extend([3] * 5, Sampling(1.0, 1.0, 100), (), rng))
        stream = await engine.open()
        given_up = asyncio.ensure_future(stream.extend([5] * 9, Sampling(1.0, 1.0, 50), (), rng))
        for _ in range(rounds):
            await asyncio.sleep(0)
        stream.close()
        following = await engine.open()
        async with asyncio.timeout(20):
            reply = await following.extend([1, 2], Sampling(0.0, 1.0, 4), (), rng)
        going_on.cancel()
        await asyncio.gather(going_on, given_up, return_exceptions=True)
        return len(reply.ids)

    assert asyncio.run(talk()) == 4
