"""Attention over packed tokens, for sampling and for training alike.

The model always gets one row of tokens, ``[1, T]``, with nothing padded: the linear layers, most of the work, see only
real tokens. Which tokens attend to which is a *plan*, handed to the model's forward as a keyword argument and called in
every layer through the attention interface of transformers. It works for every model built on that interface.

PackedPlan  whole sequences side by side, causal within each: training and scoring
SlotPlan    new tokens of many conversations, each against its own cached past: sampling (see `mulligan.engine.slots`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mulligan.errors import UsageError

NAME = "mulligan"


class Plan(Protocol):
    """Who attends to whom."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """query: [T, heads, size]; key, value: [T, kv heads, size] -> [T, heads, size]."""
        ...


def use_plans(model: Any) -> None:
    """Make `model` take its attention from the plan it is called with: ``model(input_ids=…, plan=plan)``."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    if getattr(model.config, "sliding_window", None) and getattr(model.config, "use_sliding_window", True):
        raise UsageError(f"{model.config.model_type}: models with sliding-window attention are not supported")
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _no_mask)
    model.set_attn_implementation(NAME)


def forward(model: Any, ids: Tensor, positions: Tensor, plan: Plan, keep: Tensor) -> Tensor:
    """Logits [len(keep), vocabulary] at the places `keep` of packed tokens. ids, positions: [T]."""
    output = model(
        input_ids=ids.unsqueeze(0), position_ids=positions.unsqueeze(0), plan=plan, logits_to_keep=keep, use_cache=False
    )
    logits: Tensor = output.logits[0]
    return logits


def _no_mask(*_: Any, **__: Any) -> None:
    """The plan masks; transformers need not build anything."""
    return


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, *, plan: Plan, **options: Any
) -> tuple[Tensor, None]:
    mixed = plan.attend(
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        options.get("scaling"),
    )
    return mixed.unsqueeze(0), None


class PackedPlan:
    """Sequences of the given lengths, one after another in the packed row, each causal in itself.

    Sequences of about one length share a padded block, so that little is padded and only inside attention.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu", slack: float = 1.25) -> None:
        size = torch.tensor(lengths)
        starts = size.cumsum(0) - size
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        self.shapes: list[tuple[int, int]] = []
        """(sequences, padded length) of each block."""
        spread: list[Tensor] = []
        place = torch.empty(int(size.sum()), dtype=torch.long)
        flat = first = 0
        while first < len(order):
            longest = lengths[order[first]]
            last = first
            while last < len(order) and lengths[order[last]] * slack >= longest:
                last += 1
            members = torch.tensor(order[first:last])
            offset = torch.arange(longest)
            real = offset < size[members].unsqueeze(1)
            block = torch.where(real, starts[members].unsqueeze(1) + offset, 0)
            place[block[real]] = (flat + torch.arange(block.numel()).view_as(block))[real]
            self.shapes.append((len(members), longest))
            spread.append(block.flatten())
            flat += block.numel()
            first = last
        self.spread = torch.cat(spread).to(device)
        """[F] the token that stands at each place of the blocks, all flattened; padding repeats token 0."""
        self.place = place.to(device)
        """[T] where each token stands among those places."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        sizes = [count * length for count, length in self.shapes]
        blocks = [torch.split(_spread(x, self.spread, self.place), sizes) for x in (query, key, value)]
        found = []
        for shape, *parts in zip(self.shapes, *blocks, strict=True):
            query, key, value = (part.unflatten(0, shape).transpose(1, 2) for part in parts)
            # Padding stands behind the real tokens, where causal attention never looks.
            mixed = scaled_dot_product_attention(
                query,
                key,
                value,
                is_causal=True,
                scale=scaling,
                enable_gqa=grouped,
            )
            found.append(mixed.transpose(1, 2).flatten(0, 1))
        joined = found[0] if len(found) == 1 else torch.cat(found)
        gathered: Tensor = _Gather.apply(joined, self.place)  # type: ignore[no-untyped-call]
        return gathered


def _spread(packed: Tensor, spread: Tensor, place: Tensor) -> Tensor:
    blocks: Tensor = _Spread.apply(packed, spread, place)  # type: ignore[no-untyped-call]
    return blocks


class _Spread(torch.autograd.Function):
    """Packed tokens to padded blocks. Every token stands there once, so that the gradient is a gather, not a sum."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, spread: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(place)
        return packed[spread]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (place,) = ctx.saved_tensors
        return gradient[place], None, None


class _Gather(torch.autograd.Function):
    """Blocks back to packed tokens; padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(place)
        ctx.places = blocks.shape
        return blocks[place]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (place,) = ctx.saved_tensors
        blocks = gradient.new_zeros(ctx.places)
        blocks[place] = gradient
        return blocks, None
