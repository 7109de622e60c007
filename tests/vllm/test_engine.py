"""vLLM as the engine: the tokens and numbers of the engine in this process, and the weights as they are now."""

from __future__ import annotations

import asyncio
import random

import pytest

import mulligan
from conversations import ask, logprobs_by_transformers, prompts_of
from mulligan.engine.choose import make_engine
from mulligan.errors import UsageError
from mulligan.models.load import load
from mulligan.models.nano import seeded_randomness
from mulligan.policy.local import LocalPolicy
from mulligan.types import Sampling

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def loaded(tiny_llama):
    return load(f"hf:{tiny_llama}")


@pytest.fixture(scope="module")
def engine(loaded):
    made = make_engine(loaded.model, slots=16, kind="vllm")
    yield made
    made.close()


def trials_of(engine, loaded, temperature, count=6):
    """Trials of three episodes with history and reflections, played at once."""
    policy = LocalPolicy(engine, loaded.renderer)
    task = mulligan.make_task("minesweeper", 5, params={"rows": 3, "cols": 3, "mines": 2, "turns": 3})

    async def play():
        sampling = Sampling(temperature, 1.0, 8)
        options = {"memory": "both", "sampling": sampling, "reflection_tokens": 12, "stop": "never"}
        return await asyncio.gather(
            *(mulligan.run_trial(task, policy, seed=n, index=n, episodes=2, **options) for n in range(count))
        )

    return asyncio.run(play())


def replies_of(trials):
    replies = [turn.reply for trial in trials for episode in trial.episodes for turn in episode.turns]
    notes = [episode.reflection for trial in trials for episode in trial.episodes if episode.reflection]
    return [*replies, *(note.completion for note in notes if note.completion)]


@pytest.fixture(scope="module")
def plain(tiny_llama):
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(tiny_llama)


def test_greedy_trials_are_those_of_the_engine_in_this_process(engine, loaded):
    """Token for token. The two round differently by 1e-6; where two tokens were likelier than all others by less than
    that, either could come, which does not happen in these trials."""
    ours = replies_of(trials_of(make_engine(loaded.model, slots=16, kind="slots"), loaded, 0.0))
    theirs = replies_of(trials_of(engine, loaded, 0.0))
    assert len(ours) > 30
    assert len({reply.ids for reply in ours}) > 3, "replies differ from turn to turn"
    assert [reply.ids for reply in theirs] == [reply.ids for reply in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)
        assert other.finish == one.finish


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_distribution_drawn_from(engine, plain, temperature):
    for before, reply in ask(engine, prompts_of(8), temperature, turns=3):
        expected = logprobs_by_transformers(plain, before, reply.ids, temperature)
        assert reply.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_reply_hangs_on_its_own_seed_alone(engine):
    """Whoever else is served: conversation 0 draws the same alone as among eight."""
    crowd = ask(engine, prompts_of(8))
    alone = ask(engine, prompts_of(1))
    assert alone[0][1].ids == crowd[0][1].ids
    assert len({reply.ids for _, reply in ask(engine, [prompts_of(1)[0]] * 4)}) == 4, "other seeds, other replies"


def test_stop_tokens_end_a_reply_and_belong_to_it(engine):
    (before, free), *_ = ask(engine, prompts_of(1), temperature=0.0)
    stop = free.ids[3]

    async def stopped():
        stream = await engine.open()
        reply = await stream.extend(before, Sampling(0.0, 1.0, 12), {stop}, random.Random(0))
        after = stream.length
        stream.close()
        return reply, after

    reply, after = asyncio.run(stopped())
    assert reply.ids == free.ids[: free.ids.index(stop) + 1]
    assert reply.finish == "stop"
    assert free.finish == "length"
    assert after == len(before) + len(reply.ids)


def test_what_was_read_is_not_read_again(engine):
    """Turns 2 and 3 find all whole blocks of what came before, by vLLM's own count."""
    prompt = [number + 20 for number in range(100)]
    read, cached = engine.tokens, engine.cached_tokens
    (before, _), *_ = ask(engine, [prompt], most=10, turns=3)
    assert len(before) == 100 + 2 * 13
    # Blocks of 32 tokens: 96 of turn 1's 100 (109 cached), 96 again of turn 2's 113; turn 3 asks with 126.
    assert engine.cached_tokens - cached == 96 + 96
    assert engine.tokens - read == 100 + 10 + (113 - 96) + 10 + (126 - 96) + 10


def test_new_weights_are_sampled_from_at_once(tiny_llama, engine, loaded):
    """After a change the log-probabilities are those of the changed weights, also of prompts that were cached."""
    import torch
    from transformers import LlamaForCausalLM

    prompts = prompts_of(6)
    before = ask(engine, prompts, turns=2)
    changed = LlamaForCausalLM.from_pretrained(tiny_llama)
    saved = [parameter.detach().clone() for parameter in loaded.model.parameters()]
    try:
        with torch.no_grad(), seeded_randomness(3):
            for parameter, twin in zip(loaded.model.parameters(), changed.parameters(), strict=True):
                step = torch.randn_like(parameter) * 0.05
                parameter += step
                twin += step
        for (said, reply), (_, old) in zip(ask(engine, prompts, turns=2), before, strict=True):
            expected = logprobs_by_transformers(changed, said, reply.ids)
            assert reply.logprobs == pytest.approx(expected, abs=1e-4)
            assert reply.logprobs[0] != pytest.approx(old.logprobs[0], abs=1e-3)
    finally:
        with torch.no_grad():
            for parameter, value in zip(loaded.model.parameters(), saved, strict=True):
                parameter.copy_(value)
    for (_, reply), (_, old) in zip(ask(engine, prompts, turns=2), before, strict=True):
        assert reply.ids == old.ids, "and back"


def test_a_model_that_vllm_cannot_run_is_refused_in_one_line():
    with pytest.raises(UsageError) as refused:
        make_engine(load("nano").model, slots=4, kind="vllm")
    assert str(refused.value) == (
        "vLLM cannot sample from this model: its heads have 24 numbers, and on a CPU vLLM takes 32, 64, 80, 96, 112, "
        "128, 160, 192, 224, 256, 512; leave engine.kind at auto"
    )
