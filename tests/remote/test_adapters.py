"""Several runs on one server: each has an adapter of its own."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
import torch

from mulligan.errors import UsageError
from mulligan.training.remote import RemoteLearner
from mulligan.training.rows import Row, Span
from mulligan.training.step import UpdateData
from mulligan.types import Sampling
from remote.test_training import remote_config

pytestmark = pytest.mark.tinker
PROMPT = [5, 6, 7, 8]
TOKENS = (20, 30, 40)


def wishing(learner: RemoteLearner, token: int) -> float:
    """An update towards one reply, as if it had been drawn; its log-probability before."""
    row = Row([*PROMPT, token], [Span(len(PROMPT), (token,), None, 0, 0, reflects=False)])
    learner.look_over([row], 1, 0)
    assert row.spans[0].old is not None
    before = row.spans[0].old[0]
    learner.update(UpdateData([row], torch.ones(1)), update=0)
    return before


def likeliest(learners: list[RemoteLearner]) -> list[int]:
    """The reply of each, asked for at the same time."""

    async def reply_of(learner):
        stream = await learner.engine.open()
        try:
            return (await stream.extend(PROMPT, Sampling(0.0, 1.0, 1), (), random.Random(0))).ids[0]
        finally:
            stream.close()

    async def all_of_them():
        return await asyncio.gather(*map(reply_of, learners))

    return asyncio.run(all_of_them())


def test_three_adapters_do_not_mix_and_a_fourth_is_refused(beginner, bandit_server):
    config = remote_config(beginner, bandit_server)
    config = replace(config, optim=replace(config.optim, lr=3e-2, epochs=1))
    learners = [RemoteLearner(config, context=64, slots=4) for _ in TOKENS]
    try:
        first = [wishing(learner, token) for learner, token in zip(learners, TOKENS, strict=True)]
        for _ in range(5):  # in turn, each towards its own
            for learner, token in zip(learners, TOKENS, strict=True):
                wishing(learner, token)
        assert likeliest(learners) == list(TOKENS)
        for learner, token, before in zip(learners, TOKENS, first, strict=True):
            assert wishing(learner, token) > before + 1.0
        with pytest.raises(UsageError, match=r"does not train an adapter of rank 8 .*Maximum number of LoRA adapters"):
            RemoteLearner(config, context=64)
    finally:
        for learner in learners:
            learner.close()
    after = RemoteLearner(config, context=64)  # what is closed makes room
    assert wishing(after, TOKENS[0]) == pytest.approx(first[0], abs=1e-4), "an adapter begins where the base model is"
    after.close()
