"""Compiled layers: the same numbers, one piece of code for all of them and for every plan, and nothing else changed."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from mulligan.models import attention
from mulligan.models.attention import PackedPlan, compile_layers, forward, states, use_plans

# Of torch's own making, while it compiles.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 9,  # more often than eight times torch does not compile one piece of code
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    traced = logging.getLogger("torch.__trace")
    traced.disabled = True  # pytest would keep what it says of every line
    yield
    traced.disabled = False
    torch._dynamo.reset()


def llama(lora: bool = False, checkpointing: bool = False):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    if lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # 0 at first: their factors would get no gradient
                torch.nn.init.normal_(parameter, std=0.1)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    use_plans(model)
    return model


# What a GPU does in one kernel, row by row, as an operation that torch.compile does not look into.


def row_by_row(query, key, ends, scaling):
    """Each row's tokens, and how its queries attend: [head, query, key]."""
    shared = query.shape[1] // key.shape[1]
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = slice(begin, end)
        scores = torch.einsum("qhd,khd->hqk", query[own], key[own].repeat_interleave(shared, 1)) * scaling
        yield own, scores.masked_fill(~torch.ones(scores.shape[1:], dtype=torch.bool).tril(), -torch.inf).softmax(-1)


@torch.library.custom_op("mulligan_tests::varlen", mutates_args=())
def plain_varlen(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int, scaling: float) -> Tensor:
    assert int(ends.diff().max()) <= longest
    shared = query.shape[1] // key.shape[1]
    mixed = torch.empty(query.shape)
    for own, attends in row_by_row(query, key, ends, scaling):
        mixed[own] = torch.einsum("hqk,khd->qhd", attends, value[own].repeat_interleave(shared, 1))
    return mixed


@torch.library.custom_op("mulligan_tests::varlen_backward", mutates_args=())
def plain_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, ends: Tensor, scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
    shared = query.shape[1] // key.shape[1]
    found = [torch.empty(x.shape) for x in (query, key, value)]
    for own, attends in row_by_row(query, key, ends, scaling):
        keys, values = (x[own].repeat_interleave(shared, 1) for x in (key, value))
        by_weight = torch.einsum("qhd,khd->hqk", gradient[own], values)
        by_score = attends * (by_weight - (by_weight * attends).sum(-1, keepdim=True)) * scaling
        found[0][own] = torch.einsum("hqk,khd->qhd", by_score, keys)
        found[1][own] = torch.einsum("hqk,qhd->khd", by_score, query[own]).unflatten(1, (-1, shared)).sum(2)
        found[2][own] = torch.einsum("hqk,qhd->khd", attends, gradient[own]).unflatten(1, (-1, shared)).sum(2)
    return found[0], found[1], found[2]


@plain_varlen.register_fake
def _(query, key, value, ends, longest, scaling):
    return torch.empty(query.shape)


@plain_backward.register_fake
def _(gradient, query, key, value, ends, scaling):
    return tuple(torch.empty(x.shape) for x in (query, key, value))


def remember(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4])
    ctx.scaling = inputs[5]


plain_varlen.register_autograd(
    lambda ctx, gradient: (*plain_backward(gradient, *ctx.saved_tensors, ctx.scaling), None, None, None),
    setup_context=remember,
)


class OnGpu(PackedPlan):
    """Takes the way that plans of half precision take on a GPU."""

    def attend(self, layer, query, key, value, scaling):
        return attention.varlen(query, key, value, self.ends, self.longest, scaling)


def a_plan(lengths, kind):
    plan = kind(lengths, ends=torch.tensor([0, *lengths]).cumsum(0).int())
    plan.longest = 2048 * len(lengths)  # another value for each of ROWS
    return plan


def gradients(model, lengths, kind) -> tuple[Tensor, list[Tensor]]:
    """Hidden states of packed random rows, and what their weighted sum says of every parameter."""
    generator = torch.Generator().manual_seed(sum(lengths))
    count = sum(lengths)
    ids = torch.randint(0, 60, (count,), generator=generator)
    positions = torch.cat([torch.arange(length) for length in lengths])
    hidden = states(model, ids, positions, a_plan(lengths, kind))
    model.zero_grad()
    (hidden * torch.randn(hidden.shape, generator=generator)).sum().backward()
    return hidden.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


ROWS = [[5, 7, 3], [11, 2], [4, 4, 4, 9]]


@pytest.mark.parametrize(
    ("lora", "checkpointing", "backend"),
    [(False, False, "aot_eager"), (False, True, "eager"), (True, True, "eager")],
)
def test_compiled_layers_say_the_same_and_are_compiled_once_for_all_plans(monkeypatch, lora, checkpointing, backend):
    monkeypatch.setattr(attention, "varlen", plain_varlen)
    plain, compiled = llama(lora, checkpointing), llama(lora, checkpointing)
    counter = CompileCounterWithBackend(backend)
    compile_layers(compiled, counter)
    after: list[int] = []
    for lengths in ROWS:
        expected, found = (gradients(model.train(), lengths, OnGpu) for model in (plain, compiled))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
        after.append(counter.frame_count)
    assert after[0] == after[-1] <= 3  # with LoRA the first layer's input needs no gradient: one more
    with torch.no_grad():
        for lengths in ROWS:
            ids, places = torch.arange(sum(lengths)) % 60, torch.arange(sum(lengths))
            each = [states(model.eval(), ids, places, a_plan(lengths, OnGpu)) for model in (plain, compiled)]
            torch.testing.assert_close(each[1], each[0], atol=1e-4, rtol=1e-3)
    assert counter.frame_count <= after[0] + 2  # once more without gradients, whatever the plan


def test_compiled_layers_attend_in_blocks_too():
    plain, compiled = llama(), llama()
    counter = CompileCounterWithBackend("eager")
    compile_layers(compiled, counter)
    after = []
    for lengths in ROWS:
        torch.testing.assert_close(
            gradients(compiled, lengths, PackedPlan), gradients(plain, lengths, PackedPlan), atol=1e-4, rtol=1e-3
        )
        after.append(counter.frame_count)
    assert after[-1] <= after[0] + 1  # sizes that happen to be the same at first are taken for one


def test_other_plans_pass_compiled_layers_by():
    class Alone:
        """Every token sees itself alone; an attribute that changes with each layer would be compiled each time."""

        def __init__(self):
            self.layers = []

        def attend(self, layer, query, key, value, scaling):
            self.layers.append(layer)
            return value.repeat_interleave(2, 1)

    model = llama()
    counter = CompileCounterWithBackend("eager")
    compile_layers(model, counter)
    plan, ids = Alone(), torch.arange(6)
    logits = forward(model, ids, ids, plan, ids)
    assert counter.frame_count == 0
    assert plan.layers == list(range(9))
    torch.testing.assert_close(logits, forward(llama(), ids, ids, Alone(), ids))


@pytest.mark.parametrize("lora", [False, True])
def test_compiling_leaves_names_copies_and_saved_models_alone(tmp_path, lora):
    model = llama(lora)
    names = list(model.state_dict())
    compile_layers(model, "eager")
    assert list(model.state_dict()) == names
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    ids = torch.arange(5)
    with torch.no_grad():
        each = [states(x, ids, ids, PackedPlan([5])) for x in (model, other)]
        assert not torch.allclose(*each)  # a copy computes with its own weights
        torch.testing.assert_close(each[0], states(llama(lora), ids, ids, PackedPlan([5])), atol=1e-4, rtol=1e-3)
    model.save_pretrained(tmp_path)
    if not lora:
        again = LlamaForCausalLM.from_pretrained(tmp_path)
        torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize(
    "model",
    [
        LlamaForCausalLM(LlamaConfig(**SIZES | {"num_hidden_layers": 2})),
        Qwen3ForCausalLM(Qwen3Config(**SIZES | {"num_hidden_layers": 2, "head_dim": 12})),
    ],
    ids=["llama", "qwen3"],
)
def test_both_ways_of_packed_attention_are_the_models_own(monkeypatch, model):
    """Blocks and sequences of any length give each row the states that it has by itself."""
    rows = [torch.arange(n) * 7 % 60 for n in (5, 1, 9, 4)]
    with torch.no_grad():
        model.set_attn_implementation("eager")
        alone = torch.cat([model.model(input_ids=row.unsqueeze(0)).last_hidden_state[0] for row in rows])
        monkeypatch.setattr(attention, "varlen", plain_varlen)
        use_plans(model)
        for kind in (PackedPlan, OnGpu):
            places = torch.cat([torch.arange(len(row)) for row in rows])
            packed = states(model, torch.cat(rows), places, a_plan([len(row) for row in rows], kind))
            torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-3)


def test_lengths_fall_into_few_classes():
    assert [PackedPlan([n]).longest for n in (1, 2048, 2049, 5000, 8192)] == [2048, 2048, 4096, 8192, 8192]
