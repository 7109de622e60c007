"""Files of a run folder: written whole or not at all and never through a link, read with every loss told.

Trials are gzip members one after another. gzip ends each member with a checksum, so that a damaged one is noticed
before anything of it is used; reading goes on where the next one begins.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mulligan.errors import DamagedFile, RunFolderError
from mulligan.trusted import trusts_everything

MEMBER = 2**18
"""Bytes of lines after which a new member begins: what a damaged one costs is not much more."""
_LARGEST_MEMBER, _LONGEST_LINE = 2**30, 2**26
"""Bytes of a member, unpacked, and of the line of a trial; none that was written here is as large."""
_MOST_WASTED = 2**31
"""Bytes read and unpacked of members that prove damaged, after which the rest of a file is left out: beginnings may
stand within each other by the thousand."""
_PIECE = 2**16
_ATTEMPTS, _PAUSE = 20, 0.01
"""To lock a folder, which another process may hold for a moment only to see whether there is a run in it."""
_OWN_FOLDER = re.compile(
    r"trials|paid|checkpoints|reference|tensorboard|evaluation(-.*)?|\.?(update|warmstart)-\d+(\.tmp)?|\d+-.+-seed\d+"
    r"|agent-\d+|past"
)
"""Names of the folders that are written in a run folder, or in a sweep's."""
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
        sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _cannot_write(path, len(content), error) from error


def append(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Add to a file (`is_synced`: and wait for the disk); where that fails, the file is as it was."""
    size = path.stat().st_size if path.exists() else 0
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with os.fdopen(descriptor, "ab") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        if not size:
            sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # half a line would spoil the next one
            os.truncate(path, size)
        raise _cannot_write(path, len(content), error) from error


def keep_damaged(path: Path, content: bytes) -> None:
    """Put what cannot be read of a file into another one beside it, before it is written without that."""
    append(path.with_name(f"{path.name}.damaged"), content)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk; not on Windows, which syncs no folders."""
    if os.name == "nt":
        return
    # Some file systems sync no folders, and a parent may be closed to us; what was written is there all the same.
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
                continue
            except OSError:
                pass  # a file system without locks
            if _is_still(path, descriptor):  # not one that was deleted meanwhile
                yield
                return
    raise RunFolderError(f"another process is at work in {path.parent}; choose another folder")


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def own_paths(folder: Path) -> Iterator[Path]:
    """All that is in a run folder, but for what is in folders that others made there: ``wandb``, one's own notes.

    What vanishes meanwhile, since a run is being trained, is left out.
    """
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
        folders[:] = filter(_OWN_FOLDER.fullmatch, folders)


def refuse_links(folder: Path) -> None:
    """Raise where a folder that is to be written to has a link out of what is looked at here: what is written would go
    elsewhere. Not if a person trusts the folder."""
    if trusts_everything():
        return
    paths = list(own_paths(folder))
    own_folders = {os.path.realpath(parent) for parent in (folder, *(path.parent for path in paths))}
    for path in filter(Path.is_symlink, paths):
        target = Path(os.path.realpath(path))
        if str(target if target.is_dir() else target.parent) not in own_folders:
            raise RunFolderError(
                f"{path} is a link; a run is written only where all of its files are its own, unless you add --trust "
                "(in Python mulligan.trust('*'))"
            )


def read_json(text: str | bytes, path: Path, advice: str = "") -> Any:
    """JSON of a file; what cannot be read, or is nested too deep, is a `RunFolderError` that names the file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(":")[0].partition(" while ")[0]
        raise RunFolderError(f"{path} is no JSON ({reason}){advice and f'; {advice}'}") from error


def compressed(lines: Iterable[str]) -> bytes:
    """Lines as gzip members."""
    packed, waiting = bytearray(), bytearray()
    for line in lines:
        waiting += f"{line}\n".encode()
        if len(waiting) >= MEMBER:
            packed += gzip.compress(waiting, compresslevel=5, mtime=0)
            waiting.clear()
    return bytes(packed + gzip.compress(waiting, compresslevel=5, mtime=0) if waiting or not packed else packed)


def read_lines(path: Path) -> Iterator[bytes]:
    """Every line of the undamaged members of a file that is not too long; it is told what is left out."""
    members, damaged = split_members(path)
    if damaged:
        size = sum(map(len, members)) + len(damaged)
        text = f"{path} is damaged: {len(damaged):,} of its {size:,} bytes cannot be read, and were left out"
        warnings.warn(text, DamagedFile, stacklevel=2)
    too_long = 0
    for member in members:
        with gzip.open(io.BytesIO(member)) as lines:
            while line := lines.readline(_LONGEST_LINE + 1):
                if len(line) <= _LONGEST_LINE:
                    yield line
                    continue
                too_long += 1
                while line and not line.endswith(b"\n"):
                    line = lines.readline(_PIECE)
    if too_long:
        text = f"{path} has lines of more than {_LONGEST_LINE:,} bytes, and they were left out: {too_long}"
        warnings.warn(text, DamagedFile, stacklevel=2)


def split_members(path: Path) -> tuple[list[bytes], bytes]:
    """The undamaged members of a file as they stand there, and all that is not part of one."""
    data = path.read_bytes() if path.exists() else b""
    members, damaged = [], bytearray()
    position = wasted = 0
    while position < len(data):
        end, work = _end(data, position)
        if end is None:
            wasted += work
            following = data.find(_BEGINNING, position + 1) if wasted < _MOST_WASTED else -1
            end = following if following >= 0 else len(data)
            damaged += data[position:end]
        else:
            members.append(data[position:end])
        position = end
    return members, bytes(damaged)


def _end(data: bytes, start: int) -> tuple[int | None, int]:
    """Where the member ends that begins at `start`, None if it is damaged, cut off or too large; and the bytes that
    were read and unpacked to find out.

    Unpacks piece by piece and keeps none, since a few bytes may hold many.
    """
    member, position, size, end = zlib.decompressobj(wbits=31), start, 0, None
    with contextlib.suppress(zlib.error):
        while not member.eof and size <= _LARGEST_MEMBER:
            packed = member.unconsumed_tail
            if not packed:
                packed = data[position : position + _PIECE]
                position += len(packed)
                if not packed:
                    break
            size += len(member.decompress(packed, _PIECE))
        end = position - len(member.unused_data) if member.eof else None
    return end, position - start + size
