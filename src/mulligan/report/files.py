"""Files of a run folder: written whole or not at all and never through a link, read with every loss told.

Trials are gzip members one after another. gzip ends each member with a checksum, so that a damaged one is noticed
before anything of it is used; reading goes on where the next one begins.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mulligan.errors import DamagedFile, RunFolderError

LARGEST_MEMBER = 2**28
"""Bytes of a member, unpacked; none that was written here is as large."""
_PIECE = 2**16
_BEGINNING = b"\x1f\x8b\x08\x00"
"""Of every gzip member that is written here."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name beside it, to the disk, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)  # what a kill left, or a link to elsewhere
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _cannot_write(path, len(content), error) from error


def append(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Add to a file (`sync`: and wait for the disk); where that fails, the file is as it was."""
    size = path.stat().st_size if path.exists() else 0
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with os.fdopen(descriptor, "ab") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):  # half a line would spoil the next one
            os.truncate(path, size)
        raise _cannot_write(path, len(content), error) from error


def _cannot_write(path: Path, size: int, error: OSError) -> RunFolderError:
    return RunFolderError(f"{path} cannot be written ({size:,} bytes): {error.strerror or error}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be; raises where another process holds it."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"another process is at work in {path.parent}; choose another folder") from None
            except OSError:
                pass  # a file system without locks
            if _is_still(path, descriptor):  # not one that was deleted meanwhile
                yield
                return


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def refuse_links(folder: Path) -> None:
    """Raise where a folder that is to be written to has a link out of it: what is written would go elsewhere."""
    for path in folder.rglob("*"):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise RunFolderError(f"{path} is a link; a run is written only where all of its files are its own")


def read_json(text: str | bytes, path: Path) -> Any:
    """JSON of a file; what cannot be read, or is nested too deep, is a `RunFolderError` that names the file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {str(error).partition(':')[0]}") from error


def compressed(lines: Iterable[str]) -> bytes:
    """Lines as one gzip member."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=5, mtime=0)


def read_members(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Every undamaged member of a file: as it stands there, and unpacked. Tells of what was left out at the end."""
    data = path.read_bytes() if path.exists() else b""
    position = lost = 0
    while position < len(data):
        unpacked, end = _unpack(data, position)
        if unpacked is None:
            following = data.find(_BEGINNING, position + 1)
            end = following if following >= 0 else len(data)
            lost += end - position
        else:
            yield data[position:end], unpacked
        position = end
    if lost:
        text = f"{path} is damaged: {lost:,} of its {len(data):,} bytes cannot be read, and were left out"
        warnings.warn(text, DamagedFile, stacklevel=2)


def _unpack(data: bytes, start: int) -> tuple[bytes | None, int]:
    """The member that begins at `start`, and where it ends; None if it is damaged, cut off or too large."""
    member, unpacked = zlib.decompressobj(wbits=31), bytearray()
    try:
        for position in range(start, len(data), _PIECE):
            unpacked += member.decompress(data[position : position + _PIECE], LARGEST_MEMBER - len(unpacked) + 1)
            if len(unpacked) > LARGEST_MEMBER:
                return None, start
            if member.eof:
                return bytes(unpacked), min(position + _PIECE, len(data)) - len(member.unused_data)
    except zlib.error:
        pass
    return None, start
