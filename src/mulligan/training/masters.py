"""Float32 copies of weights in half precision: the optimiser steps them, and gradients add up in them.

Steps of 1e-6 vanish in bfloat16, and so do the small parts of a large sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


def copies(model: Any) -> dict[str, Parameter]:
    """A float32 copy of each parameter of `model` that is trained and less precise, by name."""
    return {
        name: Parameter(parameter.detach().float().clone())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.dtype != torch.float32
    }


def without_values(masters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Copies that take gradients and hold nothing else: a single number each, whatever their shape."""
    return {name: Parameter(torch.zeros((), device=each.device).expand(each.shape)) for name, each in masters.items()}


@torch.no_grad()
def follow(model: Any, masters: Mapping[str, Tensor]) -> None:
    if masters:
        parameters = dict(model.named_parameters())
        torch._foreach_copy_([parameters[name] for name in masters], list(masters.values()))


@contextmanager
def taking_gradients(model: Any, masters: Mapping[str, Parameter]) -> Iterator[None]:
    """Inside, gradients of the weights add up in the copies' `grad`, and are kept nowhere else.

    Each gradient is handed over as soon as it is computed, so that there is one copy of all gradients and not two.
    """
    parameters = dict(model.named_parameters())
    hooks = [
        parameters[name].register_post_accumulate_grad_hook(partial(_hand_over, master))
        for name, master in masters.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _hand_over(master: Parameter, parameter: Tensor) -> None:
    if parameter.grad is None:
        return
    if master.grad is None:
        master.grad = parameter.grad.float()
    else:
        master.grad += parameter.grad
    parameter.grad = None
