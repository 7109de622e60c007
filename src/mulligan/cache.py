"""The user's cache folder: what is made once and can be made again, the index of a shop or an unpacked model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from mulligan.errors import UsageError


def cache_folder() -> Path:
    """`MULLIGAN_CACHE`, or `mulligan` where the system keeps caches."""
    if named := os.environ.get("MULLIGAN_CACHE"):
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mulligan"


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, filled by `make` on first use and moved there when it is complete.

    Of two processes that fill it at once, the first to finish wins.
    """
    target = cache_folder() / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as beside:
            folder = Path(beside) / name
            folder.mkdir()
            make(folder)
            try:
                folder.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
    except OSError as failure:
        reason = str(failure.strerror or failure).partition("\n")[0]
        raise UsageError(f"{target} cannot be written: {reason}; set MULLIGAN_CACHE to a folder with room") from failure
    return target
