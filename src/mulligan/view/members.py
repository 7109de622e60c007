"""Trials in gzip members one after another, read by their byte ranges: a file is never in memory as a whole.

A member has some 256 kB of lines unpacked, so that one trial costs a seek and the unpacking of one member.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from mulligan.errors import RunFolderError

_LARGEST = 2**26 + 2**20
"""Bytes of a member, unpacked: the longest line that is read, and what may stand before it."""
_PIECE = 2**18
_MOST_GAPS = 64
"""Beyond so many, the rest of a file is one: beginnings may stand within each other by the thousand."""
_BEGINNING = b"\x1f\x8b\x08\x00"


class Member(NamedTuple):
    """One undamaged member."""

    offset: int
    size: int
    """Bytes in the file."""
    lines: bytes
    """Unpacked."""


class Gap(NamedTuple):
    """Bytes that are no member, or one that is damaged or too large."""

    offset: int
    size: int


def scan(file: BinaryIO, start: int) -> Iterator[Member | Gap]:
    """The members of a file from `start` on. Ends where the file does, before a member that is not complete yet."""
    position, gaps = start, 0
    while True:
        member = _member_at(file, position)
        if isinstance(member, Member):
            yield member
            position += member.size
            continue
        gaps += 1
        following = _next_beginning(file, position + 1) if gaps < _MOST_GAPS else None
        if following is None and member is None:
            return  # the last one is being written, or was cut off
        end = following if following is not None else file.seek(0, 2)
        if end == position:
            return
        yield Gap(position, end - position)
        position = end


def read_member(file: BinaryIO, offset: int, size: int) -> bytes:
    """The lines of the member that stands there."""
    file.seek(offset)
    packed = file.read(size)
    member = zlib.decompressobj(wbits=31)
    try:
        lines = member.decompress(packed, _LARGEST + 1)
    except zlib.error as error:
        raise RunFolderError(f"{file.name} has changed or is damaged at byte {offset:,}: {error}") from error
    if not member.eof:
        raise RunFolderError(f"{file.name} has changed or is damaged at byte {offset:,}")
    return lines


def _member_at(file: BinaryIO, offset: int) -> Member | Gap | None:
    """The member that begins there; a `Gap` where it is damaged, None where the file ends within it."""
    file.seek(offset)
    member, lines, read = zlib.decompressobj(wbits=31), bytearray(), 0
    while not member.eof:
        packed = member.unconsumed_tail
        if not packed:
            packed = file.read(_PIECE)
            read += len(packed)
            if not packed:
                return None
        try:
            lines += member.decompress(packed, _PIECE)
        except zlib.error:
            return Gap(offset, 0)
        if len(lines) > _LARGEST:
            return Gap(offset, 0)
    return Member(offset, read - len(member.unused_data), bytes(lines))


def _next_beginning(file: BinaryIO, start: int) -> int | None:
    """Where the next member may begin, from `start` on."""
    file.seek(start)
    position, tail = start, b""
    while piece := file.read(_PIECE):
        beginning = (tail + piece).find(_BEGINNING)
        if beginning >= 0:
            return position - len(tail) + beginning
        position += len(piece)
        tail = piece[-len(_BEGINNING) + 1 :]
    return None
