"""A model's weights on disk: which files hold them, whether they are whole, and whether there is memory for them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from mulligan.errors import MemoryFull, UsageError
from mulligan.models import smollm2
from mulligan.models.cgroup import free_in_groups

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SCARCE = 0.2
"""Of a GPU's memory: with less than that free, nobody keeps any for later."""
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a LoRA adapter, which needs its base."""
    return (folder / ADAPTER).is_file()


def weight_files(folder: Path, source: str) -> list[Path]:
    """The safetensors files that transformers, or PEFT for an adapter, reads."""
    names = [ADAPTER_WEIGHTS if is_adapter(folder) else _WEIGHTS]
    if not (folder / names[0]).is_file() and (folder / _INDEX).is_file():
        try:
            names = sorted(set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"model {source!r}: {_INDEX} is damaged; fetch the model again") from None
    for name in names:
        if not (folder / name).is_file():
            raise UsageError(f"model {source!r} has no safetensors weights: {name} is missing; fetch it again")
    return [folder / name for name in names]


def weights_in(file: Path) -> int:
    """How many weights a safetensors file holds; only its head is read, and compared with its size."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            return sum(math.prod(opened.get_slice(name).get_shape()) for name in names)
    except (SafetensorError, OSError) as failure:
        ours = file.parent.name == smollm2.FOLDER
        way_out = f"delete {file.parent}: it is made anew" if ours else "fetch the model again"
        raise UsageError(f"{file} is damaged: {first_line(failure)}; {way_out}") from None


def need_all_weights(report: Mapping[str, Any], source: str) -> None:
    """Refuse a model of which transformers drew some weights at random, since its files lack them."""
    lacking = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if lacking:
        what = f"{len(lacking)} weights are missing or of the wrong shape, e.g. {lacking[0]}"
        raise UsageError(f"model {source!r}: {what}; fetch it again")


def need_memory(weights: int, source: str, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a model with more weights than there is room for."""
    needed = weights * dtype.itemsize
    for holder in dict.fromkeys((device, torch.device("cpu"))):  # on their way to a GPU the weights pass through memory
        free = free_memory(holder)
        if needed > free:
            way_out = "use a smaller model" if dtype.itemsize == 2 else "use dtype bfloat16 or a smaller model"
            raise MemoryFull(
                f"model {source!r} needs {needed / 2**30:.3g} GiB as {str(dtype).removeprefix('torch.')}, but {holder} "
                f"has only {free / 2**30:.3g} GiB free; {way_out}"
            )


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device, for this process."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    in_machine, in_groups = int(psutil.virtual_memory().available), free_in_groups()
    return min(in_machine, in_machine if in_groups is None else in_groups)


def leave_room(device: torch.device) -> None:
    """Give back what torch keeps for later where little is free: others on the same GPU would run out of it."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        if free < SCARCE * total:
            torch.cuda.empty_cache()


def first_line(error: BaseException) -> str:
    """The message of a library's error: its first line, and the second where the first only announces it."""
    lines = [line.strip(" ,") for line in str(error).strip().split("\n")]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]) or type(error).__name__
