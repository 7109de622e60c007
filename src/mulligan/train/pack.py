"""Rows packed into micro-batches by a budget of tokens, without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mulligan.models.attention import PackedPlan
from mulligan.models.shared_prefix import SharedPrefix, common_prefix_length, prefix_indices
from mulligan.train.rows import Row, Span

MOST_TOKENS = {"cpu": 2**14, "cuda": 2**16}
SHARE_OF_MEMORY = 0.35
"""Of a GPU's memory, what the activations of a micro-batch may take."""
FIRST_PATIENCE = 4
"""Updates that fit, before larger micro-batches are tried again."""
LEAST_OPENING = 16
"""Tokens that rows must begin with alike for it to be worth the trouble."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows side by side. T tokens in all, K of them sampled, in S spans."""

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
    """[S] place among the K of the first token of each span: its prediction stands at the last prompt token."""
    spans: Sequence[Span]
    """In the order of the sampled tokens."""

    @property
    def tokens(self) -> int:
        return len(self.ids)


def pack(
    rows: Sequence[Row], tokens: int, device: torch.device | str = "cpu", *, share: bool = False
) -> list[MicroBatch]:
    """Micro-batches of at most `tokens` tokens (a longer row stands alone), rows of like length together.

    As few as can be in that order, and of about one size. `share`: what all rows begin with stands once in each.
    """
    told = sorted((row for row in rows if row.spans), key=lambda row: -len(row.ids))
    alike = _opening(told, tokens) if share else 0
    sizes = [len(row.ids) - alike for row in told]
    joined = [_join(told[begin:end], alike) for begin, end in _cuts(sizes, tokens - alike)]
    # One transfer of everything, which the host does not wait for.
    whole = iter(_sent([part for each in joined for part in each.whole], device))
    real = iter(_sent([part for each in joined for part in each.real], device))
    return [_placed(each, [next(whole) for _ in each.whole], [next(real) for _ in each.real]) for each in joined]


def _opening(rows: Sequence[Row], tokens: int) -> int:
    """How many first tokens all rows have in common, before anything that is trained on is predicted."""
    if len(rows) < 2:
        return 0
    most = min(min(row.spans[0].start for row in rows) - 1, tokens // 2)
    same = min(most, common_prefix_length([row.ids for row in rows]))
    return same if same >= LEAST_OPENING else 0


class Budget:
    """Tokens of a micro-batch: halved when memory runs out, doubled again once it has sufficed for a while.

    Memory is short for good where a model is large, and for a time where others share the GPU. Every doubling that
    fails makes the next one wait twice as long; one that has held as long as it was waited for ends that. The smaller
    micro-batches are, the longer updates take and the sooner it is tried: a doubling that fails costs a moment.
    """

    def __init__(self, most: int) -> None:
        self.most = self.tokens = most
        self.patience = FIRST_PATIENCE
        self.calm = 0
        self.has_grown = False
        """By a doubling that has not held for long yet."""

    def proceed(self) -> None:
        """One more update, or step of the warm start, begins."""
        self.calm += 1
        if self.calm <= self.patience * min(self.most, 2 * self.tokens) // self.most:
            return
        if self.has_grown:  # and has held
            self.patience, self.has_grown = FIRST_PATIENCE, False
        if self.tokens < self.most:
            self.tokens = min(self.most, 2 * self.tokens)
            self.calm, self.has_grown = 0, True

    def halve(self) -> None:
        self.tokens //= 2
        self.patience *= 2 if self.has_grown else 1
        self.calm, self.has_grown = 0, False

    def state_dict(self) -> dict[str, int]:
        return {"tokens": self.tokens, "patience": self.patience, "calm": self.calm, "has_grown": int(self.has_grown)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """With `most` as it is now: what was asked for may have changed."""
        self.tokens = min(self.most, state["tokens"])
        self.patience, self.calm = state["patience"], state["calm"]
        self.has_grown = bool(state["has_grown"])


def token_budget(config: Any, device: torch.device, *, checkpointing: bool) -> int:
    """Tokens of a micro-batch that suit a model of this configuration (of transformers) on this device.

    A layer keeps about 8 vectors of the hidden and 4 of the inner size for each token, or with checkpointing the one
    it was given.
    """
    if device.type != "cuda":
        return MOST_TOKENS["cpu"]
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept = config.hidden_size if checkpointing else 8 * config.hidden_size + 4 * inner
    room = SHARE_OF_MEMORY * torch.cuda.get_device_properties(device).total_memory
    fitting = int(room / (2 * config.num_hidden_layers * kept))
    return min(MOST_TOKENS["cuda"], 1 << max(fitting, 1024).bit_length() - 1)


def _cuts(sizes: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """Begin and end of each micro-batch: with the lowest limit that needs no more of them than `tokens` does."""
    cuts = _filled(sizes, tokens)
    low, high = sum(sizes) // max(1, len(cuts)), tokens
    while low < high:
        limit = (low + high) // 2
        if len(_filled(sizes, limit)) > len(cuts):
            low = limit + 1
        else:
            high = limit
    return _filled(sizes, high)


def _filled(sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    begin = size = 0
    for place, length in enumerate(sizes):
        if place > begin and size + length > limit:
            cuts.append((begin, place))
            begin, size = place, 0
        size += length
    return [*cuts, (begin, len(sizes))] if sizes else []


@dataclass(frozen=True, slots=True)
class _Joined:
    """A micro-batch as it is put together, before it goes to its device."""

    lengths: list[int]
    spans: list[Span]
    whole: list[NDArray[np.int64]]
    real: list[NDArray[np.float32]]
    has_old: bool
    has_reference: bool
    opening: int


def _join(rows: Sequence[Row], alike: int) -> _Joined:
    """Rows side by side, of which the first `alike` tokens, the same for all, stand once before them."""
    alike = alike if len(rows) > 1 else 0
    parts = [rows[0].ids[:alike]] if alike else []
    parts += [row.ids[alike:] for row in rows] if alike else [row.ids for row in rows]
    lengths = np.array([len(part) for part in parts])
    starts = lengths.cumsum() - lengths
    ids = np.fromiter(chain.from_iterable(parts), np.int64, int(lengths.sum()))
    before = np.full_like(starts, alike)  # tokens of each part's row that stand elsewhere
    before[: len(parts) - len(rows)] = 0
    spans = [span for row in rows for span in row.spans]
    sizes = np.array([len(span.ids) for span in spans])
    first = sizes.cumsum() - sizes
    begins = (starts - before)[-len(rows) :]
    place = np.array([begin + span.start - 1 for begin, row in zip(begins, rows, strict=True) for span in row.spans])
    keep = np.repeat(place - first, sizes) + np.arange(sizes.sum())

    def each(values: Iterable[int]) -> NDArray[np.int64]:
        """A value of each span, for each of its tokens."""
        return np.repeat(np.fromiter(values, np.int64, len(spans)), sizes)

    def floats(name: str) -> NDArray[np.float32]:
        lists = (getattr(span, name) or repeat(0.0, len(span.ids)) for span in spans)
        return np.fromiter(chain.from_iterable(lists), np.float32, int(sizes.sum()))

    has_old, has_reference = spans[0].old is not None, spans[0].reference is not None
    assert all((span.old is not None) == has_old for span in spans), "some rows were looked over, and others were not"
    names = ["logprobs", *["old"] * has_old, *["reference"] * has_reference]
    whole = [
        ids,
        np.arange(len(ids)) - np.repeat(starts - before, lengths),
        keep,
        ids[keep + 1],
        each(span.step for span in spans),
        each(span.trial for span in spans),
        each(span.reflects for span in spans),
        first,
        np.concatenate([[0], lengths.cumsum()]),
        *([places.ravel() for places in prefix_indices(lengths.tolist())] if alike else []),
    ]
    return _Joined(lengths.tolist(), spans, whole, [floats(name) for name in names], has_old, has_reference, alike)


def _placed(joined: _Joined, whole: Sequence[Tensor], real: Sequence[Tensor]) -> MicroBatch:
    ids, positions, keep, target, step, trial, reflects, first, ends, *shared = whole
    found = iter(real)
    opening: SharedPrefix | bool = False
    if joined.opening:
        keys, own, copies, key_ends = shared
        opening = SharedPrefix(keys, own, copies.view(-1, joined.opening), key_ends.int())
    return MicroBatch(
        ids=ids,
        positions=positions,
        plan=PackedPlan(joined.lengths, ids.device, ends=ends.int() if ids.is_cuda else None, opening=opening),
        keep=keep,
        target=target,
        logp_sampler=next(found),
        logp_old=next(found) if joined.has_old else None,
        logp_ref=next(found) if joined.has_reference else None,
        step=step,
        trial=trial,
        reflects=reflects.bool(),
        first=first,
        spans=joined.spans,
    )


def _sent(parts: Sequence[NDArray[Any]], device: torch.device | str) -> list[Tensor]:
    """The arrays as tensors on `device`, in one transfer."""
    if not parts:
        return []
    tensor = torch.from_numpy(np.concatenate(parts))
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return list(torch.split(tensor.to(device, non_blocking=True), [len(part) for part in parts]))
