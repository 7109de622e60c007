"""Several adapters over one base in one engine, whose replies are drawn in one batch; on a GPU with graphs."""

from __future__ import annotations

import asyncio
import copy
import random
from functools import partial

import pytest
import torch

from mulligan.engine.choose import make_engine
from mulligan.engine.graphs import GraphEngine
from mulligan.errors import UsageError
from mulligan.models.load import Loaded, add_lora
from mulligan.policy.threads import EventLoop
from mulligan.population.agents import sharing_base
from mulligan.types import Sampling
from small_models import DEVICE, SHAPE, a_model, family_model, greedy_of

pytest.importorskip("peft")


def adapters(family: str, count: int) -> list:
    """Models over one base in memory whose adapters differ."""
    base = add_lora(family_model(family), 3, seed=0).to(DEVICE)
    models = [base] + [sharing_base(Loaded(base, None, None)).model for _ in range(count - 1)]
    for number, model in enumerate(models):
        with torch.random.fork_rng():
            torch.manual_seed(number)
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    torch.nn.init.normal_(parameter, std=0.3)
    return models


def engine_of(models: list, **settings) -> GraphEngine:
    engine = GraphEngine(models[0], adapters=len(models), **settings)
    for model in models[1:]:
        engine.join(model)
    return engine


def replies(engine: GraphEngine, prompts: list[list[int]], count: int = 4) -> list[list[list[int]]]:
    """Of each model its greedy replies to all prompts and to one token more, everything asked at once."""

    async def one(share, ids):
        stream = await share.open()
        got = await stream.extend(ids, Sampling(0.0, 1.0, count), (), random.Random(0))
        more = await stream.extend([7], Sampling(0.0, 1.0, count), (), random.Random(0))
        stream.close()
        return [*got.ids, *more.ids]

    async def everybody():
        asked = [one(share, ids) for ids in prompts for share in engine.shares]  # the models take turns
        return await asyncio.gather(*asked)

    found = asyncio.run(everybody())
    return [found[number :: len(engine.shares)] for number in range(len(engine.shares))]


def right(models: list, prompts: list[list[int]], count: int = 4) -> list[list[list[int]]]:
    found = []
    for model in models:
        of_model = []
        for ids in prompts:
            first = greedy_of(model, ids, count)
            of_model.append([*first, *greedy_of(model, [*ids, *first, 7], count)])
        found.append(of_model)
    return found


def prompts_of(opening: int) -> list[list[int]]:
    rng = random.Random(0)
    common = [rng.randrange(SHAPE["vocab_size"]) for _ in range(opening)]
    return [common + [rng.randrange(SHAPE["vocab_size"]) for _ in range(rest)] for rest in (3, 1, 9, 5)]


@pytest.mark.parametrize(("family", "opening"), [("llama", 0), ("qwen2", 40), ("qwen3", 40)])
def test_each_sequence_is_replied_to_by_its_own_adapter(family, opening):
    models = adapters(family, 3)
    expected = right([copy.deepcopy(model) for model in models], prompts_of(opening))
    assert expected[0] != expected[1] != expected[2]
    engine = engine_of(models, slots=5, chunk=20)  # fewer slots than streams, prompts longer than a reading
    assert replies(engine, prompts_of(opening)) == expected
    counted = [share.tokens for share in engine.shares]
    assert min(counted) >= 4 * 8
    assert sum(counted) == engine.tokens


def test_one_that_learns_replies_anew_and_the_others_as_before():
    models = adapters("llama", 3)
    engine = engine_of(models, slots=6)
    before = replies(engine, prompts_of(40))
    with torch.no_grad():
        for name, parameter in models[1].named_parameters():
            if "lora_B" in name:
                parameter.mul_(-2.0)
    after = replies(engine, prompts_of(40))
    assert after == right(models, prompts_of(40))
    assert (before[0], before[2]) == (after[0], after[2])
    assert before[1] != after[1]


def test_one_that_learned_while_steps_were_left_over_replies_anew():
    """A reply that a stop token ends leaves steps behind, which the event loop goes on with when it is run again."""
    models = adapters("llama", 2)
    engine, prompt, loop = engine_of(models, slots=2), prompts_of(0)[0], EventLoop()

    async def reply(stop: tuple[int, ...]) -> list[int]:
        stream = await engine.shares[1].open()
        got = await stream.extend(prompt, Sampling(0.0, 1.0, 6), stop, random.Random(0))
        stream.close()
        return list(got.ids)

    first = loop.run(partial(reply, ()))
    assert loop.run(partial(reply, tuple(first[:1]))) == first[:1]
    with torch.no_grad():
        for name, parameter in models[1].named_parameters():
            if "lora_B" in name:
                parameter.mul_(-2.0)
    assert loop.run(partial(reply, ())) == greedy_of(models[1], prompt, 6)
    assert greedy_of(models[1], prompt, 6) != first
    loop.close()


def test_a_slot_that_changes_hands_has_the_next_ones_adapter():
    models = adapters("llama", 2)
    engine = engine_of(models, slots=2)
    expected = right(models, prompts_of(0))

    async def in_turn(order: list[int]) -> list[list[int]]:
        found = []
        for number in order:
            stream = await engine.shares[number].open()
            got = await stream.extend(prompts_of(0)[0], Sampling(0.0, 1.0, 4), (), random.Random(0))
            found.append(list(got.ids))
            stream.close()
        return found

    assert asyncio.run(in_turn([0, 1, 0])) == [expected[number][0][:4] for number in (0, 1, 0)]


def test_who_waits_for_a_place_gets_it_in_the_order_of_asking_whoever_it_is():
    models = adapters("llama", 2)
    engine = engine_of(models, slots=2)
    first, second = engine.shares

    async def order() -> list[int]:
        held = [await first.open(), await first.open()]
        got: list[int] = []

        async def wait(number: int) -> None:
            stream = await engine.shares[number].open()
            got.append(number)
            stream.close()

        waiting = [asyncio.ensure_future(wait(number)) for number in (1, 0, 1)]
        await asyncio.sleep(0)
        held[0].close()
        await asyncio.gather(*waiting)
        return got

    assert asyncio.run(order()) == [1, 0, 1]
    assert second.slots == 1


def test_what_cannot_join_is_refused():
    models = adapters("llama", 2)
    engine = engine_of(models, slots=4)
    with pytest.raises(UsageError, match="room for 2 adapters"):
        engine.join(models[1])
    engine = GraphEngine(models[0], slots=4, adapters=2)
    with pytest.raises(UsageError, match="its base is another one"):
        engine.join(add_lora(a_model("llama"), 3, seed=0).to(DEVICE))
    with pytest.raises(UsageError, match=r"3 adapters need as many slots \(there are 2\)"):
        make_engine(models[0], slots=2, kind="graphs", adapters=3)
