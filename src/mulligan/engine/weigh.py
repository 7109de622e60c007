"""How likely a model is to give certain replies, as the engines would draw them.

Prompts that begin alike, such as those of one hand with one memory, are computed together: what they share stands once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mulligan.engine.base import Pair
from mulligan.models.attention import PackedPlan, SharedPrefix, common_prefix_length, forward, prefix_indices, use_plans
from mulligan.types import Sampling

TOKENS = 16_384
"""Tokens that are computed at once."""
_FEW = 512
"""Another run of the model costs as much as so many more tokens in this one."""


@torch.no_grad()
def reply_chances(model: Any, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
    """The probability of each reply after its prompt."""
    use_plans(model)
    chances: dict[Pair, float] = {}
    for batch, shared in _batches(sorted(set(pairs))):
        chances |= zip(batch, _chances(model, batch, shared, sampling), strict=True)
    return chances


def _batches(pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], int]]:
    """Pairs to compute at once, and how many first tokens they share; each keeps one token of its prompt for itself.

    Sorted pairs whose prompts begin alike follow each other. Where sharing would save little, nothing is shared.
    """
    alike: list[Pair] = []
    shared, rest = 0, list[Pair]()
    for pair in [*pairs, None]:
        both = min(shared, _alike(alike[-1], pair)) if alike and pair is not None else 0
        if pair is not None and alike and 2 * both >= max(shared, len(pair.prompt) - 1):
            alike, shared = [*alike, pair], both
            continue
        if shared * (len(alike) - 1) > _FEW:
            yield from ((part, shared) for part in _cut(alike, shared))
        else:
            rest += alike
        if pair is not None:
            alike, shared = [pair], len(pair.prompt) - 1
    yield from ((part, 0) for part in _cut(rest, 0))


def _alike(one: Pair, other: Pair) -> int:
    """First tokens that two prompts share, but for the last token of either."""
    return common_prefix_length([list(one.prompt[:-1]), list(other.prompt[:-1])])


def _cut(pairs: Sequence[Pair], shared: int) -> Iterator[list[Pair]]:
    """Pairs in parts of at most `TOKENS` tokens beside the shared ones."""
    part: list[Pair] = []
    tokens = shared
    for pair in pairs:
        size = len(pair.prompt) + len(pair.reply) - shared
        if part and tokens + size > TOKENS:
            yield part
            part, tokens = [], shared
        part.append(pair)
        tokens += size
    if part:
        yield part


def _chances(model: Any, batch: Sequence[Pair], shared: int, sampling: Sampling) -> list[float]:
    """Each token of a reply is predicted by the one before it; the last token of a reply predicts nothing here.

    Prompts of 3 and 2 tokens that share 1, replies of 2 and 1: of the packed row s | p p r | p, tokens 2, 3 and 4 are
    kept.
    """
    device = next(model.parameters()).device
    sequences = [[*prompt, *reply[:-1]] for prompt, reply in batch]
    parts = [sequences[0][:shared]] * bool(shared) + [sequence[shared:] for sequence in sequences]
    lengths = [len(part) for part in parts]
    ends = torch.tensor(lengths).cumsum(0).tolist()[-len(batch) :]
    keep = [end - back for end, (_, reply) in zip(ends, batch, strict=True) for back in range(len(reply), 0, -1)]
    ids = torch.tensor([token for part in parts for token in part], device=device)
    positions = torch.cat(
        [torch.arange(length) + shared * (number >= bool(shared)) for number, length in enumerate(lengths)]
    )
    plan = PackedPlan(lengths, device, opening=_prefix(lengths, device) if shared else None)
    logits = forward(model, ids, positions.to(device), plan, torch.tensor(keep, device=device))
    targets = torch.tensor([token for _, reply in batch for token in reply], device=device)
    counts = [len(reply) for _, reply in batch]
    if sampling.temperature <= 0:
        hits = (logits.argmax(-1) == targets).double()
        return [float(each.prod()) for each in torch.split(hits, counts)]
    logp = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        logp = nucleus(logp, torch.full((len(logp),), sampling.top_p, device=device))
    drawn = logp.gather(1, targets.unsqueeze(1)).squeeze(1).double()
    return [float(each.sum().exp()) for each in torch.split(drawn, counts)]


def _prefix(lengths: Sequence[int], device: torch.device) -> SharedPrefix:
    keys, own, copies, ends = (torch.from_numpy(indices).to(device) for indices in prefix_indices(lengths))
    return SharedPrefix(keys, own, copies.view(-1, lengths[0]), ends.int())


def nucleus(logp: Tensor, top_p: Tensor) -> Tensor:
    """The smallest set of tokens whose probability reaches top_p, renormalised. logp: [row, vocabulary]."""
    ordered, order = logp.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered = ordered.masked_fill(before >= top_p.unsqueeze(1), -torch.inf)
    return torch.log_softmax(torch.empty_like(logp).scatter_(1, order, ordered), dim=-1)
