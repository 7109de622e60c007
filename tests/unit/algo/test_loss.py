"""The loss: a batch worked by hand, the gradient, and the same step cut into any number of micro-batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mulligan.algo.loss import Tokens, k3, mismatch_warning, policy_loss, summarise, value_loss


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def tokens(ratios, advantage, **extra):
    logp_old = torch.full((len(ratios),), -2.0, dtype=torch.float64)
    logp_new = (logp_old + tensor(ratios).log()).requires_grad_()
    return Tokens(logp_new, logp_old, tensor(advantage), 1 / len(ratios), **extra)


def test_clipped_objective_by_hand():
    # clip at 0.2 on both sides; ratio, advantage → min(ratio·A, clip(ratio)·A):
    # 1.5,  2 → min(3.0, 2.4) = 2.4 clipped      0.5, -1 → min(-0.5, -0.8) = -0.8 clipped
    # 1.5, -1 → min(-1.5, -1.2) = -1.5           0.5,  2 → min(1.0, 1.6) = 1.0
    # loss = -(2.4 - 0.8 - 1.5 + 1.0) / 4 = -0.275
    batch = tokens([1.5, 0.5, 1.5, 0.5], [2.0, -1.0, -1.0, 2.0])
    loss, sums = policy_loss(batch)
    assert loss.item() == pytest.approx(-0.275)
    loss.backward()
    # Where the clip is active the gradient is 0; else -ratio·A/4: 1.5/4 and -1/4.
    assert batch.logp_new.grad.tolist() == pytest.approx([0.0, 0.0, 0.375, -0.25])
    metrics = summarise([sums])
    assert metrics["clip"] == pytest.approx(0.5)
    assert metrics["loss"] == pytest.approx(-0.275)


def test_at_ratio_one_the_gradient_is_that_of_the_policy_gradient():
    batch = tokens([1.0, 1.0], [3.0, -1.0])
    policy_loss(batch)[0].backward()
    assert batch.logp_new.grad.tolist() == pytest.approx([-1.5, 0.5])


def test_kl_and_entropy_by_hand():
    # d = ln 2: k3 = 2 - ln 2 - 1 = 0.306853; entropy 0.7. loss = 0.1·0.306853 - 0.01·0.7 with no advantage
    batch = tokens([1.0], [0.0], logp_ref=tensor([-2.0 + math.log(2)]), entropy=tensor([0.7]))
    loss, sums = policy_loss(batch, kl_weight=0.1, entropy_weight=0.01)
    assert loss.item() == pytest.approx(0.1 * (1 - math.log(2)) - 0.007)
    metrics = summarise([sums])
    assert metrics["kl_ref"] == pytest.approx(1 - math.log(2))
    assert metrics["entropy"] == pytest.approx(0.7)
    loss.backward()
    # d k3 / d logp_new = 1 - exp(d) = -1: the gradient raises what the reference prefers
    assert batch.logp_new.grad.tolist() == pytest.approx([-0.1])


@given(st.floats(-5, 0), st.floats(-5, 0))
def test_k3_is_never_negative_and_zero_for_equals(a, b):
    assert k3(tensor([a]), tensor([b])).item() >= -1e-12
    assert k3(tensor([a]), tensor([a])).item() == 0.0


def test_k3_estimates_the_divergence():
    # Exact over the whole distribution: Σ p·k3 = KL(p ‖ q)
    p, q = tensor([0.5, 0.3, 0.2]), tensor([0.2, 0.2, 0.6])
    exact = (p * (p / q).log()).sum()
    assert (p * k3(q.log(), p.log())).sum().item() == pytest.approx(exact.item())


def test_truncated_weight_by_hand():
    # trainer - sampler = ln 1.5 and ln 4, C = 2: weights 1.5 and 2. loss = -(1.5·1 + 2·1)/2 = -1.75
    batch = tokens([1.0, 1.0], [1.0, 1.0], logp_sampler=tensor([-2 - math.log(1.5), -2 - math.log(4)]))
    loss, sums = policy_loss(batch)
    assert loss.item() == pytest.approx(-1.75)
    metrics = summarise([sums])
    assert metrics["sampler/weight"] == pytest.approx(1.75)
    assert metrics["sampler/mismatch"] == pytest.approx((math.log(1.5) + math.log(4)) / 2)
    assert "0.896" in mismatch_warning(metrics)


def test_small_mismatch_needs_no_warning():
    assert mismatch_warning({"sampler/mismatch": 0.02}) is None
    assert mismatch_warning({}) is None


@pytest.mark.parametrize("parts", [2, 8, 40])
def test_micro_batches_give_the_gradient_of_the_whole_step(parts):
    generator = torch.Generator().manual_seed(1)

    def noise(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    count = 40
    features, old, sampler = noise(count, 5), noise(count) - 2, noise(count) - 2
    reference, advantage = noise(count) - 2, noise(count)
    start = 0.1 * noise(5)

    def gradient(pieces):
        weights = start.clone().requires_grad_()
        sums = []
        for piece in pieces:
            logp = features[piece] @ weights - 2
            micro = Tokens(logp, old[piece], advantage[piece], 1 / count, reference[piece], sampler[piece], logp.exp())
            loss, part = policy_loss(micro, kl_weight=0.1, entropy_weight=0.02)
            loss.backward()
            sums.append(part)
        return weights.grad, summarise(sums)

    whole, whole_metrics = gradient([torch.arange(count)])
    cut, cut_metrics = gradient(torch.randperm(count, generator=generator).chunk(parts))
    torch.testing.assert_close(cut, whole)
    assert whole.abs().max() > 1e-3
    assert cut_metrics == pytest.approx(whole_metrics)


def test_an_absurd_token_keeps_the_loss_finite():
    batch = Tokens(tensor([0.0]).requires_grad_(), tensor([-900.0]), tensor([-1.0]), 1.0, tensor([-900.0]))
    loss, _ = policy_loss(batch, kl_weight=0.1)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(batch.logp_new.grad).all()


def test_value_loss_by_hand():
    # heads (1, 2) against (3, 2) and (0, 0) against (0, 4): ½ · (½·(4 + 0) + ½·(0 + 16)) = 5
    value = tensor([[1, 2], [0, 0]]).requires_grad_()
    loss = value_loss(value, tensor([[3, 2], [0, 4]]), 0.5)
    assert loss.item() == pytest.approx(5.0)
    loss.backward()
    assert value.grad.tolist() == [[-1.0, 0.0], [0.0, -2.0]]
