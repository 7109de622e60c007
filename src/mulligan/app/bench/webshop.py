"""The shop: steps and queries per second, how often a search finds the goal, and a catalogue of the full size.

The big catalogue is made up, in the form of the original's files and with texts of their length; ``WEBSHOP_PRODUCTS``
says how big (the original's full set has 1,181,436). It is loaded twice: to build the index on disk, and to use it.
With ``WEBSHOP_DATA``, the original's own goals are searched.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from mulligan.app.bench import Report, seconds, steps_per_second
from mulligan.envs import registry
from mulligan.envs.webshop.catalogue import Catalogue, from_files
from mulligan.envs.webshop.generate import generated, records

PRODUCTS = 100_000
STEPS = 30_000
_QUERIES = 200
_FILLER, _FILLER_WORDS = 80, 60_000
"""Words added to a made-up text, so that it is as long as the original's, and how many different ones there are."""


def run() -> Report:
    worlds = [registry.make("webshop", seed) for seed in range(50)]
    measured: dict[str, float] = {"generated, 3,000 products: steps/s": steps_per_second(worlds, STEPS)}
    measured |= _searched("generated, 3,000 products", generated(3000, 0))
    if os.environ.get("WEBSHOP_DATA"):
        measured |= _searched("original", from_files(os.environ["WEBSHOP_DATA"]))
    measured |= full_size(int(os.environ.get("WEBSHOP_PRODUCTS", PRODUCTS)))
    return Report("WebShop, one core", [{"what": what, "value": value} for what, value in measured.items()])


def _searched(label: str, shop: Catalogue) -> dict[str, float]:
    """How often the words of an instruction find its product, and how fast."""
    goals = [shop.goal(number) for number in range(min(2000, len(shop.order)))]
    hits: list[list[int]] = []
    spent = seconds(lambda: hits.extend(shop.index.search(goal.instruction) for goal in goals))
    asins = [[shop.products[number].asin for number in numbers] for numbers in hits]
    measured = {f"{label}: goals": float(len(shop.order))}
    for most in (10, 50):
        share = sum(goal.asin in ids[:most] for goal, ids in zip(goals, asins, strict=True)) / len(goals)
        measured[f"{label}: goal's product in the first {most}, %"] = 100 * share
    return {**measured, f"{label}: queries/s": len(goals) / spent}


def full_size(products: int) -> dict[str, float]:
    """Build and use a catalogue of `products` made-up products, each in a process of its own: memory is a process's."""
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        write_catalogue(Path(folder), products)
        measured = {**pool.apply(_load, (folder, "first")), **pool.apply(_load, (folder, "next"))}
    return {f"{products:,} products on disk: {name}": value for name, value in measured.items()}


def write_catalogue(folder: Path, products: int) -> None:
    """A made-up catalogue as two files in the original's form."""
    rng = np.random.default_rng(0)
    # Words as common as in any language: the n-th in proportion to 1/n.
    shares = np.cumsum(1 / np.arange(1, _FILLER_WORDS + 1))
    filler = [f"{'bdfgklmnprstvz'[n % 14]}{'aeiou'[n % 5]}{n:x}" for n in range(_FILLER_WORDS)]
    with (folder / "items_shuffle.json").open("w") as items, (folder / "items_ins_v2.json").open("w") as notes:
        for number, (entry, note) in enumerate(records(products, 0)):
            draws = np.searchsorted(shares, rng.random(_FILLER) * shares[-1])
            entry["full_description"] += " " + " ".join(filler[draw] for draw in draws)
            items.write(("," if number else "[") + json.dumps(entry) + "\n")
            notes.write(("," if number else "{") + f'"{entry["asin"]}": {json.dumps(note)}\n')
        items.write("]")
        notes.write("}")


def _load(folder: str, which: str) -> dict[str, float]:
    """Load a catalogue; the next time, search it too."""
    os.environ["MULLIGAN_CACHE"] = str(Path(folder) / "cache")
    shops: list[Catalogue] = []
    measured = {f"{which} load, s": seconds(lambda: shops.append(from_files(folder)))}
    if which == "next":
        shop = shops[0]
        words = [shop.goal(number).instruction for number in range(_QUERIES)]
        hits = [shop.search(instruction) for instruction in words[:20]]  # which also reads the index from disk
        spent = [1000 * seconds(partial(shop.search, instruction)) for instruction in words]
        pages = seconds(lambda: [shop.products[product] for numbers in hits for product in numbers[:10]])
        measured |= {"query, mean ms": sum(spent) / _QUERIES, "query, slowest ms": max(spent)}
        measured["page of results, mean ms"] = 1000 * pages / len(hits)
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return {**measured, f"{which} load{' and queries' * (which == 'next')}, peak GiB": peak}
