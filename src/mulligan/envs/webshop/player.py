"""The expert shopper: searches for what is asked, opens what looks right, reads what it must know, buys.

It goes by what is on the pages alone, and by knowing the other names of a generated kind, as any shopper does. In a
made-up shop it reads the features of an item while there is time to buy another one afterwards; the last item that
there is time for it buys unread. The original's pages do not name every attribute that counts, so that there it goes
by the order of the list. What it saw in earlier episodes (pages of results, items that lack something, purchases and
their scores) it uses in a share `recall` of its moves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.memory import Seen, is_right, lacks, lowest_price, not_offered, offered, unsure
from mulligan.envs.webshop.names import kind_names
from mulligan.envs.webshop.search import as_query
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop

_PAGES = 2
"""Pages of results it looks at before it searches in other words."""
_ASKING = re.compile(r"^(find me|i need|looking for)\s+|,? and price lower than .*$", re.IGNORECASE)


class Knowledge:
    """What was found out: about items, and about searches."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.wrong: set[str] = set()
        """Items whose purchase was not a success, for more than options that were not chosen."""
        self.right: set[str] = set()
        """Items whose score tells that they lack nothing."""
        self.listed: dict[str, tuple[str, int]] = {}
        """Item -> the search and page that showed it."""
        self.products: dict[str, Product] = {}
        self.pages: set[tuple[str, int]] = set()
        """Pages of results that were seen."""

    def note(self, world: WebShop) -> None:
        """Take down what the page shows."""
        item = world.item
        if world.page == "results":
            self.pages.add((world.query, world.number))
            for product in world.listed():
                self.listed.setdefault(product.asin, (world.query, world.number))
                self.products[product.asin] = product
        elif item is not None:
            seen = self.seen.setdefault(item.asin, Seen.in_shop(world, item))
            if world.page == "done":
                right = is_right(item, world.chosen, world.match(), world.goal)
                (self.right if right else self.wrong).add(item.asin)
            elif world.page != "item":
                seen.read[world.page] = world.said(world.page)

    def with_past(self, past: Knowledge) -> Knowledge:
        both = Knowledge()
        for part in (past, self):
            both.wrong |= part.wrong
            both.right |= part.right
            both.pages |= part.pages
            both.products |= part.products
            both.listed |= part.listed
            for asin, seen in part.seen.items():
                read = both.seen[asin].read if asin in both.seen else {}
                both.seen[asin] = replace(seen, read=read | seen.read)
        return both


class Shopper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient."""

    def __init__(self, world: WebShop, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.past, self.now = Knowledge(), Knowledge()
        self.names = kind_names(world)
        self.reads = world.made_up
        """Whether pages are worth reading: of the original's products they name some attributes and not others."""
        self.queries = list(_queries(world, self.names))

    def act(self) -> str:
        reply = self._act()
        if self.world.tiny and self.world.page != "search" and reply.startswith("<action>search["):
            reply = _click("back to search")  # short answers are searches on the search page alone
        return self.world.write(reply)

    def _act(self) -> str:
        world = self.world
        if not world.moves:
            self.past, self.now = self.now.with_past(self.past), Knowledge()
        if self.rng.random() >= self.skill:
            return self.rng.choice(world.legal())
        if self.kind == "omniscient":
            return self._straight()
        known = self.now.with_past(self.past) if self.past.pages and self.rng.random() < self.recall else self.now
        return self._at_item(known) if world.item is not None else self._look_around(known)

    def see(self, step: Step) -> None:
        self.now.note(self.world)

    @property
    def left(self) -> int:
        """Turns that are left, with this one."""
        return self.world.task.turns - self.world.moves

    def _look_around(self, known: Knowledge) -> str:
        """Go to the most promising item; where none is known, to results that were not seen yet."""
        world = self.world
        if right := self._right_item(known):
            return self._towards(right, known)
        hopes = self._hopes(known)
        if hopes:
            return self._towards(max(hopes, key=lambda asin: hopes[asin]), known)
        more = world.page == "results" and "next >" in world.clickables()
        if more and world.number < _PAGES and (world.query, world.number + 1) not in known.pages:
            return _click("next >")
        unseen = [query for query in self.queries if (query, 1) not in known.pages]
        if unseen:
            return _search(unseen[0])
        return _click("next >") if more else _search(self.rng.choice(self.queries))

    def _towards(self, asin: str, known: Knowledge) -> str:
        """The next step to an item that some page of results listed."""
        world, (query, number) = self.world, known.listed[asin]
        if world.page == "results" and asin in world.clickables():
            return _click(asin)
        if world.query != query or world.page == "search":
            return _search(query)
        if world.page == "results":
            return _click("next >" if number > world.number else "< prev")
        # From an item's own page one click leads back to its results; from its sub-pages a new search is as fast.
        return _search(query) if number == 1 and world.page != "item" else _click("< prev")

    def _at_item(self, known: Knowledge) -> str:
        """On an item's pages: read on, leave it, or choose the options and buy."""
        world, item, goal = self.world, self.world.item, self.world.goal
        assert item is not None, "the page is about an item"
        seen = known.seen.get(item.asin) or Seen.in_shop(world, item)
        choices = [(group, value) for group, value in offered(item, goal).values() if world.chosen.get(group) != value]
        right_item = self._right_item(known)
        wrong = item.asin != right_item and (bool(right_item) or item.asin in known.wrong or bool(self._faults(seen)))
        # To buy another item: back to the results, open it, choose its options, buy.
        elsewhere = (1 if world.number == 1 else 2) + 2 + len(goal.options)
        if wrong and self.left >= elsewhere:
            return self._look_around(known)
        if not wrong and item.asin != right_item and (page := self._page_to_read(seen, elsewhere)):
            return _click(page if world.page == "item" else "< prev")
        if world.page != "item":
            return _click("< prev")
        return _click(choices[0][1] if choices else "buy now")

    def _page_to_read(self, seen: Seen, elsewhere: int) -> str:
        """The sub-page that tells more of the item, while there are turns to read it and then to buy another item."""
        unread = [page for page in self.world.telling if page not in seen.read]
        turns = 2 * len(unread) - 1 + (self.world.page != "item")  # between two sub-pages there is a click back
        worth_it = self.reads and unsure(seen, self.world.goal) and self.left >= turns + elsewhere
        return unread[0] if worth_it else ""

    def _right_item(self, known: Knowledge) -> str:
        """An item that is known to fit, if any: it has only to be bought."""
        goal = self.world.goal
        for asin, seen in known.seen.items():
            fits = asin not in known.wrong and not lacks(seen, goal) and not unsure(seen, goal)
            if asin in known.listed and (asin in known.right or fits):
                return asin
        return ""

    def _faults(self, seen: Seen) -> list[str]:
        """What an item lacks for certain."""
        return lacks(seen, self.world.goal) if self.reads else not_offered(seen.product, self.world.goal)

    def _hopes(self, known: Knowledge) -> dict[str, float]:
        """How promising each listed item looks, those on this page first; what is known to be wrong is left out."""
        world, hopes = self.world, dict[str, float]()
        on_page = world.clickables() if world.page == "results" else []
        for rank, (asin, product) in enumerate(known.products.items()):
            seen = known.seen.get(asin)
            if asin in known.wrong or not self._looks_right(product) or (seen and self._faults(seen)):
                continue
            hopes[asin] = 10.0 * (asin in on_page) - 0.1 * rank
            if self.reads:  # the order of a list says little here
                hopes[asin] += bool(seen) + 0.3 * self.rng.random()
        return hopes

    def _looks_right(self, product: Product) -> bool:
        """Whether price and title fit: a made-up title has a name of the kind and the attribute asked for first."""
        world, title = self.world, product.title.lower()
        if lowest_price(product) > world.goal.budget:
            return False
        named = len(self.names) == 1 or any(name in title for name in self.names)
        return named and (world.tiny or not world.made_up or world.goal.attributes[0] in title)

    def _straight(self) -> str:
        """The shortest way for somebody who knows which product it is."""
        world, goal = self.world, self.world.goal
        if world.page == "results":
            place = next((n for n, hit in enumerate(world.hits) if world.shop.products[hit].asin == goal.asin), -1)
            page = place // world.per_page + 1
            if place >= 0:
                return _click(goal.asin if page == world.number else "next >" if page > world.number else "< prev")
        if world.item is None or world.item.asin != goal.asin:
            searched = any(query == " ".join(as_query(goal.title).split()) for query, _ in self.now.pages)
            return _search(goal.title if not searched else f"{goal.title} {goal.instruction}")
        if world.page != "item":
            return _click("< prev")
        choices = [
            (group, value) for group, value in offered(world.item, goal).values() if world.chosen.get(group) != value
        ]
        return _click(choices[0][1] if choices else "buy now")


def _queries(world: WebShop, names: tuple[str, ...]) -> Iterator[str]:
    """Searches to try, in order."""
    goal = world.goal
    if world.tiny:
        yield from sorted(names, key=lambda name: name not in goal.instruction.lower())
    elif world.made_up:
        yield from made_up_queries(names, goal.attributes)
    else:
        yield from queries(goal.instruction, goal.kind, goal.attributes)


def made_up_queries(names: tuple[str, ...], attributes: tuple[str, ...]) -> Iterator[str]:
    """All names of the kind at once, with the attribute that is asked for first, then with all of them."""
    yield as_query(" ".join([*names, attributes[0]]))
    yield as_query(" ".join([*names, *attributes]))


def queries(instruction: str, kind: str, attributes: tuple[str, ...]) -> Iterator[str]:
    """The instruction's own words; then the kind and the attributes alone."""
    yield as_query(_ASKING.sub("", _ASKING.sub("", instruction.strip())))
    yield as_query(" ".join([kind, *attributes]))


def _click(text: str) -> str:
    return f"<action>click[{text}]</action>"


def _search(query: str) -> str:
    return f"<action>search[{as_query(query)}]</action>"
