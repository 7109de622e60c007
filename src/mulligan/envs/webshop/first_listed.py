"""A rule instead of shopping: the first product that a search lists, and at the next attempt the next one.

The rule searches once for everything that is asked, and buys the first listed product of the right kind within the
budget that offers the options asked for. It reads no page. With memory it passes over what it bought before and what
did not offer the options. An agent that reads pages and learns from purchases must be above it.
"""

from __future__ import annotations

import random

from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.env import WebShop, click, search
from mulligan.envs.webshop.memory import lowest_price, offered
from mulligan.envs.webshop.session import BACK, BUY, NEXT, PREVIOUS, Session
from mulligan.types import Step


def kind_names(world: WebShop) -> tuple[str, ...]:
    """The names that mean the kind that is asked for; of the original's catalogue, only the one it is filed under."""
    return world.shop.names.get(world.goal.kind, (world.goal.kind,))


def next_choice(session: Session) -> str:
    """On an item's pages: the next click on the way to buying it with the options asked for."""
    if session.page != "item" or session.item is None:
        return PREVIOUS
    options = offered(session.item, session.goal).values()
    return next((value for group, value in options if session.chosen.get(group) != value), BUY)


class FirstListed:
    """Buys the products of one list from the top, one an episode."""

    def __init__(self, world: WebShop, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.session, self.rng, self.skill, self.recall = world, world.session, rng, skill, recall
        self.names = kind_names(world)
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
        return click(next_choice(session))

    def _query(self) -> str:
        """Every name of the kind, the attributes and the options; in the tiny shop one name after the other.

        Of files only the instruction is searched for: what the shop calls the kind stands on no page.
        """
        goal, shop = self.world.goal, self.world.shop
        if shop.tiny:
            asked_first = sorted(self.names, key=lambda name: name not in goal.instruction.lower())
            return asked_first[self.lists_ended % len(asked_first)]
        if not shop.made_up:
            return goal.instruction.partition(", and price lower than")[0]
        return " ".join([*self.names, *goal.attributes, *goal.options.values()])

    def _choice(self) -> str:
        """The first product on the page to buy; the next page where there is none, and after the last a new search."""
        for product in self.session.listed():
            if product.asin not in self.passed and self._looks_right(product):
                return product.asin
        if self.session.has_next():
            return NEXT
        self.lists_ended += 1
        return BACK

    def _looks_right(self, product: Product) -> bool:
        title = product.title.lower()
        right_kind = len(self.names) == 1 or any(name in title for name in self.names)
        return right_kind and lowest_price(product) <= self.world.goal.budget
