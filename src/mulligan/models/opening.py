"""Sequences that begin alike: their common first tokens are computed once, and every sequence attends to them.

The rules, and often the first observation, are the same in all episodes of an update. In a packed row such an *opening*
stands once, before everything else; the other sequences hold only what follows. Linear layers, most of the work, then
see it once. In attention each sequence still has the keys of all its tokens: those of the opening are copied to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Opening(NamedTuple):
    """P tokens that R sequences share. Packed are T tokens; U keys are the opening's and those of R whole sequences."""

    keys: Tensor
    """[U] the packed token of each key."""
    own: Tensor
    """[T] where the keys have each token itself."""
    copies: Tensor
    """[R, P] where the keys have the copies of the opening."""
    ends: Tensor
    """[R + 2] where the keys of each sequence end, the opening's own first, with a 0 before; int32."""


def begin_alike(sequences: Sequence[list[int]]) -> int:
    """How many first tokens all sequences have in common."""
    first, last = min(sequences), max(sequences)  # in the order of words all others lie between
    most = min(map(len, sequences))
    return next((place for place in range(most) if first[place] != last[place]), most)


def opening_places(lengths: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    """The fields of an `Opening` with as many tokens as the first of `lengths`; the others follow it."""
    sizes = np.asarray(lengths)
    size = sizes[0]
    starts = sizes.cumsum() - sizes
    whole = sizes + size
    whole[0] = size
    ends = whole.cumsum()
    begins = ends - whole
    before = np.full_like(sizes, size)  # of a sequence's keys, those of the opening come first
    before[0] = 0
    count = sizes.sum()
    own = np.arange(count) + np.repeat(begins + before - starts, sizes)
    copies = begins[1:, None] + np.arange(size)
    keys = np.empty(ends[-1], np.int64)
    keys[own] = np.arange(count)
    keys[copies] = np.arange(size)
    return keys, own, copies, np.concatenate([[0], ends])


def opening_of(lengths: Sequence[int], device: torch.device) -> Opening:
    keys, own, copies, ends = (torch.from_numpy(places).to(device) for places in opening_places(lengths))
    return Opening(keys, own, copies, ends.int())


def copied(packed: Tensor, opening: Opening) -> Tensor:
    """[T, …] -> [U, …]: the opening's part copied to every sequence."""
    whole: Tensor = _Copied.apply(packed, opening.keys, opening.own, opening.copies)  # type: ignore[no-untyped-call]
    return whole


class _Copied(torch.autograd.Function):
    """A gather whose gradient is a gather too, and for the opening a sum over all copies, in full precision."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, keys: Tensor, own: Tensor, copies: Tensor) -> Tensor:
        ctx.save_for_backward(own, copies)
        return packed[keys]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        own, copies = ctx.saved_tensors
        direct = gradient[own]
        size = copies.shape[1]
        shared = gradient[copies].sum(0, dtype=torch.float32) + direct[:size]
        return torch.cat([shared.to(gradient.dtype), direct[size:]]), None, None, None
