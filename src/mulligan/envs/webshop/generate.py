"""A made-up catalogue: nothing downloaded, any size, the same for the same seed.

Products come in the form of the original's files, so that they go the same way as those. What makes shopping hard:

- A kind of product has three names. The instruction uses any of them, whatever the product's own texts say.
- A product has five attributes: one in the title, two in the description, two on the features page, which search does
  not see. An instruction asks for three.
- Products of a kind share their attributes and options in part, and no two alike, so that most of what a search finds
  lacks something that only the product's pages tell.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from mulligan.envs.webshop.catalogue import Catalogue, from_records
from mulligan.envs.webshop.words import BRANDS, DEPARTMENTS, Department, Kind
from mulligan.seeding import generator

Record = tuple[dict[str, Any], dict[str, Any]]
"""A product's entry, and what the file of instructions says of it."""
_ATTRIBUTES, _WANTED = 5, 3
_KINDS = tuple((department, kind) for department in DEPARTMENTS for kind in department.kinds)
_INSTRUCTIONS = (
    "Find me {0}, {1} {name} with {2}",
    "I need {name} with {0}, {1} and {2}",
    "Looking for {0} {name}, {1}, {2}",
    "Find me {name}: {0}, {1}, {2}",
)
_FIRST = (
    "{name} by {brand}, made of {material}",
    "The {material} is chosen by hand for every {name}",
    "{a} {name} of {material} from the {brand} workshop",
)
_FEATURES = (
    "{0}: tested for years of use",
    "{0}, so that you can enjoy it every day",
    "What customers like most: {0}",
    "Comes with {0}",
)
_REVIEWS = (
    "{0}, just as promised.",
    "Bought it for the {use}. {0} indeed.",
    "Nice color, {0}.",
    "Does what it should: {0}.",
)
_DESCRIPTIONS = (
    "This {material} {name} for the {use} comes from {brand}. It is known for {0} and {1}.",
    "{brand} made {an} {name} that offers {0}. With {1}, it suits any {use}.",
    "For your {use}: {an} {name} in {material}. {brand} stands for {0}; {1} is included.",
)


@lru_cache(maxsize=4)
def generated(products: int, seed: int) -> Catalogue:
    """The catalogue of `products` products that `seed` stands for; made once in a process."""
    return from_records(f"generated:{products}:{seed}", records(products, seed))


def records(products: int, seed: int) -> Iterator[Record]:
    """The products of a catalogue, one by one: the first n are the same in every catalogue of a seed."""
    rng = generator(seed, "webshop")
    width = max(4, len(str(products - 1)))
    for number in range(products):
        yield _record(f"B{number:0{width}d}", *rng.choice(_KINDS), rng)


def _record(asin: str, department: Department, kind: Kind, rng: random.Random) -> Record:
    name, brand, material = rng.choice(kind.names), rng.choice(BRANDS), rng.choice(department.materials)
    attributes = rng.sample(department.attributes, _ATTRIBUTES)
    article = "an" if name[0].lower() in "aeiou" else "a"
    fill = {"name": name, "brand": brand, "material": material, "use": kind.use, "an": article, "a": article.title()}
    title = f"{brand} {attributes[0]} {material} {name}".title() + f" for {kind.use.title()}"
    features = [rng.choice(_FIRST).format(**fill)]
    features += [
        said.format(attribute) for said, attribute in zip(rng.sample(_FEATURES, 2), attributes[3:], strict=True)
    ]
    low = round(rng.uniform(*kind.prices), 2)
    entry = {
        "asin": asin,
        "name": title,
        "full_description": rng.choice(_DESCRIPTIONS).format(attributes[1], attributes[2], **fill),
        "small_description": [feature[0].upper() + feature[1:] for feature in features],
        "pricing": [low] if rng.random() < 0.9 else [low, round(low * rng.uniform(1.1, 1.5), 2)],
        "customization_options": _options(department, kind, rng),
        "category": department.category,
        "query": kind.names[0],
        "product_category": f"{department.title} › {kind.names[0].title()}",
        "average_rating": round(rng.uniform(2.8, 5.0), 1),
        "reviews": [
            said.format(attribute, **fill).capitalize()
            for said, attribute in zip(rng.sample(_REVIEWS, 2), rng.sample(attributes, 2), strict=True)
        ],
    }
    wanted = rng.sample(attributes, _WANTED)
    asked = rng.choice(_INSTRUCTIONS).format(*wanted, name=rng.choice(kind.names))
    return entry, {"attributes": attributes, "instruction": asked, "instruction_attributes": wanted}


def _options(department: Department, kind: Kind, rng: random.Random) -> dict[str, list[dict[str, str]]]:
    """Three or four colours and two or three of the kind's own values; one product in six has no choice of colour."""
    values = rng.sample(kind.values, min(len(kind.values), rng.randint(2, 3)))
    options = {kind.group: [{"value": value} for value in kind.values if value in values]}
    if rng.random() > 1 / 6:
        options["color"] = [{"value": colour} for colour in rng.sample(department.colours, rng.randint(3, 4))]
    return options


@lru_cache(maxsize=256)
def other_names(kind: str) -> tuple[str, ...]:
    """All names of the kind that is filed under `kind`; for one that is not generated, that alone."""
    return next((known.names for _, known in _KINDS if known.names[0] == kind), (kind,))
