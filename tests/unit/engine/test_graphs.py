"""The engine for GPUs, on a CPU: without graphs, the same results. On a GPU the same tests run with them."""

from __future__ import annotations

import asyncio
import copy
import random

import pytest
import torch

from mulligan.engine import plain
from mulligan.engine.choose import make_engine
from mulligan.engine.compact import Projection, why_not
from mulligan.engine.device import Device
from mulligan.engine.graphs import GraphEngine
from mulligan.engine.opening import Opening
from mulligan.engine.slots import SlotEngine
from mulligan.engine.state import LENGTH, SCALE, SEED, STATE, STOPS
from mulligan.errors import ContextFull, DeviceLost, MemoryFull, ParameterError, UsageError
from mulligan.models.load import LoraSettings, load, save
from mulligan.types import Sampling

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = {
    "hidden_size": 96,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": 128,
}


def a_model(family: str, **more):
    """A small model whose replies depend on everything: norms and biases are not left at 1 and 0."""
    import transformers

    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}[family]
    if family in ("qwen3", "mistral"):
        more = {"head_dim": 16, **more}
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **more})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(DEVICE)


FAMILIES = {
    "llama": {},
    "smollm2": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144, "tie_word_embeddings": True},
    "llama with scaled rotations": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": None},
}


def family_model(name: str):
    return a_model(name.partition(" ")[0].replace("smollm2", "llama"), **FAMILIES[name])


def greedy_of(model, ids: list[int], count: int) -> list[int]:
    found = list(ids)
    with torch.no_grad():
        for _ in range(count):
            found.append(int(model(torch.tensor([found], device=DEVICE)).logits[0, -1].float().argmax()))
    return found[len(ids) :]


def short_of_best(model, ids: list[int], reply: list[int]) -> float:
    """How far a token of the reply is at most below the likeliest one: ties may fall either way between kernels."""
    with torch.no_grad():
        logits = model(torch.tensor([ids + reply], device=DEVICE)).logits[0, len(ids) - 1 : -1].float()
    chosen = logits[torch.arange(len(reply)), torch.tensor(reply)]
    return float((logits.amax(-1) - chosen).max())


def play(engine, model, streams: int, seed: int = 0) -> int:
    """Conversations of three turns of all lengths, checked against the plain model; returns how many were right."""

    async def one(number: int) -> bool:
        rng = random.Random(seed * 1000 + number)
        stream = await engine.open()
        sequence: list[int] = []
        right = True
        for _ in range(3):
            ids = [rng.randrange(SHAPE["vocab_size"]) for _ in range(rng.choice([1, 2, 5, 28]))]
            sequence += ids
            count = rng.randint(1, 6)
            got = await stream.extend(ids, Sampling(0.0, 1.0, count), (), rng)
            right &= list(got.ids) == greedy_of(model, sequence, count)
            sequence += got.ids
            right &= stream.length == len(sequence)
        stream.close()
        return right

    async def everybody() -> int:
        return sum(await asyncio.gather(*(one(number) for number in range(streams))))

    return asyncio.run(everybody())


@pytest.mark.parametrize("family", FAMILIES)
def test_replies_are_those_of_the_plain_model(family):
    model = family_model(family)
    reference = copy.deepcopy(model)
    assert why_not(model) is None
    engine = GraphEngine(model, slots=3, chunk=20)  # fewer slots than streams, prompts longer than a reading
    assert play(engine, reference, 7) == 7
    assert sorted(engine.free) == [0, 1, 2]
    assert not engine.live


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
    opening = Opening(torch.nn.Linear(1, 1))
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


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_logits_are_those_of_the_plain_model(family):
    model = family_model(family)
    reference = copy.deepcopy(model)
    engine = GraphEngine(model, slots=2)
    ids = torch.arange(40, device=DEVICE) * 7 % SHAPE["vocab_size"]
    compact = engine.device.model

    def whole(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    with torch.no_grad():
        want = reference(ids.unsqueeze(0)).logits[0, -1]
        tiles = whole(0, 8, 16, 24, 32), whole(8, 8, 8, 8, 7)
        compact.forward(ids[:39], whole(*[1] * 39), whole(*range(39)), 0, tiles)
        got = compact.forward(ids[39:], whole(1), whole(39), 1)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_lora_counts_and_training_it_changes_replies():
    loaded = load("nano:hidden=128,context=128", lora=LoraSettings(rank=4), device=DEVICE)
    model = loaded.model
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    engine = GraphEngine(model, slots=2)
    ids = list(range(5, 25))

    def reply() -> list[int]:
        async def once() -> list[int]:
            stream = await engine.open()
            got = await stream.extend(ids, Sampling(0.0, 1.0, 6), (), random.Random(0))
            stream.close()
            return list(got.ids)

        return asyncio.run(once())

    before = reply()
    assert short_of_best(model, ids, before) < 0.05
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-3)
    after = reply()
    assert short_of_best(model, ids, after) < 0.05
    assert short_of_best(model, ids, before) > 0.5


def test_an_adapter_more_precise_than_its_model_counts_too():
    """PEFT itself makes adapters float32; what is loaded here is as precise as the model."""
    model = load("nano:hidden=128", lora=LoraSettings(rank=4), device=DEVICE, dtype="bfloat16").model
    attention = model.get_base_model().model.layers[0].self_attn
    layers = [attention.q_proj, attention.k_proj, attention.v_proj]
    assert {layer.lora_A["default"].weight.dtype for layer in layers} == {torch.bfloat16}
    x = torch.randn(5, 128, device=DEVICE, dtype=torch.bfloat16)
    for dtype in (torch.bfloat16, torch.float32):
        for layer in layers:
            layer.lora_A.to(dtype), layer.lora_B.to(dtype)
            torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.3)
        with torch.no_grad():
            want = torch.cat([layer(x) for layer in layers], -1)
            torch.testing.assert_close(Projection(layers)(x), want, rtol=0.02, atol=0.05)


def test_weights_stay_the_models_own(tmp_path):
    """Training, saving and loading see nothing of how the engine lays weights out."""
    loaded = load("nano:hidden=128,context=64", device=DEVICE)
    names = [name for name, _ in loaded.model.named_parameters()]
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    engine = GraphEngine(loaded.model, slots=2)
    again = GraphEngine(loaded.model, slots=1)
    first, second = engine.device.model.layers[0].packed.weight, again.device.model.layers[0].packed.weight
    assert first.data_ptr() == second.data_ptr()  # a second engine over the model shares, and does not take over
    assert [name for name, _ in loaded.model.named_parameters()] == names
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.05 * torch.ones_like(parameter))
    assert play(engine, copy.deepcopy(loaded.model), 2) == 2
    save(loaded, tmp_path / "saved")
    for name, value in load(str(tmp_path / "saved"), device=DEVICE).model.state_dict().items():
        assert torch.equal(value, loaded.model.state_dict()[name]), name


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
        with pytest.raises(ContextFull, match="leaves no room in a context of 40"):
            await stream.extend([1], Sampling(0.0, 1.0, 1), (), random.Random(0))
        with pytest.raises(ParameterError, match="at most 8"):
            await stream.extend([1], Sampling(), tuple(range(9)), random.Random(0))
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


@pytest.mark.parametrize("kind", [SlotEngine, GraphEngine])
def test_a_closed_stream_is_not_extended(kind):
    """Its place is another's."""
    model = a_model("llama")
    want = greedy_of(model, [1, 2], 4)
    engine = kind(model, slots=1)

    async def talk() -> None:
        stream = await engine.open()
        stream.close()
        other = await engine.open()
        with pytest.raises(UsageError, match="the stream is closed"):
            await stream.extend([5] * 9, Sampling(), (), random.Random(0))
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


def test_many_heads_of_queries_for_one_of_keys():
    """Tiles are short then, and many: a prompt must still be read to its end."""
    model = a_model("llama", hidden_size=512, num_attention_heads=32, num_key_value_heads=1)
    assert play(GraphEngine(model, slots=2, chunk=24), copy.deepcopy(model), 3) == 3


@pytest.mark.parametrize(
    "change", ["merged", "switched off", "more than low-rank", "changes", "not LoRA", "not see all"]
)
def test_what_cannot_be_sampled_rightly_is_left_to_the_models_own_code(change):
    from peft import IA3Config, LoraConfig, get_peft_model

    model = a_model("llama")
    config = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    if change == "more than low-rank":
        config.use_dora = True
    if change == "changes":
        config.target_modules = ["embed_tokens"]
    if change == "not LoRA":
        config = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    if change == "not see all":
        model = a_model("mistral", sliding_window=8)
    else:
        model = get_peft_model(model, config)
        assert change not in ("merged", "switched off") or why_not(model) is None
    if change == "merged":
        model.merge_adapter()
    if change == "switched off":
        model.base_model.disable_adapter_layers()
    assert change in str(why_not(model))


def test_a_model_whose_weights_were_exchanged_is_not_sampled():
    model = a_model("llama")
    engine = GraphEngine(model, slots=1)
    model.to(torch.float64).to(torch.float32)

    async def talk() -> None:
        stream = await engine.open()
        with pytest.raises(UsageError, match="make a new engine"):
            await stream.extend([1], Sampling(), (), random.Random(0))

    asyncio.run(talk())


def test_a_lost_device_is_said_once_and_ends_everything(monkeypatch):
    engine = GraphEngine(a_model("llama"), slots=2)

    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand much more")

    monkeypatch.setattr(engine.device, "decode", break_down)

    async def talk() -> None:
        stream = await engine.open()
        with pytest.raises(DeviceLost, match=r"illegal memory access was encountered; start again with --resume$"):
            await stream.extend([1], Sampling(), (), random.Random(0))
        with pytest.raises(DeviceLost):
            await stream.extend([1], Sampling(), (), random.Random(0))

    asyncio.run(talk())


def test_the_engine_is_chosen_by_device_and_family():
    model = a_model("llama")
    assert isinstance(make_engine(model, slots=2), GraphEngine if DEVICE == "cuda" else SlotEngine)
    assert isinstance(make_engine(model, slots=2, kind="slots"), SlotEngine)
    odd = a_model("llama", hidden_act="gelu")
    assert isinstance(make_engine(odd, slots=2), SlotEngine)
    with pytest.raises(UsageError, match="its activation is gelu, not silu"):
        make_engine(odd, slots=2, kind="graphs")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), MemoryFull),
        (RuntimeError("out of resource: shared memory"), UsageError),
    ],
)
def test_memory_that_runs_out_is_not_taken_for_kernels_that_do_not_run(raised, expected, monkeypatch):
    """Otherwise a run that begins on a crowded GPU is slow to its end."""

    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr(Device, "try_out", fail)
    with pytest.raises(expected) as found:
        make_engine(a_model("llama"), slots=2, kind="graphs")
    assert type(found.value) is expected
