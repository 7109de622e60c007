"""A Llama-like model of transformers as the few operations it is, over slots of cached keys and values.

The weights are the model's own. The projections of queries, keys and values are laid side by side in memory (as are
gate and up), and the model's parameters become views of that, so that one matrix product does what took three.

Known families: those whose layers are RMS norm, rotary attention with grouped keys (with or without norms and biases)
and a gated SiLU, i.e. Llama (SmolLM2), Mistral, Qwen2 and Qwen3. `mulligan.engine.slots` runs all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from mulligan.engine import plain
from mulligan.engine.base import cache_heads
from mulligan.engine.plain import KeyValues, SlotPositions, Tiles
from mulligan.errors import UsageError
from mulligan.models.attention import partial_attention

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Factors(NamedTuple):
    """An adapter's low-rank addition to one linear layer."""

    outputs: slice
    """Where they go to among the outputs of all layers that read the same input."""
    down: torch.nn.Parameter
    up: torch.nn.Parameter
    scale: float


def _factors(layers: Sequence[Any]) -> list[Factors]:
    found: list[Factors] = []
    begin = 0
    for layer in layers:
        base = _bare(layer)
        outputs = slice(begin, begin := begin + base.out_features)
        for name in getattr(layer, "active_adapters", ()) if layer is not base else ():
            if name in layer.lora_A:
                down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
                found.append(Factors(outputs, down, up, layer.scaling[name]))
    return found


def _bare(layer: Any) -> Any:
    return getattr(layer, "base_layer", layer)


class Projection:
    """One matrix product for one or more linear layers of the model that read the same input."""

    def __init__(self, layers: Sequence[Any], factors: Sequence[Factors] | None = None) -> None:
        """`factors`: the adapters' (None: those that the layers have)."""
        bases = [_bare(layer) for layer in layers]
        self.weight = side_by_side([base.weight for base in bases])
        biases = [base.bias for base in bases if base.bias is not None]
        self.bias = side_by_side(biases) if len(biases) == len(bases) else None
        self.adapters: list[tuple[slice, slice, Tensor, float]] = []
        """Low-rank additions: the outputs they go to, their part of what `down` gives, the upper factor, the scale."""
        rank = 0
        factors = _factors(layers) if factors is None else factors
        for outputs, down, up, scale in factors:
            ranks = slice(rank, rank := rank + len(down))
            self.adapters.append((outputs, ranks, up, scale))
        self.down = side_by_side([each.down for each in factors]) if factors else None

    def __call__(self, x: Tensor, owners: Tensor | None = None) -> Tensor:
        """`owners` [row], the adapter of each, is for `SharedProjection`."""
        projected = linear(x, self.weight, self.bias)
        if self.down is not None:
            low = linear(x, self.down)
            for outputs, ranks, up, scale in self.adapters:
                projected[:, outputs].addmm_(low[:, ranks], up.t(), alpha=scale)
        return projected


class SharedProjection(Projection):
    """A projection of several models over one base; every row has the adapter of its own model.

    The lower factors of all lie side by side, so that one product takes every row through all of them, and `scales`
    leaves of it what belongs to the row's own. Two adapters of rank 2 on two layers have the columns 0 0 1 1 for the
    first layer, then 0 0 1 1 for the second. The factors are copies (`LlamaForward.renew`): where the trained ones lie
    is their optimiser's affair.
    """

    def __init__(self, layers: Sequence[Any], adapters: int) -> None:
        super().__init__(layers, ())
        self.shared: list[tuple[slice, slice, Tensor]] = []
        """Of each layer: its outputs, its columns, and the upper factors of all adapters [outputs, columns]."""
        columns = 0
        for outputs, _, up, _ in (factors := _factors(layers)):
            width = adapters * up.shape[1]
            self.shared.append((outputs, slice(columns, columns := columns + width), up.new_zeros(len(up), width)))
        if factors:
            self.down = factors[0].down.new_zeros(columns, factors[0].down.shape[1])
            self.scales = self.down.new_zeros(adapters, columns)

    def join(self, layers: Sequence[Any], number: int) -> list[tuple[Tensor, Tensor]]:
        """Give a model's adapter its place; returns its factors, each with the copy of it."""
        copies: list[tuple[Tensor, Tensor]] = []
        for (_, down, up, scale), (_, columns, ups) in zip(_factors(layers), self.shared, strict=True):
            assert self.down is not None, "there are columns"
            begin = number * len(down)
            place = slice(columns.start + begin, columns.start + begin + len(down))
            copies += [(down, self.down[place]), (up, ups[:, begin : begin + len(down)])]
            self.scales[number, place] = scale
        return copies

    def __call__(self, x: Tensor, owners: Tensor | None = None) -> Tensor:
        projected = linear(x, self.weight, self.bias)
        if self.down is not None:
            assert owners is not None, "every row has an adapter"
            low = linear(x, self.down) * self.scales.index_select(0, owners)
            for outputs, columns, ups in self.shared:
                projected[:, outputs].addmm_(low[:, columns], ups.t())
        return projected


def side_by_side(weights: Sequence[torch.nn.Parameter]) -> Tensor:
    """The weights as one tensor [sum of outputs, …]; where they are more than one, they become views of it."""
    if len(weights) == 1:
        return weights[0].data
    first, storage = weights[0].data, weights[0].data.untyped_storage()
    fills_storage = storage.nbytes() == sum(weight.numel() * weight.element_size() for weight in weights)
    if fills_storage and all(weight.data.untyped_storage().data_ptr() == storage.data_ptr() for weight in weights):
        # They already are: of an earlier engine over the same model.
        size = (sum(len(weight) for weight in weights), *first.shape[1:])
        return torch.as_strided(first, size, first.stride(), 0)
    joined = torch.cat([weight.data for weight in weights])
    begin = 0
    for weight in weights:
        weight.data = joined[begin : begin + len(weight)]
        begin += len(weight)
    return joined


class _Layer:
    """The weights of one layer."""

    def __init__(self, layer: Any, projection: Callable[[Sequence[Any]], Projection]) -> None:
        attention = layer.self_attn
        self.before: Tensor = layer.input_layernorm.weight
        packed, out, both, down = _projected(layer)
        self.packed, self.out = projection(packed), projection(out)
        self.both, self.down = projection(both), projection(down)
        self.norms: Tensor | None = None
        """[2, size] weights of the norms of queries and keys."""
        if hasattr(attention, "q_norm"):
            self.norms = side_by_side([attention.q_norm.weight, attention.k_norm.weight]).view(2, -1)
        self.between: Tensor = layer.post_attention_layernorm.weight


def _projected(layer: Any) -> list[list[Any]]:
    """The linear layers of one layer of the model, together where they read the same input."""
    attention, mlp = layer.self_attn, layer.mlp
    return [
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [attention.o_proj],
        [mlp.gate_proj, mlp.up_proj],
        [mlp.down_proj],
    ]


class LlamaForward:
    """The model over a cache of `slots` sequences of `context` tokens, one for idle work and one that prompts share.

    With `adapters` up to so many models can `join`, each an adapter over the same base: a row has that of `owners`,
    the number of its slot's model. Each has a sequence of its own that its prompts share.
    """

    def __init__(self, model: Any, slots: int, context: int, adapters: int = 0) -> None:
        self.base = _base_of(model)
        config, body = self.base.config, self.base.model
        self.slots, self.eps = slots, config.rms_norm_eps
        self.embedding = body.embed_tokens.weight
        self.device, dtype = self.embedding.device, self.embedding.dtype
        self.ops: ModuleType = plain
        if self.device.type == "cuda":
            from mulligan.engine import kernels

            self.ops = kernels
        self.query = config.num_attention_heads
        self.kv, self.size = cache_heads(config)
        shared = partial(SharedProjection, adapters=adapters)
        self.layers = [_Layer(layer, shared if adapters else Projection) for layer in body.layers]
        self.norm = body.norm.weight
        self.head = Projection([self.base.lm_head])
        self.scale = body.layers[0].self_attn.scaling
        self.table = rotations(body.rotary_emb, context, dtype)
        self.prompt_slot = slots + 1
        """The first of them."""
        count = self.prompt_slot + max(1, adapters)
        zeros = partial(torch.zeros, (count, self.kv, context, self.size), device=self.device, dtype=dtype)
        self.caches = [KeyValues(zeros(), zeros()) for _ in self.layers]
        self.tile = plain.tile_tokens(self.query // self.kv)
        self.owners: Tensor | None = None
        """[slot] the number of each slot's model."""
        if adapters:
            self.owners = torch.zeros(count, dtype=torch.int32, device=self.device)
            self.owners[self.prompt_slot :] = torch.arange(adapters)
        self.addresses = [weight.data_ptr() for weight in self.base.parameters()]
        self.copies: list[tuple[Tensor, Tensor]] = []
        """The factors of all adapters, each with the copy that is sampled with."""
        self.version = 0
        """Of the factors when they were copied."""

    def join(self, model: Any, number: int) -> None:
        """Give the adapter of another model over the same base its place."""
        base = _base_of(model)
        reason = why_not(model)
        if reason is None and base.model.embed_tokens.weight.data_ptr() != self.embedding.data_ptr():
            reason = "its base is another one"
        if reason is not None:
            raise UsageError(f"the engine cannot sample from this model too: {reason}")
        for mine, its in zip(self.layers, base.model.layers, strict=True):
            projections = (mine.packed, mine.out, mine.both, mine.down)
            for projection, layers in zip(projections, _projected(its), strict=True):
                assert isinstance(projection, SharedProjection), "there is room for adapters"
                self.copies += projection.join(layers, number)
        self.version = -1

    @torch.no_grad()
    def renew(self) -> None:
        """Sample with the adapters as they are now; a `UsageError` where the base is no longer what was laid out."""
        if [weight.data_ptr() for weight in self.base.parameters()] != self.addresses:
            raise UsageError("the model was moved or its weights were exchanged; make a new engine")
        version = sum(factor._version for factor, _ in self.copies)  # counts whatever was written into one
        if version != self.version:
            self.version = version
            torch._foreach_copy_([copy for _, copy in self.copies], [factor.data for factor, _ in self.copies])

    @torch.no_grad()
    def copy_prompt(self, slots: Tensor, tokens: int, number: int = 0) -> None:
        """Begin the sequences of these slots with the first `tokens` tokens that prompts of a model share."""
        for cache in chain.from_iterable(self.caches):
            begins = cache[:, :, :tokens]
            prompt = begins[self.prompt_slot + number].clone()  # a copy within one tensor must not overlap
            begins.index_copy_(0, slots, prompt.expand(len(slots), -1, -1, -1))

    def forward(self, tokens: Tensor, at: SlotPositions, decoding: int, tiles: Tiles | None = None) -> Tensor | None:
        """Take in tokens [T], each at its position of its slot; logits [decoding, vocabulary] of the first `decoding`.

        The others are parts of prompts, in tiles (see `mulligan.engine.kernels.attend`): only their keys and values
        matter, so that the last layer does no more than that for them.
        """
        ops = self.ops
        owners = self.owners.index_select(0, at.slots) if self.owners is not None else None
        hidden = embedding(tokens, self.embedding)
        added: Tensor | None = None
        for number, layer in enumerate(self.layers):
            x = ops.add_norm(hidden, added, layer.before, self.eps)
            packed = layer.packed(x, owners)
            cache = self.caches[number]
            ops.rotate_store(packed, layer.norms, self.table, at, cache, self.eps)
            if number == len(self.layers) - 1:
                if not decoding:
                    return None
                hidden, packed, tiles = hidden[:decoding], packed[:decoding], None
                owners = owners[:decoding] if owners is not None else None
            mixed = packed.new_empty(len(packed), self.query * self.size)
            ops.attend(packed, at, decoding, tiles, cache, self.scale, mixed)
            x = ops.add_norm(hidden, layer.out(mixed, owners), layer.between, self.eps)
            added = layer.down(ops.gate(layer.both(x, owners)), owners)
        return self.head(ops.add_norm(hidden, added, self.norm, self.eps))


def rotations(rotary: Any, context: int, dtype: torch.dtype) -> Tensor:
    """[position, size] cosines, then sines, of half a head each, as the model's own rotary embedding has them."""
    frequency = rotary.inv_freq.float()
    angle = torch.arange(context, device=frequency.device, dtype=torch.float32).unsqueeze(1) * frequency
    table = torch.cat((angle.cos(), angle.sin()), -1) * float(getattr(rotary, "attention_scaling", 1.0))
    return table.to(dtype).float()  # as rough as the model's own


def _base_of(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def why_not(model: Any) -> str | None:
    """Why a model cannot run by `LlamaForward`; None where it can."""
    base = _base_of(model)
    config = base.config
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is not one of {', '.join(FAMILIES)}"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    rotary = base.model.rotary_emb
    kind = str(getattr(rotary, "rope_type", "default"))
    if "dynamic" in kind or kind == "longrope":
        return f"its rotary embedding ({kind}) changes with the length"
    if partial_attention(config):
        return "its attention does not see all of the past"
    _, size = cache_heads(config)
    if size < 16 or size & (size - 1) or 2 * rotary.inv_freq.numel() != size:
        return f"heads of {size} with {2 * rotary.inv_freq.numel()} rotated are not supported"
    if hasattr(model, "peft_config") and not _is_plain_lora(model):
        return "its adapter is not plain LoRA of linear layers, in their precision, switched on and not merged"
    return None


def _is_plain_lora(model: Any) -> bool:
    """Whether a model's adapter is nothing but low-rank factors of its layers' projections."""
    from peft.tuners.lora import Linear

    adapted = [(path, layer) for path, layer in model.named_modules() if hasattr(layer, "base_layer")]
    return all(str(config.peft_type.value) == "LORA" for config in model.peft_config.values()) and all(
        isinstance(layer, Linear)
        and path.rpartition(".")[2] in _ADAPTED
        and not (layer.merged or layer.disable_adapters)
        and not any(layer.use_dora.get(name) or layer.lora_bias.get(name) for name in layer.active_adapters)
        and all(layer.lora_A[name].weight.dtype == layer.base_layer.weight.dtype for name in layer.active_adapters)
        for path, layer in adapted
    )
