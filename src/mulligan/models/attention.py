"""Attention over packed tokens, for sampling and for training alike.

The model always gets one row of tokens, ``[1, T]``, with nothing padded. Which tokens attend to which is a *plan*,
handed to the model's forward as a keyword argument and called in every layer through the attention interface of
transformers: a `PackedPlan` of whole sequences side by side in training and scoring, a `SlotPlan` of new tokens against
their cached past in sampling (`mulligan.engine.slots`).

`compile_layers` has torch.compile fuse what stands between the matrix products of a layer. All layers share one piece
of compiled code, for any number of tokens; plans that are not packed run as if nothing had been compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

NAME = "mulligan"
HALF = (torch.bfloat16, torch.float16)
LEAST_LONGEST = 2048
"""What the longest sequence is taken for at least; more than needed costs nothing."""
SLACK = 1.25
"""Lengths that differ by no more than this factor share a padded block."""
_TAKES_ENABLE_GQA = "enable_gqa" in inspect.signature(varlen_attn).parameters
"""Newer releases of torch must be told that there are fewer heads of keys than of queries; torch 2.11 is not."""


class Plan(Protocol):
    """Who attends to whom."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """query: [T, heads, size]; key, value: [T, kv heads, size] -> [T, heads, size]."""


def partial_attention(config: Any) -> set[str]:
    """Kinds of a model's layers that do not attend to all of the past, by its configuration."""
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        kinds.add("sliding_attention")
    return kinds


def use_plans(model: Any) -> None:
    """Make `model` take its attention from the plan it is called with: ``model(input_ids=…, plan=plan)``."""
    from transformers import AttentionInterface

    # No mask is registered under the name: the plan masks. To make one, transformers would look into the positions,
    # and have the host wait for a GPU.
    AttentionInterface.register(NAME, _attention)
    model.set_attn_implementation(NAME)


def forward(model: Any, ids: Tensor, positions: Tensor, plan: Plan, keep: Tensor) -> Tensor:
    """Logits [len(keep), vocabulary] of the packed tokens number `keep`. ids, positions: [T]."""
    logits: Tensor = _called(model, model, ids, positions, plan, logits_to_keep=keep).logits[0]
    return logits


def states(model: Any, ids: Tensor, positions: Tensor, plan: Plan) -> Tensor:
    """The last hidden states [T, size] of packed tokens: what the output layer reads. ids, positions: [T]."""
    hidden: Tensor = _called(model, model.get_decoder(), ids, positions, plan).last_hidden_state[0]
    return hidden


def _called(model: Any, part: Any, ids: Tensor, positions: Tensor, plan: Plan, **options: Any) -> Any:
    """The output of `part` of the model; compiled code is left out where the plan is not one it was compiled for."""
    as_it_is = isinstance(plan, PackedPlan) or not getattr(model, "has_compiled_layers", False)
    stance: AbstractContextManager[Any] = nullcontext() if as_it_is else torch.compiler.set_stance("force_eager")
    with stance:
        return part(
            input_ids=ids.unsqueeze(0), position_ids=positions.unsqueeze(0), plan=plan, use_cache=False, **options
        )


def compile_layers(model: Any, backend: str | Callable[..., Any] = "inductor") -> None:
    """Have torch compile the layers of `model` when first called with a `PackedPlan`; parameters keep their names."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.compile(backend=backend, dynamic=True, options=repeatable(backend))
    model.has_compiled_layers = bool(layers)


def repeatable(backend: str | Callable[..., Any]) -> dict[str, Any] | None:
    """Options of torch.compile by which code is chosen by arithmetic: what is chosen by timing differs between runs."""
    if backend != "inductor" or "deterministic" not in torch._inductor.list_options():
        return None
    return {"deterministic": True}


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, *, plan: Plan, **options: Any
) -> tuple[Tensor, None]:
    # The number of a layer would be a constant of its compiled code: every layer would be compiled on its own.
    layer = 0 if isinstance(plan, PackedPlan) else module.layer_idx
    mixed = plan.attend(
        layer, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), options.get("scaling")
    )
    return mixed.unsqueeze(0), None


def is_never_padded(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packed sequences of any lengths are attended to as they stand."""
    return device.type == "cuda" and dtype in HALF


class PackedPlan:
    """Sequences of the given lengths, one after another in the packed row, each causal in itself.

    On a GPU in half precision nothing is padded; elsewhere sequences of about one length share a padded block.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device | str = "cpu",
        ends: Tensor | None = None,
        opening: SharedPrefix | None = None,
    ) -> None:
        """`ends`: where each sequence ends, with a 0 before the first, as int32 on a GPU; made here if not given.

        `opening`: the first sequence is also the beginning of all others, which are given without it.
        """
        self.lengths, self.device, self.opening = lengths, torch.device(device), opening
        if ends is None and self.device.type == "cuda":
            ends = torch.tensor([0, *lengths]).cumsum(0).to(self.device, torch.int32)
        self.ends = ends
        longest = max(lengths) + (lengths[0] if opening is not None else 0)
        self.longest = max(LEAST_LONGEST, 1 << (longest - 1).bit_length())
        """At least the longest length; one of few values."""

    @cached_property
    def blocks(self) -> tuple[list[tuple[int, int]], Tensor, Tensor]:
        first = self.lengths[0]
        lengths = self.lengths if self.opening is None else [first, *(first + length for length in self.lengths[1:])]
        return _blocks(lengths, self.device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        opening = self.opening
        if self.ends is not None and query.dtype in HALF:
            if opening is None:
                return varlen(query, key, value, self.ends, self.ends, self.longest, scaling)
            key, value = with_copies(key, opening), with_copies(value, opening)
            return varlen(query, key, value, self.ends, opening.ends, self.longest, scaling)
        if opening is not None:  # blocks hold whole sequences
            query, key, value = (with_copies(x, opening) for x in (query, key, value))
        mixed: Tensor = _in_blocks(self, query, key, value, scaling)
        return mixed if opening is None else mixed[opening.key_of_token]


def varlen(
    query: Tensor, key: Tensor, value: Tensor, ends: Tensor, key_ends: Tensor, longest: int, scaling: float | None
) -> Tensor:
    """Causal attention in sequences whose queries end at `ends` and keys at `key_ends` [1 + rows]: last meets last."""
    options: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if _TAKES_ENABLE_GQA else {}
    causal = (-1, 0)  # a window over all before and none after
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    both = (ends, key_ends, longest, longest)
    mixed = varlen_attn(query, key, value, *both, scale=scaling, window_size=causal, **options)
    assert isinstance(mixed, Tensor)
    return mixed


def _blocks(lengths: Sequence[int], device: torch.device) -> tuple[list[tuple[int, int]], Tensor, Tensor]:
    """Padded blocks of sequences of about one length: their shapes, the token of each cell, and the cell of each token.

    Lengths 5, 1 and 4: the first and the last share a block of 2 × 5, the second has one of 1 × 1. Shapes are
    [(2, 5), (1, 1)], tokens of cells [0 1 2 3 4, 6 7 8 9 0, 5] (padding repeats 0) and cells [0 1 2 3 4 10 5 6 7 8].
    """
    size = torch.tensor(lengths)
    starts = size.cumsum(0) - size
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    shapes: list[tuple[int, int]] = []
    token_of_cell: list[Tensor] = []
    cell_of_token = torch.empty(int(size.sum()), dtype=torch.long)
    cells = first = 0
    while first < len(order):
        longest = lengths[order[first]]
        last = first
        while last < len(order) and lengths[order[last]] * SLACK >= longest:
            last += 1
        members = torch.tensor(order[first:last])
        offset = torch.arange(longest)
        real = offset < size[members].unsqueeze(1)
        block = torch.where(real, starts[members].unsqueeze(1) + offset, 0)
        cell_of_token[block[real]] = (cells + torch.arange(block.numel()).view_as(block))[real]
        shapes.append((len(members), longest))
        token_of_cell.append(block.flatten())
        cells += block.numel()
        first = last
    return shapes, torch.cat(token_of_cell).to(device), cell_of_token.to(device)


# Of other numbers and shapes every time, blocks would be compiled over and over.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _in_blocks(plan: PackedPlan, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    shapes, token_of_cell, cell_of_token = plan.blocks
    grouped = query.shape[1] != key.shape[1]
    sizes = [count * length for count, length in shapes]
    blocks = [
        torch.split(_Index.apply(x, token_of_cell, lambda gradient: gradient[cell_of_token]), sizes)  # type: ignore[no-untyped-call]
        for x in (query, key, value)
    ]
    attended = []
    for shape, *parts in zip(shapes, *blocks, strict=True):
        query, key, value = (part.unflatten(0, shape).transpose(1, 2) for part in parts)
        # Padding stands behind the real tokens, where causal attention never looks.
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped)
        attended.append(mixed.transpose(1, 2).flatten(0, 1))
    joined = attended[0] if len(attended) == 1 else torch.cat(attended)
    shape = joined.shape

    def to_cells(gradient: Tensor) -> Tensor:  # padding gets none
        cells = gradient.new_zeros(shape)
        cells[cell_of_token] = gradient
        return cells

    gathered: Tensor = _Index.apply(joined, cell_of_token, to_cells)  # type: ignore[no-untyped-call]
    return gathered


class _Index(torch.autograd.Function):
    """``source[index]``. Every token stands in the blocks once, so that the gradient need not be a sum."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor, gradient_of: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.gradient_of = gradient_of
        return source[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.gradient_of(gradient), None, None


class SharedPrefix(NamedTuple):
    """P first tokens that R sequences share: they stand once, before all else, and are computed once.

    The other sequences hold only what follows. In attention each still has the keys of all its tokens: those of the
    opening are copied to it. Packed are T tokens; U keys are the opening's and those of R whole sequences.

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
