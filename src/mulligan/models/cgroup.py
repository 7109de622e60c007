"""What control groups leave of the memory: in a container, often less than the machine has.

A limit holds for a group and all groups in it, so that every group above this process counts. Inside a container the
groups above may not be seen; then its own is the root of what is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class _Files(NamedTuple):
    """Where a version of control groups says what we need."""

    folder: str
    """Under the root."""
    limit: str
    used: str
    cached: tuple[str, ...]
    """Entries of ``memory.stat``: pages of files, which are counted as used and given back when memory is needed."""


_VERSION_1 = _Files(
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)
_VERSION_2 = _Files("", "memory.max", "memory.current", ("inactive_file", "active_file"))


def free_in_groups(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Bytes that this process may still take before one of its groups is full; None where none has a limit.

    root  where the groups are mounted.
    own   the file that says which of them this process is in.
    """
    found = [free for folder, files in _groups(root, own) if (free := _free(folder, files)) is not None]
    return min(found, default=None)


def _groups(root: Path, own: Path) -> Iterator[tuple[Path, _Files]]:
    """The folders of this process' groups and of all above them, in either version."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    for files in (_VERSION_1, _VERSION_2):
        top, path = root / files.folder, Path(_path(lines, files))
        inside = [] if ".." in path.parts else [top / part for part in (path, *path.parents) if part != Path()]
        yield from ((folder, files) for folder in (*inside, top))


def _path(lines: list[str], files: _Files) -> str:
    """This process' group; lines are ``4:memory:/some/group`` in version 1 and ``0::/some/group`` in version 2."""
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(",") if files is _VERSION_1 else number == "0":
            return path.lstrip("/")
    return ""


def _free(folder: Path, files: _Files) -> int | None:
    limit, used = _number(folder / files.limit), _number(folder / files.used)
    if limit is None or used is None:
        return None
    return max(0, limit - used + _cached(folder, files))


def _number(file: Path) -> int | None:
    """What a file says; None where it is not there, or says "max": no limit."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _cached(folder: Path, files: _Files) -> int:
    try:
        pairs = [line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines()]
        return sum(int(count) for name, count in pairs if name in files.cached)
    except (OSError, ValueError):
        return 0
