"""What prompts begin with is read once by the engine for GPUs; on a CPU without graphs, on a GPU with them."""

from __future__ import annotations

import asyncio
import copy
import random

import pytest
import torch

from mulligan.engine.graphs import GraphEngine, SharedPrompt
from mulligan.types import Sampling
from small_models import SHAPE, a_model, family_model, greedy_of


def replies_after(engine, prompts, count=4):
    """Greedy replies to prompts, all asked at once, each in a sequence of its own."""

    async def one(ids):
        stream = await engine.open()
        got = await stream.extend(ids, Sampling(0.0, 1.0, count), (), random.Random(0))
        more = await stream.extend([7], Sampling(0.0, 1.0, count), (), random.Random(0))
        stream.close()
        return [*got.ids, 7, *more.ids]

    async def everybody():
        return await asyncio.gather(*map(one, prompts))

    return asyncio.run(everybody())


def right_after(model, prompts, count=4):
    found = []
    for ids in prompts:
        first = [*greedy_of(model, ids, count), 7]
        found.append([*first, *greedy_of(model, [*ids, *first], count)])
    return found


def alike(rules: int, rests: list[int], seed: int = 0) -> list[list[int]]:
    """Prompts that begin with the same `rules` tokens, and go on for so many."""
    rng = random.Random(seed)
    common = [rng.randrange(SHAPE["vocab_size"]) for _ in range(rules)]
    return [common + [rng.randrange(SHAPE["vocab_size"]) for _ in range(rest)] for rest in rests]


@pytest.mark.parametrize("family", ["llama", "qwen3", "smollm2"])
def test_what_prompts_begin_with_is_read_once_and_changes_no_reply(family):
    model = family_model(family)
    reference = copy.deepcopy(model)
    engine = GraphEngine(model, slots=4, chunk=20, share=True)  # prompts longer than a reading
    prompts = alike(50, [3, 9, 1, 30, 2, 5, 5])
    assert replies_after(engine, prompts) == right_after(reference, prompts)
    # The opening once, the 55 tokens that follow it in seven prompts, and 8 decoding steps each, or some more that were
    # queued before a reply's end was known; the prompts alone have 7 · 50 + 55 tokens.
    assert 50 + 55 + 7 * 8 <= engine.tokens < 250
    # Another game: nothing in common with the first.
    others = alike(60, [4, 8, 2], seed=1)
    assert replies_after(engine, [*others, prompts[0]]) == right_after(reference, [*others, prompts[0]])


def test_an_opening_is_forgotten_when_the_weights_change():
    model = a_model("llama")
    engine = GraphEngine(model, slots=4, share=True)
    prompts = alike(40, [3, 9, 1])
    before = replies_after(engine, prompts)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1).add_(0.05)
    after = replies_after(engine, prompts)
    assert after == right_after(copy.deepcopy(model), prompts)
    assert after != before


def test_an_opening_that_could_not_be_read_is_forgotten(monkeypatch):
    """Memory may run out while it is read. Who asks again would begin with keys that nobody wrote."""
    model = family_model("llama")
    engine = GraphEngine(model, slots=8)
    prompts = alike(40, [3, 5, 8])
    read = engine.device.read

    def fail(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(engine.device, "read", fail)
    with pytest.raises(torch.OutOfMemoryError):
        replies_after(engine, prompts)
    monkeypatch.setattr(engine.device, "read", read)
    assert replies_after(engine, prompts) == right_after(model, prompts)


def test_which_opening_is_chosen():
    opening = SharedPrompt(torch.nn.Linear(1, 1))
    rules = list(range(100))
    assert opening.fit([[*rules, 1, 2]]) == []  # one alone has nothing in common with others
    assert opening.fit([[*rules, 1, 2], [*rules, 1, 3]]) == [*rules, 1]  # two of one game
    assert opening.fit([[*rules, 5, 2], [*rules, 1, 3]]) == []  # of another: it is cut, and needs no reading
    assert opening.ids == rules
    assert opening.fit([[*rules, 4, 4], [*rules, 9]]) == []  # once more: nothing is lost of it
    assert opening.ids == rules
    assert opening.fit([[*rules[:40], 7], [*rules, 8]]) == []  # too little for everybody: kept for those it serves
    assert [opening.begins(prompt) for prompt in ([*rules[:40], 7], [*rules, 8], rules)] == [False, True, False]
    others = [[*range(200, 250), n] for n in range(3)]
    assert opening.fit(others) == others[0][:50]  # nobody has the old one
    assert opening.fit([[1, 2], [3, 4]]) == []
    assert opening.ids == []
