"""Products and goals of the shop, from the original's files or from records made in the same form.

A goal is a product with an instruction and one combination of its options, as the original lists them: product by
product, then shuffled once for good. Goals are never listed: of each product only their number is kept. The original's
other goals are the instructions that people wrote for products (`items_human_ins.json`), each with its options.

Where the original draws at random when it starts (the price within a price range, the budget), the draw here depends
on the product alone, so that a goal is the same in every process.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mulligan.cache import kept
from mulligan.envs.webshop import files
from mulligan.envs.webshop.search import Index, IndexBuilder
from mulligan.errors import UsageError
from mulligan.seeding import derive, generator

VERSION = 2
"""Of what is kept on disk; another number makes it anew."""
NO_PRICE = 100.0
"""What a product without a price costs, as in the original."""
NO_LIMIT = 1_000_000.0
_SHUFFLE_SEED = 233  # the original's
_CACHED_PRODUCTS, _CACHED_QUERIES = 4_096, 16_384


@dataclass(frozen=True, slots=True)
class Product:
    """One thing to buy."""

    asin: str
    """Its id, in lower case, as it is clicked."""
    title: str
    description: str
    features: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """Group, such as ``color``, -> its values, all in lower case."""
    price_tag: str
    price: float
    """What is paid: within the range on the tag, where that is one."""
    category: str
    kind: str
    """The search by which the original found the product: its type in a few words."""
    crumbs: str
    """The path of categories."""
    rating: str
    reviews: tuple[str, ...]
    attributes: tuple[str, ...]
    """Short phrases the reward looks at; on no page unless asked for."""
    instruction: str = ""
    wanted: tuple[str, ...] = ()
    """The attributes that the instruction names."""


class Goal(NamedTuple):
    """What the shopper is asked to buy."""

    number: int
    """Its index in the catalogue's order."""
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: dict[str, str]
    budget: float
    title: str
    kind: str
    crumbs: str
    category: str
    human: bool = False
    """Whether a person wrote the instruction: its options are numbered then, and belong to no group."""


Written = tuple[int, str, tuple[str, ...], tuple[str, ...]]
"""An instruction that a person wrote: number of the product, instruction, attributes and options."""


@dataclass(frozen=True)
class Catalogue:
    """A shop: products, the search over them, goals."""

    name: str
    products: Sequence[Product]
    index: Index
    goal_counts: NDArray[np.int64]
    """[product] how many goals ask for it."""
    order: Sequence[int]
    """[goal] which of the unshuffled ones it is."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a made-up catalogue, kind of product -> all names that mean it."""
    tiny: bool = False
    """Whether it is the one for the smallest models."""
    written: Sequence[Written] = ()
    """The unshuffled goals, where people wrote them."""

    @property
    def made_up(self) -> bool:
        return bool(self.names)

    def goal(self, number: int) -> Goal:
        """Goal `number`, from 0."""
        unshuffled = int(self.order[number])
        if self.written:
            source, instruction, attributes, values = self.written[unshuffled]
            options = {f"option {index}": value for index, value in enumerate(values, start=1)}
            goal = _goal(number, self.products[source], instruction.strip("."), attributes, options)
            return goal._replace(human=True)
        source = int(np.searchsorted(self._first_goals, unshuffled, side="right")) - 1
        product = self.products[source]
        options, rest = {}, unshuffled - int(self._first_goals[source])
        for group in sorted(product.options, reverse=True):  # the last group changes fastest
            rest, index = divmod(rest, len(product.options[group]))
            options[group] = product.options[group][index]
        options = dict(sorted(options.items()))
        choice = " with " + ", and ".join(f"{group}: {value}" for group, value in options.items()) if options else ""
        return _goal(number, product, product.instruction + choice, product.wanted, options)

    def draw(self, seed: int) -> int:
        """The goal that a seed draws: each product is equally likely, then each of its goals; or each written goal."""
        if self.written:
            return derive(seed, "webshop goal") % len(self.order)
        source = int(self._sources[derive(seed, "webshop product") % len(self._sources)])
        choice = derive(seed, "webshop goal") % int(self.goal_counts[source])
        return int(self._numbers[self._first_goals[source] + choice])

    @cached_property
    def _first_goals(self) -> NDArray[np.int64]:
        """[product] where its unshuffled goals begin."""
        return np.cumsum(self.goal_counts) - self.goal_counts

    @cached_property
    def _sources(self) -> NDArray[np.int64]:
        """The products that goals ask for."""
        return np.flatnonzero(self.goal_counts)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """[unshuffled goal] its index in the order."""
        return np.argsort(np.asarray(self.order))

    @cached_property
    def search(self) -> Callable[[str], tuple[int, ...]]:
        """Query -> the best products, at most 50, as in the original."""
        return lru_cache(maxsize=_CACHED_QUERIES)(lambda query: tuple(self.index.search(query)))


def _goal(number: int, product: Product, wish: str, attributes: tuple[str, ...], options: dict[str, str]) -> Goal:
    limit = budget(product)
    instruction = wish + (f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else "")
    texts = (product.title, product.kind, product.crumbs, product.category)
    return Goal(number, product.asin, instruction, attributes, options, limit, *texts)


def budget(product: Product) -> float:
    """The larger of two of the next four multiples of 10 above the price; no limit from 980 on, as in the original."""
    above = [10.0 * n for n in range(1, 100) if 10.0 * n > product.price][:4]
    return max(generator(product.asin, "webshop budget").sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def indexed_text(product: Product) -> str:
    """What the search looks at, as in the original: title, description, first feature and options."""
    options = ", and ".join(f"{group}: {', '.join(values)}" for group, values in product.options.items())
    return " ".join([product.title, product.description, *product.features[:1], options])


def from_records(
    name: str,
    records: Iterable[tuple[dict[str, Any], dict[str, Any]]],
    names: Mapping[str, tuple[str, ...]],
    *,
    tiny: bool = False,
) -> Catalogue:
    """A made-up catalogue, from pairs of entries such as the original has: a product, and its instruction."""
    products = [read_product(*pair) for pair in records]
    builder = IndexBuilder()
    for product in products:
        builder.add(indexed_text(product))
    counts = np.array([_goals_of(product) for product in products], dtype=np.int64)
    return Catalogue(name, products, builder.finish(), counts, _shuffled(int(counts.sum())), names, tiny)


@lru_cache(maxsize=4)
def from_files(where: str) -> Catalogue:
    """The catalogue of the original's files at `where`; what is made of them is kept in the user's cache."""
    source = files.find(where)
    folder = _kept(source)
    try:
        shelf = Shelf(folder)
        counts, order = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("goal_counts", "order"))
        name = source.products.name.removesuffix(".gz")  # the same on every machine: worlds are told apart by it
        return Catalogue(name, shelf, Index.load(folder, len(shelf)), counts, order)
    except (OSError, ValueError, EOFError) as failure:
        raise UsageError(f"webshop: the index in {str(folder)!r} is damaged ({failure}); remove it") from failure


@lru_cache(maxsize=4)
def from_people(where: str) -> Catalogue:
    """The same with the goals that people wrote; like the original, without those that name no attribute."""
    shop, source = from_files(where), files.find(where)
    numbers = {asin: number for number, asin in enumerate(np.load(_kept(source) / "asins.npy").tolist())}
    path, written = files.by_people(source), list[Written]()
    for asin, instructions in files.entries(path):
        with files.damage(path, asin):
            for entry in instructions if asin.lower() in numbers else ():
                wanted, options = (_phrases(entry[f"instruction_{part}"]) for part in ("attributes", "options"))
                if wanted:
                    written.append((numbers[asin.lower()], _text(entry["instruction"]), wanted, options))
    if not written:
        raise UsageError(f"webshop: {str(path)!r} has no instruction for any product of the catalogue")
    written.sort(key=lambda goal: goal[0])
    return replace(shop, name=f"{shop.name}:human", written=written, order=_shuffled(len(written)))


def _kept(source: files.Source) -> Path:
    """The folder of what is made of the files as they are now."""
    stamps = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in source]
    name = hashlib.blake2b(repr((VERSION, stamps)).encode(), digest_size=8).hexdigest()
    return kept(f"webshop-{name}", lambda folder: _make(source, folder))


class Shelf(Sequence[Product]):
    """Products on disk, one JSON text a line."""

    def __init__(self, folder: Path) -> None:
        self.ends: Any = np.asarray(np.load(folder / "ends.npy", mmap_mode="r"))
        self.bytes: Any = np.memmap(folder / "products.jsonl", dtype=np.uint8, mode="r")
        self.read = lru_cache(maxsize=_CACHED_PRODUCTS)(self._read)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: Any) -> Any:
        return self.read(number)

    def _read(self, number: int) -> Product:
        begin = int(self.ends[number - 1]) if number else 0
        values = json.loads(self.bytes[begin : int(self.ends[number])].tobytes())
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        fields["options"] = {group: tuple(options) for group, options in fields["options"].items()}
        return Product(**fields)


def _goals_of(product: Product) -> int:
    """The number of a product's goals: the combinations of its options, where it has an instruction."""
    has_goal = product.instruction and product.wanted
    return math.prod(len(values) for values in product.options.values()) if has_goal else 0


def _shuffled(count: int) -> list[int]:
    """The original's order of its goals."""
    order = list(range(count))
    random.Random(_SHUFFLE_SEED).shuffle(order)
    return order


def _make(source: files.Source, folder: Path) -> None:
    """Fill `folder` with the products, their index and the tables of the goals, in one pass over the files."""
    builder, goals, ends, asins, position = IndexBuilder(folder), list[int](), list[int](), list[str](), 0
    with (folder / "products.jsonl").open("wb") as shelf:
        for product in _products(source):
            goals.append(_goals_of(product))
            asins.append(product.asin)
            builder.add(indexed_text(product))
            fields = {name: getattr(product, name) for name in Product.__slots__}
            line = json.dumps(fields, ensure_ascii=False) + "\n"
            position += shelf.write(line.encode("utf-8", "surrogatepass"))
            ends.append(position)
    if not any(goals):
        raise UsageError(f"webshop: {str(source.instructions)!r} has no instruction for any product of the catalogue")
    builder.finish()
    order = np.array(_shuffled(sum(goals)), dtype=np.int64)
    for name, table in {"ends": ends, "asins": asins, "goal_counts": goals, "order": order}.items():
        np.save(folder / f"{name}.npy", np.asarray(table))


def _products(source: files.Source) -> Iterator[Product]:
    """Every product once, with its instruction; like the original, without those whose id is no id."""
    # Kept as texts: a million small dictionaries would take gigabytes.
    notes = {asin: json.dumps(note).encode() for asin, note in files.entries(source.instructions)}
    seen: set[str] = set()
    for name, entry in files.entries(source.products):
        with files.damage(source.products, name):
            asin = entry["asin"]
            if asin == "nan" or len(asin) > 10 or asin in seen:
                continue
            seen.add(asin)
            product = read_product(entry, json.loads(notes.get(asin, b"{}")))
        yield product


def read_product(entry: Mapping[str, Any], note: Mapping[str, Any]) -> Product:
    """A product from the original's entry and from what the file of instructions says of it."""
    asin, features = entry["asin"], entry.get("small_description")
    prices = read_prices(entry.get("pricing"))
    low, high = prices[0], prices[-1]
    return Product(
        asin=asin.lower(),
        title=_text(entry["name"]),
        description=_text(entry.get("full_description")),
        features=tuple(phrase.strip() for phrase in _phrases([features] if isinstance(features, str) else features)),
        options=_options(entry.get("customization_options") or {}),
        price_tag=f"${low}" if len(prices) == 1 else f"${low} to ${high}",
        price=low if len(prices) == 1 else generator(asin, "webshop price").uniform(low, high),
        category=_text(entry["category"]),
        kind=_text(entry["query"]).lower().strip(),
        crumbs=_text(entry["product_category"]),
        rating=str(entry.get("average_rating") or "N.A."),
        reviews=_phrases(entry.get("reviews")),
        attributes=_phrases(note.get("attributes")),
        instruction=_text(note.get("instruction")),
        wanted=_phrases(note.get("instruction_attributes")),
    )


def _text(value: object) -> str:
    return "" if _is_nothing(value) else str(value)


def _phrases(value: object) -> tuple[str, ...]:
    if _is_nothing(value) or value == "":
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"must be a list (got {str(value)[:40]!r})")
    return tuple(str(phrase) for phrase in value if not _is_nothing(phrase))


def _is_nothing(value: object) -> bool:
    """Null and NaN stand for nothing in the original's files."""
    return value is None or value != value


def read_prices(pricing: object) -> list[float]:
    """One price or the two ends of a range, from numbers or from a text such as ``$5.99 - $7.99``."""
    amounts = re.findall(r"\$?(\d[\d,]*(?:\.\d+)?)", pricing) if isinstance(pricing, str) else pricing or []
    amounts = amounts if isinstance(amounts, (list, tuple)) else [amounts]
    prices = [float(str(price).replace(",", "")) for price in amounts[:2]]
    if not all(0 <= price < 1e9 for price in prices):
        raise ValueError(f"'pricing' must be a price (got {pricing!r})")
    return prices or [NO_PRICE]


def _options(groups: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Values as the original spells them, but for < and >, which a reply would take for tags, and runs of spaces."""
    options = {}
    for group, contents in groups.items():
        if contents:
            values = [str(content["value"]).replace("/", " | ").lower().translate(_NO_TAGS) for content in contents]
            options[group.lower()] = tuple(" ".join(value.split()) or "none" for value in values)
    return options


_NO_TAGS = str.maketrans("", "", "<>")
