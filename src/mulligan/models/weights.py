"""A model's weights on disk: which files hold them, and whether there is memory for them."""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePosixPath

import psutil  # type: ignore[import-untyped]
import torch

from mulligan.errors import MemoryFull, UsageError

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SCARCE = 0.2
"""Of a GPU's memory: with less than that free, nobody keeps any for later."""
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_GROUPS, _PROCESS_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a LoRA adapter, which needs its base."""
    return (folder / ADAPTER).is_file()


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that transformers, or PEFT for an adapter, reads."""
    if is_adapter(folder):
        return [folder / ADAPTER_WEIGHTS]
    if (folder / _WEIGHTS).is_file() or not (folder / _INDEX).is_file():
        return [folder / _WEIGHTS]
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def weights_in(file: Path) -> int:
    """How many weights a safetensors file holds; only its head is read, and compared with its size."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            return sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as failure:
        way_out = f"fetch the model again (smollm2: delete {file.parent})"
        raise UsageError(f"{file} is missing or damaged: {first_line(failure)}; {way_out}") from None


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


def free_in_groups(root: Path = _GROUPS, process_groups: Path = _PROCESS_GROUPS) -> int | None:
    """Bytes that this process may still take before one of its control groups is full; None where none has a limit.

    A limit holds for a group and all groups in it, so that every group above this process counts. `process_groups` has
    lines like ``4:cpu,memory:/some/group`` in version 1 of control groups and ``0::/some/group`` in version 2.
    """
    free = []
    for line in _read(process_groups).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            if not controllers:
                free.append(_free(root / each, "memory.max", "memory.current", ""))
            elif "memory" in controllers.split(","):
                free.append(_free(root / "memory" / each, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
    return min((bytes_left for bytes_left in free if bytes_left is not None), default=None)


def _free(folder: Path, limit_file: str, used_file: str, prefix: str) -> int | None:
    """Bytes left to one group; pages of files count as free, since they are given back when memory is needed."""
    try:
        limit, used = int(_read(folder / limit_file)), int(_read(folder / used_file))
    except ValueError:  # not there, or "max": no limit
        return None
    entries = [line.split() for line in _read(folder / "memory.stat").splitlines()]
    cached = sum(int(count) for name, count in entries if name in (f"{prefix}inactive_file", f"{prefix}active_file"))
    return max(0, limit - used + cached)


def _read(file: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


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
