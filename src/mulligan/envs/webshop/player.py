"""Scripted shoppers: the expert, who can also be omniscient, and "first-listed", a rule.

The expert searches, opens what looks right, reads what it must know, and buys. It goes by the pages alone, and by
knowing the other names of a generated kind. In a made-up shop it reads an item's features while there is time to buy
another one afterwards. The original's pages do not name every attribute that counts: there it goes by the order of the
list. What it saw in earlier episodes it uses in a share `recall` of its moves.

The rule searches once for everything that is asked, and buys the first listed product of the right kind within the
budget that offers the options asked for. It reads no page. With memory it passes over what it bought or left before.
An agent that reads pages and learns from purchases must be above it.
"""

from __future__ import annotations

import random
import re

from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.env import WebShop, click, search
from mulligan.envs.webshop.memory import Seen, Story, lacks, lowest_price, not_offered, offered, unsure
from mulligan.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, Session
from mulligan.envs.webshop.search import as_query
from mulligan.types import Step

_PAGES = 2
"""Pages of results it looks at before it searches in other words."""
_ASKING = re.compile(r"^(find me|i need|looking for)\s+|,? and price lower than .*$", re.IGNORECASE)


class Shopper:
    """Plays one world for a whole trial; sees what an agent sees unless it is omniscient."""

    def __init__(self, world: WebShop, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.session, self.goal = world.session, world.goal
        self.past, self.now = Story(world.shop, world.goal), Story(world.shop, world.goal)
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
            self.past, self.now = self.now.with_past(self.past), Story(self.world.shop, self.goal)
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

    def _look_around(self, knowledge: Story) -> str:
        """Go to the most promising item; where there is none, to results that were not seen yet."""
        session = self.session
        if right := self._right_item(knowledge):
            return self._towards(right, knowledge)
        if hopes := self._hopes(knowledge):
            return self._towards(max(hopes, key=lambda asin: hopes[asin]), knowledge)
        more = session.page == "results" and session.has_next()
        if more and session.number < _PAGES and (session.query, session.number + 1) not in knowledge.pages:
            return click(NEXT)
        if unseen := [query for query in self.queries if (query, 1) not in knowledge.pages]:
            return search(unseen[0])
        return click(NEXT) if more else search(self.rng.choice(self.queries))

    def _towards(self, asin: str, knowledge: Story) -> str:
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

    def _at_item(self, knowledge: Story) -> str:
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
        return click(_next_choice(session))

    def _page_to_read(self, seen: Seen, turns_elsewhere: int) -> str:
        """The sub-page that tells more of the item, while there are turns to read it and then to buy another item."""
        unread = [page for page in self.session.telling_pages if page not in seen.read]
        turns = 2 * len(unread) - 1 + (self.session.page != "item")  # between two sub-pages there is a click back
        worth_it = self.reads and unsure(seen, self.goal) and self.turns_left >= turns + turns_elsewhere
        return unread[0] if worth_it else ""

    def _right_item(self, knowledge: Story) -> str:
        """An item that fits for certain, if any: it has only to be bought."""
        for asin, seen in knowledge.items.items():
            fits = asin not in knowledge.wrong and not lacks(seen, self.goal) and not unsure(seen, self.goal)
            if asin in knowledge.results and (asin in knowledge.right or fits):
                return asin
        return ""

    def _faults(self, seen: Seen) -> list[str]:
        """What an item lacks for certain."""
        return lacks(seen, self.goal) if self.reads else not_offered(seen.product, self.goal)

    def _hopes(self, knowledge: Story) -> dict[str, float]:
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
        shop = self.world.shop
        is_titled = shop.tiny or not shop.made_up or self.goal.attributes[0] in product.title.lower()
        return is_titled and _may_fit(self.world, product)

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
        return click(_next_choice(session))


class FirstListed:
    """Buys the products of one list from the top, one an episode."""

    def __init__(self, world: WebShop, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.session, self.rng, self.skill, self.recall = world, world.session, rng, skill, recall
        self.passed: set[str] = set()
        """Products that earlier episodes, or this one, bought or left."""
        self.lists_ended = 0
        """Lists of this episode that had nothing more to buy."""

    def act(self) -> str:
        if not self.world.moves:
            self.lists_ended = 0
            if self.rng.random() >= self.recall:
                self.passed.clear()
        if self.rng.random() >= self.skill:
            return self.rng.choice(self.world.legal())
        return self.world.write(self._act())

    def see(self, step: Step) -> None:
        if self.session.page == "done" and self.session.item is not None:
            self.passed.add(self.session.item.asin)

    def _act(self) -> str:
        session, goal = self.session, self.world.goal
        if session.page == "search":
            return search(self._query())
        if session.item is None:
            return click(self._choice())
        lacks_options = session.page == "item" and len(offered(session.item, goal)) < len(goal.options)
        # Another product takes a click back, one to open it, its options, and buying.
        if lacks_options and self.world.task.turns - self.world.moves >= 3 + len(goal.options):
            self.passed.add(session.item.asin)
            return click(PREVIOUS)
        return click(_next_choice(session))

    def _query(self) -> str:
        """Every name of the kind, the attributes and the options; in the tiny shop one name after the other.

        Of files only the instruction is searched for: what the shop calls the kind stands on no page.
        """
        goal, shop = self.world.goal, self.world.shop
        if shop.tiny:
            names = _queries(self.world)
            return names[self.lists_ended % len(names)]
        if not shop.made_up:
            return goal.instruction.partition(", and price lower than")[0]
        return " ".join([*_kind_names(self.world), *goal.attributes, *goal.options.values()])

    def _choice(self) -> str:
        """The first product on the page to buy; the next page where there is none, and after the last a new search."""
        for product in self.session.listed():
            if product.asin not in self.passed and _may_fit(self.world, product):
                return product.asin
        if self.session.has_next():
            return NEXT
        self.lists_ended += 1
        return BACK


def _kind_names(world: WebShop) -> tuple[str, ...]:
    """The names that mean the kind that is asked for; of the original's catalogue, only the one it is filed under."""
    return world.shop.names.get(world.goal.kind, (world.goal.kind,))


def _may_fit(world: WebShop, product: Product) -> bool:
    """Whether the price is within the budget, and a made-up title has a name of the kind."""
    names, title = _kind_names(world), product.title.lower()
    return lowest_price(product) <= world.goal.budget and (len(names) == 1 or any(name in title for name in names))


def _next_choice(session: Session) -> str:
    """On an item's pages: the next click on the way to buying it with the options asked for."""
    if session.page != "item" or session.item is None:
        return PREVIOUS
    options = offered(session.item, session.goal).values()
    return next((value for group, value in options if session.chosen.get(group) != value), BUY)


def _queries(world: WebShop) -> list[str]:
    """The expert's searches, in order; a made-up title has the attribute that is asked for first."""
    goal, names = world.goal, _kind_names(world)
    if world.shop.tiny:
        return sorted(names, key=lambda name: name not in goal.instruction.lower())
    if world.shop.made_up:
        queries = [" ".join([*names, goal.attributes[0]]), " ".join([*names, *goal.attributes])]
    else:
        wish = _ASKING.sub("", _ASKING.sub("", goal.instruction.strip()))
        queries = [wish, " ".join([goal.kind, *goal.attributes])]
    return [as_query(query) for query in queries]
