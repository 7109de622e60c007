"""Which process an episode belongs to, and whether that process still runs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Names the machine, its boot and, in a container, the process numbers that count: equal names, equal numbers."""
    parts = [socket.gethostname()]
    with suppress(OSError):  # both are Linux's; elsewhere the name of the machine must do
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def process() -> str:
    """Names the calling process: its number and, since numbers are used again, when it began."""
    return _named(os.getpid())


@cache
def _named(number: int) -> str:
    """Of this process; a forked one has another number."""
    return f"{number} {_began(number)}".strip()


def has_died(name: str) -> bool:
    """Whether the process that `process` named has ended; it must be one of this machine."""
    number, _, began = name.partition(" ")
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _began(int(number)) != began


def _began(number: int) -> str:
    """Clock ticks from boot to the start of a process, as Linux counts them; empty elsewhere."""
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return ""
    fields = status.rpartition(")")[2].split()  # the name in brackets may hold spaces
    return "" if fields[0] == "Z" else fields[19]  # a zombie has ended: its number is all that is left
