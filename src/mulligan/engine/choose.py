"""Which engine a model gets, and how many slots its memory holds."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch

from mulligan.engine.base import cache_heads
from mulligan.engine.graphs import GraphEngine, Share
from mulligan.engine.llama_forward import why_not
from mulligan.engine.slots import SlotEngine
from mulligan.engine.vllm import VllmEngine
from mulligan.errors import MemoryFull, UsageError, lacks_memory, lost_device
from mulligan.models.memory import free_memory

Kind = Literal["auto", "slots", "graphs", "vllm"]
LocalEngine = SlotEngine | GraphEngine | VllmEngine | Share
SHARE_OF_MEMORY = 0.35
"""Of what is free, for keys and values."""
IDLE_SLOTS = 1
"""Slots that nobody plays in, and that take what idle rows write. Each model has one more, for what prompts share."""


class MakeEngine(Protocol):
    """What gives a model its engine."""

    def __call__(self, model: Any, *, slots: int, context: int, kind: Kind, reserved: int = 0) -> LocalEngine: ...


def make_engine(
    model: Any,
    *,
    slots: int,
    context: int | None = None,
    chunk: int = 512,
    kind: Kind = "auto",
    share: bool = True,
    reserved: int = 0,
    adapters: int = 0,
) -> SlotEngine | GraphEngine | VllmEngine:
    """The engine for `model`: "auto" takes CUDA graphs on a GPU, where the model's family is known, else the slots.

    On a GPU the slots are as many of those asked for as fit its memory, less the bytes `reserved` for what comes later.
    A `GraphEngine` has room for so many `adapters`.
    """
    if kind == "vllm":
        return VllmEngine(model, slots=slots, context=context, reserved=reserved)
    weight = next(model.parameters())
    on_gpu = weight.device.type == "cuda"
    if on_gpu:
        longest = int(model.config.max_position_embeddings)
        token, free = token_bytes(model.config, weight.dtype), free_memory(weight.device)
        slots = slots_that_fit(slots, min(context or longest, longest), token, free, reserved, max(1, adapters))
    if kind == "graphs" or (kind == "auto" and on_gpu and why_not(model) is None):
        engine = GraphEngine(model, slots=slots, context=context, share=share, adapters=adapters)
        try:
            engine.device.try_out()
            return engine
        except Exception as error:  # Triton raises what it likes: too little shared memory, no compiler
            if lacks_memory(str(error)):  # nothing is wrong with the kernels
                raise MemoryFull(
                    "the GPU's memory ran out before the first reply; lower engine.slots or engine.context"
                ) from None
            lost = lost_device(error, "compiling kernels")
            if lost is not None:
                raise lost from None
            if kind == "graphs":
                raise UsageError(f"the kernels do not run on this GPU: {str(error).partition(chr(10))[0]}") from error
    return SlotEngine(model, slots=slots, context=context, chunk=chunk)


def token_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes that the keys and values of one token take."""
    heads, size = cache_heads(config)
    return int(2 * config.num_hidden_layers * heads * size * dtype.itemsize)


def slots_that_fit(slots: int, context: int, token: int, free: int, reserved: int = 0, models: int = 1) -> int:
    """How many of `slots` sequences of `context` tokens of `token` bytes fit into `free` bytes less the `reserved`.

    Each of the `models` has one at least.
    """
    room, spare = min(SHARE_OF_MEMORY * free, free - reserved), IDLE_SLOTS + models
    fits = int(room // (token * context)) - spare
    if fits < models:
        needed = (models + spare) * context * token
        what = f"no sequence of {context:,} tokens fits"
        settings = "trial.max_tokens or engine.context, or train an adapter (model.lora_rank)"
        if models > 1:
            what = f"one sequence of {context:,} tokens for each of {models} models does not fit"
            settings = "trial.max_tokens, engine.context or population.agents"
        raise MemoryFull(
            f"{what} the GPU's memory: {models + spare} slots x {context:,} tokens x {token:,} bytes = "
            f"{needed / 2**30:.1f} GiB, and {max(0.0, room) / 2**30:.1f} GiB are left for them; lower {settings}"
        )
    return min(slots, fits)
