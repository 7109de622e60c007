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
from mulligan.models.attention import (
    PackedPlan,
    SharedPrefix,
    compile_layers,
    forward,
    prefix_indices,
    states,
    use_plans,
)
from mulligan.models.load import old_name_allowed, use_checkpointing

# Of torch's own making, while it compiles.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]
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


def llama(lora: bool = False, checkpointing: bool = False, layers: int = 9):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | {"num_hidden_layers": layers}))
    if lora:
        from peft import LoraConfig, get_peft_model

        with old_name_allowed():
            model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # 0 at first: their factors would get no gradient
                torch.nn.init.normal_(parameter, std=0.1)
    if checkpointing:
        use_checkpointing(model)
    use_plans(model)
    return model


# What a GPU does in one kernel, row by row, as an operation that torch.compile does not look into.


def row_by_row(query, key, ends, key_ends, scaling):
    """Each row's queries and keys, and how they attend: [head, query, key]; the last query stands at the last key."""
    shared = query.shape[1] // key.shape[1]
    own, seen = ([slice(*each) for each in zip(x[:-1].tolist(), x[1:].tolist(), strict=True)] for x in (ends, key_ends))
    for here, there in zip(own, seen, strict=True):
        scores = torch.einsum("qhd,khd->hqk", query[here], key[there].repeat_interleave(shared, 1)) * scaling
        queries, keys = scores.shape[1:]
        past = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        yield here, there, scores.masked_fill(~past, -torch.inf).softmax(-1)


@torch.library.custom_op("mulligan_tests::varlen", mutates_args=())
def plain_varlen(
    query: Tensor, key: Tensor, value: Tensor, ends: Tensor, key_ends: Tensor, longest: int, scaling: float
) -> Tensor:
    assert int(key_ends.diff().max()) <= longest
    shared = query.shape[1] // key.shape[1]
    mixed = torch.empty(query.shape)
    for here, there, attends in row_by_row(query, key, ends, key_ends, scaling):
        mixed[here] = torch.einsum("hqk,khd->qhd", attends, value[there].repeat_interleave(shared, 1))
    return mixed


@torch.library.custom_op("mulligan_tests::varlen_backward", mutates_args=())
def plain_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, ends: Tensor, key_ends: Tensor, scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
    shared = query.shape[1] // key.shape[1]
    found = [torch.empty(x.shape) for x in (query, key, value)]
    for here, there, attends in row_by_row(query, key, ends, key_ends, scaling):
        keys, values = (x[there].repeat_interleave(shared, 1) for x in (key, value))
        by_weight = torch.einsum("qhd,khd->hqk", gradient[here], values)
        by_score = attends * (by_weight - (by_weight * attends).sum(-1, keepdim=True)) * scaling
        found[0][here] = torch.einsum("hqk,khd->qhd", by_score, keys)
        found[1][there] = torch.einsum("hqk,qhd->khd", by_score, query[here]).unflatten(1, (-1, shared)).sum(2)
        found[2][there] = torch.einsum("hqk,qhd->khd", attends, gradient[here]).unflatten(1, (-1, shared)).sum(2)
    return found[0], found[1], found[2]


@plain_varlen.register_fake
def _(query, key, value, ends, key_ends, longest, scaling):
    return torch.empty(query.shape)


@plain_backward.register_fake
def _(gradient, query, key, value, ends, key_ends, scaling):
    return tuple(torch.empty(x.shape) for x in (query, key, value))


def remember(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5])
    ctx.scaling = inputs[6]


plain_varlen.register_autograd(
    lambda ctx, gradient: (*plain_backward(gradient, *ctx.saved_tensors, ctx.scaling), *[None] * 4),
    setup_context=remember,
)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Plans that are told where sequences end take the way that half precision takes on a GPU."""
    monkeypatch.setattr(attention, "varlen", plain_varlen)
    monkeypatch.setattr(attention, "HALF", (torch.float32,))


def prefix(lengths, opening, device="cpu"):
    if not opening:
        return None
    keys, key_of_token, copies, ends = (torch.from_numpy(each).to(device) for each in prefix_indices(lengths))
    return SharedPrefix(keys, key_of_token, copies, ends.int())


def in_blocks(lengths, opening=False):
    return PackedPlan(lengths, opening=prefix(lengths, opening))


def on_gpu(lengths, opening=False):
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    plan = PackedPlan(lengths, ends=ends, opening=prefix(lengths, opening))
    plan.longest = 2048 * len(lengths)  # another value for each of ROWS
    return plan


def gradients(model, lengths, plan_of, opening=False) -> tuple[Tensor, list[Tensor]]:
    """Hidden states of packed random rows, and what their weighted sum says of every parameter."""
    generator = torch.Generator().manual_seed(sum(lengths))
    count = sum(lengths)
    ids = torch.randint(0, 60, (count,), generator=generator)
    positions = torch.cat([torch.arange(length) for length in lengths])
    positions[lengths[0] :] += lengths[0] * opening
    hidden = states(model, ids, positions, plan_of(lengths, opening))
    model.zero_grad()
    (hidden * torch.randn(hidden.shape, generator=generator)).sum().backward()
    return hidden.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


ROWS = [[5, 7, 3], [11, 2], [4, 4, 4, 9]]
OPENED = [[5, 7, 3], [11, 2, 6, 1, 5], [4, 4, 4, 9]]


@pytest.mark.parametrize(
    ("lora", "checkpointing", "backend", "opening"),
    [
        (False, False, "eager", True),
        pytest.param(True, True, "eager", False, marks=pytest.mark.slow),
        pytest.param(False, False, "aot_eager", True, marks=pytest.mark.slow),
        pytest.param(False, True, "eager", True, marks=pytest.mark.slow),
    ],
)
def test_compiled_layers_say_the_same_and_are_compiled_once_for_all_plans(
    as_on_a_gpu, lora, checkpointing, backend, opening
):
    plain, compiled = llama(lora, checkpointing), llama(lora, checkpointing)
    counter = CompileCounterWithBackend(backend)
    compile_layers(compiled, counter)
    after: list[int] = []
    rows = OPENED if opening else ROWS
    for lengths in rows:
        expected, found = (gradients(model.train(), lengths, on_gpu, opening) for model in (plain, compiled))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
        after.append(counter.frame_count)
    assert after[0] == after[-1] <= 3  # with LoRA the first layer's input needs no gradient: one more
    with torch.no_grad():
        for lengths in rows:
            ids, places = torch.arange(sum(lengths)) % 60, torch.arange(sum(lengths))
            each = [states(model.eval(), ids, places, on_gpu(lengths, opening)) for model in (plain, compiled)]
            torch.testing.assert_close(each[1], each[0], atol=1e-4, rtol=1e-3)
    assert counter.frame_count <= after[0] + 2  # once more without gradients, whatever the plan


@pytest.mark.slow
def test_compiled_layers_attend_in_blocks_too():
    plain, compiled = llama(layers=2), llama(layers=2)
    counter = CompileCounterWithBackend("eager")
    compile_layers(compiled, counter)
    after = []
    for lengths in ROWS:
        torch.testing.assert_close(
            gradients(compiled, lengths, in_blocks), gradients(plain, lengths, in_blocks), atol=1e-4, rtol=1e-3
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


def test_compiling_leaves_names_and_saved_models_alone(tmp_path):
    model = llama(layers=1)
    names = list(model.state_dict())
    compile_layers(model, "eager")
    assert list(model.state_dict()) == names
    model.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()))


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, True])
def test_compiling_leaves_copies_and_what_they_save_alone(tmp_path, lora):
    model = llama(lora, layers=1)
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
        torch.testing.assert_close(
            each[0], states(llama(lora, layers=1), ids, ids, PackedPlan([5])), atol=1e-4, rtol=1e-3
        )
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
def test_both_ways_of_packed_attention_are_the_models_own(as_on_a_gpu, model):
    """Blocks and sequences of any length give each row the states that it has by itself."""
    rows = [torch.arange(n) * 7 % 60 for n in (5, 1, 9, 4)]
    with torch.no_grad():
        model.set_attn_implementation("eager")
        alone = torch.cat([model.model(input_ids=row.unsqueeze(0)).last_hidden_state[0] for row in rows])
        use_plans(model)
        for plan_of in (in_blocks, on_gpu):
            places = torch.cat([torch.arange(len(row)) for row in rows])
            packed = states(model, torch.cat(rows), places, plan_of([len(row) for row in rows]))
            torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("plan_of", [in_blocks, on_gpu])
def test_what_rows_begin_with_can_stand_once(as_on_a_gpu, plan_of):
    """Three rows that begin with the same four tokens: as each by itself, in states and in every gradient."""
    model = llama()
    opening, rest = torch.arange(4), [torch.arange(n) * 7 % 60 for n in (5, 1, 9)]
    whole = [torch.cat([opening, each]) for each in rest]
    weights = [torch.randn(len(each), 32, generator=torch.Generator().manual_seed(n)) for n, each in enumerate(rest)]

    def told(found):
        """The states of what follows the opening, and their gradients."""
        model.zero_grad()
        sum((each * weight).sum() for each, weight in zip(found, weights, strict=True)).backward()
        return torch.cat(found).detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    lengths = [len(row) for row in whole]
    apart = states(model, torch.cat(whole), torch.cat([torch.arange(n) for n in lengths]), plan_of(lengths))
    expected = told([each[4:] for each in torch.split(apart, lengths)])
    sizes = [4, *(len(each) for each in rest)]
    positions = torch.cat([opening, *(4 + torch.arange(len(each)) for each in rest)])
    shared = states(model, torch.cat([opening, *rest]), positions, plan_of(sizes, opening=True))
    torch.testing.assert_close(told(torch.split(shared, sizes)[1:]), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_what_rows_begin_with_can_stand_once(compiled):
    """In half precision, through the GPU's own kernel: states and gradients as near to float32 as without sharing."""
    opening, rest = torch.arange(40) % 60, [torch.arange(n) * 7 % 60 for n in (50, 3, 90)]
    whole = [torch.cat([opening, each]) for each in rest]
    lengths, sizes = [len(row) for row in whole], [40, *(len(each) for each in rest)]
    apart = (torch.cat(whole), torch.cat([torch.arange(n) for n in lengths]), lengths, False)
    positions = torch.cat([torch.arange(40), *(40 + torch.arange(len(each)) for each in rest)])
    shared = (torch.cat([opening, *rest]), positions, sizes, True)

    def told(dtype, ids, positions, lengths, opening):
        model = llama().to("cuda", dtype)
        if compiled:
            compile_layers(model)
        plan = PackedPlan(lengths, "cuda", opening=prefix(lengths, opening, "cuda"))
        parts = torch.split(states(model, ids.cuda(), positions.cuda(), plan), lengths)
        found = torch.cat(parts[1:] if opening else [part[40:] for part in parts]).float()
        found.square().sum().backward()
        return torch.cat(
            [found.flatten(), *(p.grad.float().flatten() for p in model.parameters() if p.grad is not None)]
        )

    exact = told(torch.float32, *apart)
    errors = [float((told(torch.bfloat16, *each) - exact).norm() / exact.norm()) for each in (apart, shared)]
    assert errors[1] < 1.5 * errors[0] < 0.1


def test_the_places_of_an_opening_by_hand():
    """Two tokens a b, then c and d e f: the keys are a b | a b c | a b d e f."""
    keys, own, copies, ends = (places.tolist() for places in prefix_indices([2, 1, 3]))
    assert keys == [0, 1, 0, 1, 2, 0, 1, 3, 4, 5]
    assert own == [0, 1, 4, 7, 8, 9]
    assert copies == [[2, 3], [5, 6]]
    assert ends == [0, 2, 5, 10]


def test_lengths_fall_into_few_classes():
    assert [PackedPlan([n]).longest for n in (1, 2048, 2049, 5000, 8192)] == [2048, 2048, 4096, 8192, 8192]
