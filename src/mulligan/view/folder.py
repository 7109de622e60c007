"""Files of run folders that may be somebody else's: regular files inside the folder alone, never through a link.

A viewer only reads. What is a link, a pipe or outside the folder does not exist for it.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from mulligan.errors import RunFolderError, UsageError
from mulligan.report.files import own_paths, read_json

_DEPTH = 5
"""Folders under the one that is looked at: a sweep's arm's evaluation is three deep."""
_MOST_RUNS = 5_000
_LARGEST_FILE = 2**28
"""Bytes of a file that is read at once: results, settings, metrics."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NOT_RUNS = ("trials", "checkpoints", "reference", "tensorboard", "wandb", "paid", "__pycache__", "node_modules")
"""Folders in which no runs are looked for."""
MARKS = ("config.toml", "table.json", "demo.json", "arm.json", "result.json")
"""Files that make a folder a run, or a sweep."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; `FileNotFoundError` for a link, a pipe or a device too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK)
    except OSError as error:
        raise FileNotFoundError(str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _LARGEST_FILE:
            raise RunFolderError(f"{path} has {size:,} bytes; at most {_LARGEST_FILE:,} are read")
        return file.read()


def json_of(path: Path) -> Any:
    """The JSON of a file, None where there is no such file."""
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return None
    return read_json(content, path)


def toml_of(path: Path) -> dict[str, Any]:
    """The TOML of a file, empty where there is none or it cannot be read."""
    try:
        return tomllib.loads(read_regular(path).decode())
    except (FileNotFoundError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines; lines that hold none are left out, a torn last one too."""
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return []
    lines = []
    for line in content.splitlines():
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            lines.append(data)
    return lines


def stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a file does; zeros where there is no regular file."""
    try:
        status = path.lstat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (0, 0, 0)


def is_folder(path: Path) -> bool:
    """Whether there is a folder, and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def inside(root: Path, name: str) -> Path:
    """The folder `name` under `root` ("." is `root`); raises where that is outside, or behind a link."""
    parts = PurePosixPath(name).parts
    if not name or "\0" in name or ".." in parts or PurePosixPath(name).is_absolute():
        raise UsageError(f"{name!r} is not a run in {root}")
    path = root
    for part in parts:
        path = path / part
        if not is_folder(path):
            raise UsageError(f"there is no run {name!r} in {root}")
    return path


def without_links(path: Path) -> Path:
    """The folder, if all that is read of it lies in it."""
    for each in own_paths(path):
        kind = each.lstat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise RunFolderError(f"{each} is a link, a pipe or a device, which a viewer does not follow")
    return path


def run_names(root: Path) -> list[str]:
    """The names of all runs and sweeps under `root`, "." for itself; relative, with slashes."""
    names: list[str] = []
    for path, name in _folders(root, ".", _DEPTH):
        if any(stamp(path / mark)[1] for mark in MARKS):
            names.append(name)
        elif name == "." and not path.is_dir():
            break
        if len(names) == _MOST_RUNS:
            break
    return names


def _folders(path: Path, name: str, depth: int) -> Iterator[tuple[Path, str]]:
    yield path, name
    if not depth:
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_RUNS or not entry.is_dir(follow_symlinks=False):
            continue
        below = entry.name if name == "." else f"{name}/{entry.name}"
        yield from _folders(Path(entry.path), below, depth - 1)


def sub_path(name: str, other: str) -> str:
    """The name of `other` inside the run `name`."""
    return other if name == "." else f"{name}/{other}"
