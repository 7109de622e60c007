"""The engine for GPUs, on a CPU: without graphs, the same results. On a GPU the same tests run with them."""

from __future__ import annotations

import asyncio
import copy
import random

import pytest
import torch

from mulligan.engine.choose import make_engine
from mulligan.engine.device import Device
from mulligan.engine.graphs import GraphEngine
from mulligan.engine.llama_forward import why_not
from mulligan.engine.plain import SlotPositions
from mulligan.engine.slots import SlotEngine
from mulligan.errors import DeviceLost, MemoryFull, UsageError
from mulligan.models.load import load, old_name_allowed, save
from mulligan.types import Sampling
from small_models import DEVICE, FAMILIES, SHAPE, a_model, family_model, greedy_of


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
    assert play(engine, reference, 5) == 5
    assert sorted(engine.free) == [0, 1, 2]
    assert not engine.live


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
        compact.forward(ids[:39], SlotPositions(whole(*[1] * 39), whole(*range(39))), 0, tiles)
        got = compact.forward(ids[39:], SlotPositions(whole(1), whole(39)), 1)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_lora_counts_and_training_it_changes_replies():
    loaded = load("nano:hidden=128,context=128", lora=4, device=DEVICE)
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
        with old_name_allowed():
            model = get_peft_model(model, config)
        assert change not in ("merged", "switched off") or why_not(model) is None
    if change == "merged":
        model.merge_adapter()
    if change == "switched off":
        model.base_model.disable_adapter_layers()
    assert why_not(model) is not None


def test_a_model_whose_weights_were_exchanged_is_not_sampled():
    model = a_model("llama")
    engine = GraphEngine(model, slots=1)
    model.to(torch.float64).to(torch.float32)

    async def talk() -> None:
        stream = await engine.open()
        with pytest.raises(UsageError, match="weights"):
            await stream.extend([1], Sampling(), (), random.Random(0))

    asyncio.run(talk())


def test_a_lost_device_is_said_once_and_ends_everything(monkeypatch):
    engine = GraphEngine(a_model("llama"), slots=2)

    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand much more")

    monkeypatch.setattr(engine.device, "decode", break_down)

    async def talk() -> None:
        stream = await engine.open()
        with pytest.raises(DeviceLost, match="illegal memory access"):
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
    with pytest.raises(UsageError, match="gelu"):
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
