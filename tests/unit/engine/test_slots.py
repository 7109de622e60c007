"""The engine: the model's own numbers, whoever else is being served, and places that are freed at once."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from mulligan.engine.slots import SlotEngine, _Cache
from mulligan.errors import ContextFull, DeviceLost
from mulligan.models.attention import PackedPlan, forward, use_plans
from mulligan.types import Sampling

VOCABULARY = 50


def model(kv_heads: int = 2, seed: int = 0) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=kv_heads,
            max_position_embeddings=128,
        )
        return LlamaForCausalLM(config).eval()


async def converse(engine, number, *, temperature=1.0, turns=4, most=3, stop=(7,), top_p=1.0, first=9):
    """A conversation: prompts of several lengths, replies sampled; gives all ids, a mask of sampled ones, logprobs."""
    rng = random.Random(number)
    stream = await engine.open()
    ids, sampled, logprobs, finishes = [], [], [], []
    try:
        for turn in range(turns):
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.choice((1, 1, 2, 5)) if turn else first)]
            found = await stream.extend(prompt, Sampling(temperature, top_p, most), stop, rng)
            ids += [*prompt, *found.ids]
            sampled += [False] * len(prompt) + [True] * len(found.ids)
            logprobs += found.logprobs
            finishes.append(found.finish)
            assert stream.length == len(ids)
    finally:
        stream.close()
    return ids, sampled, logprobs, finishes


def together(engine, count, **options):
    async def run():
        return await asyncio.gather(*(converse(engine, number, **options) for number in range(count)))

    return asyncio.run(run())


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_plain_model(kv_heads, temperature):
    plain = model(kv_heads)
    for ids, sampled, logprobs, _ in together(SlotEngine(model(kv_heads)), 12, temperature=temperature):
        with torch.no_grad():
            expected = (plain(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
        places = [place for place, drawn in enumerate(sampled) if drawn]
        assert logprobs == pytest.approx([expected[place - 1, ids[place]].item() for place in places], abs=1e-5)


def test_company_changes_nothing():
    """Greedy tokens are equal and log-probabilities agree to 1e-5, alone, among many, and with few places."""
    alone = [together(SlotEngine(model()), 1, temperature=0.0)[0]]
    for company in (
        together(SlotEngine(model()), 40, temperature=0.0),
        together(SlotEngine(model(), slots=3), 9, temperature=0.0),
    ):
        assert company[0][0] == alone[0][0]
        assert company[0][2] == pytest.approx(alone[0][2], abs=1e-5)


def test_sampling_depends_on_the_streams_own_generator_alone():
    many = together(SlotEngine(model()), 30)
    few = together(SlotEngine(model(), slots=4), 30)
    assert [found[0] for found in many] == [found[0] for found in few]
    assert len({tuple(found[0]) for found in many}) == 30


def test_prompts_in_chunks_give_the_same():
    whole = together(SlotEngine(model()), 5, first=40, temperature=0.0)
    chunked = together(SlotEngine(model(), chunk=7), 5, first=40, temperature=0.0)
    for one, other in zip(whole, chunked, strict=True):
        assert one[0] == other[0]
        assert one[2] == pytest.approx(other[2], abs=1e-5)


def test_samples_follow_the_distribution():
    """2,500 draws after one prompt against the model's own probabilities."""
    engine, plain = SlotEngine(model()), model()

    async def draws(count):
        async def one(number):
            stream = await engine.open()
            found = await stream.extend([3, 1, 4], Sampling(1.0, 1.0, 1), (), random.Random(number))
            stream.close()
            return found.ids[0]

        return await asyncio.gather(*(one(number) for number in range(count)))

    counts = torch.bincount(torch.tensor(asyncio.run(draws(2_500))), minlength=VOCABULARY) / 2_500
    with torch.no_grad():
        expected = plain(torch.tensor([[3, 1, 4]])).logits[0, -1].softmax(-1)
    assert (counts - expected).abs().max() < 0.03  # three standard deviations of the largest are about 0.02


def test_top_p_keeps_the_likely_and_renormalises():
    for ids, sampled, logprobs, _ in together(SlotEngine(model()), 20, top_p=0.5):
        with torch.no_grad():
            probabilities = model()(torch.tensor([ids])).logits[0].softmax(-1)
        for place, logprob in zip([p for p, drawn in enumerate(sampled) if drawn], logprobs, strict=True):
            ordered = probabilities[place - 1].sort(descending=True).values
            nucleus = int((ordered.cumsum(0) < 0.5).sum()) + 1
            chosen = probabilities[place - 1, ids[place]]
            assert chosen >= ordered[nucleus - 1] - 1e-6
            assert logprob == pytest.approx(float((chosen / ordered[:nucleus].sum()).log()), abs=1e-4)


def test_replies_end_at_a_stop_token_or_at_the_limit():
    finishes = set()
    for ids, sampled, _, ends in together(SlotEngine(model()), 40, most=4, stop=(5, 7, 11, 13, 17, 19)):
        replies = "".join("x" if drawn else " " for drawn in sampled).split()
        assert all(1 <= len(reply) <= 4 for reply in replies)
        finishes |= set(ends)
        stops = [place for place, drawn in enumerate(sampled) if drawn and ids[place] in (5, 7, 11, 13, 17, 19)]
        assert len(stops) == ends.count("stop")
    assert finishes == {"stop", "length"}


def test_a_full_context_is_said_before_anything_is_sampled():
    async def run():
        engine = SlotEngine(model(), context=20)
        stream = await engine.open()
        found = await stream.extend([1] * 10, Sampling(max_tokens=100), (), random.Random(0))
        assert len(found.ids) == 10  # what room there was
        assert found.finish == "length"
        with pytest.raises(ContextFull, match="20"):
            await stream.extend([1], Sampling(), (), random.Random(0))
        stream.restart()
        assert stream.length == 0
        again = await stream.extend([1] * 10, Sampling(max_tokens=3), (), random.Random(0))
        assert again.ids == found.ids[:3]
        assert again.logprobs == pytest.approx(found.logprobs[:3], abs=1e-5)

    asyncio.run(run())


def test_places_are_given_in_the_order_of_asking_and_freed_at_once():
    order = []

    async def visit(engine, number):
        stream = await engine.open()
        order.append(number)
        await stream.extend([number], Sampling(max_tokens=1 + number % 3), (), random.Random(number))
        stream.close()
        stream.close()  # twice is once

    async def run():
        engine = SlotEngine(model(), slots=2)
        await asyncio.gather(*(visit(engine, number) for number in range(11)))
        assert engine.live == []
        assert not engine.waiting.queue

    asyncio.run(run())
    assert order == list(range(11))


def test_cancelling_frees_the_place_and_disturbs_nobody():
    async def run():
        engine = SlotEngine(model(), slots=2)
        tasks = [asyncio.ensure_future(converse(engine, number, turns=12, most=2)) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[0].cancel()  # under way
        tasks[3].cancel()  # waiting for a place
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert isinstance(done[3], asyncio.CancelledError)
        assert engine.live == []
        return done[1]

    undisturbed = together(SlotEngine(model()), 2, turns=12, most=2)[1]
    assert asyncio.run(run())[0] == undisturbed[0]


def test_an_error_of_the_model_reaches_every_stream():
    async def run():
        engine = SlotEngine(model())
        engine.step = lambda asking: (_ for _ in ()).throw(RuntimeError("no memory"))
        found = await asyncio.gather(*(converse(engine, n) for n in range(3)), return_exceptions=True)
        assert [str(error) for error in found] == ["no memory"] * 3

    asyncio.run(run())


def test_a_lost_device_is_said_so_and_nothing_more_is_asked_of_it(monkeypatch):
    """A sweep begins an arm anew where its device failed, and only there; closing streams must not hide that."""

    def break_down(*_, **__):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand much more")

    async def run():
        engine = SlotEngine(model())
        monkeypatch.setattr(engine, "step", break_down)
        monkeypatch.setattr(engine.cache, "move", break_down)
        found = await asyncio.gather(*(converse(engine, n) for n in range(3)), return_exceptions=True)
        assert {type(error) for error in found} == {DeviceLost}
        monkeypatch.undo()
        with pytest.raises(DeviceLost, match="illegal memory access"):
            await converse(engine, 0)

    asyncio.run(run())


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_memory_that_runs_out_while_the_cache_grows_spoils_nothing_after(monkeypatch, layers):
    """Who asked is told, and can ask again. Layers that had grown, and layers that had not, would no longer fit."""
    engine, new = SlotEngine(model()), _Cache._new
    together(engine, 1)
    left = [layers]

    def run_out(*given):
        left[0] -= 1
        if left[0] < 0:
            raise torch.OutOfMemoryError("out of memory")
        return new(*given)

    monkeypatch.setattr(_Cache, "_new", run_out)
    with pytest.raises(torch.OutOfMemoryError):
        together(engine, 30)
    monkeypatch.setattr(_Cache, "_new", new)
    assert together(engine, 20)[3][0] == together(SlotEngine(model()), 20)[3][0]


def test_one_engine_serves_several_event_loops_in_turn():
    engine = SlotEngine(model())
    assert together(engine, 3) == together(engine, 3)


def test_packed_rows_equal_rows_on_their_own():
    plain, packed = model(), model()
    use_plans(packed)
    rng = random.Random(0)
    rows = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in (1, 2, 30, 31, 7, 7, 64, 3)]
    plan = PackedPlan([len(row) for row in rows])
    ids = torch.tensor([token for row in rows for token in row])
    positions = torch.tensor([place for row in rows for place in range(len(row))])
    logits = forward(packed, ids, positions, plan, torch.arange(len(ids)))
    loss = logits.log_softmax(-1)[:, 3].sum()
    loss.backward()
    expected = [plain(torch.tensor([row])).logits[0] for row in rows]
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-5, rtol=1e-4)
    sum(part.log_softmax(-1)[:, 3].sum() for part in expected).backward()
    for own, other in zip(packed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=1e-4, rtol=1e-3)


def test_an_interrupt_inside_a_step_leaves_nothing_for_later(caplog, monkeypatch):
    """The loop ends by it; the next run in the same process is not told of a task whose error nobody took."""
    engine = SlotEngine(model())

    def interrupted(asking):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        together(engine, 2)
    engine.pump = None
    gc.collect()
    assert not caplog.records
