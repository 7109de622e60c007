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


class SharedPrefix(NamedTuple):
    """P tokens that R sequences share. Packed are T tokens; U keys are the opening's and those of R whole sequences.

    An opening o of 2 tokens and sequences of 1 and 3 more: the packed tokens are ooabbb, the keys oo|ooa|oobbb.
    `keys` is [0 1 0 1 2 0 1 3 4 5], `key_of_token` [0 1 4 7 8 9], `copies` [[2 3] [5 6]] and `ends` [0 2 5 10].
    """

    keys: Tensor
    """[U] the packed token of each key."""
    key_of_token: Tensor
    """[T] the key of each token itself."""
    copies: Tensor
    """[R, P] the keys that are copies of the opening."""
    ends: Tensor
    """[R + 2] where the keys of each sequence end, the opening's own first, with a 0 before; int32."""


def common_prefix_length(sequences: Sequence[list[int]]) -> int:
    """How many first tokens all sequences have in common."""
    first, last = min(sequences), max(sequences)  # in the order of words all others lie between
    shortest = min(map(len, sequences))
    return next((number for number in range(shortest) if first[number] != last[number]), shortest)


def prefix_indices(lengths: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    """The fields of a `SharedPrefix` with as many tokens as the first of `lengths`; the others follow it."""
    sizes = np.asarray(lengths)
    size = sizes[0]
    starts = sizes.cumsum() - sizes
    with_prefix = sizes + size
    with_prefix[0] = size
    ends = with_prefix.cumsum()
    begins = ends - with_prefix
    prefix = np.full_like(sizes, size)  # of a sequence's keys, those of the opening come first
    prefix[0] = 0
    count = sizes.sum()
    key_of_token = np.arange(count) + np.repeat(begins + prefix - starts, sizes)
    copies = begins[1:, None] + np.arange(size)
    keys = np.empty(ends[-1], np.int64)
    keys[key_of_token] = np.arange(count)
    keys[copies] = np.arange(size)
    return keys, key_of_token, copies, np.concatenate([[0], ends])


def shared_prefix(lengths: Sequence[int], device: torch.device) -> SharedPrefix:
    keys, key_of_token, copies, ends = (torch.from_numpy(indices).to(device) for indices in prefix_indices(lengths))
    return SharedPrefix(keys, key_of_token, copies, ends.int())


def with_copies(packed: Tensor, prefix: SharedPrefix) -> Tensor:
    """[T, …] -> [U, …]: the opening's part copied to every sequence."""
    copied: Tensor = _Copied.apply(packed, prefix.keys, prefix.key_of_token, prefix.copies)  # type: ignore[no-untyped-call]
    return copied


class _Copied(torch.autograd.Function):
    """A gather whose gradient is a gather too, and for the opening a sum over all copies, in full precision."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, keys: Tensor, key_of_token: Tensor, copies: Tensor) -> Tensor:
        ctx.save_for_backward(key_of_token, copies)
        return packed[keys]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        key_of_token, copies = ctx.saved_tensors
        direct = gradient[key_of_token]
        size = copies.shape[1]
        shared = gradient[copies].sum(0, dtype=torch.float32) + direct[:size]
        return torch.cat([shared.to(gradient.dtype), direct[size:]]), None, None, None
