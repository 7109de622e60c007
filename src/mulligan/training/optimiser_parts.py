"""The optimiser's moments in a checkpoint that several processes wrote: each its part, in a file of its own.

``optimiser-1-of-2.safetensors`` holds the second part of each moment, cut along its first axis, so that any number of
processes can put them together again. No library's format for this is used: torch.distributed.checkpoint describes its
files in a pickle, which may run code, and run folders may be somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from mulligan.training.processes import Shards
    from mulligan.training.step import Learner

_NAME = re.compile(r"optimiser-\d+-of-(\d+)\.safetensors")
_WHOLE = "step"
"""The entry of AdamW's state that is one number."""


def of(checkpoint: Path) -> list[str]:
    """The files that a checkpoint has, or lacks though it should; none where one process wrote it."""
    names = (_NAME.fullmatch(path.name) for path in checkpoint.glob("optimiser-*-of-*.safetensors"))
    counts = {int(name[1]) for name in names if name}
    return [_file(rank, count) for count in counts for rank in range(count)]


def save(folder: Path, shards: Shards, optimiser: torch.optim.Optimizer) -> None:
    """Write this process's part."""
    tensors: dict[str, Tensor] = {}
    for name, part in shards.parts.items():
        for entry, value in optimiser.state[part].items() if part in optimiser.state else ():
            local = value.to_local() if isinstance(value, DTensor) else value
            tensors[f"{name}/{entry}"] = local.detach().cpu().contiguous()
    save_file(tensors, folder / _file(shards.processes.rank, shards.processes.count))


def load(checkpoint: Path, learner: Learner, verified: Callable[[Path], Path]) -> None:
    """Put the moments back into the optimiser of one process, or of several, whoever wrote them."""
    weights = learner.weights() if learner.shards is None else learner.shards.parts
    moments = _from_parts(checkpoint, verified) if of(checkpoint) else _from_one(checkpoint, learner, verified)
    is_fused = bool(learner.optimiser.param_groups[0].get("fused"))
    for name, weight in weights.items():
        for entry in ("exp_avg", "exp_avg_sq", _WHOLE):
            value = moments(name, entry)
            if value is None:  # no step was made yet
                continue
            if entry == _WHOLE and is_fused:  # its steps are counted beside the weights
                value = value.to(weight.device, torch.float32)
            if entry != _WHOLE:
                if value.shape != weight.shape:
                    raise ValueError("its optimiser is of another model")
                value = value.to(weight.device)
                value = value if learner.shards is None else learner.shards.part_of(value)
            learner.optimiser.state[weight][entry] = value


def _from_parts(checkpoint: Path, verified: Callable[[Path], Path]) -> Callable[[str, str], Tensor | None]:
    files: list[Any] = [safe_open(verified(checkpoint / name), "pt") for name in of(checkpoint)]
    keys = set(files[0].keys())

    def moment(name: str, entry: str) -> Tensor | None:
        key = f"{name}/{entry}"
        if key not in keys:
            return None
        if entry == _WHOLE:
            first: Tensor = files[0].get_tensor(key)
            return first
        return torch.cat([file.get_tensor(key) for file in files])

    return moment


def _from_one(
    checkpoint: Path, learner: Learner, verified: Callable[[Path], Path]
) -> Callable[[str, str], Tensor | None]:
    saved = torch.load(verified(checkpoint / "optimiser.pt"), map_location="cpu", weights_only=True)
    assert learner.shards is not None, "one process loads what one process wrote as it is"
    number_of = {name: number for number, name in enumerate(learner.shards.parts)}
    return lambda name, entry: saved["state"].get(number_of[name], {}).get(entry)


def _file(rank: int, count: int) -> str:
    return f"optimiser-{rank}-of-{count}.safetensors"
