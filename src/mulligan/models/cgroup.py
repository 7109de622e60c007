"""What control groups leave of the memory: in a container, often less than the machine has.

A limit holds for a group and all groups in it, so that every group above this process counts. Inside a container the
groups above may not be seen; then its own is the root of what is.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT, PROCESS_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class _Files(NamedTuple):
    """Where a version of control groups says what we need."""

    folder: str
    """Under the root."""
    limit: str
    used: str
    cached: tuple[str, ...]
    """Entries of ``memory.stat``: pages of files, which are counted as used and given back when memory is needed."""


_VERSIONS = {
    1: _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: _Files("", "memory.max", "memory.current", ("inactive_file", "active_file")),
}


def free_in_groups(root: Path = ROOT, process_groups: Path = PROCESS_GROUPS) -> int | None:
    """Bytes that this process may still take before one of its groups is full; None where none has a limit.

    root            where the groups are mounted.
    process_groups  the file that says which of them this process is in: ``4:cpu,memory:/some/group`` in version 1,
                    ``0::/some/group`` in version 2.
    """
    names = {1: "", 2: ""}
    for line in _read(process_groups).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            names[1] = path
        elif number == "0":
            names[2] = path
    free = []
    for version, files in _VERSIONS.items():
        group = PurePosixPath(names[version].lstrip("/"))
        groups = [PurePosixPath()] if ".." in group.parts else [group, *group.parents]
        free += [_free(root / files.folder / each, files) for each in groups]
    return min((bytes_left for bytes_left in free if bytes_left is not None), default=None)


def _free(folder: Path, files: _Files) -> int | None:
    try:
        limit, used = int(_read(folder / files.limit)), int(_read(folder / files.used))
    except ValueError:  # not there, or "max": no limit
        return None
    entries = [line.split() for line in _read(folder / "memory.stat").splitlines()]
    cached = sum(int(count) for name, count in entries if name in files.cached)
    return max(0, limit - used + cached)


def _read(file: Path) -> str:
    """What a file says; nothing where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
