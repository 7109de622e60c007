"""Rows packed into micro-batches by a budget of tokens, without padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mulligan.models.attention import PackedPlan, SharedPrefix, common_prefix_length, prefix_indices
from mulligan.training.rows import Row, Span

MOST_TOKENS = {"cpu": 2**14, "cuda": 2**16}
SHARE_OF_MEMORY = 0.35
"""Share of a GPU's memory that the activations of a micro-batch may take."""
PATIENCE = 8
"""Updates without running out of memory, after which larger micro-batches are tried again."""
LEAST_OPENING = 16
"""A common opening of fewer tokens is not shared: it would save too little."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows side by side. T tokens in all, K of them sampled, in S spans."""

    ids: Tensor
    """[T]"""
    positions: Tensor
    """[T] position of each token in its row."""
    plan: PackedPlan
    keep: Tensor
    """[K] index in the packed tokens at which each sampled token is predicted: that of the token before it."""
    target: Tensor
    """[K] the sampled tokens."""
    logp_sampler: Tensor
    """[K] the sampler's log-probabilities; nan where another player chose the tokens."""
    logp_old: Tensor | None
    """[K] the trainer's log-probabilities before the update, where they are used."""
    logp_ref: Tensor | None
    """[K] the reference policy's log-probabilities, where they are used."""
    step: Tensor
    """[K] number of the turn or reflection each belongs to."""
    reflects: Tensor
    """[K] True for tokens of a reflection."""
    first: Tensor
    """[S] index among the K of the first token of each span, which is predicted at the last prompt token."""
    spans: Sequence[Span]
    """In the order of the sampled tokens."""


def pack(
    rows: Sequence[Row], tokens: int, device: torch.device | str = "cpu", *, share: bool = False
) -> list[MicroBatch]:
    """Micro-batches of at most `tokens` tokens (a longer row stands alone), rows of like length together.

    As few as can be in that order, and of about one size. `share`: the common opening of all rows stands once in each.
    """
    trained = sorted((row for row in rows if row.spans), key=lambda row: -len(row.ids))
    opening = _opening(trained, tokens) if share and len(trained) > 1 else 0
    sizes = [len(row.ids) - opening for row in trained]
    joined = [_join(trained[begin:end], opening) for begin, end in _cuts(sizes, tokens - opening)]
    # One transfer of all integers and one of all floats, which the host does not wait for.
    integers = iter(_sent([array for each in joined for array in each.integers], device))
    floats = iter(_sent([array for each in joined for array in each.floats], device))
    return [_on_device(each, [next(integers) for _ in each.integers], floats) for each in joined]


def note(packed: Sequence[MicroBatch], name: str, logp: Sequence[Tensor]) -> None:
    """Write log-probabilities of micro-batches onto their spans."""
    values = iter(torch.cat(list(logp)).tolist() if packed else ())
    for span in (span for batch in packed for span in batch.spans):
        setattr(span, name, list(islice(values, len(span.ids))))


def _opening(rows: Sequence[Row], tokens: int) -> int:
    """How many first tokens all rows have in common, before anything that is trained on is predicted."""
    most = min(min(row.spans[0].start for row in rows) - 1, tokens // 2)
    common = min(most, common_prefix_length([row.ids for row in rows]))
    return common if common >= LEAST_OPENING else 0


class Budget:
    """Tokens of a micro-batch: halved when memory runs out, doubled again after `PATIENCE` updates without that.

    Memory is short for good where a model is large, and for a time where other processes share the GPU. A doubling that
    fails costs one pass.
    """

    def __init__(self, most: int) -> None:
        self.most = self.tokens = most
        self.calm = 0
        """Updates since the budget last changed."""

    def proceed(self) -> None:
        """Called before each update and each step of the warm start."""
        self.calm += 1
        if self.calm > PATIENCE and self.tokens < self.most:
            self.tokens, self.calm = min(self.most, 2 * self.tokens), 0

    def halve(self) -> None:
        self.tokens, self.calm = self.tokens // 2, 0

    def state_dict(self) -> dict[str, int]:
        return {"tokens": self.tokens, "calm": self.calm}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the state; `most` stays as it is now, since `optim.tokens` may have changed."""
        self.tokens, self.calm = min(self.most, state["tokens"]), state["calm"]


def token_budget(config: Any, device: torch.device, *, checkpointing: bool) -> int:
    """Tokens of a micro-batch for a model of this configuration (of transformers) on this device."""
    if device.type != "cuda":
        return MOST_TOKENS["cpu"]
    kept = config.hidden_size if checkpointing else layer_numbers(config)
    room = SHARE_OF_MEMORY * torch.cuda.get_device_properties(device).total_memory
    fitting = int(room / (2 * config.num_hidden_layers * kept))
    return min(MOST_TOKENS["cuda"], 1 << max(fitting, 1024).bit_length() - 1)


def layer_numbers(config: Any) -> int:
    """Numbers that a layer keeps for each token: about 8 vectors of the hidden and 4 of the inner size. With
    checkpointing it keeps the one vector that it was given."""
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return int(8 * config.hidden_size + 4 * inner)


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
    for index, length in enumerate(sizes):
        if index > begin and size + length > limit:
            cuts.append((begin, index))
            begin, size = index, 0
        size += length
    return [*cuts, (begin, len(sizes))] if sizes else []


class _Joined(NamedTuple):
    """A micro-batch on the host."""

    lengths: list[int]  # of the opening, if there is one, and of each row without it
    spans: list[Span]
    integers: list[NDArray[np.int64]]
    floats: list[NDArray[np.float32]]
    opening: int  # tokens of the common opening; 0 for none


def _join(rows: Sequence[Row], opening: int) -> _Joined:
    """Rows side by side; their first `opening` tokens, which are the same, stand once before them.

    Two rows of 5 and 4 tokens with an opening of 2: packed are the opening (2), then 3 and 2 tokens, which start at
    0, 2 and 5. In row 1 the token with position 3 has the packed index 3, in row 2 it has index 6 = 5 - 2 + 3.
    """
    opening = opening if len(rows) > 1 else 0
    parts = [rows[0].ids[:opening]] if opening else []
    parts += [row.ids[opening:] for row in rows] if opening else [row.ids for row in rows]
    lengths = np.array([len(part) for part in parts])
    starts = lengths.cumsum() - lengths
    ids = np.fromiter(chain.from_iterable(parts), np.int64, int(lengths.sum()))
    offsets = starts - opening  # packed index less position in the row
    offsets[: len(parts) - len(rows)] = 0
    spans = [span for row in rows for span in row.spans]
    sizes = np.array([len(span.ids) for span in spans])
    first = sizes.cumsum() - sizes
    pairs = zip(offsets[-len(rows) :], rows, strict=True)
    before = np.array([offset + span.start - 1 for offset, row in pairs for span in row.spans])
    keep = np.repeat(before - first, sizes) + np.arange(sizes.sum())

    def each(values: Iterable[int]) -> NDArray[np.int64]:
        """A value of each span, for each of its tokens."""
        return np.repeat(np.fromiter(values, np.int64, len(spans)), sizes)

    def floats(name: str) -> NDArray[np.float32]:
        lists = (getattr(span, name) or repeat(math.nan, len(span.ids)) for span in spans)
        return np.fromiter(chain.from_iterable(lists), np.float32, int(sizes.sum()))

    has_old, has_reference = spans[0].old is not None, spans[0].reference is not None
    assert all((span.old is not None) == has_old for span in spans), "some rows were looked over, and others were not"
    names = ["logprobs", *["old"] * has_old, *["reference"] * has_reference]
    integers = [
        ids,
        np.arange(len(ids)) - np.repeat(offsets, lengths),
        keep,
        ids[keep + 1],
        each(span.step for span in spans),
        each(span.reflects for span in spans),
        first,
        np.concatenate([[0], lengths.cumsum()]),
        *([indices.ravel() for indices in prefix_indices(lengths.tolist())] if opening else []),
    ]
    return _Joined(lengths.tolist(), spans, integers, [floats(name) for name in names], opening)


def _on_device(joined: _Joined, integers: Sequence[Tensor], floats: Iterator[Tensor]) -> MicroBatch:
    ids, positions, keep, target, step, reflects, first, ends, *shared = integers
    opening: SharedPrefix | None = None
    if joined.opening:
        keys, own, copies, key_ends = shared
        opening = SharedPrefix(keys, own, copies.view(-1, joined.opening), key_ends.int())
    return MicroBatch(
        ids=ids,
        positions=positions.clone(),  # compiled code would be tied to where in a larger buffer they begin
        plan=PackedPlan(joined.lengths, ids.device, ends=ends.int() if ids.is_cuda else None, opening=opening),
        keep=keep,
        target=target,
        logp_sampler=next(floats),
        logp_old=next(floats) if joined.spans[0].old is not None else None,
        logp_ref=next(floats) if joined.spans[0].reference is not None else None,
        step=step,
        reflects=reflects.bool(),
        first=first,
        spans=joined.spans,
    )


def _sent(arrays: Sequence[NDArray[Any]], device: torch.device | str) -> list[Tensor]:
    """The arrays as tensors on `device`, in one transfer."""
    if not arrays:
        return []
    tensor = torch.from_numpy(np.concatenate(arrays))
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return list(torch.split(tensor.to(device, non_blocking=True), [len(array) for array in arrays]))
