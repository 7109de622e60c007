"""A catalogue for the smallest models: few products, short words, ids of a letter and a digit.

It is made as the other generated one, in the form of the original's files, and asks for the same: words for a search, a
product, an option, a purchase. What the instruction wants stands on the features page alone, which search does not see,
and a kind has two names of which an instruction says either one; so that a first purchase is a guess among about four
products, and its score is worth remembering.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from mulligan.envs.webshop.catalogue import Catalogue, from_records
from mulligan.envs.webshop.generate import Record
from mulligan.seeding import generator

MOST = 64
"""Products of a catalogue, at most: there are no more ids."""
EACH = 4
"""Products of a kind."""
_IDS = tuple(f"{letter}{digit}" for letter in "abcdefgh" for digit in range(1, 9))
_FEW_IDS = tuple(f"{letter}{digit}" for letter in "abcd" for digit in range(1, 5))
_KINDS: dict[tuple[str, ...], str] = {
    ("cup", "mug"): "tea",
    ("sack", "bag"): "travel",
    ("pan", "wok"): "stove",
    ("mat", "rug"): "hall",
    ("hat", "cap"): "walks",
    ("bed", "cot"): "sleep",
    ("net", "mesh"): "fishing",
    ("tin", "can"): "larder",
}
"""Names of a kind -> what it is for."""
_NAMES = {names[0]: names for names in _KINDS}
_ATTRIBUTES = ("soft", "thin", "safe", "fine", "neat", "plain")
_SIZES = range(1, 7)
_HAS, _WANTED, _OFFERED = 3, 2, 3


@lru_cache(maxsize=2048)
def tiny(products: int, seed: int) -> Catalogue:
    """The catalogue of `products` products that `seed` stands for."""
    return from_records(f"tiny:{products}:{seed}", records(products, seed), _NAMES, tiny=True)


def records(products: int, seed: int) -> Iterator[Record]:
    """The products of a catalogue, four of a kind."""
    rng = generator(seed, "webshop tiny")
    kinds = rng.sample(list(_KINDS), min(len(_KINDS), -(-products // EACH)))
    for number, asin in enumerate(rng.sample(_FEW_IDS if products <= len(_FEW_IDS) else _IDS, products)):
        yield _record(asin, kinds[number % len(kinds)], rng)


def _record(asin: str, names: tuple[str, ...], rng: random.Random) -> Record:
    attributes = rng.sample(_ATTRIBUTES, _HAS)
    sizes = sorted(rng.sample(_SIZES, _OFFERED))
    entry = {
        "asin": asin,
        "name": f"{rng.choice(names)} for {_KINDS[names]}".title(),
        "full_description": "",
        "small_description": ["Made to last", *attributes],
        "pricing": [rng.randint(3, 9)],
        "customization_options": {"size": [{"value": str(size)} for size in sizes]},
        "category": "tiny",
        "query": names[0],
        "product_category": f"Tiny › {names[0].title()}",
    }
    wanted = rng.sample(attributes, _WANTED)
    asked = f"Find me {rng.choice(names)}: {', '.join(wanted)}"
    return entry, {"attributes": attributes, "instruction": asked, "instruction_attributes": wanted}
