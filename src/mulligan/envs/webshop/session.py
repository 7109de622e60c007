"""A shopping session: the page that is open, what can be clicked on it, and what searches and clicks do.

As in the original, a search may be asked for from any page, a click only on what the page offers, and going back to the
results forgets the options that were chosen.
"""

from __future__ import annotations

from mulligan.envs.webshop.catalogue import Catalogue, Goal, Product
from mulligan.envs.webshop.reward import Match, judge

BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")


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
        """Whether there are results after this page."""
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
