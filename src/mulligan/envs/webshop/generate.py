"""Made-up catalogues: nothing downloaded, any size, the same for the same seed.

Products come in the form of the original's files, so that they go the same way as those. What makes shopping hard:

- A kind of product has three names. The instruction uses any of them, whatever the product's own texts say.
- Products come in families: six to eight of one kind that share the attribute in their titles and their options. All
  that a search sees of them is alike, so that their order in a list says nothing of which one is asked for.
- Three more attributes of a product stand on its features page alone, which search does not see. No two products of a
  family have two of these in common. An instruction asks for the attribute of the title and two of the hidden ones, so
  that one product of the family is right, and only its features tell which.
- Prices differ within a family, and a budget leaves some products out.

The tiny catalogue, for the smallest models, has few products, short words, and ids of a letter and a digit. A kind has
two names, and what the instruction wants stands on the features page alone, so that a first purchase is a guess among
about four products, and its score is worth remembering.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.envs.webshop.catalogue import Catalogue, from_records
from mulligan.seeding import generator

Record = tuple[dict[str, Any], dict[str, Any]]
"""A product's entry, and what the file of instructions says of it."""
_FAMILY = (6, 8)
"""Products of a family: at least and at most."""
_OPEN_FAMILIES = 8
"""Families that products are drawn from at a time, so that products of one do not follow each other."""
_PRICES = (0.6, 1.4)
"""Prices of a family's products, as shares of its usual price."""
_HIDDEN, _WANTED = 3, 2
"""Attributes on the features page, and how many of them an instruction asks for."""
_TRIES = 500
"""Samples that are drawn for a family at most; eight take 18 on average, and 49 at most in 2,000 families."""
_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_KINDS = [(department, kind) for department in _WORDS["departments"] for kind in department["kinds"]]
_NAMES = {kind["names"][0]: tuple(kind["names"]) for _, kind in _KINDS}
"""The name a kind is filed under -> all its names."""
_PHRASES: dict[str, list[str]] = _WORDS["phrases"]


class _Family(NamedTuple):
    """Products that search cannot tell apart."""

    department: dict[str, Any]
    kind: dict[str, Any]
    """Of the words: a department, and a kind of product there."""
    titled: str
    """The attribute in the titles."""
    options: dict[str, list[dict[str, str]]]
    price: float
    hidden: list[list[str]]
    """The hidden attributes of each product that is still to come."""


@lru_cache(maxsize=4)
def generated(products: int, seed: int) -> Catalogue:
    """The catalogue of `products` products that `seed` stands for; made once in a process."""
    return from_records(f"generated:{products}:{seed}", records(products, seed), _NAMES)


def records(products: int, seed: int) -> Iterator[Record]:
    """The products of a catalogue, one by one: the first n are the same in every catalogue of a seed."""
    rng = generator(seed, "webshop")
    width = max(4, len(str(products - 1)))
    untitled: dict[str, list[str]] = {}
    families = [_family(untitled, rng) for _ in range(_OPEN_FAMILIES)]
    for number in range(products):
        index = rng.randrange(_OPEN_FAMILIES)
        yield _record(f"B{number:0{width}d}", families[index], rng)
        if not families[index].hidden:
            families[index] = _family(untitled, rng)


def _family(untitled: dict[str, list[str]], rng: random.Random) -> _Family:
    """A new family; `untitled` has the attributes that no family of a kind has in its titles yet."""
    department, kind = rng.choice(_KINDS)
    name, attributes = kind["names"][0], department["attributes"]
    titles = untitled.get(name) or rng.sample(attributes, len(attributes))
    titled, untitled[name] = titles[0], titles[1:]
    hidden = _distinct_samples([each for each in attributes if each != titled], rng.randint(*_FAMILY), rng)
    return _Family(department, kind, titled, _options(department, kind, rng), rng.uniform(*kind["prices"]), hidden)


def _distinct_samples(pool: list[str], count: int, rng: random.Random) -> list[list[str]]:
    """`count` samples of the pool, of which no two have two attributes in common; fewer where chance leaves no more."""
    samples: list[list[str]] = []
    for _ in range(_TRIES):
        sample = rng.sample(pool, _HIDDEN)
        if all(len({*sample} & {*other}) < _WANTED for other in samples):
            samples.append(sample)
        if len(samples) == count:
            break
    return samples


def _record(asin: str, family: _Family, rng: random.Random) -> Record:
    """The next product of a family."""
    department, kind, hidden = family.department, family.kind, family.hidden.pop()
    name, brand = rng.choice(kind["names"]), rng.choice(_WORDS["brands"])
    material, use = rng.choice(department["materials"]), kind["use"]
    article = "an" if name[0].lower() in "aeiou" else "a"
    fill = {"name": name, "brand": brand, "material": material, "use": use, "an": article, "a": article.title()}
    features = [rng.choice(_PHRASES["first_features"]).format(**fill)]
    phrases = rng.sample(_PHRASES["features"], _HIDDEN)
    features += [phrase.format(attribute) for phrase, attribute in zip(phrases, hidden, strict=True)]
    low = round(family.price * rng.uniform(*_PRICES), 2)
    attributes = [family.titled, *hidden]
    entry = {
        "asin": asin,
        "name": f"{brand} {family.titled} {material} {name}".title() + f" for {use.title()}",
        "full_description": rng.choice(_PHRASES["descriptions"]).format(family.titled, **fill),
        "small_description": [feature[0].upper() + feature[1:] for feature in features],
        "pricing": [low] if rng.random() < 0.9 else [low, round(low * rng.uniform(1.1, 1.5), 2)],
        "customization_options": family.options,
        "category": department["category"],
        "query": kind["names"][0],
        "product_category": f"{department['title']} › {kind['names'][0].title()}",
        "average_rating": round(rng.uniform(2.8, 5.0), 1),
        "reviews": [
            phrase.format(attribute, **fill).capitalize()
            for phrase, attribute in zip(rng.sample(_PHRASES["reviews"], 2), rng.sample(attributes, 2), strict=True)
        ],
    }
    wanted = [family.titled, *rng.sample(hidden, _WANTED)]
    asked = rng.choice(_PHRASES["instructions"]).format(*wanted, name=rng.choice(kind["names"]))
    return entry, {"attributes": attributes, "instruction": asked, "instruction_attributes": wanted}


def _options(department: dict[str, Any], kind: dict[str, Any], rng: random.Random) -> dict[str, list[dict[str, str]]]:
    """Three or four colours and two or three of the kind's own values; one family in six has no choice of colour."""
    values = rng.sample(kind["values"], min(len(kind["values"]), rng.randint(2, 3)))
    options = {kind["group"]: [{"value": value} for value in kind["values"] if value in values]}
    if rng.random() > 1 / 6:
        options["color"] = [{"value": colour} for colour in rng.sample(department["colours"], rng.randint(3, 4))]
    return options


MOST_TINY = 64
"""Products of a tiny catalogue, at most: there are no more ids."""
_EACH = 4
"""Products of a kind."""
_TINY_KINDS = {tuple(kind["names"]): kind["use"] for kind in _WORDS["tiny"]["kinds"]}
"""Names of a kind -> what it is for."""
_SIZES, _OFFERED = range(1, 7), 3


@lru_cache(maxsize=2048)
def tiny(products: int, seed: int) -> Catalogue:
    """The tiny catalogue of `products` products that `seed` stands for."""
    rng = generator(seed, "webshop tiny")
    kinds = rng.sample(list(_TINY_KINDS), min(len(_TINY_KINDS), -(-products // _EACH)))
    letters, digits = ("abcd", 4) if products <= 16 else ("abcdefgh", 8)
    ids = rng.sample([f"{letter}{digit}" for letter in letters for digit in range(1, digits + 1)], products)
    records = [_tiny_record(asin, kinds[number % len(kinds)], rng) for number, asin in enumerate(ids)]
    names = {names[0]: names for names in _TINY_KINDS}
    return from_records(f"tiny:{products}:{seed}", records, names, tiny=True)


def _tiny_record(asin: str, names: tuple[str, ...], rng: random.Random) -> Record:
    attributes = rng.sample(_WORDS["tiny"]["attributes"], _HIDDEN)
    sizes = sorted(rng.sample(_SIZES, _OFFERED))
    entry = {
        "asin": asin,
        "name": f"{rng.choice(names)} for {_TINY_KINDS[names]}".title(),
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
