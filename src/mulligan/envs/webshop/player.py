"""Scripted shoppers: the expert, who can also be omniscient, and "first-listed", a rule (`first_listed.py`).

The expert searches for what is asked, opens what looks right, reads what it must know, and buys. It goes by what is on
the pages alone, and by knowing the other names of a generated kind, as any shopper does. In a made-up shop it reads the
features of an item while there is time to buy another one afterwards; the last item that there is time for it buys
unread. The original's pages do not name every attribute that counts, so that there it goes by the order of the list.
What it saw in earlier episodes (pages of results, items that lack something, purchases and their scores) it uses in a
share `recall` of its moves.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from mulligan.envs.base import Player
from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.env import WebShop, click, search
from mulligan.envs.webshop.first_listed import FirstListed, kind_names, next_choice
from mulligan.envs.webshop.memory import Seen, is_right, lacks, lowest_price, not_offered, note_item, unsure
from mulligan.envs.webshop.search import as_query
from mulligan.envs.webshop.session import BACK, NEXT, PREVIOUS, Session
from mulligan.errors import UnknownName
from mulligan.types import Step

_PAGES = 2
"""Pages of results it looks at before it searches in other words."""
_ASKING = re.compile(r"^(find me|i need|looking for)\s+|,? and price lower than .*$", re.IGNORECASE)


def player(world: WebShop, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
    """The player called `kind`."""
    if kind not in world.players:
        raise UnknownName("player", kind, world.players)
    if kind == "first-listed":
        return FirstListed(world, rng, skill, recall)
    return Shopper(world, kind, rng, skill, recall)


class Knowledge:
    """What was found out: about items, and about searches."""

    def __init__(self) -> None:
        self.items: dict[str, Seen] = {}
        """The items that were opened, by id."""
        self.wrong: set[str] = set()
        """Items whose purchase was not a success, for more than options that were not chosen."""
        self.right: set[str] = set()
        """Items whose score tells that they lack nothing."""
        self.results: dict[str, tuple[Product, str, int]] = {}
        """Item -> the product, and the search and page that listed it."""
        self.pages: set[tuple[str, int]] = set()
        """Pages of results that were seen."""

    def note(self, session: Session) -> None:
        """Take down what the page shows."""
        if session.page == "results":
            self.pages.add((session.query, session.number))
            for product in session.listed():
                self.results.setdefault(product.asin, (product, session.query, session.number))
        note_item(self.items, session)
        if session.page == "done" and session.item is not None:
            right = is_right(session.item, session.chosen, session.match(), session.goal)
            (self.right if right else self.wrong).add(session.item.asin)

    def with_past(self, past: Knowledge) -> Knowledge:
        both = Knowledge()
        for part in (past, self):
            both.wrong |= part.wrong
            both.right |= part.right
            both.pages |= part.pages
            both.results |= part.results
            for asin, seen in part.items.items():
                read = both.items[asin].read if asin in both.items else {}
                both.items[asin] = replace(seen, read=read | seen.read)
        return both


class Shopper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient."""

    def __init__(self, world: WebShop, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.session, self.goal = world.session, world.goal
        self.past, self.now = Knowledge(), Knowledge()
        self.names = kind_names(world)
        self.reads = world.shop.made_up
        """Whether pages are worth reading: of the original's products they name some attributes and not others."""
        self.queries = _queries(world)

    def act(self) -> str:
        reply = self._act()
        if self.world.shop.tiny and self.session.page != "search" and reply.startswith("<action>search["):
            reply = click(BACK)  # short answers are searches on the search page alone
        return self.world.write(reply)

    def _act(self) -> str:
        if not self.world.moves:
            self.past, self.now = self.now.with_past(self.past), Knowledge()
        if self.rng.random() >= self.skill:
            return self.rng.choice(self.world.legal())
        if self.kind == "omniscient":
            return self._straight()
        recalls = self.past.pages and self.rng.random() < self.recall
        knowledge = self.now.with_past(self.past) if recalls else self.now
        return self._at_item(knowledge) if self.session.item is not None else self._look_around(knowledge)

    def see(self, step: Step) -> None:
        self.now.note(self.session)

    @property
    def turns_left(self) -> int:
        """Turns that are left, with this one."""
        return self.world.task.turns - self.world.moves

    def _look_around(self, knowledge: Knowledge) -> str:
        """Go to the most promising item; where there is none, to results that were not seen yet."""
        session = self.session
        if right := self._right_item(knowledge):
            return self._towards(right, knowledge)
        hopes = self._hopes(knowledge)
        if hopes:
            return self._towards(max(hopes, key=lambda asin: hopes[asin]), knowledge)
        more = session.page == "results" and session.has_next()
        if more and session.number < _PAGES and (session.query, session.number + 1) not in knowledge.pages:
            return click(NEXT)
        unseen = [query for query in self.queries if (query, 1) not in knowledge.pages]
        if unseen:
            return search(unseen[0])
        return click(NEXT) if more else search(self.rng.choice(self.queries))

    def _towards(self, asin: str, knowledge: Knowledge) -> str:
        """The next step to an item that some page of results listed."""
        session, (_, query, number) = self.session, knowledge.results[asin]
        if session.page == "results" and asin in session.clickables():
            return click(asin)
        if session.query != query or session.page == "search":
            return search(query)
        if session.page == "results":
            return click(NEXT if number > session.number else PREVIOUS)
        # From an item's own page one click leads back to its results; from its sub-pages a new search is as fast.
        return search(query) if number == 1 and session.page != "item" else click(PREVIOUS)

    def _at_item(self, knowledge: Knowledge) -> str:
        """On an item's pages: read on, leave it, or choose the options and buy."""
        session, item = self.session, self.session.item
        assert item is not None, "the page is about an item"
        seen = knowledge.items.get(item.asin) or Seen(item, session.query, session.telling_pages)
        right = self._right_item(knowledge)
        is_wrong = item.asin != right and (bool(right) or item.asin in knowledge.wrong or bool(self._faults(seen)))
        # To buy another item: back to the results, open it, choose its options, buy.
        turns_elsewhere = (1 if session.number == 1 else 2) + 2 + len(self.goal.options)
        if is_wrong and self.turns_left >= turns_elsewhere:
            return self._look_around(knowledge)
        if not is_wrong and item.asin != right and (page := self._page_to_read(seen, turns_elsewhere)):
            return click(page if session.page == "item" else PREVIOUS)
        return click(next_choice(session))

    def _page_to_read(self, seen: Seen, turns_elsewhere: int) -> str:
        """The sub-page that tells more of the item, while there are turns to read it and then to buy another item."""
        unread = [page for page in self.session.telling_pages if page not in seen.read]
        turns = 2 * len(unread) - 1 + (self.session.page != "item")  # between two sub-pages there is a click back
        worth_it = self.reads and unsure(seen, self.goal) and self.turns_left >= turns + turns_elsewhere
        return unread[0] if worth_it else ""

    def _right_item(self, knowledge: Knowledge) -> str:
        """An item that fits for certain, if any: it has only to be bought."""
        for asin, seen in knowledge.items.items():
            fits = asin not in knowledge.wrong and not lacks(seen, self.goal) and not unsure(seen, self.goal)
            if asin in knowledge.results and (asin in knowledge.right or fits):
                return asin
        return ""

    def _faults(self, seen: Seen) -> list[str]:
        """What an item lacks for certain."""
        return lacks(seen, self.goal) if self.reads else not_offered(seen.product, self.goal)

    def _hopes(self, knowledge: Knowledge) -> dict[str, float]:
        """How promising each listed item looks, those on this page first; those that are wrong are left out."""
        hopes: dict[str, float] = {}
        on_page = self.session.clickables() if self.session.page == "results" else []
        for rank, (asin, (product, _, _)) in enumerate(knowledge.results.items()):
            seen = knowledge.items.get(asin)
            if asin in knowledge.wrong or not self._looks_right(product) or (seen and self._faults(seen)):
                continue
            hopes[asin] = 10.0 * (asin in on_page) - 0.1 * rank
            if self.reads:  # the order of a list says little here
                hopes[asin] += bool(seen) + 0.3 * self.rng.random()
        return hopes

    def _looks_right(self, product: Product) -> bool:
        """Whether price and title fit: a made-up title has a name of the kind and the attribute asked for first."""
        shop, title = self.world.shop, product.title.lower()
        if lowest_price(product) > self.goal.budget:
            return False
        has_name = len(self.names) == 1 or any(name in title for name in self.names)
        return has_name and (shop.tiny or not shop.made_up or self.goal.attributes[0] in title)

    def _straight(self) -> str:
        """The shortest way for somebody who knows which product it is."""
        session, goal = self.session, self.goal
        if session.page == "results":
            ids = [session.shop.products[hit].asin for hit in session.hits]
            if goal.asin in ids:
                page = ids.index(goal.asin) // session.per_page + 1
                on_page = page == session.number
                return click(goal.asin if on_page else NEXT if page > session.number else PREVIOUS)
        if session.item is None or session.item.asin != goal.asin:
            searched = any(query == " ".join(as_query(goal.title).split()) for query, _ in self.now.pages)
            return search(goal.title if not searched else f"{goal.title} {goal.instruction}")
        return click(next_choice(session))


def _queries(world: WebShop) -> list[str]:
    """Searches to try, in order.

    In the tiny shop one name of the kind after the other. In a made-up one all names with the attribute that is asked
    for first, then with all attributes. Elsewhere the instruction's own words, then the kind and the attributes alone.
    """
    goal, names = world.goal, kind_names(world)
    if world.shop.tiny:
        return sorted(names, key=lambda name: name not in goal.instruction.lower())
    if world.shop.made_up:
        queries = [" ".join([*names, goal.attributes[0]]), " ".join([*names, *goal.attributes])]
    else:
        wish = _ASKING.sub("", _ASKING.sub("", goal.instruction.strip()))
        queries = [wish, " ".join([goal.kind, *goal.attributes])]
    return [as_query(query) for query in queries]
