"""The original WebShop's files, read entry by entry, and where what was made of them is kept.

The full set is a JSON array of several gigabytes: it is never held in memory as a whole.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from mulligan.errors import UsageError

_CHUNK = 1 << 20
_LONGEST_ENTRY = 1 << 26
"""Characters; what has not ended by then has no end."""
_DECODE = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"\s*")


class Source(NamedTuple):
    """The two files of a catalogue."""

    products: Path
    instructions: Path
    """For each product its attributes and, where it has one, an instruction."""


def find(where: str) -> Source:
    """The files at `where`: a folder, or the file of the products; the other's name follows from it."""
    path = Path(where).expanduser()
    names = [f"items_shuffle{size}.json{end}" for size in ("", "_1000") for end in ("", ".gz")]
    candidates = [path / name for name in names] if path.is_dir() else [path]
    products = next((file for file in candidates if file.is_file()), None)
    if products is None:
        raise UsageError(f"webshop: {where!r} must be a folder with items_shuffle.json or items_shuffle_1000.json")
    name = products.name.removesuffix(".gz")
    twin = name.replace("items_shuffle", "items_ins_v2") if "items_shuffle" in name else f"ins_{name}"
    return Source(products, _beside(products, twin))


def by_people(source: Source) -> Path:
    """The file of the instructions that people wrote, beside the products."""
    return _beside(source.products, "items_human_ins.json")


def _beside(products: Path, name: str) -> Path:
    for path in (products.with_name(name), products.with_name(f"{name}.gz")):
        if path.is_file():
            return path
    raise UsageError(f"webshop: {str(products)!r} needs {name} or {name}.gz beside it")


def entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Each entry of the JSON array or object in `path`, after its name: ``entry 1``, or its key."""
    done = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for name, entry in _stream(file):
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
    return UsageError(f"webshop: {str(path)!r} is damaged at {entry}: {type(failure).__name__}: {failure}")


def _stream(file: TextIO) -> Iterator[tuple[str, Any]]:
    """Decode a long JSON text piece by piece; an entry that does not end gets larger and larger pieces."""
    text, at, chunk, number = file.read(_CHUNK).lstrip(), 1, _CHUNK, 0
    opening = text[:1]
    if opening not in ("[", "{"):
        raise ValueError("must be a JSON array or object")
    while True:
        try:
            entry = _next_entry(text, at, in_object=opening == "{")
        except ValueError:
            fresh = file.read(chunk)
            if not fresh or len(text) - at > _LONGEST_ENTRY:
                raise
            text, at, chunk = text[at:] + fresh, 0, 2 * chunk
            continue
        if entry is None:
            return
        key, value, at = entry
        number, chunk = number + 1, _CHUNK
        yield (key if opening == "{" else f"entry {number}"), value


def _next_entry(text: str, at: int, *, in_object: bool) -> tuple[str, Any, int] | None:
    """Key, value and end of the entry at index `at`; None at the closing bracket, `ValueError` in an unfinished one."""
    key, closing = "", "}" if in_object else "]"
    at = _after_space(text, at)
    if text[at : at + 1] == closing:
        return None
    if in_object:
        key, at = _DECODE(text, at)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"no ':' after {key!r}")
        at = _after_space(text, at + 1)
    value, at = _DECODE(text, at)
    at = _after_space(text, at)
    sign = text[at : at + 1]
    if sign not in (",", closing):  # the text may go on, also in the middle of a number
        raise ValueError(f"expected ',' or {closing!r} (got {sign!r})")
    return key, value, at + 1 if sign == "," else at


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
