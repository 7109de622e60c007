"""Sampling through a real Tinker server: the same replies as ours, and those of the newest weights."""

from __future__ import annotations

import asyncio
import random

import pytest

import mulligan
from mulligan.engine.base import Pair
from mulligan.engine.slots import SlotEngine
from mulligan.engine.tinker import TinkerEngine, connect, sampling_client
from mulligan.models.load import load
from mulligan.policy.local import LocalPolicy
from mulligan.training.rows import steps_of
from mulligan.types import Sampling

pytestmark = pytest.mark.tinker
GREEDY = Sampling(temperature=0.0, max_tokens=6)


def played(policy):
    """The replies of greedy trials: their tokens, log-probabilities and the tokens that came before."""
    params = {"rows": 3, "cols": 3, "mines": 2, "turns": 2, "view": "compact"}
    tasks = [mulligan.make_task("minesweeper", seed, params=params) for seed in range(6)]
    options = {"episodes": 2, "memory": "both", "style": "bare", "stop": "never", "reflection_tokens": 6}

    async def all_of_them():
        return await asyncio.gather(*(mulligan.run_trial(task, policy, sampling=GREEDY, **options) for task in tasks))

    return [reply for trial in asyncio.run(all_of_them()) for reply, _ in steps_of(trial)]


def test_greedy_trials_are_those_of_the_slot_engine_token_for_token(base, server):
    loaded = load(f"hf:{base}")
    ours = played(LocalPolicy(SlotEngine(loaded.model, slots=8), loaded.renderer))
    client = sampling_client(connect(server.url), str(base))
    theirs = played(LocalPolicy(TinkerEngine(client, slots=8, context=1024), loaded.renderer))
    assert len(ours) == 6 * (2 * 2 + 1), "four turns and a reflection each"
    assert [(reply.prompt_ids, reply.ids) for reply in theirs] == [(reply.prompt_ids, reply.ids) for reply in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)  # float32 of two libraries
    assert len({reply.ids for reply in ours}) > 3, "the replies depend on what was asked"


def test_the_chances_of_replies_are_those_of_the_model(base, server):
    loaded = load(f"hf:{base}")
    pairs = [Pair((5, 6, 7), (8, 9)), Pair((5, 6, 7), (10,)), Pair((4, 3), (11, 12, 13))]
    client = sampling_client(connect(server.url), str(base))
    theirs = TinkerEngine(client, slots=8, context=1024).reply_chances(pairs, Sampling(1.0))
    ours = SlotEngine(loaded.model).reply_chances(pairs, Sampling(1.0))
    assert theirs == pytest.approx(ours, rel=1e-3)


def test_the_sampler_carries_the_new_weights(base, server):
    """After an update a reply's log-probability is the trainer's, and no longer that of the weights before."""
    from tinker import types

    service = connect(server.url)
    trainer = service.create_lora_training_client(base_model=str(base), rank=32, seed=1)
    engine = TinkerEngine(trainer.save_weights_and_get_sampling_client(), slots=1, context=64)
    prompt = [5, 6, 7, 8]

    def drawn():
        async def draw():
            stream = await engine.open()
            try:
                return await stream.extend(prompt, Sampling(0.0, 1.0, 1), (), random.Random(0))
            finally:
                stream.close()

        return asyncio.run(draw())

    def datum(token, advantage):
        tokens = [*prompt, token]
        zeros = [0.0] * (len(prompt) - 1)
        inputs = {"logprobs": [*zeros, drawn_before.logprobs[0]], "advantages": [*zeros, advantage]}
        tensors = {name: tensor(values, "float32") for name, values in inputs.items()}
        target = {"target_tokens": tensor(tokens[1:], "int64")}
        return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=target | tensors)

    def tensor(values, dtype):
        return types.TensorData(data=values, dtype=dtype, shape=[len(values)])

    drawn_before = drawn()
    likeliest = drawn_before.ids[0]
    for _ in range(3):  # away from the likeliest reply
        trainer.forward_backward([datum(likeliest, -1.0)], "importance_sampling").result()
        trainer.optim_step(types.AdamParams(learning_rate=3e-2)).result()
    engine.use(trainer.save_weights_and_get_sampling_client())
    after = drawn()
    trained = trainer.forward([datum(after.ids[0], 0.0)], "importance_sampling").result()
    now = trained.loss_fn_outputs[0]["logprobs"].data[-1]
    assert after.ids[0] != likeliest
    assert after.logprobs[0] == pytest.approx(now, abs=1e-3)


def test_a_model_that_the_server_does_not_have_is_told_in_one_line(base, server, tmp_path):
    service = connect(server.url)
    engine = TinkerEngine(sampling_client(service, "another/model"), slots=1, context=64)

    async def ask():
        stream = await engine.open()
        return await stream.extend([5, 6], Sampling(0.0, 1.0, 1), (), random.Random(0))

    with pytest.raises(mulligan.errors.RequestFailed, match="Engine is configured for") as refused:
        asyncio.run(ask())
    assert "\n" not in str(refused.value)
