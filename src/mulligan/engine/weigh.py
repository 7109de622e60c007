"""How likely a model is to give certain replies, as the engines would draw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mulligan.engine.slots import nucleus
from mulligan.models.attention import PackedPlan, forward, use_plans
from mulligan.types import Sampling

TOKENS = 16_384
"""Tokens that are computed at once."""
Ids = Sequence[int]


@torch.no_grad()
def reply_chances(model: Any, pairs: Sequence[tuple[Ids, Ids]], sampling: Sampling) -> list[float]:
    """The probability of each reply after its prompt; pairs are (prompt, reply)."""
    use_plans(model)
    chances: list[float] = []
    for batch in _batches(pairs):
        chances += _chances(model, batch, sampling)
    return chances


def _batches(pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[list[tuple[Ids, Ids]]]:
    batch: list[tuple[Ids, Ids]] = []
    tokens = 0
    for prompt, reply in pairs:
        length = len(prompt) + len(reply)
        if batch and tokens + length > TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append((prompt, reply))
        tokens += length
    if batch:
        yield batch


def _chances(model: Any, batch: Sequence[tuple[Ids, Ids]], sampling: Sampling) -> list[float]:
    """Each token of a reply is predicted by the one before it; the last token of a reply predicts nothing here.

    Prompts of 3 and 2 tokens, replies of 2 and 1: of the packed row p p p r | p p, tokens 2, 3 and 5 are kept.
    """
    device = next(model.parameters()).device
    sequences = [[*prompt, *reply[:-1]] for prompt, reply in batch]
    lengths = [len(sequence) for sequence in sequences]
    ends = torch.tensor(lengths).cumsum(0).tolist()
    keep = [end - back for end, (_, reply) in zip(ends, batch, strict=True) for back in range(len(reply), 0, -1)]
    ids = torch.tensor([token for sequence in sequences for token in sequence], device=device)
    positions = torch.cat([torch.arange(length) for length in lengths]).to(device)
    logits = forward(model, ids, positions, PackedPlan(lengths, device), torch.tensor(keep, device=device))
    targets = torch.tensor([token for _, reply in batch for token in reply], device=device)
    counts = [len(reply) for _, reply in batch]
    if sampling.temperature <= 0:
        hits = (logits.argmax(-1) == targets).double()
        return [float(each.prod()) for each in hits.split(counts)]
    logp = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        logp = nucleus(logp, torch.full((len(logp),), sampling.top_p, device=device))
    drawn = logp.gather(1, targets.unsqueeze(1)).squeeze(1).double()
    return [float(each.sum().exp()) for each in drawn.split(counts)]
