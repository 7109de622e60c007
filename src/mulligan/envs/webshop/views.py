"""How the shop looks: whole pages, or pages in few words.

The compact view, for short contexts, leaves out what is the same on all pages of its kind and what the episode has
shown before: the instruction, a product's title and price, the options beside one that was chosen. Prices are rounded
up, which changes nothing beside budgets of whole tens.
"""

from __future__ import annotations

import math
import re

from mulligan.envs.webshop.catalogue import NO_LIMIT, Goal, Product
from mulligan.envs.webshop.session import NEXT, Session, cut, whole_words

_ASKING = re.compile(r"^(?:find me|i need|looking for)\s+", re.IGNORECASE)
_PRICE = re.compile(r"\d+(?:\.\d+)?")
LONGEST_TITLE = 60
"""Characters of a title among results; a longer one stands in full on the item's page."""
RULES = (
    "You shop online. The instruction says what to buy: a kind of product, attributes it must have, options "
    "to choose, and a highest price. Your score is the share of these that the product you buy meets; you win "
    "with all of them.\n"
    "search[words] lists products by how well their texts fit the words. click[x] clicks what the page shows: "
    "a product's id opens it, an option chooses it, [description], [features] and [reviews] tell more, "
    "[< prev] goes back, [buy now] buys with the chosen options and ends the episode. Not every attribute "
    "is in the title.\n"
    "Answer with one action: <action>search[blue cotton shirt]</action> or <action>click[buy now]</action>"
)
_COMPACT_RULES = (
    "You shop online. You are told what to buy: a kind of product, attributes it must have, options and a highest "
    "price. Your score is the share of these that the product you buy meets; you win with all of them.\n"
    "search[words] lists products whose texts fit. click[x] clicks: an id opens the product; on its page an option "
    "chooses it, {telling} of attributes that are not in the title, [< prev] goes back, "
    "[buy now] buys with the chosen options and ends the episode. Of earlier episodes, b3=* means that b3 lacks "
    "something, as its page or the score of its purchase told, b3=ok that it has everything.\n"
    "Answer with one action: <action>search[blue cotton shirt]</action> or <action>click[buy now]</action>"
)


def page(session: Session) -> str:
    """The open page in words."""
    if session.page == "search":
        return f"Search page\nInstruction: {session.goal.instruction}"
    item, products = session.item, session.listed() if session.page == "results" else []
    if item is None:
        lines = [f"{product.asin} {cut(product.title, LONGEST_TITLE)} {product.price_tag}" for product in products]
        pages = max(1, -(-len(session.hits) // session.per_page))
        counts = f"page {session.number} of {pages}, {len(session.hits)} found"
        title = f"Results for {cut(session.query, LONGEST_TITLE)!r}, {counts}"
    elif session.page == "done":
        chosen = "".join(f", {group}: {value}" for group, value in session.chosen.items())
        score = f"Your score (min 0.0, max 1.0): {session.match().reward:.3g}"
        return f"Bought {item.asin} for {item.price_tag}{chosen}\n{score}"
    else:
        lines = _item_lines(session, item) if session.page == "item" else [session.sub_page_text(session.page)]
        title = f"{session.page.capitalize()} {item.asin}"
    in_lines = {*(product.asin for product in products), *session.values()}
    buttons = " ".join(f"[{button}]" for button in session.clickables() if button not in in_lines)
    return "\n".join([title, *lines, buttons])


def _item_lines(session: Session, item: Product) -> list[str]:
    lines = [cut(item.title, 4 * LONGEST_TITLE), f"Price: {item.price_tag}, rating: {item.rating}"]
    for group, values in item.options.items():
        chosen = f" (chosen: {session.chosen[group]})" if group in session.chosen else ""
        lines.append(f"{group}{chosen}: {'; '.join(values)}")
    return lines


def compact_rules(session: Session) -> str:
    """The game in words, with the sub-pages that this shop has for attributes."""
    pages = session.telling_pages
    telling = " and ".join(f"[{page}]" for page in pages)
    return _COMPACT_RULES.format(telling=f"{telling} {'tells' if len(pages) == 1 else 'tell'}")


def request(goal: Goal) -> str:
    """What is asked for, in few words: ``cup: soft, thin; size 3; under 30``."""
    named = {} if goal.human else goal.options  # people name the options in their own words
    options = ", and ".join(f"{group}: {value}" for group, value in named.items())
    wish = goal.instruction.partition(f" with {options}" if options else ", and price lower")[0]
    parts = [_ASKING.sub("", wish), *(f"{group} {value}" for group, value in named.items())]
    return "; ".join(parts + ([f"under {goal.budget:g}"] if goal.budget < NO_LIMIT else []))


def compact_page(session: Session) -> str:
    """The open page in few words."""
    item = session.item
    if session.page == "search":
        return "search" if session.instruction_shown else request(session.goal)
    if item is None:
        lines = [_result(session, product) for product in session.listed()] or ["nothing found"]
        return "\n".join([*lines, *([NEXT] if session.has_next() else [])])
    if session.page == "done":
        return f"bought {item.asin}, score {session.match().reward:.3g}"
    if session.page != "item":
        return session.sub_page_text(session.page)
    if session.chosen:
        return "; ".join(f"{group} {value}" for group, value in session.chosen.items())
    lines = [item.title.lower()] if len(item.title) > LONGEST_TITLE and not session.shop.made_up else []
    lines += [f"{group}: {', '.join(values)}" for group, values in item.options.items()]
    return "\n".join(lines) or "no options"


def _result(session: Session, product: Product) -> str:
    """A product among the results; its id alone where it was listed before."""
    if product.asin in session.listed_before:
        return product.asin
    prices = [str(math.ceil(float(price))) for price in _PRICE.findall(product.price_tag)]
    title = product.title.lower()
    if session.shop.made_up:
        title = title.partition(" for ")[0]  # what it is for is the same for all products of a kind
    elif len(title) > LONGEST_TITLE:
        title = whole_words(title[:LONGEST_TITLE])
    return f"{product.asin} {title} ${'-'.join(prices)}"
