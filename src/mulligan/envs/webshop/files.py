"""The original WebShop's files, read entry by entry, and where what was made of them is kept.

The full set is a JSON array of several gigabytes: it is never held in memory as a whole.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from mulligan.errors import UsageError

_CHUNK = 1 << 20
_LONGEST_ENTRY = 1 << 26
"""Characters; what has not ended by then has no end."""


class Source(NamedTuple):
    """The two files of a catalogue."""

    products: Path
    instructions: Path
    """For each product its attributes and, where it has one, an instruction."""


def find(where: str) -> Source:
    """The files at `where`: a folder, or the file of the products; the other's name follows from it."""
    path = Path(where).expanduser()
    if path.is_dir():
        names = [f"items_shuffle{size}.json{end}" for size in ("", "_1000") for end in ("", ".gz")]
        products = next((path / name for name in names if (path / name).is_file()), None)
        if products is None:
            raise UsageError(f"webshop: {where!r} has no items_shuffle.json or items_shuffle_1000.json, plain or .gz")
    elif path.is_file():
        products = path
    else:
        raise UsageError(f"webshop: {where!r} does not exist; give a folder with items_shuffle_1000.json")
    name = products.name.removesuffix(".gz")
    twin = name.replace("items_shuffle", "items_ins_v2") if "items_shuffle" in name else f"ins_{name}"
    for instructions in (products.with_name(twin), products.with_name(f"{twin}.gz")):
        if instructions.is_file():
            return Source(products, instructions)
    raise UsageError(f"webshop: {str(products)!r} needs its instructions beside it, in {twin} or {twin}.gz")


def by_people(source: Source) -> Path:
    """The file of the instructions that people wrote, beside the products."""
    for name in ("items_human_ins.json", "items_human_ins.json.gz"):
        path = source.products.with_name(name)
        if path.is_file():
            return path
    raise UsageError(f"webshop: goals=human needs items_human_ins.json, plain or .gz, beside {str(source.products)!r}")


def entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Each entry of the JSON array or object in `path`, after its name: ``entry 1``, or its key.

    Raises `UsageError` that names the file and the entry where the file is damaged.
    """
    done = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for name, entry in _Reader(file).entries():
                yield name, entry
                done += 1
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as failure:
        raise _damaged(path, f"entry {done + 1}", failure) from failure


@contextlib.contextmanager
def damage(path: Path, entry: str) -> Iterator[None]:
    """Inside, what is missing or of a wrong type in an entry is an error that names it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise _damaged(path, entry, failure) from failure


def _damaged(path: Path, entry: str, failure: Exception) -> UsageError:
    reason = f"{failure} is missing" if isinstance(failure, KeyError) else str(failure).partition("\n")[0]
    return UsageError(f"webshop: {str(path)!r} is damaged at {entry}: {reason or type(failure).__name__}")


class _Reader:
    """Decodes a long JSON text piece by piece."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.text, self.at, self.chunk = file, "", 0, _CHUNK
        self.decode = json.JSONDecoder().raw_decode

    def entries(self) -> Iterator[tuple[str, Any]]:
        opening = self._take()
        if opening not in ("[", "{"):
            raise ValueError("must be a JSON array or object")
        closing, number, sign = "]" if opening == "[" else "}", 0, ","
        if self._peek() == closing:
            sign = self._take()
        while sign == ",":
            number += 1
            name = f"entry {number}"
            if opening == "{":
                name = str(self._value())
                if self._take() != ":":
                    raise ValueError(f"no ':' after {name!r}")
            yield name, self._value()
            sign = self._take()
        if sign != closing:
            raise ValueError(f"expected ',' or {closing!r} (got {sign!r})")
        if self._peek():
            raise ValueError("text after the end")

    def _peek(self) -> str:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at].isspace():
                self.at += 1
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        sign = self._peek()
        self.at += 1
        return sign

    def _value(self) -> Any:
        self._peek()
        self.chunk = _CHUNK
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except json.JSONDecodeError as failure:
                if len(self.text) - self.at > _LONGEST_ENTRY or not self._more():
                    raise ValueError(failure.msg) from None
                continue
            if end == len(self.text) and self._more():  # a number may go on
                continue
            self.at = end
            return value

    def _more(self) -> bool:
        """Read on; what was used is dropped, and an entry that does not end gets bigger and bigger pieces."""
        fresh = self.file.read(self.chunk)
        self.text, self.at = self.text[self.at :] + fresh, 0
        self.chunk *= 2
        return bool(fresh)


def cache() -> Path:
    """The user's cache folder: `MULLIGAN_CACHE`, or `mulligan` where the system keeps caches."""
    if named := os.environ.get("MULLIGAN_CACHE"):
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mulligan"


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, filled by `make` on first use.

    It is filled beside its place and moved there in one stroke, so that it is never seen half made; of two that are
    made at once, the first to finish stays.
    """
    target = cache() / name
    if target.is_dir():
        return target
    beside = target.with_name(f".{name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir()
        make(beside)
        try:
            beside.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    except OSError as failure:
        raise UsageError(
            f"webshop: the index cannot be kept in {str(target.parent)!r} ({failure.strerror or failure}); "
            "set MULLIGAN_CACHE to a folder with room"
        ) from failure
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target
