"""The compact view of the shop: a page in few words, an earlier episode in one line, for short contexts.

A page leaves out what is the same on all pages of its kind and what the episode has shown before: the instruction, a
product's title and price, the options beside one that was chosen. Prices are rounded up, which changes nothing beside
budgets of whole tens. Of an earlier episode each search is told with what became known of its products: ``b3=ok`` for
one that has everything, ``b3=* 0.8`` for one that was bought for a score of 0.8, ``b3=* no easy care`` for one that was
seen to lack something. In the tiny shop these are one word each: ``b3=*``.
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
_RULES = (
    "You shop online. You are told what to buy: a kind of product, attributes it must have, options and a highest "
    "price. Your score is the share of these that the product you buy meets; you win with all of them.\n"
    "search[words] lists products whose texts fit. click[x] clicks: an id opens the product; on its page an option "
    "chooses it, {telling} of attributes that are not in the title, [< prev] goes back, "
    "[buy now] buys with the chosen options and ends the episode. Of earlier episodes, b3=* means that b3 lacks "
    "something, as its page or the score of its purchase told, b3=ok that it has everything.\n"
    "Answer with one action: <action>search[blue cotton shirt]</action> or <action>click[buy now]</action>"
)


def rules(world: WebShop) -> str:
    """The game in words, with the sub-pages that this shop has for attributes."""
    telling = " and ".join(f"[{page}]" for page in world.telling)
    return _RULES.format(telling=f"{telling} {'tells' if len(world.telling) == 1 else 'tell'}")


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
    facts: dict[str, list[str]] = {query: [] for query in story.queries}
    for seen in story.seen.values():
        facts[seen.query] += _fact(world, seen, story)
    return "; ".join(f"{query} {_joined(world, known)}".strip() for query, known in facts.items()) or "nothing"


def reflect(world: WebShop, episode: Episode) -> str:
    """A truthful reflection: what was bought first, then the other products, then the searches."""
    story = retell(world, episode)
    bought = story.bought.asin if story.bought is not None else ""
    seen = sorted(story.seen.values(), key=lambda each: each.product.asin != bought)
    facts = _joined(world, [fact for each in seen for fact in _fact(world, each, story)])
    searched = "; ".join(story.queries)
    return f"<reflection>{'; '.join(filter(None, [facts, searched])) or 'nothing'}</reflection>"


def _joined(world: WebShop, facts: list[str]) -> str:
    return (" " if world.tiny else ", ").join(facts)


def _fact(world: WebShop, seen: Seen, story: Story) -> list[str]:
    """What is known of a product after an episode; nothing where nothing is."""
    asin, goal = seen.product.asin, world.goal
    missing, is_bought = lacks(seen, goal), story.is_bought(seen.product)
    if bought_right(story, goal) if is_bought else not (missing or unsure(seen, goal)):
        return [f"{asin}=ok"]
    if not (is_bought or missing):
        return []
    reasons = [f"{story.match.reward:.2g}"] if is_bought and story.match is not None else []
    reasons += [f"no {', '.join(missing)}"] if missing else []
    return [f"{asin}=*"] if world.tiny else [f"{asin}=* {' '.join(reasons)}"]
