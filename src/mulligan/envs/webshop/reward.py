"""What a purchase is worth: the original WebShop's reward.

reward = type × (matched attributes + matched options + price within the budget) / (their number), see `judge`.

Departures from the original, each where it leaned on something a small package should not need or on an accident:
- The type looks at the nouns of the titles, which the original finds with a tagger (spaCy). Here every word counts that
  is neither a function word nor one of the commonest adjectives of shop titles. The words that stay make the shares of
  common words a little smaller, so that a purchase of another kind is a little more often taken for one; a product
  always matches its own title in full, so that success is not touched.
- Options that match beyond the number asked for are not counted: the original's reward can exceed 1 that way.
- Colours are found in option values by a list of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from mulligan.envs.webshop.catalogue import Goal, Product

_ALIKE = 85
"""Two phrases mean the same above this likeness, of 100."""
_TITLE_WORD = re.compile(r"[a-z][a-z'’-]*[a-z]")
_NO_NOUNS = frozenset(
    str.split(
        "about above after all also an and any are as at available be before best between big black blue both brand "
        "brown but by can classic comfortable compatible cute dark deep different durable each easy elegant every "
        "extra fit for free fresh from full gluten gold gray great green grey has have heavy high hot in inch inches "
        "into is it its large lb light lightweight long low made make medium mini modern multi natural new non not of "
        "off on one only or orange organic original other our out over oz perfect pink plus portable premium pure "
        "purple quick real red round set sexy short silver slim small soft solid square super that the their these "
        "this to two ultra under unique up use vintage was waterproof white wide will with without yellow you your"
    )
)
_COLOURS = tuple(
    str.split(
        "alabaster apricot aqua azure banana beige black blue blush bronze brown burgundy burlywood camel champagne "
        "charcoal chartreuse cherry chocolate cognac copper coral cream crimson cyan denim ebony ecru emerald "
        "espresso fuchsia ginger gold graphite gray green grey indigo ivory jade khaki lavender lemon lilac lime "
        "magenta mahogany maroon mauve mint mocha moss mustard navy nude oak ochre olive onyx orange orchid peach "
        "pearl periwinkle pink plum purple red rose ruby rust sage salmon sand sapphire scarlet silver slate tan "
        "taupe teal terracotta turquoise vanilla violet walnut white wine yellow"
    )
)


class Match(NamedTuple):
    """How a purchase answers a goal, part by part."""

    type: float
    """1 for the same kind of product; 0.5, 0.1 or 0 for less and less alike ones."""
    missing: tuple[str, ...]
    """Attributes of the goal that the product does not have."""
    options: int
    """Options of the goal that were chosen."""
    price: bool
    """Whether the price is within the budget."""
    reward: float

    @property
    def success(self) -> bool:
        return self.reward >= 1.0


def judge(product: Product, goal: Goal, chosen: Mapping[str, str]) -> Match:
    """Buying `product` with the options `chosen` (by group), for `goal`."""
    kind = _type(product, goal)
    missing = tuple(wanted for wanted in goal.attributes if not has_attribute(product, wanted))
    options = min(len(goal.options), sum(_option_counts(product, goal, *choice) for choice in chosen.items()))
    price = product.price <= goal.budget
    met = len(goal.attributes) - len(missing) + options + price
    reward = kind * met / (len(goal.attributes) + len(goal.options) + 1)
    return Match(kind, missing, options, price, reward)


def has_attribute(product: Product, wanted: str) -> bool:
    """Whether one of the product's attributes is like `wanted`, or one of its texts says it."""
    return any(likeness(own, wanted) > _ALIKE for own in product.attributes) or _says(product, wanted)


def same_option(group: str, value: str, wanted: str) -> bool:
    """Whether the option `value` of `group` is the `wanted` one: a size to the letter, others by likeness."""
    value, wanted = colour(value), colour(wanted)
    return value == wanted if group == "size" else likeness(wanted, value) > _ALIKE


def colour(value: str) -> str:
    """The colour that an option names, or the option as it is."""
    return next((name for name in _COLOURS if name in value), value)


def _option_counts(product: Product, goal: Goal, group: str, value: str) -> bool:
    """Whether a chosen option answers any option of the goal, or is one that the product's texts speak of."""
    return any(same_option(group, value, wanted) for wanted in goal.options.values()) or _says(product, colour(value))


def _says(product: Product, phrase: str) -> bool:
    return (
        phrase in product.title.lower()
        or phrase in " ".join(product.features).lower()
        or phrase in product.description.lower()
    )


def _type(product: Product, goal: Goal) -> float:
    share = title_share(product.title, goal.title)
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    same_crumbs = len(_crumbs(product.crumbs) & _crumbs(goal.crumbs)) >= 2
    return 1.0 if product.kind == goal.kind or same_crumbs or share > 0.2 else 0.5


def title_share(title: str, wanted: str) -> float:
    """Share of the nouns of the title `wanted` that `title` has too; 0.2 where there are none."""
    nouns = _nouns(wanted)
    return len(set(nouns) & set(_nouns(title))) / len(nouns) if nouns else 0.2


@lru_cache(maxsize=1 << 14)
def _nouns(title: str) -> tuple[str, ...]:
    return tuple(word for word in _TITLE_WORD.findall(title.lower()) if word not in _NO_NOUNS)


@lru_cache(maxsize=1 << 12)
def _crumbs(path: str) -> frozenset[str]:
    return frozenset(crumb.strip() for crumb in path.split("›"))


@lru_cache(maxsize=1 << 16)
def likeness(one: str, other: str) -> int:
    """How alike two phrases are, 0 to 100, whatever the order of their words: the `token_set_ratio` of thefuzz.

    100 when the words of one are all among those of the other; otherwise the best of the likenesses between the common
    words, those with the rest of one, and those with the rest of the other.
    """
    first, second = (set(re.findall(r"[^\W_]+", text.lower())) for text in (one, other))
    if not first or not second:
        return 0
    common = first & second
    if common and (first <= second or second <= first):
        return 100
    shared = " ".join(sorted(common))
    left, right = (" ".join([*sorted(common), *sorted(own - common)]) for own in (first, second))
    pairs = [(left, right)] + [(shared, left), (shared, right)] * bool(common)
    return max(round(100 * _ratio(*pair)) for pair in pairs)


def _ratio(one: str, other: str) -> float:
    """2 × longest common subsequence / both lengths, with a row of the table in the bits of one number."""
    if not one or not other:
        return 0.0
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    row = full = (1 << len(one)) - 1
    for letter in other:
        hit = row & places.get(letter, 0)
        row = (row + hit | row - hit) & full
    return 2 * (full ^ row).bit_count() / (len(one) + len(other))
