"""Conversations of random tokens with an engine, and what transformers says of them, for the tests of vLLM."""

from __future__ import annotations

import asyncio
import random

from mulligan.types import Sampling

NOBODY_STOPS = ()


def logprobs_by_transformers(model, prompt, ids, temperature=1.0):
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0].float() / temperature
    scores = logits.log_softmax(-1)
    return [scores[len(prompt) + place - 1, token].item() for place, token in enumerate(ids)]


def ask(engine, prompts, temperature=1.0, most=12, turns=1):
    """Conversations, each a stream of its own: [(all tokens before the last reply, the last reply)]."""

    async def converse(number, prompt):
        stream, rng = await engine.open(), random.Random(number)
        before = []
        for turn in range(turns):
            before += prompt if turn == 0 else [7, 8, 9]
            reply = await stream.extend(
                prompt if turn == 0 else [7, 8, 9], Sampling(temperature, 1.0, most), NOBODY_STOPS, rng
            )
            if turn < turns - 1:
                before += reply.ids
        stream.close()
        return before, reply

    async def everybody():
        return await asyncio.gather(*(converse(number, prompt) for number, prompt in enumerate(prompts)))

    return asyncio.run(everybody())


def prompts_of(count, length=40):
    rng = random.Random(1)
    return [[rng.randrange(20, 300) for _ in range(length + number)] for number in range(count)]
