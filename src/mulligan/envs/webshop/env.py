"""WebShop: find a product that an instruction asks for, choose its options, buy it (Yao et al., arXiv 2207.01206).

The pages, actions and reward of the original, without its web server, Java and tagger; what differs in the reward is
said in `mulligan.envs.webshop.reward`. As in the original, a search may be asked for from any page, a click only on
what the page offers, and going back to the results forgets the options that were chosen. A page is said in few words,
and the instruction on the search page alone; what can be clicked is the same.

Parameters (`--env.NAME`):

catalogue   ``generated`` and, for the smallest models, ``tiny`` need no data; ``original`` is the folder or file that
            `WEBSHOP_DATA` names; anything else is the path of such a folder or file
products    how many products are generated
world       the seed of their catalogue; -1 lets the seed of the task draw a catalogue of its own
goals       which goals the original's files give: ``synthetic`` ones are instructions from a template, with every
            combination of a product's options; ``human`` ones were written by people (`items_human_ins.json`)
goal        which goal, counted from 0; -1 lets the seed of the task choose
split       ``auto`` splits by product: what one set of tasks asks for, no other asks for, with whatever options;
            generated products go by families, a kind and the attribute in the title. ``original`` is the split of the
            original's files by the order of their goals, whose sets share products: the first 500 goals are for
            evaluation, the next 1,000 for validation, the rest for training
per_page    products on a page of results
longest     characters of a description, of the features or the reviews that are shown; 0 shows all
attributes  whether an item has the page [attributes], which the original shows on request
view        ``page`` shows whole pages; ``compact`` says them in few words, and takes an answer without search[] or
            click[] for a search on the search page and for a click elsewhere
pays        what a purchase earns: its ``score``, as in the original, or 1 for a ``success`` and nothing otherwise, so
            that failing first and better next is never worth more than succeeding at once
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mulligan.envs.base import LONGEST_REPLY, Player, action_text
from mulligan.envs.webshop import compact
from mulligan.envs.webshop.catalogue import Goal, Product
from mulligan.envs.webshop.choice import GENERATED, catalogue, check, goal_number, original_set
from mulligan.envs.webshop.reward import Match, judge
from mulligan.envs.webshop.search import as_query
from mulligan.envs.webshop.tiny import names_of
from mulligan.errors import UnknownName
from mulligan.types import Episode, ParamValue, Step, Task

BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
LONGEST_QUERY = 1_000
"""Characters of a query; a longer one is no action."""
_TITLE = 60
_CANONICAL = re.compile(r"<action>(search|click)\[([^\[\]<>]*|< prev|next >)\]</action>")
_COMMAND = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_ARROWS = re.compile(r"<\s*(prev)|(next)\s*>", re.IGNORECASE)
_BRACKETS = re.compile(r"(?:search|click)\[([^\]]*)\]")
_BRIEF = {BUY: "buy", BACK: "back", PREVIOUS: "prev", NEXT: "next"}
_SHORT = {
    "buy": BUY,
    "back": BACK,
    "prev": PREVIOUS,
    "previous": PREVIOUS,
    "<prev": PREVIOUS,
    "next": NEXT,
    "next>": NEXT,
}


def click(text: str) -> str:
    """A click as a reply."""
    return f"<action>click[{text}]</action>"


def search(query: str) -> str:
    """A search as a reply."""
    return f"<action>search[{query}]</action>"


class WebShop:
    """Buy what an instruction asks for in an online shop: search, compare, choose options."""

    defaults: ClassVar[dict[str, ParamValue]] = {
        "catalogue": "generated",
        "products": 3000,
        "world": 0,
        "goals": "synthetic",
        "goal": -1,
        "split": "auto",
        "per_page": 10,
        "longest": 1200,
        "attributes": False,
        "view": "page",
        "pays": "score",
    }
    turns: ClassVar[int] = 12
    players: ClassVar[tuple[str, ...]] = ("expert", "first-listed", "omniscient")
    room_players: ClassVar[tuple[str, ...]] = ("first-listed",)

    def __init__(self, task: Task) -> None:
        self.task = task
        self.shop = catalogue(task)
        self.goal: Goal = self.shop.goal(goal_number(task, self.shop))
        self.per_page, self.longest = task.integer("per_page"), task.integer("longest")
        self.compact = task.text("view") == "compact"
        self.made_up = task.text("catalogue") in GENERATED
        self.tiny = task.text("catalogue") == "tiny"
        self.sub_pages = (*SUB_PAGES, "attributes") if task["attributes"] else SUB_PAGES
        self.telling = ("features",) if self.made_up else ("features", "description")
        """The sub-pages that name attributes which the title does not."""
        self.worth: dict[tuple[str, ...], Match] = {}
        """What a purchase would bring, for those that were thought of."""
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        check(params)
        return params

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        catalogue = str(params["catalogue"])
        known = catalogue in (*GENERATED, "original")
        return f"webshop/{catalogue if known else 'file'}" + "/original-split" * (params["split"] == "original")

    def rules(self) -> str:
        if self.compact:
            return compact.rules(self)
        return (
            "You shop online. The instruction says what to buy: a kind of product, attributes it must have, options "
            "to choose, and a highest price. Your score is the share of these that the product you buy meets; you win "
            "with all of them.\n"
            "search[words] lists products by how well their texts fit the words. click[x] clicks what the page shows: "
            "a product's id opens it, an option chooses it, [description], [features] and [reviews] tell more, "
            "[< prev] goes back, [buy now] buys with the chosen options and ends the episode. Not every attribute "
            "is in the title.\n"
            f"Answer with one action: {search('blue cotton shirt')} or {click(BUY)}"
        )

    def reset(self, chance: int = 0) -> str:
        self.page, self.moves = "search", 0
        self.query, self.number = "", 1
        self.hits: tuple[int, ...] = ()
        self.item: Product | None = None
        self.chosen: dict[str, str] = {}
        self.shown: set[str] = set()
        """Products that earlier pages of the episode listed; and `compact.SEARCH_PAGE`, where that was left."""
        return self.render()

    def step(self, reply: str) -> Step:
        self.moves += 1
        if self.page == "done":
            return self._invalid("You have bought something already.")
        command = self._read(reply)
        if isinstance(command, str):
            return self._invalid(command)
        verb, said = command
        before = self._worth_now()
        if verb == "search":
            self._leave()
            self._to_results(said, self.shop.search(said), 1)
        elif said in self.clickables():
            if said == BUY:
                return self._buy()
            self._leave()
            self._click(said)
        else:
            return self._invalid(f"There is no [{said[:_TITLE]}] to click on this page.")
        return Step(self.render(), state_key=self.key(), shaping=self._worth_now() - before)

    def clickables(self) -> list[str]:
        """What can be clicked now, as it is written on the page."""
        if self.page == "search" or self.page == "done":
            return []
        if self.page == "results":
            ids = [product.asin for product in self.listed()]
            more = self.number * self.per_page < len(self.hits)
            return [BACK, *([PREVIOUS] if self.number > 1 else []), *([NEXT] if more else []), *ids]
        assert self.item is not None, "all other pages are about an item"
        if self.page != "item":
            return [BACK, PREVIOUS]
        values = [value for values in self.item.options.values() for value in values]
        return [BACK, PREVIOUS, *values, *self.sub_pages, BUY]

    def listed(self) -> list[Product]:
        """The products on the page of results."""
        first = (self.number - 1) * self.per_page
        return [self.shop.products[place] for place in self.hits[first : first + self.per_page]]

    def render(self) -> str:
        """The page in words."""
        if self.compact:
            return compact.page(self)
        if self.page == "search":
            return f"Search page\nInstruction: {self.goal.instruction}"
        if self.page == "results":
            lines = [f"{product.asin} {_cut(product.title, _TITLE)} {product.price_tag}" for product in self.listed()]
            pages = max(1, -(-len(self.hits) // self.per_page))
            title = f"Results for {_cut(self.query, _TITLE)!r}, page {self.number} of {pages}, {len(self.hits)} found"
        else:
            assert self.item is not None, "all other pages are about an item"
            if self.page == "done":
                return self._receipt()
            lines = self._item_lines(self.item) if self.page == "item" else [self.said(self.page)]
            title = f"{self.page.capitalize()} {self.item.asin}"
        own = {product.asin for product in self.listed()} if self.page == "results" else set(self._values())
        buttons = " ".join(f"[{button}]" for button in self.clickables() if button not in own)
        return "\n".join([title, *lines, buttons])

    def said(self, page: str) -> str:
        """What a sub-page of the item says, cut to the longest text that is shown."""
        assert self.item is not None, "sub-pages are about an item"
        texts = {
            "description": [self.item.description],
            "features": [f"- {feature}" for feature in self.item.features],
            "reviews": [f"- {review}" for review in self.item.reviews],
            "attributes": [", ".join(self.item.attributes)],
        }
        text = "\n".join(filter(None, texts[page])) or "nothing"
        return _cut(text, self.longest) if self.longest else text

    def key(self) -> str:
        """Names what is visible: the page with the query, the item and its chosen options."""
        chosen = ",".join(f"{group}={value}" for group, value in sorted(self.chosen.items()))
        return f"{self.page}|{self.query}|{self.number}|{self.item.asin if self.item else ''}|{chosen}"

    def legal(self) -> Sequence[str]:
        """Every click; where there is none, searches with the words of the instruction."""
        if self.page == "search":
            goal = self.goal
            if self.tiny:
                return [self.write(search(name)) for name in names_of(goal.kind)]
            whole = (
                compact.asked(goal).partition(";")[0] if self.compact else goal.instruction.partition(", and price")[0]
            )
            queries = (whole, " ".join([*goal.attributes, *goal.options.values()]))
            return [search(as_query(query)) for query in queries]
        return [self.write(click(text)) for text in self.clickables()]

    def write(self, reply: str) -> str:
        """A reply as scripted players give it: in the tiny shop without search[] and click[]."""
        if not (self.tiny and self.compact):
            return reply
        bare = _BRACKETS.sub(r"\1", reply)
        return next((bare.replace(long, short) for long, short in _BRIEF.items() if long in bare), bare)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.webshop.first_listed import FirstListed
        from mulligan.envs.webshop.player import Shopper

        if kind not in self.players:
            raise UnknownName("player", kind, self.players)
        if kind == "first-listed":
            return FirstListed(self, rng, skill, recall)
        return Shopper(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        from mulligan.envs.webshop.memory import digest

        return compact.digest(self, episode) if self.compact else digest(self, episode)

    def reflect(self, episode: Episode) -> str:
        from mulligan.envs.webshop.memory import reflect

        return compact.reflect(self, episode) if self.compact else reflect(self, episode)

    def world_key(self) -> str:
        """The product that is asked for; of the generated catalogue its family, which is all that a shopper looks at.

        Pages of the other products of a family are read on the way to the right one, and remembered as wrong.
        """
        family = f"{self.goal.kind}:{self.goal.attributes[0]}"
        return f"{self.shop.name}:{family if self.made_up and not self.tiny else self.goal.asin}"

    def task_key(self) -> str:
        which = str(self.goal.number) if self.goal.human else ",".join(self.goal.options.values())
        return f"{self.shop.name}:{self.goal.asin}:{which}"

    def seed_set(self) -> str | None:
        """The set of tasks that the original's split puts the goal in; None where products are split by their names."""
        return original_set(self.goal.number) if self.task.text("split") == "original" else None

    def match(self) -> Match:
        """What buying the item on the page would bring."""
        assert self.item is not None, "only an item can be bought"
        purchase = (self.item.asin, *self.chosen, *self.chosen.values())
        if purchase not in self.worth:
            self.worth[purchase] = judge(self.item, self.goal, self.chosen)
        return self.worth[purchase]

    def _worth_now(self) -> float:
        return self.match().reward if self.item is not None else 0.0

    def _read(self, reply: str) -> tuple[str, str] | str:
        """The command of a reply, or what is wrong with it."""
        found = _CANONICAL.fullmatch(reply) if len(reply) <= LONGEST_REPLY else None
        if found is None:
            # The original's buttons hold < and >, which are no part of an action elsewhere.
            text = action_text(_ARROWS.sub(r"\1\2", reply)) if len(reply) <= LONGEST_REPLY else None
            found = _COMMAND.fullmatch(text) if text is not None else None
            if found is None and self.compact and text and not {"[", "]"} & set(text):
                found = _COMMAND.fullmatch(f"{'search' if self.page == 'search' else 'click'}[{text}]")
            if found is None:
                return (
                    "No action could be read; answer with search[words] or click[what the page shows] in <action> tags."
                )
        said = " ".join(found[2].lower().split())
        if not said:
            return f"{found[1].lower()}[] names nothing."
        if found[1].lower() == "search":
            if len(said) > LONGEST_QUERY:
                return f"A query may have {LONGEST_QUERY} characters, not {len(said)}."
            return "search", said
        return "click", said if said not in _SHORT or said in self._values() else _SHORT[said]

    def _values(self) -> list[str]:
        options = self.item.options.values() if self.item is not None and self.page == "item" else ()
        return [value for values in options for value in values]

    def _leave(self) -> None:
        """Take down what the compact view need not say again."""
        if self.page == "search":
            self.shown.add(compact.SEARCH_PAGE)
        elif self.page == "results" and self.compact:
            self.shown.update(product.asin for product in self.listed())

    def _to_results(self, query: str, hits: tuple[int, ...], number: int) -> None:
        self.page, self.query, self.hits, self.number = "results", query, hits, number
        self.item, self.chosen = None, {}

    def _click(self, text: str) -> None:
        """Follow a button that is on the page, other than the one that buys."""
        if text == BACK:
            self.page, self.query, self.hits, self.number = "search", "", (), 1
            self.item, self.chosen = None, {}
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
        elif text in self._values():
            assert self.item is not None, "options belong to an item"
            # A value that stands in two groups belongs to the last, as in the original.
            self.chosen[[group for group, values in self.item.options.items() if text in values][-1]] = text
        else:
            self.page = text

    def _buy(self) -> Step:
        match = self.match()
        self.page = "done"
        earned = match.reward if self.task.text("pays") == "score" else float(match.success)
        return Step(self.render(), earned, True, match.success, True, self.key())

    def _receipt(self) -> str:
        assert self.item is not None, "something was bought"
        chosen = "".join(f", {group}: {value}" for group, value in self.chosen.items())
        score = self.match().reward
        return f"Bought {self.item.asin} for {self.item.price_tag}{chosen}\nYour score (min 0.0, max 1.0): {score:.3g}"

    def _item_lines(self, item: Product) -> list[str]:
        lines = [_cut(item.title, 4 * _TITLE), f"Price: {item.price_tag}, rating: {item.rating}"]
        for group, values in item.options.items():
            chosen = f" (chosen: {self.chosen[group]})" if group in self.chosen else ""
            lines.append(f"{group}{chosen}: {'; '.join(values)}")
        return lines

    def _invalid(self, why: str) -> Step:
        return Step(self.render(), valid=False, state_key=self.key(), feedback=why)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else compact.whole_words(text[: longest - 1]) + "…"
