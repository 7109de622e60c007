"""The shop: steps and queries per second, how often a search finds the goal, and a catalogue of the full size.

The big catalogue is made up, in the form of the original's files and with texts of their length; ``WEBSHOP_PRODUCTS``
says how big (the original's full set has 1,181,436). It is loaded in processes of their own, so that their memory can
be told: once to build the index on disk, once to use it. With ``WEBSHOP_DATA``, the original's own goals are searched.
"""

from __future__ import annotations

import bisect
import itertools
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mulligan.bench import Report
from mulligan.envs.webshop.catalogue import Catalogue, from_files
from mulligan.envs.webshop.env import WebShop
from mulligan.envs.webshop.generate import generated, records
from mulligan.seeding import generator
from mulligan.types import Task

PRODUCTS = 100_000
STEPS = 30_000
_QUERIES = 200
_FILLER, _FILLER_WORDS = 80, 60_000
"""Words added to a made-up text, so that it is as long as the original's, and how many different ones there are."""


def run() -> Report:
    rows: list[tuple[str | float, ...]] = [("generated, 3,000 products: steps/s", steps_per_second())]
    rows += _searched("generated, 3,000 products", generated(3000, 0))
    if os.environ.get("WEBSHOP_DATA"):
        rows += _searched("original", from_files(os.environ["WEBSHOP_DATA"]))
    rows += full_size(int(os.environ.get("WEBSHOP_PRODUCTS", PRODUCTS)))
    return Report("WebShop, one core", ("what", "value"), tuple(rows))


def steps_per_second() -> float:
    """Random legal play on 50 tasks, as the benchmark of all environments does it."""
    params = tuple(sorted(WebShop.defaults.items()))
    worlds = [WebShop(Task("webshop", seed, WebShop.turns, "webshop/generated", params)) for seed in range(50)]
    choose = generator(0, "bench").random
    steps, started = 0, time.perf_counter()
    while steps < STEPS:
        for world in worlds:
            world.reset()
            for _ in range(world.task.turns):
                legal = world.legal()
                steps += 1
                if world.step(legal[int(choose() * len(legal))]).done:
                    break
    return steps / (time.perf_counter() - started)


def _searched(label: str, shop: Catalogue) -> list[tuple[str | float, ...]]:
    """How often the words of an instruction find its product, and how fast."""
    goals = [shop.goal(number) for number in range(min(2000, len(shop.order)))]
    started = time.perf_counter()
    hits = [shop.index.search(goal.instruction) for goal in goals]
    seconds = time.perf_counter() - started
    found = [[shop.products[place].asin for place in places] for places in hits]
    rows: list[tuple[str | float, ...]] = [(f"{label}: goals", len(shop.order))]
    for most in (10, 50):
        share = sum(goal.asin in ids[:most] for goal, ids in zip(goals, found, strict=True)) / len(goals)
        rows.append((f"{label}: goal's product in the first {most}, %", 100 * share))
    return [*rows, (f"{label}: queries/s", len(goals) / seconds)]


def full_size(products: int) -> list[tuple[str | float, ...]]:
    """Build and use a catalogue of `products` made-up products."""
    label = f"{products:,} products on disk"
    with tempfile.TemporaryDirectory() as folder:
        write_catalogue(Path(folder), products)
        built = _apart(_load_and_search, folder, 0)
        used = _apart(_load_and_search, folder, _QUERIES)
    return [
        (f"{label}: first load, s", built["load"]),
        (f"{label}: first load, peak GiB", built["peak"]),
        (f"{label}: next load, s", used["load"]),
        (f"{label}: next load and {_QUERIES} queries, peak GiB", used["peak"]),
        (f"{label}: query, mean ms", used["mean"]),
        (f"{label}: query, 95 of 100 within ms", used["most"]),
        (f"{label}: query, slowest ms", used["slowest"]),
        (f"{label}: page of results, mean ms", used["page"]),
    ]


def write_catalogue(folder: Path, products: int) -> None:
    """A made-up catalogue as two files in the original's form."""
    rng = random.Random(0)
    # Words as common as in any language: the n-th in proportion to 1/n.
    shares = list(itertools.accumulate(1 / n for n in range(1, _FILLER_WORDS + 1)))
    filler = [f"{'bdfgklmnprstvz'[n % 14]}{'aeiou'[n % 5]}{n:x}" for n in range(_FILLER_WORDS)]
    with (folder / "items_shuffle.json").open("w") as items, (folder / "items_ins_v2.json").open("w") as notes:
        for number, (entry, note) in enumerate(records(products, 0)):
            draws = [bisect.bisect(shares, rng.random() * shares[-1]) for _ in range(_FILLER)]
            entry["full_description"] += " " + " ".join([filler[draw] for draw in draws])
            items.write(("," if number else "[") + json.dumps(entry) + "\n")
            notes.write(("," if number else "{") + f'"{entry["asin"]}": {json.dumps(note)}\n')
        items.write("]")
        notes.write("}")


def _load_and_search(folder: str, queries: int) -> dict[str, float]:
    os.environ["MULLIGAN_CACHE"] = str(Path(folder) / "cache")
    started = time.perf_counter()
    shop = from_files(folder)
    load, times, page = time.perf_counter() - started, [], 0.0
    for number in range(queries):
        asked = shop.goal(number).instruction
        started = time.perf_counter()
        hits = shop.search(asked)
        times.append(1000 * (time.perf_counter() - started))
        started = time.perf_counter()
        for place in hits[:10]:
            shop.products[place]
        page += 1000 * (time.perf_counter() - started) / queries
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    warm = sorted(times[queries // 10 :]) or [0.0]  # the first ones read the index from disk
    most = warm[int(0.95 * len(warm))]
    return {"load": load, "peak": peak, "mean": sum(warm) / len(warm), "most": most, "slowest": warm[-1], "page": page}


def _apart(work: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """`work` in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)
