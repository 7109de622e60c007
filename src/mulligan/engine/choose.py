"""Which engine a model gets."""

from __future__ import annotations

from typing import Any, Literal

from mulligan.engine.graphs import GraphEngine
from mulligan.engine.llama_forward import why_not
from mulligan.engine.places import slots_that_fit, token_bytes
from mulligan.engine.slots import SlotEngine
from mulligan.errors import MemoryFull, UsageError, lacks_memory, lost_device
from mulligan.models.weights import free_memory

Kind = Literal["auto", "slots", "graphs"]


def make_engine(
    model: Any,
    *,
    slots: int,
    context: int | None = None,
    chunk: int = 512,
    kind: Kind = "auto",
    share: bool = True,
    reserved: int = 0,
) -> SlotEngine | GraphEngine:
    """The engine for `model`: "auto" takes CUDA graphs on a GPU, where the model's family is known, else the slots.

    The context is what it is asked to be, or the model's own limit; on a GPU the slots are as many of those asked for
    as its memory holds at that context, less the bytes `reserved` for what comes later.
    """
    weight = next(model.parameters())
    on_gpu = weight.device.type == "cuda"
    if on_gpu:
        longest = int(model.config.max_position_embeddings)
        token, free = token_bytes(model.config, weight.dtype), free_memory(weight.device)
        slots = slots_that_fit(slots, min(context or longest, longest), token, free, reserved)
    if kind == "graphs" or (kind == "auto" and on_gpu and why_not(model) is None):
        engine = GraphEngine(model, slots=slots, context=context, share=share)
        failure = _failure(engine)
        if failure is None:
            return engine
        if kind == "graphs":
            raise UsageError(f"the kernels do not run on this GPU: {failure}")
    return SlotEngine(model, slots=slots, context=context, chunk=chunk)


def _failure(engine: GraphEngine) -> str | None:
    """Why the kernels do not run on this GPU (too little shared memory, no compiler); None where they do."""
    try:
        engine.device.try_out()
    except Exception as error:  # Triton raises what it likes
        if lacks_memory(str(error)):  # nothing is wrong with the kernels
            raise MemoryFull(
                "the GPU's memory ran out before the first reply; lower engine.slots or engine.context"
            ) from None
        lost = lost_device(error, "compiling kernels")
        if lost is not None:
            raise lost from None
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None
