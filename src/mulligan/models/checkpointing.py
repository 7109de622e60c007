"""Gradient checkpointing: activations are computed again in the backward pass rather than kept."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def is_checkpointed(model: nn.Module) -> bool:
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def use_checkpointing(model: Any, wanted: bool = True) -> None:
    """Turn it on or off, by the name that this release of transformers has for it."""
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    if wanted:
        options = {f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}
        getattr(model, f"{kind}_checkpointing_enable")(**options)
    elif is_checkpointed(model):
        getattr(model, f"{kind}_checkpointing_disable")()


@contextmanager
def old_name_allowed() -> Iterator[None]:
    """PEFT asks transformers by a name that newer releases warn of; whoever trains cannot help it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing", category=FutureWarning)
        yield
