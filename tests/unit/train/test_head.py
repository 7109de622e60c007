"""The output layer in slices: the numbers and gradients of all logits at once, and models whose head is another."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from mulligan.models.attention import use_plans
from mulligan.training.head import Head, _measure, _plainly, _slope
from mulligan.training.pack import pack
from mulligan.training.rows import Row, Span

SIZES = {
    "vocab_size": 90,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def a_batch():
    """Two rows, five sampled tokens."""
    first = Row(
        [3, 14, 15, 9, 2, 6], [Span(1, (14, 15), (-1.0, -1.0), 0, 0, False), Span(5, (6,), (-1.0,), 1, 0, True)]
    )
    second = Row([5, 35, 89, 79], [Span(2, (89, 79), (-1.0, -1.0), 2, 1, False)])
    (batch,) = pack([first, second], 100)
    return batch


def llama(**options):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.3, **options))
    use_plans(model)
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("uses", ["logp", "entropy", "both"])
def test_slices_give_the_numbers_and_gradients_of_all_logits_at_once(tied, temperature, uses):
    batch, found = a_batch(), []
    weight = torch.tensor([0.5, -1.0, 2.0, 0.1, -0.3])
    for few in (10**9, 0):
        model = llama(tie_word_embeddings=tied)
        head = Head(model)
        assert head.is_plain
        head.few, head.slice = few, 2 * 90  # two tokens a slice: 2 + 2 + 1
        scores = head.score(batch, temperature)
        loss = scores.hidden.square().sum()  # as of a critic
        if uses != "entropy":
            loss = loss + (weight * scores.logp).sum()
        if uses != "logp":
            loss = loss + (weight * scores.entropy.square()).sum()
        loss.backward()
        found.append((*scores, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-3)


def test_numbers_by_hand():
    """Logits 0 and ln 3 at temperature 1: p = 1/4, 3/4; H = ln 4 - 3/4 ln 3 = 0.5623."""
    logits, target = torch.tensor([[0.0, 1.0986123]]), torch.tensor([1])
    logp, entropy, whole = _measure(logits, target, 1.0)
    assert logp.item() == pytest.approx(-0.2876821)  # ln 3/4
    assert entropy.item() == pytest.approx(0.5623351)
    # ∂logp/∂l = (-1/4, 1/4); ∂H/∂l = -p (log p + H) = -1/4 (-1.3862944 + 0.5623351) = 0.2059898, and minus that.
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    expected = torch.tensor([[-0.25 + 2 * 0.2059898, 0.25 - 2 * 0.2059898]])
    torch.testing.assert_close(_slope(logits, target, 1.0, whole, entropy, one, two), expected)
    torch.testing.assert_close(_slope(logits, target, 1.0, whole, entropy, one, None), torch.tensor([[-0.25, 0.25]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_slope_is_that_of_autograd(dtype):
    torch.manual_seed(0)
    logits = (3 * torch.randn(7, 50)).to(dtype).requires_grad_()
    target, by_logp, by_entropy = torch.randint(0, 50, (7,)), torch.randn(7), torch.randn(7)
    logp, entropy = _plainly(logits, target, 0.8)
    (expected,) = torch.autograd.grad((by_logp * logp + by_entropy * entropy).sum(), logits)
    with torch.no_grad():
        again, entropy, whole = _measure(logits, target, 0.8)
        torch.testing.assert_close(again, logp)
        slope = _slope(logits.detach(), target, 0.8, whole, entropy, by_logp, by_entropy)
        torch.testing.assert_close(slope, expected)


def test_a_frozen_head_gets_no_gradient_and_a_biased_one_does():
    batch = a_batch()
    model = llama(tie_word_embeddings=False)
    model.lm_head = torch.nn.Linear(16, 90)
    head = Head(model)
    head.few, head.slice = 0, 180
    expected = [p.detach().clone() for p in (model.lm_head.weight, model.lm_head.bias)]
    for parameter in expected:
        parameter.requires_grad_()
    scores = head.score(batch, 1.0)
    scores.logp.sum().backward()
    plain = torch.nn.functional.linear(scores.hidden.detach(), *expected).log_softmax(-1)
    plain.gather(1, batch.target.unsqueeze(1)).sum().backward()
    torch.testing.assert_close(
        [model.lm_head.weight.grad, model.lm_head.bias.grad], [p.grad for p in expected], atol=1e-5, rtol=1e-4
    )
    model.lm_head.requires_grad_(False).zero_grad()
    head.score(batch, 1.0).logp.sum().backward()
    assert model.lm_head.weight.grad is None
    assert model.model.norm.weight.grad is not None


class Capped(LlamaForCausalLM):
    """As Gemma 2 does it."""

    def forward(self, *args, **options):
        output = super().forward(*args, **options)
        output.logits = 30.0 * torch.tanh(output.logits / 30.0)
        return output


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (GraniteForCausalLM, GraniteConfig(**SIZES, logits_scaling=7.0)),
        (CohereForCausalLM, CohereConfig(**SIZES, logit_scale=0.3)),
        (Capped, LlamaConfig(**SIZES)),
    ],
    ids=["divided", "multiplied", "capped"],
)
def test_heads_that_do_more_than_a_linear_map_are_left_to_the_model(kind, config):
    batch = a_batch()
    model = kind(config)
    use_plans(model)
    head = Head(model)
    assert not head.is_plain
    scores = head.score(batch, 1.0)
    logits = model(
        input_ids=batch.ids[:6].unsqueeze(0), position_ids=batch.positions[:6].unsqueeze(0), plan=type(batch.plan)([6])
    ).logits[0]
    expected = logits.log_softmax(-1)[[0, 1, 4], [14, 15, 6]]
    torch.testing.assert_close(scores.logp[:3], expected, atol=1e-5, rtol=1e-4)
    assert scores.hidden.shape == (5, 16)
