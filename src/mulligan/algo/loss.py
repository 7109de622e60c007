"""The loss of one optimiser step: PPO's clipped objective per sampled token, KL, entropy; and the critic's.

    ratio  = exp(logp_new - logp_old)
    policy = -w · min(ratio · A, clip(ratio, 1 - low, 1 + high) · A)     w = min(exp(logp_old - logp_sampler), C), or 1
    loss   = Σ_token share · (policy + β_KL · k3 - β_H · entropy)        k3 = exp(d) - d - 1,  d = logp_ref - logp_new

Papers: PPO, arXiv 1707.06347; separate bounds, DAPO, arXiv 2503.14476; k3, Schulman 2020. Log-probabilities are those
of the sampling distribution, after temperature. Where sampler and trainer are the same numerics, logp_old is the
sampler's; where they differ, it is the trainer's own first pass, and w corrects for the rest.

Only sampled tokens are passed in. Each has its share of the *whole optimiser step*, and the losses of all micro-batches
add up, so that cutting a step into one or eight of them gives the same gradient. The factor γ_traj^n of the exact
gradient is left out, as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Log-ratios are cut here, so that one absurd token cannot make the loss infinite."""
CLIP_LOW = CLIP_HIGH = 0.2
"""The ratio is clipped below 1 - CLIP_LOW and above 1 + CLIP_HIGH: PPO's values, and those of both papers."""
LARGEST_SAMPLER_WEIGHT = 2.0
"""C: the most that w may be."""
MISMATCH_TO_WARN_ABOUT = 0.02
"""Mean |logp_old - logp_sampler| above which sampler and trainer no longer agree."""


class Tokens(NamedTuple):
    """Sampled tokens of a micro-batch. Every tensor is [token]."""

    logp_new: Tensor
    """Under the policy that is trained; carries the gradient."""
    logp_old: Tensor
    """Under the policy before the first step of the update."""
    advantage: Tensor
    """That of the token's turn or reflection."""
    share: float
    """Of each token in the loss of the whole optimiser step: 1 / its tokens, since all count alike."""
    logp_ref: Tensor | None = None
    """Under the reference policy."""
    logp_sampler: Tensor | None = None
    """As the sampler reported it, where that is not logp_old."""
    entropy: Tensor | None = None
    """Of the distribution the token was drawn from, under the policy that is trained; carries the gradient."""


def policy_loss(
    tokens: Tokens, kl_weight: float = 0.0, entropy_weight: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """The micro-batch's part of the step's loss, and sums of metrics for `summarise`."""
    advantage = tokens.advantage
    ratio = (tokens.logp_new - tokens.logp_old).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()
    clipped = ratio.clamp(1.0 - CLIP_LOW, 1.0 + CLIP_HIGH)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    with torch.no_grad():
        sums = {
            "tokens": torch.full((), float(len(ratio)), device=ratio.device),  # torch.tensor would wait for a GPU
            "clip": (clipped * advantage < ratio * advantage).float().sum(),
            "kl_old": k3(tokens.logp_new, tokens.logp_old).sum(),
        }
    if tokens.logp_sampler is not None:
        log_ratio = (tokens.logp_old - tokens.logp_sampler).detach()
        sampler_weight = log_ratio.clamp(max=LARGEST_LOG_RATIO).exp().clamp(max=LARGEST_SAMPLER_WEIGHT)
        loss = sampler_weight * loss
        sums["sampler/mismatch"], sums["sampler/weight"] = log_ratio.abs().sum(), sampler_weight.sum()
    if tokens.logp_ref is not None:
        kl = k3(tokens.logp_ref, tokens.logp_new)
        loss = loss + kl_weight * kl
        sums["kl_ref"] = kl.detach().sum()
    if tokens.entropy is not None:
        loss = loss - entropy_weight * tokens.entropy
        sums["entropy"] = tokens.entropy.detach().sum()
    total = (tokens.share * loss).sum()
    sums["loss"] = total.detach()
    return total, sums


def k3(logp_ref: Tensor, logp_new: Tensor) -> Tensor:
    """Schulman's estimate of KL(new ‖ ref) from samples of new: unbiased and never negative. [token] -> [token]."""
    log_ratio = (logp_ref - logp_new).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return log_ratio.exp() - log_ratio - 1.0


def value_loss(value: Tensor, target: Tensor, share: float) -> Tensor:
    """Half the squared error of the critic, heads added up. value, target: [step, head]; share: of each step."""
    return 0.5 * (share * (value - target).square()).sum()


def summarise(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Metrics of a whole optimiser step from the sums of its micro-batches: `loss`, and means over tokens of the rest.

    clip (share of tokens whose clip is active), kl_old, kl_ref, entropy, sampler/mismatch (mean |logp_old -
    logp_sampler|), sampler/weight (mean w).
    """
    values_by_name: dict[str, list[Tensor]] = {}
    for part in parts:
        for name, value in part.items():
            values_by_name.setdefault(name, []).append(value)
    # All sums are made on the device and read at once.
    sums = [torch.stack(values).double().sum() for values in values_by_name.values()]
    total: dict[str, float] = dict(zip(values_by_name, torch.stack(sums).tolist(), strict=True)) if sums else {}
    tokens = max(total.pop("tokens", 0.0), 1.0)
    return {name: value if name == "loss" else value / tokens for name, value in total.items()}


def mismatch_warning(metrics: Mapping[str, float]) -> str | None:
    """A line to show when sampler and trainer disagree too much about the same tokens, else None."""
    mismatch = metrics.get("sampler/mismatch", 0.0)
    if mismatch <= MISMATCH_TO_WARN_ABOUT:
        return None
    return (
        f"sampler and trainer differ by {mismatch:.3f} nats a token on average (more than {MISMATCH_TO_WARN_ABOUT}); "
        "check that both use the same weights, precision and temperature"
    )
