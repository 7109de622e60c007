"""Whether there is memory for a model, in this machine, on its GPU and in its control groups."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import psutil  # type: ignore[import-untyped]
import torch

from mulligan.errors import MemoryFull

SCARCE = 0.2
"""Of a GPU's memory: with less than that free, nobody keeps any for later."""
_GROUPS, _PROCESS_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
