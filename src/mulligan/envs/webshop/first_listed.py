"""A rule instead of shopping: the first product that a search lists, and at the next attempt the next one.

The rule searches once for everything that is asked, and buys the first listed product of the right kind within the
budget that offers the options asked for. It reads no page. With memory it passes over what it bought before and what
did not offer the options. An agent that reads pages and learns from purchases must be above it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mulligan.envs.webshop.catalogue import Product
from mulligan.envs.webshop.memory import lowest_price, offered
from mulligan.envs.webshop.names import kind_names
from mulligan.envs.webshop.search import as_query
from mulligan.types import Step

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop


class FirstListed:
    """Buys the products of one list from the top, one an episode."""

    def __init__(self, world: WebShop, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.rng, self.skill, self.recall = world, rng, skill, recall
        self.names = kind_names(world)
        self.passed: set[str] = set()
        """Products that earlier episodes, or this one, bought or left."""
        self.lists_ended = 0
        """Lists of this episode that had nothing more to buy."""

    def act(self) -> str:
        world = self.world
        if not world.moves:
            self.lists_ended = 0
            if self.rng.random() >= self.recall:
                self.passed.clear()
        if self.rng.random() >= self.skill:
            return self.rng.choice(world.legal())
        return world.write(self._act())

    def see(self, step: Step) -> None:
        if self.world.page == "done" and self.world.item is not None:
            self.passed.add(self.world.item.asin)

    def _act(self) -> str:
        world = self.world
        if world.page == "search":
            return _action("search", self._query())
        if world.page == "results":
            return _action("click", self._choice())
        assert world.item is not None, "all other pages are about an item"
        if world.page != "item":
            return _action("click", "< prev")
        options = offered(world.item, world.goal)
        if len(options) < len(world.goal.options) and self._has_time_for_another():
            self.passed.add(world.item.asin)
            return _action("click", "< prev")
        unchosen = [value for group, value in options.values() if world.chosen.get(group) != value]
        return _action("click", unchosen[0] if unchosen else "buy now")

    def _has_time_for_another(self) -> bool:
        """Whether there are turns to go back, open another product, choose its options and buy it."""
        return self.world.task.turns - self.world.moves >= 3 + len(self.world.goal.options)

    def _query(self) -> str:
        """Every name of the kind, the attributes and the options; in the tiny shop one name after the other.

        Of files only the instruction is searched for: what the shop calls the kind stands on no page.
        """
        goal = self.world.goal
        if self.world.tiny:
            asked_first = sorted(self.names, key=lambda name: name not in goal.instruction.lower())
            return asked_first[self.lists_ended % len(asked_first)]
        if not self.world.made_up:
            return as_query(goal.instruction.partition(", and price lower than")[0])
        return as_query(" ".join([*self.names, *goal.attributes, *goal.options.values()]))

    def _choice(self) -> str:
        """The first product on the page to buy; the next page where there is none, and after the last a new search."""
        for product in self.world.listed():
            if product.asin not in self.passed and self._looks_right(product):
                return product.asin
        if "next >" in self.world.clickables():
            return "next >"
        self.lists_ended += 1
        return "back to search"

    def _looks_right(self, product: Product) -> bool:
        title = product.title.lower()
        right_kind = len(self.names) == 1 or any(name in title for name in self.names)
        return right_kind and lowest_price(product) <= self.world.goal.budget


def _action(verb: str, text: str) -> str:
    return f"<action>{verb}[{text}]</action>"
