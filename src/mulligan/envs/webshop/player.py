"""The expert shopper: searches with the words of the instruction, opens what looks right, checks it, buys.

It goes by what is on the pages alone, and by knowing the other names of a generated kind, as any shopper does. A search
is tried again in other words when its first pages hold nothing promising. What it saw in earlier episodes (searches
that led nowhere, items that lack something, purchases that were not right) it uses in a share `recall` of its moves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.generate import other_names
from mulligan.envs.webshop.memory import TELLING, Seen, lacks, lowest_price, offered, unsure
from mulligan.envs.webshop.tiny import names_of
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop

_PAGES = 2
"""Pages of results it looks at before it searches in other words."""
_ASKING = re.compile(r"^(find me|i need|looking for)\s+|,? and price lower than .*$", re.IGNORECASE)
_UNSEARCHABLE = re.compile(r"[^\w.'|-]+")


class Knowledge:
    """What was found out: about items, and about searches."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.wrong: set[str] = set()
        """Items whose purchase was not a success."""
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
            seen = self.seen.setdefault(item.asin, Seen(item, world.query, world.number))
            if world.page == "done" and not world.match().success:
                self.wrong.add(item.asin)
            elif world.page not in ("item", "done"):
                seen.read[world.page] = world.said(world.page)

    def with_past(self, past: Knowledge) -> Knowledge:
        both = Knowledge()
        for part in (past, self):
            both.wrong |= part.wrong
            both.pages |= part.pages
            both.products |= part.products
            both.listed |= part.listed
            for asin, seen in part.seen.items():
                read = both.seen[asin].read if asin in both.seen else {}
                both.seen[asin] = Seen(seen.product, seen.query, seen.number, read | seen.read)
        return both


class Shopper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient."""

    def __init__(self, world: WebShop, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.past, self.now = Knowledge(), Knowledge()
        filed = world.goal.kind
        self.names = names_of(filed) if world.tiny else other_names(filed) if world.made_up else (filed,)
        make = short_queries if world.compact and world.made_up else queries
        self.queries = list(make(world.goal.instruction, self.names, () if world.tiny else world.goal.attributes))

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
        return self._at_item(known) if world.item is not None else self._at_results(known)

    def see(self, step: Step) -> None:
        self.now.note(self.world)

    @property
    def left(self) -> int:
        """Turns that are left, with this one."""
        return self.world.task.turns - self.world.moves

    def _at_results(self, known: Knowledge) -> str:
        """On the search page or among results: open the most promising item on the page, or look elsewhere."""
        world = self.world
        sure = self._right_item(known)
        if world.page == "results":
            here = {product.asin: product for product in world.listed()}
            if sure in here:
                return _click(sure)
            hopes = {} if sure else self._hopes(here.values(), known)
            if hopes:
                return _click(max(hopes, key=lambda asin: hopes[asin]))
            more = "next >" in world.clickables()
            if not sure and more and world.number < _PAGES and (world.query, world.number + 1) not in known.pages:
                return _click("next >")
        if sure:
            return _search(known.listed[sure][0])
        for query in self.queries:
            seen_pages = [number for asked, number in known.pages if asked == query]
            if not seen_pages:
                return _search(query)
            listed = [
                known.products[asin] for asin, (asked, number) in known.listed.items() if (asked, number) == (query, 1)
            ]
            if (query != world.query or world.page != "results") and self._hopes(listed, known):
                return _search(query)
        if world.page == "results" and "next >" in world.clickables():
            return _click("next >")
        return _search(self.rng.choice(self.queries))

    def _at_item(self, known: Knowledge) -> str:
        """On an item's pages: read on, leave it, or choose the options and buy."""
        world, item, goal = self.world, self.world.item, self.world.goal
        assert item is not None, "the page is about an item"
        seen = known.seen.get(item.asin) or Seen(item, world.query, world.number)
        choices = [(group, value) for group, value in offered(item, goal).values() if world.chosen.get(group) != value]
        to_buy = len(choices) + 1 + (world.page != "item")
        bad = item.asin in known.wrong or bool(lacks(seen, goal))
        if bad and self.left > 2 + len(goal.options) + 1:
            if world.page != "item" or self._right_item(known):
                return self._at_results(known)
            page = [
                product
                for product in known.products.values()
                if known.listed[product.asin] == (world.query, world.number)
            ]
            return _click("< prev") if self._hopes(page, known) or self.left < 5 else self._at_results(known)
        unread = [page for page in TELLING if page not in seen.read]
        # In the compact view it reads only while there is time to go elsewhere: back, another item, and to buy that.
        time = 2 * len(unread) + len(goal.options) + 3 if world.compact and world.page == "item" else to_buy + 2
        if unread and unsure(seen, goal) and not bad and self.left >= time:
            return _click(unread[0] if world.page == "item" else "< prev")
        if world.page != "item":
            return _click("< prev")
        return _click(choices[0][1] if choices else "buy now")

    def _right_item(self, known: Knowledge) -> str:
        """An item that is known to fit, if any: it has only to be bought."""
        for asin, seen in known.seen.items():
            fits = asin not in known.wrong and not lacks(seen, self.world.goal) and not unsure(seen, self.world.goal)
            if fits and asin in known.listed and known.listed[asin][1] == 1:
                return asin
        return ""

    def _hopes(self, products: Iterable[Product], known: Knowledge) -> dict[str, float]:
        """How promising each item of a page of results looks; those that are known or seen to be wrong are left out."""
        goal, hopes = self.world.goal, {}
        for rank, product in enumerate(products):
            seen = known.seen.get(product.asin)
            if product.asin in known.wrong or (seen and lacks(seen, goal)) or lowest_price(product) > goal.budget:
                continue
            title = product.title.lower()
            named = any(name in title for name in self.names)
            if not named and len(self.names) > 1:
                continue  # another kind
            said = sum(wanted in title for wanted in goal.attributes)
            hopes[product.asin] = 2 * named + said + (1.0 if seen else 0.0) - 0.1 * rank + 0.3 * self.rng.random()
        return hopes

    def _straight(self) -> str:
        """The shortest way for somebody who knows which product it is."""
        world, goal = self.world, self.world.goal
        if world.page == "results":
            place = next((n for n, hit in enumerate(world.hits) if world.shop.products[hit].asin == goal.asin), -1)
            page = place // world.per_page + 1
            if place >= 0:
                return _click(goal.asin if page == world.number else "next >" if page > world.number else "< prev")
        if world.item is None or world.item.asin != goal.asin:
            searched = sum(query == goal.title for query, _ in self.now.pages)
            return _search(goal.title if not searched else f"{goal.title} {goal.instruction}")
        if world.page != "item":
            return _click("< prev")
        choices = [
            (group, value) for group, value in offered(world.item, goal).values() if world.chosen.get(group) != value
        ]
        return _click(choices[0][1] if choices else "buy now")


def queries(instruction: str, names: tuple[str, ...], attributes: tuple[str, ...]) -> Iterable[str]:
    """Searches to try, in order: the instruction's own words, then the same with each other name of the kind."""
    asked = _plain(_ASKING.sub("", _ASKING.sub("", instruction.strip())))
    used = max((name for name in names if name in asked), key=len, default="")
    yield asked
    for name in names:
        if used and name != used:
            yield asked.replace(used, name)
    yield _plain(" ".join([used or names[0], *attributes]))


def short_queries(instruction: str, names: tuple[str, ...], attributes: tuple[str, ...]) -> Iterable[str]:
    """Searches of few words: a name of the kind, the one that the instruction says first, and the attributes."""
    said = instruction.lower()
    for name in sorted(names, key=lambda name: -len(name) * (name in said)):
        yield _plain(" ".join([name, *attributes]))


def _plain(text: str) -> str:
    """A text as the shop repeats it when it is searched for."""
    return _UNSEARCHABLE.sub(" ", text.lower()).strip()


def _click(text: str) -> str:
    return f"<action>click[{text}]</action>"


def _search(query: str) -> str:
    return f"<action>search[{_plain(query)}]</action>"
