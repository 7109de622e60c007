"""The optimisers of updates and of the warm start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mulligan.training.config import Config
from mulligan.training.muon import muon

BETA1 = 0.9
"""Decay of the mean of gradients: every paper's and PyTorch's default."""
WARM_WEIGHT_DECAY = 0.01
"""Weight decay of the warm start: PyTorch's default for AdamW."""


def for_updates(
    weights: Mapping[str, torch.nn.Parameter], critic: torch.nn.Module | None, config: Config, *, fused: bool
) -> torch.optim.AdamW:
    """AdamW over everything that is trained, and the critic."""
    optim = config.optim
    groups: list[dict[str, Any]] = [{"params": list(weights.values()), "weight_decay": optim.weight_decay}]
    if critic is not None:
        groups.append({"params": list(critic.parameters()), "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=optim.lr, betas=(BETA1, optim.beta2), fused=fused)


def for_warm_start(
    model: Any, weights: Mapping[str, torch.nn.Parameter], config: Config, *, fused: bool
) -> list[torch.optim.Optimizer]:
    """AdamW, or Muon for the maps inside the model and AdamW for the rest. `weights`: what is trained, by name."""
    warm, optim = config.warmstart, config.optim
    inside = [weights[name] for name in _maps(model) if name in weights] if warm.optimiser == "muon" else []
    chosen = {id(parameter) for parameter in inside}
    rest = [parameter for parameter in weights.values() if id(parameter) not in chosen]
    betas = (BETA1, optim.beta2)
    adamw = torch.optim.AdamW(rest, lr=warm.lr, betas=betas, weight_decay=WARM_WEIGHT_DECAY, fused=fused)
    return [adamw, muon(inside, warm.lr, WARM_WEIGHT_DECAY)] if inside else [adamw]


def _maps(model: Any) -> list[str]:
    """Names of the matrices that map vectors to vectors.

    An embedding is a table: its rows are stepped one by one. An adapter's factors are no maps either.
    """
    tables = {id(layer.weight) for layer in model.modules() if isinstance(layer, torch.nn.Embedding)}
    tables.add(id(model.get_output_embeddings().weight))
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and id(parameter) not in tables and "lora_" not in name
    ]
