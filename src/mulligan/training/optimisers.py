"""The optimisers of updates and of the warm start, and the schedule of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mulligan.training.config import AlgoConfig, Config, OptimConfig

BETA1 = 0.9
"""Decay of the mean of gradients: every paper's and PyTorch's default."""
WARM_WEIGHT_DECAY = 0.01
"""Weight decay of the warm start: PyTorch's default for AdamW."""
COEFFICIENTS, STEPS, EPS = (3.4445, -4.775, 2.0315), 5, 1e-7
"""Of Newton's and Schulz's iteration, as in `torch.optim.Muon`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What changes in the course of a run: a function of the update and of the length that the run was planned with.

    A run that is resumed with another `run.updates` keeps its plan: the rate never jumps, whenever the run was
    interrupted. Planned are 81 updates in which the rate falls from 1 to 0.2, 0.01 an update; the run is interrupted at
    update 40, with rate 0.6:

        resumed with 160 updates   from update 80 on the rate stays at 0.2
        resumed with 61 updates    the run ends early, at update 60 with rate 0.4
    """

    updates: int
    """`run.updates` at the first update. Checkpoints hold it."""

    def progress(self, update: int) -> float:
        """From 0 at the first update to 1 at the last planned one; 1 after that."""
        return min(1.0, update / max(1, self.updates - 1))

    def rate(self, update: int, optim: OptimConfig) -> float:
        """Share of the learning rate: rises over `warmup` updates and falls linearly to `lr_end`."""
        rise = min(1.0, (update + 1) / max(1, optim.warmup))
        return rise * (1.0 - (1.0 - optim.lr_end) * self.progress(update))

    def entropy_weight(self, update: int, algo: AlgoConfig) -> float:
        end = algo.entropy_weight if algo.entropy_end is None else algo.entropy_end
        return algo.entropy_weight + (end - algo.entropy_weight) * self.progress(update)


def for_updates(
    weights: Mapping[str, torch.nn.Parameter], critic: torch.nn.Module | None, config: Config, *, fused: bool
) -> torch.optim.AdamW:
    """AdamW over everything that is trained, and the critic."""
    optim = config.optim
    groups: list[dict[str, Any]] = [{"params": list(weights.values()), "weight_decay": optim.weight_decay}]
    if critic is not None:
        groups.append({"params": list(critic.parameters()), "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=optim.lr, betas=(BETA1, optim.beta2), fused=fused)


def use(optimiser: torch.optim.Optimizer, optim: OptimConfig) -> None:
    """Give an optimiser of `for_updates` other settings; its learning rate comes with every update."""
    for group in optimiser.param_groups:
        group["betas"] = (BETA1, optim.beta2)
    optimiser.param_groups[0]["weight_decay"] = optim.weight_decay


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


def muon(parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Muon whose steps are as large as AdamW's: torch's own, or in float32 where bfloat16 is slow."""
    parameters = list(parameters)
    if all(multiplies_bfloat16(parameter.device) for parameter in parameters):
        return torch.optim.Muon(parameters, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    return Float32Muon(parameters, lr, weight_decay)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 without emulation."""
    if device.type != "cpu":
        return True
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Float32Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` with Nesterov's momentum and AdamW's scale, computed in float32.

    Processors without instructions for bfloat16 take hundreds of times as long for torch's: four seconds for a step of
    nano.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nobody here needs a closure
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter.grad)
                mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
                update = _orthogonal(parameter.grad.lerp(mean, momentum))
                parameter.mul_(1 - lr * group["weight_decay"])
                parameter.add_(update.to(parameter.dtype), alpha=-lr * 0.2 * math.sqrt(max(parameter.shape)))


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Nearly the closest matrix with orthogonal rows or columns: singular values become about 1 (Newton and Schulz)."""
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    result: torch.Tensor = (matrix.T if is_tall else matrix).float()
    result = result / result.norm().clamp(min=EPS)
    for _ in range(STEPS):
        gram = result @ result.T
        result = a * result + (b * gram + c * gram @ gram) @ result
    return result.T if is_tall else result
