"""The compact view of the shop: a page in few words, an earlier episode in one line, for short contexts.

A page leaves out what is the same on all pages of its kind and what the episode has shown before: the instruction, a
product's title and price, the options beside one that was chosen. Prices are rounded up, which changes nothing beside
budgets of whole tens. Of an earlier episode each search is told with what became known of its products, a word each:
``b3=*`` for one that was bought and was not right, or seen to lack something, ``b3=ok`` for one that has everything.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mulligan.envs.webshop.catalogue import NO_LIMIT, Goal, Product
from mulligan.envs.webshop.memory import Seen, Story, bought_right, lacks, retell, unsure
from mulligan.types import Episode

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop

_ASKING = re.compile(r"^(?:find me|i need|looking for)\s+", re.IGNORECASE)
_PRICE = re.compile(r"\d+(?:\.\d+)?")
_LONGEST = 60
"""Characters of a title among results; a longer one stands in full on the item's page."""
SEARCH_PAGE = "search"
"""What the search page says when the instruction has been shown."""
RULES = (
    "You shop online. You are told what to buy: a kind of product, attributes it must have, options and a highest "
    "price. Your score is the share of these that the product you buy meets; you win with all of them.\n"
    "search[words] lists products whose texts fit. click[x] clicks: an id opens the product; on its page an option "
    "chooses it, [description] and [features] tell of attributes that are not in the title, [< prev] goes back, "
    "[buy now] buys with the chosen options and ends the episode. Of earlier episodes, b3=* means that b3 lacks "
    "something, as its page or the score of its purchase told, b3=ok that it has everything.\n"
    "Answer with one action: <action>search[blue cotton shirt]</action> or <action>click[buy now]</action>"
)


def whole_words(text: str) -> str:
    """The beginning of a text without its last word, which may be cut; all of it where it is one word."""
    return text.rpartition(" ")[0] or text


def asked(goal: Goal) -> str:
    """What is asked for, in few words: ``cup: soft, thin; size 3; under 30``."""
    named = {} if goal.human else goal.options  # people name the options in their own words
    options = ", and ".join(f"{group}: {value}" for group, value in named.items())
    own = goal.instruction.partition(f" with {options}" if options else ", and price lower")[0]
    parts = [_ASKING.sub("", own), *(f"{group} {value}" for group, value in named.items())]
    return "; ".join(parts + ([f"under {goal.budget:g}"] if goal.budget < NO_LIMIT else []))


def page(world: WebShop) -> str:
    """What the shop shows now."""
    item = world.item
    if world.page == "search":
        return SEARCH_PAGE if SEARCH_PAGE in world.shown else asked(world.goal)
    if world.page == "results":
        lines = [_line(world, product) for product in world.listed()] or ["nothing found"]
        more = world.number * world.per_page < len(world.hits)
        return "\n".join([*lines, *(["next >"] if more else [])])
    assert item is not None, "all other pages are about an item"
    if world.page == "done":
        return f"bought {item.asin}, score {world.match().reward:.3g}"
    if world.page != "item":
        return world.said(world.page)
    if world.chosen:
        return "; ".join(f"{group} {value}" for group, value in world.chosen.items())
    whole = [item.title.lower()] if len(item.title) > _LONGEST and not world.made_up else []
    lines = [f"{group}: {', '.join(values)}" for group, values in item.options.items()]
    return "\n".join([*whole, *lines]) or "no options"


def _line(world: WebShop, product: Product) -> str:
    """A product among the results; its id alone where it was listed before."""
    if product.asin in world.shown:
        return product.asin
    prices = [str(math.ceil(float(price))) for price in _PRICE.findall(product.price_tag)]
    title = product.title.lower()
    if world.made_up:
        title = title.partition(" for ")[0]  # what it is for is the same for all products of a kind
    elif len(title) > _LONGEST:
        title = whole_words(title[:_LONGEST])
    return f"{product.asin} {title} ${'-'.join(prices)}"


def digest(world: WebShop, episode: Episode) -> str:
    """An episode in a line: each search, and what became of the products it showed."""
    story = retell(world, episode)
    told: dict[str, list[str]] = {query: [query] for query in story.queries}
    for seen in story.seen.values():
        told[seen.query] += _fact(seen, story, world.goal)
    return "; ".join(" ".join(words) for words in told.values()) or "nothing"


def reflect(world: WebShop, episode: Episode) -> str:
    """A truthful reflection: what was bought first, then the other products, then the searches."""
    story = retell(world, episode)
    bought = story.bought.asin if story.bought is not None else ""
    seen = sorted(story.seen.values(), key=lambda each: each.product.asin != bought)
    facts = " ".join(fact for each in seen for fact in _fact(each, story, world.goal))
    searched = "; ".join(story.queries)
    return f"<reflection>{'; '.join(filter(None, [facts, searched])) or 'nothing'}</reflection>"


def _fact(seen: Seen, story: Story, goal: Goal) -> list[str]:
    """What is known of a product after an episode, as one word; none where nothing is."""
    asin, missing = seen.product.asin, lacks(seen, goal)
    if story.is_bought(seen.product):
        return [f"{asin}={'ok' if bought_right(story, goal) else '*'}"]
    if missing:
        return [f"{asin}=*"]
    return [] if unsure(seen, goal) else [f"{asin}=ok"]
