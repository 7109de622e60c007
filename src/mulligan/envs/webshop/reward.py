"""What a purchase is worth: the original WebShop's reward.

reward = type × (matched attributes + matched options + price within the budget) / (their number), see `judge`. It is
compared with the original's code in results/environments/webshop-reward.txt. Departures, each where the original leaned
on something a small package should not need or on an accident:
- The type looks at the nouns of the titles, which the original finds with a tagger (spaCy). Titles are capitalised, and
  the tagger takes nearly every capitalised word for a name; so here every word counts but function words and what
  begins with a digit. That differs a little more from the tagger than its small model does from its middle one; a
  product always matches its own title in full, so that success with it is not touched.
- The very option that was asked for always counts. The original misses it where the option holds a colour's name within
  a longer text: the chosen one is then compared by that name alone, and the one asked for with the name of its group.
- Runs of blanks in options are one blank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from mulligan.envs.webshop.catalogue import Goal, Product

_ALIKE = 85
"""Two phrases mean the same above this likeness, of 100."""
_POSSESSIVE = re.compile(r"['’]s\b")
_WORD = re.compile(r"[^\W_]+")
_NO_NOUNS = frozenset(
    str.split(
        "a about above after all an and any are as at be before between but by can each five for four from has have "
        "how in into is it its me more most my no not of off on one only or our out over per six so such than that "
        "the their them then these this three through to too two under up very was we what when which who will with "
        "within without x you your"
    )
)
# The names that the original knows, in its order: of several in an option the first counts.
_COLOURS = tuple(
    str.split(
        "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
        "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
        "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey "
        "heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight "
        "mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow "
        "red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal "
        "tiger turquoise violet walnut wheat white wine yellow"
    )
)
_LATIN_1 = dict.fromkeys(range(128, 256))
"""Letters with accents and the like, which likeness leaves out."""


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
    texts = [product.title.lower(), " ".join(product.features).lower(), product.description.lower()]
    missing = tuple(
        wanted
        for wanted in goal.attributes
        if not any(is_alike(attribute, wanted) for attribute in product.attributes)
        and not any(wanted in text for text in texts)
    )
    options = len(goal.options) - len(not_chosen(goal, chosen))
    price = product.price <= goal.budget
    met = len(goal.attributes) - len(missing) + options + price
    reward = kind * met / (len(goal.attributes) + len(goal.options) + 1)
    return Match(kind, missing, options, price, reward)


def is_alike(attribute: str, wanted: str) -> bool:
    return likeness(attribute, wanted) > _ALIKE


def not_chosen(goal: Goal, chosen: Mapping[str, str]) -> list[str]:
    """The groups of the goal's options that none of those chosen answers, of whatever group."""
    return [group for group in goal.options if not any(answers(value, goal, group) for value in chosen.values())]


def answers(value: str, goal: Goal, group: str) -> bool:
    """Whether the option `value` is like the one that the goal wants of `group`.

    As in the original, the chosen one is taken for the colour it names, if any, and compared with the other's group and
    value; so that "large" answers the size "x-large", and "x-large" does not answer the size "large". Where a person
    wrote the goal, it is compared with the value alone, or the colour that that names.
    """
    wanted = goal.options[group]
    if goal.human:
        asked = colour(wanted)
    else:  # group and value, but the colour alone where the value is no more than that
        asked = next((name for name in _COLOURS if name in (group, wanted)), f"{group} {wanted}")
    return value == wanted or likeness(colour(value), asked) > _ALIKE


def colour(value: str) -> str:
    """The colour that an option names, or the option as it is."""
    return next((name for name in _COLOURS if name in value), value)


def _type(product: Product, goal: Goal) -> float:
    share = title_share(product.title, goal.title)
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    crumbs, wanted = ({crumb.strip() for crumb in path.split("›")} for path in (product.crumbs, goal.crumbs))
    same_crumbs = len(crumbs & wanted) >= 2
    return 1.0 if product.kind == goal.kind or same_crumbs or share > 0.2 else 0.5


def title_share(title: str, wanted: str) -> float:
    """Share of the nouns of the title `wanted` that `title` has too; 0.2 where there are none."""
    wanted_nouns = nouns(wanted)
    return len(set(wanted_nouns) & set(nouns(title))) / len(wanted_nouns) if wanted_nouns else 0.2


@lru_cache(maxsize=1 << 14)
def nouns(title: str) -> tuple[str, ...]:
    """The words of a title that may be nouns, each as often as it stands there."""
    words = _WORD.findall(_POSSESSIVE.sub("", title.lower()))
    return tuple(word for word in words if word[0].isalpha() and word not in _NO_NOUNS)


@lru_cache(maxsize=1 << 16)
def likeness(one: str, other: str) -> int:
    """How alike two phrases are, 0 to 100, whatever the order of their words: `token_set_ratio` of thefuzz 0.19."""
    first, second = (set(re.findall(r"\w+", text.translate(_LATIN_1).lower())) for text in (one, other))
    if not first or not second:
        return 0
    common = first & second
    if common and (first <= second or second <= first):
        return 100
    shared = " ".join(sorted(common))
    left, right = (" ".join([*sorted(common), *sorted(words - common)]) for words in (first, second))
    pairs = [(left, right)] + [(shared, left), (shared, right)] * bool(common)
    return max(round(100 * SequenceMatcher(None, *pair).ratio()) for pair in pairs)
