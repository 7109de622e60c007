"""Muon for processors that cannot multiply matrices of bfloat16.

`torch.optim.Muon` makes every update nearly orthogonal by a few products in bfloat16. A GPU does that fast, and so do
server processors of x86; an Arm or x86 processor without such instructions takes hundreds of times as long as for
float32: four seconds for a step of nano, of which a warm start has hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

COEFFICIENTS, STEPS, EPS = (3.4445, -4.775, 2.0315), 5, 1e-7
"""Those of `torch.optim.Muon`."""


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
    """`torch.optim.Muon` with Nesterov's momentum and AdamW's scale, computed in float32."""

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

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
