"""The goals that people wrote: the original's file `items_human_ins.json`, beside the products.

For each product's id it has a list of instructions, each an object with the text (``instruction``), the attributes
(``instruction_attributes``) and the options (``instruction_options``) that it names. Each is a goal, in the order of
the products, then shuffled as the other goals are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mulligan.envs.webshop import files
from mulligan.envs.webshop.catalogue import Catalogue, Product, Written, fingerprint, from_files, read_written, shuffled
from mulligan.errors import UsageError


@lru_cache(maxsize=4)
def from_people(where: str) -> Catalogue:
    """The catalogue of the original's files at `where` with the goals that people wrote.

    They are looked for among the products once, and kept in the user's cache.
    """
    shop, source = from_files(where), files.find(where)
    path = files.by_people(source)
    folder = files.kept(f"webshop-{fingerprint(*source, path)}", lambda beside: _find(shop.products, path, beside))
    try:
        lines = json.loads((folder / "written.json").read_text(encoding="utf-8"))
        written = [Written(place, said, tuple(wanted), tuple(options)) for place, said, wanted, options in lines]
    except (OSError, ValueError, TypeError) as failure:
        raise UsageError(f"webshop: the goals in {str(folder)!r} are damaged ({failure}); remove it") from failure
    return replace(shop, name=f"{shop.name}:human", written=written, order=shuffled(len(written)))


def _find(products: Sequence[Product], path: Path, folder: Path) -> None:
    """Write down the instructions of `path` for `products`; like the original, none that names no attribute."""
    asked: dict[str, list[tuple[str, tuple[str, ...], tuple[str, ...]]]] = {}
    for asin, entries in files.entries(path):
        try:
            if not isinstance(entries, list):
                raise TypeError(f"it is {type(entries).__name__}, not a list of instructions")
            asked[asin.lower()] = [read_written(entry) for entry in entries]
        except (KeyError, TypeError) as failure:
            why = f"{failure} is missing" if isinstance(failure, KeyError) else str(failure)
            raise files.damaged(path, asin, why) from failure
    found = ((place, entry) for place, product in enumerate(products) for entry in asked.get(product.asin, ()))
    lines = [Written(place, *entry) for place, entry in found if entry[1]]
    if not lines:
        raise UsageError(f"webshop: {str(path)!r} has no instruction for any product of the catalogue")
    (folder / "written.json").write_text(json.dumps(lines), encoding="utf-8")
