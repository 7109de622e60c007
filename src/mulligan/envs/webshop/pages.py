"""The shop's pages: a session that moves from page to page, and how each looks, in full or in few words.

As in the original, a search may be asked for from any page, a click only on what the page offers, and going back to the
results forgets the options that were chosen.

The compact view, for short contexts, leaves out what is the same on all pages of its kind and what the episode has
shown before: the instruction, a product's title and price, the options beside one that was chosen. Prices are rounded
up, which changes nothing beside budgets of whole tens.
"""

from __future__ import annotations

import math
import re

from mulligan.envs.webshop.catalogue import NO_LIMIT, Catalogue, Goal, Product
from mulligan.envs.webshop.reward import Match, judge

BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
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


class Session:
    """A shopper in a shop, with a goal."""

    def __init__(self, shop: Catalogue, goal: Goal, per_page: int, longest: int, sub_pages: tuple[str, ...]) -> None:
        self.shop, self.goal, self.per_page, self.longest, self.sub_pages = shop, goal, per_page, longest, sub_pages
        self.telling_pages = ("features",) if shop.made_up else ("features", "description")
        """The sub-pages that name attributes which the title does not."""
        self.matches: dict[tuple[str, ...], Match] = {}
        """What a purchase would bring, for those that were thought of."""
        self.item: Product | None = None
        """The product that is open."""
        self.chosen: dict[str, str] = {}
        """Group of options -> the value that was clicked."""
        self.reset()

    def reset(self) -> None:
        self._to_search()
        self.instruction_shown = False
        """Whether the search page, with the instruction, was left."""
        self.listed_before: set[str] = set()
        """Ids on pages of results that were left."""

    def search(self, query: str) -> None:
        self._leave()
        self._to_results(query, self.shop.search(query), 1)

    def click(self, text: str) -> None:
        """Follow a button that is on the page."""
        self._leave()
        if text == BACK:
            self._to_search()
        elif text == BUY:
            self.page = "done"
        elif self.page == "results":
            if text in (PREVIOUS, NEXT):
                self.number += 1 if text == NEXT else -1
            else:
                self.page, self.item = "item", next(product for product in self.listed() if product.asin == text)
        elif text == PREVIOUS:
            if self.page == "item":
                self._to_results(self.query, self.hits, self.number)
            else:
                self.page = "item"
        elif text in self.values():
            assert self.item is not None, "options belong to an item"
            # A value that stands in two groups belongs to the last, as in the original.
            self.chosen[[group for group, values in self.item.options.items() if text in values][-1]] = text
        else:
            self.page = text

    def clickables(self) -> list[str]:
        """What can be clicked now, as it is written on the page."""
        if self.page in ("search", "done"):
            return []
        if self.page == "results":
            ids = [product.asin for product in self.listed()]
            return [BACK, *([PREVIOUS] if self.number > 1 else []), *([NEXT] if self.has_next() else []), *ids]
        return [BACK, PREVIOUS, *self.values(), *self.sub_pages, BUY] if self.page == "item" else [BACK, PREVIOUS]

    def has_next(self) -> bool:
        return self.number * self.per_page < len(self.hits)

    def listed(self) -> list[Product]:
        """The products on the page of results."""
        first = (self.number - 1) * self.per_page
        return [self.shop.products[number] for number in self.hits[first : first + self.per_page]]

    def values(self) -> list[str]:
        """The options on an item's page."""
        options = self.item.options.values() if self.item is not None and self.page == "item" else ()
        return [value for values in options for value in values]

    def sub_page_text(self, page: str) -> str:
        """What a sub-page of the item says, cut to the longest text that is shown."""
        assert self.item is not None, "sub-pages are about an item"
        texts = {
            "description": [self.item.description],
            "features": [f"- {feature}" for feature in self.item.features],
            "reviews": [f"- {review}" for review in self.item.reviews],
            "attributes": [", ".join(self.item.attributes)],
        }
        text = "\n".join(filter(None, texts[page])) or "nothing"
        return cut(text, self.longest) if self.longest else text

    def match(self) -> Match:
        """What buying the item on the page would bring."""
        assert self.item is not None, "only an item can be bought"
        purchase = (self.item.asin, *self.chosen, *self.chosen.values())
        if purchase not in self.matches:
            self.matches[purchase] = judge(self.item, self.goal, self.chosen)
        return self.matches[purchase]

    def worth(self) -> float:
        """The reward for buying what is open; 0 where nothing is."""
        return self.match().reward if self.item is not None else 0.0

    def key(self) -> str:
        """Names what is visible: the page with the query, the item and its chosen options."""
        chosen = ",".join(f"{group}={value}" for group, value in sorted(self.chosen.items()))
        return f"{self.page}|{self.query}|{self.number}|{self.item.asin if self.item else ''}|{chosen}"

    def _leave(self) -> None:
        """Note what a short view need not say again."""
        if self.page == "search":
            self.instruction_shown = True
        elif self.page == "results":
            self.listed_before.update(product.asin for product in self.listed())

    def _to_search(self) -> None:
        self._to_results("", (), 1)
        self.page = "search"

    def _to_results(self, query: str, hits: tuple[int, ...], number: int) -> None:
        self.page, self.query, self.hits, self.number = "results", query, hits, number
        self.item, self.chosen = None, {}


def cut(text: str, longest: int) -> str:
    """A text of at most `longest` characters; a longer one ends after a whole word, with an ellipsis."""
    return text if len(text) <= longest else whole_words(text[: longest - 1]) + "…"


def whole_words(text: str) -> str:
    """The beginning of a text without its last word, which may be cut; all of it where it is one word."""
    return text.rpartition(" ")[0] or text


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
