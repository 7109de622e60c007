"""The output layer on sampled tokens: their log-probability and entropy, without the logits of all of them at a time.

    l = logits / temperature,  p = softmax(l),  logp = l[target] - logsumexp(l),  H = logsumexp(l) - Σ p·l
    ∂logp/∂l = [target] - p,   ∂H/∂l = -p · (log p + H)

The logits of K tokens take K × vocabulary float32 numbers, several times over: for a large vocabulary more than all
layers of the model together. Where they are many they are computed in slices of tokens, and again in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from mulligan.models.attention import PackedPlan, forward, repeatable, states
from mulligan.training.pack import MicroBatch

FEW = 2**25
"""Up to so many logits are computed at once and kept."""
SLICE = {"cpu": 2**22, "cuda": 2**28}
"""Logits of a slice: what fits a CPU's cache, or keeps a GPU busy."""


class Scores(NamedTuple):
    """Scores of the sampled tokens of a micro-batch. Every tensor is [K]."""

    logp: Tensor
    entropy: Tensor
    hidden: Tensor
    """[K, size] the output layer's input; at the first token of a step, the state of the last prompt token."""


class Head:
    """Computes log-probabilities and entropies of sampled tokens; with `compiled`, torch.compile fuses the work."""

    def __init__(self, model: Any, compiled: bool = False, backend: str | Callable[..., Any] = "inductor") -> None:
        self.model = model
        self.layer = model.get_output_embeddings()
        self.is_plain = _is_plain(model)
        """Whether logits are a linear map of the last hidden states, and nothing else."""
        self.few = FEW
        self.slice = SLICE.get(next(model.parameters()).device.type, SLICE["cuda"])
        self.measure, self.slope = _measure, _slope
        if compiled:
            options = repeatable(backend)
            self.measure = torch.compile(_measure, backend=backend, options=options)
            self.slope = torch.compile(_slope, backend=backend, options=options)

    def score(self, batch: MicroBatch, temperature: float) -> Scores:
        """Log-probability and entropy of each sampled token of a micro-batch under the sampling distribution."""
        if not self.is_plain:
            inputs: list[Tensor] = []
            with self.layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0])):
                logits = forward(self.model, batch.ids, batch.positions, batch.plan, batch.keep)
            return Scores(*_plainly(logits, batch.target, temperature), inputs[0][0])
        hidden = states(self.model, batch.ids, batch.positions, batch.plan)[batch.keep]
        weight, bias = self.layer.weight, self.layer.bias
        if len(hidden) * len(weight) <= self.few:
            return Scores(*_plainly(linear(hidden, weight, bias), batch.target, temperature), hidden)
        slices = math.ceil(len(hidden) * len(weight) / self.slice)
        rows = math.ceil(len(hidden) / slices)  # of one size, or nearly
        logp, entropy = _Sliced.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, batch.target, temperature, rows, self.measure, self.slope
        )
        return Scores(logp, entropy, hidden)


def _plainly(logits: Tensor, target: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax(logits.float() / temperature, dim=-1)
    return logp.gather(1, target.unsqueeze(1)).squeeze(1), -(logp.exp() * logp).sum(-1)


def _measure(logits: Tensor, target: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """logp, entropy and logsumexp of each row. logits: [row, vocabulary]; target: [row]."""
    scaled = logits.float() / temperature
    logsumexp = torch.logsumexp(scaled, -1)
    mean = ((scaled - logsumexp.unsqueeze(1)).exp() * scaled).sum(-1)
    return scaled.gather(1, target.unsqueeze(1)).squeeze(1) - logsumexp, logsumexp - mean, logsumexp


def _slope(
    logits: Tensor,
    target: Tensor,
    temperature: float,
    logsumexp: Tensor,
    entropy: Tensor,
    by_logp: Tensor,
    by_entropy: Tensor | None,
) -> Tensor:
    """The gradient by the logits in their precision, in one pass over them once it is compiled."""
    logp = logits.float() / temperature - logsumexp.unsqueeze(1)
    factor = by_logp.unsqueeze(1)
    if by_entropy is not None:
        factor = factor + by_entropy.unsqueeze(1) * (logp + entropy.unsqueeze(1))
    is_target = torch.arange(logits.shape[1], device=logits.device) == target.unsqueeze(1)
    slope = -logp.exp() * factor + torch.where(is_target, by_logp.unsqueeze(1), 0.0)
    return (slope / temperature).to(logits.dtype)


class _Sliced(torch.autograd.Function):
    """(logp, entropy) of each token; logits exist for `rows` tokens at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        temperature: float,
        rows: int,
        measure: Callable[..., tuple[Tensor, Tensor, Tensor]],
        slope: Callable[..., Tensor],
    ) -> tuple[Tensor, Tensor]:
        measured = [
            measure(*_any_count(linear(hidden_part, weight, bias), target_part), temperature)
            for hidden_part, target_part in zip(torch.split(hidden, rows), torch.split(target, rows), strict=True)
        ]
        logp, entropy, logsumexp = (torch.cat(parts) for parts in zip(*measured, strict=True))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight, bias, target, logsumexp, entropy)
        ctx.temperature, ctx.rows, ctx.slope = temperature, rows, slope
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, by_logp: Tensor | None, by_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target, logsumexp, entropy = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        if by_logp is None and by_entropy is None:
            return (None,) * 8
        # Gradients of a sum are one number expanded; compiled code would be compiled again for that layout.
        by_logp = torch.zeros_like(logsumexp) if by_logp is None else by_logp.contiguous()
        by_entropy = None if by_entropy is None else by_entropy.contiguous()
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        to_bias = torch.zeros_like(bias, dtype=torch.float32) if wants_bias else None
        for begin in range(0, len(hidden), ctx.rows):
            part = slice(begin, begin + ctx.rows)
            logits, targets = _any_count(linear(hidden[part], weight, bias), target[part])
            sums = _any_count(logsumexp[part], entropy[part], by_logp[part])
            by_entropy_part = None if by_entropy is None else _any_count(by_entropy[part])[0]
            slope = ctx.slope(logits, targets, ctx.temperature, *sums, by_entropy_part)
            if to_hidden is not None:
                torch.mm(slope, weight, out=to_hidden[part])
            if to_weight is not None:
                if slope.dtype == torch.float32:
                    to_weight.addmm_(slope.t(), hidden[part])
                else:
                    to_weight += slope.t() @ hidden[part]
            if to_bias is not None:
                to_bias += slope.float().sum(0)
        to_weight = None if to_weight is None else to_weight.to(weight.dtype)
        to_bias = None if to_bias is None else to_bias.to(bias.dtype)
        return to_hidden, to_weight, to_bias, None, None, None, None, None


def _any_count(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same tensors, marked so that code compiled for them serves any number of rows."""
    for tensor in tensors:
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return tensors


@torch.no_grad()
def _is_plain(model: Any) -> bool:
    """Whether logits are a linear map of the last hidden states: some models scale or cap them, before or after.

    Tried on two tokens, with hidden states so large that a cap would show.
    """
    layer = model.get_output_embeddings()
    if type(layer) is not torch.nn.Linear:
        return False
    device = layer.weight.device
    ids, plan = torch.zeros(2, dtype=torch.long, device=device), PackedPlan([2], device)
    positions = keep = torch.arange(2, device=device)
    large = 100.0 * torch.arange(2 * layer.in_features, device=device).sin().view(1, 2, -1).to(layer.weight.dtype)
    inputs: list[Tensor] = []

    def exchange(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        inputs.append(args[0])
        return (large,)

    with torch.compiler.set_stance("force_eager"):
        with layer.register_forward_pre_hook(exchange):
            logits = forward(model, ids, positions, plan, keep)
        same_input = torch.allclose(states(model, ids, positions, plan), inputs[0][0], rtol=0.01, atol=1e-4)
        return same_input and torch.allclose(logits, layer(large)[0], rtol=0.01, atol=0.01)
