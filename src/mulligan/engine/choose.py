"""Which engine a model gets."""

from __future__ import annotations

from typing import Any, Literal

from mulligan.engine.compact import why_not
from mulligan.engine.graphs import GraphEngine
from mulligan.engine.slots import SlotEngine

Kind = Literal["auto", "slots", "graphs"]


def make_engine(
    model: Any, *, slots: int, context: int | None = None, chunk: int = 512, kind: Kind = "auto"
) -> SlotEngine | GraphEngine:
    """The engine for `model`: "auto" takes CUDA graphs on a GPU, where the model's family is known, else the slots."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    if kind == "graphs" or (kind == "auto" and on_gpu and why_not(model) is None):
        return GraphEngine(model, slots=slots, context=context)
    return SlotEngine(model, slots=slots, context=context, chunk=chunk)
