"""What a shopper knows after an episode: from the pages that were seen, never from what they hide.

The compact forms tell each search with what became known of its products: ``b3=ok`` for one that has everything,
``b3=* 0.8`` for one that was bought for a score of 0.8, ``b3=* no easy care`` for one that was seen to lack something.
In the tiny shop these are one word each: ``b3=*``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mulligan.envs.base import reflection_text
from mulligan.envs.webshop.catalogue import Catalogue, Goal, Product
from mulligan.envs.webshop.pages import Session
from mulligan.envs.webshop.reward import Match, answers, is_alike, not_chosen
from mulligan.errors import StopReason
from mulligan.types import Episode

NO_PURCHASE = Match(type=0.0, missing=(), options=0, price=False, reward=0.0)


@dataclass
class Seen:
    """An item that was opened."""

    product: Product
    query: str
    """The search that showed it."""
    telling_pages: tuple[str, ...]
    """The sub-pages that name attributes."""
    read: dict[str, str] = field(default_factory=dict)
    """Its sub-pages that were opened, with their text."""

    @property
    def all_read(self) -> bool:
        return self.read.keys() >= set(self.telling_pages)

    @property
    def text(self) -> str:
        return "\n".join([self.product.title, *self.read.values()]).lower()


@dataclass
class Story:
    """What a shopper saw and did, in one episode or in several."""

    shop: Catalogue
    goal: Goal
    queries: dict[str, int] = field(default_factory=dict)
    """Each search and how many products it found."""
    pages: set[tuple[str, int]] = field(default_factory=set)
    """Pages of results that were seen: search and number."""
    results: dict[str, tuple[Product, str, int]] = field(default_factory=dict)
    """Item -> the product, and the search and page that listed it."""
    items: dict[str, Seen] = field(default_factory=dict)
    """The items that were opened, by id."""
    right: set[str] = field(default_factory=set)
    """Items that were bought, and whose score tells that they lack nothing but options that were not chosen."""
    wrong: set[str] = field(default_factory=set)
    """Items that were bought and lack something else."""
    bought: str = ""
    """The id of the item that was bought last."""
    chosen: dict[str, str] = field(default_factory=dict)
    match: Match = NO_PURCHASE
    """What the purchase was worth."""

    def note(self, session: Session) -> None:
        """Take down what the session shows now."""
        if session.page == "results":
            self.queries[session.query] = len(session.hits)
            self.pages.add((session.query, session.number))
            for product in session.listed():
                self.results.setdefault(product.asin, (product, session.query, session.number))
        if session.item is None:
            return
        asin = session.item.asin
        seen = self.items.setdefault(asin, Seen(session.item, session.query, session.telling_pages))
        if session.page == "done":
            self.bought, self.chosen, self.match = asin, dict(session.chosen), session.match()
            (self.right if self._lacks_no_more(session.item) else self.wrong).add(asin)
        elif session.page != "item":
            seen.read[session.page] = session.sub_page_text(session.page)

    def _lacks_no_more(self, product: Product) -> bool:
        """Whether the score of buying `product` tells that it lacks nothing but the options that were not chosen."""
        asked_for = len(self.goal.attributes) + len(self.goal.options) + 1
        expected = asked_for - len(not_chosen(self.goal, self.chosen))
        return not not_offered(product, self.goal) and self.match.reward * asked_for > expected - 0.5

    def with_past(self, past: Story) -> Story:
        """What is known of the items and searches of this and of earlier episodes."""
        items = dict(past.items)
        for asin, seen in self.items.items():
            items[asin] = replace(seen, read=(items[asin].read if asin in items else {}) | seen.read)
        right, wrong = past.right | self.right, past.wrong | self.wrong
        pages, results = past.pages | self.pages, past.results | self.results
        return Story(self.shop, self.goal, items=items, right=right, wrong=wrong, pages=pages, results=results)


def lowest_price(product: Product) -> float:
    """What the price tag says, at the least."""
    return float(product.price_tag.split()[0].lstrip("$"))


def offered(product: Product, goal: Goal) -> dict[str, tuple[str, str]]:
    """Group of the goal -> (group of the product, value) of the option that answers it; those not offered are left out.

    The very value first, then one that is alike, each in the group of that name first.
    """
    options = {}
    for group, wanted in goal.options.items():
        groups = sorted(product.options, key=lambda name: name != group)
        choices = [(name, value) for name in groups for value in product.options[name]]
        same = [choice for choice in choices if choice[1] == wanted]
        alike = same or [choice for choice in choices if answers(choice[1], goal, group)]
        if alike:
            options[group] = alike[0]
    return options


def lacks(seen: Seen, goal: Goal) -> list[str]:
    """What of the goal an item does not meet, as the pages that were read tell it."""
    missing = not_offered(seen.product, goal)
    if not seen.all_read:
        return missing
    # The shop may know of attributes that no page names.
    named = [attribute for attribute in seen.product.attributes if attribute.lower() in seen.text]
    return missing + [
        wanted
        for wanted in goal.attributes
        if wanted not in seen.text and not any(is_alike(attribute, wanted) for attribute in named)
    ]


def not_offered(product: Product, goal: Goal) -> list[str]:
    """The options of the goal that an item does not have; and the price, where it is too high."""
    options = offered(product, goal)
    missing = [_option(goal, group) for group in goal.options if group not in options]
    return missing + ([f"price under {goal.budget:g}"] if lowest_price(product) > goal.budget else [])


def _option(goal: Goal, group: str) -> str:
    """An option of the goal in words; those that people wrote have no group."""
    return goal.options[group] if goal.human else f"{group} {goal.options[group]}"


def unsure(seen: Seen, goal: Goal) -> list[str]:
    """The wanted attributes that no page that was read speaks of, while some page is unread."""
    return [] if seen.all_read else [wanted for wanted in goal.attributes if wanted not in seen.text]


def digest(story: Story) -> str:
    """An episode in a few lines: what was searched, what was looked at and lacked, what was bought."""
    queries = "; ".join(f"{query!r} ({hits} found)" for query, hits in story.queries.items())
    lines = [f"searched {queries}"] if queries else []
    lines += [f"{asin} {seen.product.price_tag}: {_verdict(seen, story)}" for asin, seen in story.items.items()]
    return "\n".join([*lines, _purchase(story)])


def _verdict(seen: Seen, story: Story) -> str:
    is_right = seen.product.asin in story.right
    missing, open_questions = [] if is_right else lacks(seen, story.goal), unsure(seen, story.goal)
    if missing:
        return f"lacks {', '.join(missing)}"
    return f"not read whether {', '.join(open_questions)}" if open_questions else "fits"


def _purchase(story: Story) -> str:
    if not story.bought:
        return "bought nothing"
    chosen = "".join(f", {group} {value}" for group, value in story.chosen.items())
    return f"bought {story.bought}{chosen}: score {story.match.reward:.3g}"


def reflection(story: Story, episode: Episode) -> str:
    """A truthful reflection: what was bought, what it lacked, the best item seen, what to do next."""
    category, failed_at = "none", "nothing"
    if not episode.won:
        failed_at = f"turn {len(episode.turns)}, {'buy now' if story.bought else 'no purchase'}"
        all_valid = all(turn.valid for turn in episode.turns)
        category = "wrong-move" if all_valid or story.bought else "invalid-reply"
        if episode.stop is StopReason.TURN_LIMIT:
            category = "out-of-turns"
    return reflection_text(
        strategy=f"searched {'; '.join(map(repr, story.queries)) or 'nothing'}",
        outcome=_purchase(story),
        reward=f"{episode.reward:.3g}",
        failed_at=failed_at,
        env_answer=_faults(story),
        error_category=category,
        plan=_plan(story, episode.won),
    )


def _faults(story: Story) -> str:
    """What kept the purchase from being right, as far as pages and score tell."""
    if not story.bought:
        return "no purchase was made in time"
    if story.match.success:
        return "everything matched"
    goal, bought, parts = story.goal, story.items[story.bought], list[str]()
    if story.bought not in story.right:
        parts += [f"not {wanted}" for wanted in lacks(bought, goal) if wanted in goal.attributes]
        parts += [f"price above {goal.budget:g}"] * (lowest_price(bought.product) > goal.budget)
        parts += ["another kind of product"] * (story.match.type < 1)  # as its title says
        parts += ["something did not match"] * (not parts)
    parts += [f"{_option(goal, group)} not chosen" for group in not_chosen(goal, story.chosen)]
    return f"{story.bought}: {', '.join(parts)}"


def _plan(story: Story, won: bool) -> str:
    goal = story.goal
    candidates = [seen for asin, seen in story.items.items() if asin != story.bought and not lacks(seen, goal)]
    if won or story.bought in story.right:
        candidates = [story.items[story.bought]]
    if candidates:
        best = min(candidates, key=lambda seen: len(unsure(seen, goal)))
        open_questions = [] if won else unsure(best, goal)
        check = f", check {' and '.join(open_questions)}" if open_questions else ""
        options = ", ".join(value for _, value in offered(best.product, goal).values()) or "no options"
        return f"search {best.query!r}, open {best.product.asin}{check}, choose {options}, buy"
    avoid = f"not {', '.join(story.items)}; " if story.items else ""
    return f"{avoid}look at other results, or search in other words"


def compact_digest(story: Story) -> str:
    """An episode in a line: each search, and what became of the products it showed."""
    facts: dict[str, list[str]] = {query: [] for query in story.queries}
    for seen in story.items.values():
        facts[seen.query] += _fact(seen, story)
    return "; ".join(f"{query} {_joined(words, story)}".strip() for query, words in facts.items()) or "nothing"


def compact_reflection(story: Story) -> str:
    """A truthful reflection: what was bought first, then the other products, then the searches."""
    items = sorted(story.items.values(), key=lambda seen: seen.product.asin != story.bought)
    facts = _joined([fact for seen in items for fact in _fact(seen, story)], story)
    return f"<reflection>{'; '.join(filter(None, [facts, *story.queries])) or 'nothing'}</reflection>"


def _joined(facts: list[str], story: Story) -> str:
    return (" " if story.shop.tiny else ", ").join(facts)


def _fact(seen: Seen, story: Story) -> list[str]:
    """What is known of a product after an episode; nothing where nothing is."""
    asin, missing = seen.product.asin, lacks(seen, story.goal)
    is_bought = asin == story.bought
    if story.bought in story.right if is_bought else not (missing or unsure(seen, story.goal)):
        return [f"{asin}=ok"]
    if not (is_bought or missing):
        return []
    reasons = [f"{story.match.reward:.2g}"] if is_bought else []
    reasons += [f"no {', '.join(missing)}"] if missing else []
    return [f"{asin}=*"] if story.shop.tiny else [f"{asin}=* {' '.join(reasons)}"]
