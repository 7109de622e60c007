"""Rows packed into micro-batches by a budget of tokens, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mulligan.models.attention import PackedPlan
from mulligan.train.rows import Row, Span


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows side by side. T tokens in all, K of them sampled."""

    ids: Tensor
    """[T]"""
    positions: Tensor
    """[T] place of each token in its own row."""
    plan: PackedPlan
    keep: Tensor
    """[K] place in the packed row at which each sampled token is predicted: the one before it."""
    target: Tensor
    """[K] the sampled tokens."""
    logp_sampler: Tensor
    """[K] the sampler's log-probabilities; 0 where nothing was sampled."""
    logp_old: Tensor | None
    """[K] the trainer's own before the update, where they are used."""
    logp_ref: Tensor | None
    """[K] those of the reference policy, where they are used."""
    step: Tensor
    """[K] number of the turn or reflection each belongs to."""
    trial: Tensor
    """[K] number of its trial."""
    reflects: Tensor
    """[K] True for tokens of a reflection."""
    first: Tensor
    """[K] True for the first token of a step: its prediction stands at the last prompt token."""
    spans: Sequence[Span]
    """In the order of the sampled tokens."""

    @property
    def tokens(self) -> int:
        return len(self.ids)


def pack(rows: Sequence[Row], tokens: int, device: torch.device | str = "cpu") -> list[MicroBatch]:
    """Micro-batches of at most `tokens` tokens (a longer row stands alone), rows of like length together."""
    order = sorted(range(len(rows)), key=lambda number: -len(rows[number].ids))
    batches: list[list[Row]] = []
    size = 0
    for number in order:
        row = rows[number]
        if not row.spans:
            continue
        if not batches or size + len(row.ids) > tokens:
            batches.append([])
            size = 0
        batches[-1].append(row)
        size += len(row.ids)
    return [_join(batch, device) for batch in batches]


def _join(rows: Sequence[Row], device: torch.device | str) -> MicroBatch:
    ids: list[int] = []
    positions: list[int] = []
    keep: list[int] = []
    for row in rows:
        start = len(ids)
        ids += row.ids
        positions += range(len(row.ids))
        for span in row.spans:
            keep += range(start + span.start - 1, start + span.start - 1 + len(span.ids))
    spans = [span for row in rows for span in row.spans]
    sizes = torch.tensor([len(span.ids) for span in spans])

    def each(values: list[int] | list[bool]) -> Tensor:
        """A value of each span, for each of its tokens."""
        return torch.repeat_interleave(torch.tensor(values), sizes).to(device)

    def floats(name: str) -> Tensor:
        lists = [getattr(span, name) for span in spans]
        whole = [v for values, span in zip(lists, spans, strict=True) for v in (values or [0.0] * len(span.ids))]
        return torch.tensor(whole, dtype=torch.float32, device=device)

    first = torch.zeros(len(keep), dtype=torch.bool)
    first[sizes.cumsum(0) - sizes] = True
    return MicroBatch(
        ids=torch.tensor(ids, device=device),
        positions=torch.tensor(positions, device=device),
        plan=PackedPlan([len(row.ids) for row in rows], device),
        keep=torch.tensor(keep, device=device),
        target=torch.tensor([token for span in spans for token in span.ids], device=device),
        logp_sampler=floats("logprobs"),
        logp_old=floats("old") if spans[0].old is not None else None,
        logp_ref=floats("reference") if spans[0].reference is not None else None,
        step=each([span.step for span in spans]),
        trial=each([span.trial for span in spans]),
        reflects=each([span.reflects for span in spans]),
        first=first.to(device),
        spans=spans,
    )
