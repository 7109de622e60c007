"""What a shopper knows after an episode: from the pages that were seen, never from what they hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mulligan.envs.webshop.catalogue import Goal, Product
from mulligan.envs.webshop.reward import Match, answers, is_alike, not_chosen
from mulligan.errors import StopReason
from mulligan.types import Episode

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop


@dataclass
class Seen:
    """An item that was opened."""

    product: Product
    query: str
    """The search that showed it."""
    number: int
    """The page of results it stood on."""
    telling: tuple[str, ...]
    """The sub-pages that name attributes."""
    read: dict[str, str] = field(default_factory=dict)
    """Its sub-pages that were opened, with what they said."""

    @classmethod
    def in_shop(cls, world: WebShop, item: Product) -> Seen:
        """The item that `world` shows, with nothing read."""
        return cls(item, world.query, world.number, world.telling)

    @property
    def all_read(self) -> bool:
        return self.read.keys() >= set(self.telling)


@dataclass
class Story:
    """What happened in an episode."""

    queries: dict[str, int] = field(default_factory=dict)
    """Each search and how many products it found."""
    seen: dict[str, Seen] = field(default_factory=dict)
    bought: Product | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    match: Match | None = None
    """What the purchase was worth."""

    def is_bought(self, product: Product) -> bool:
        return self.bought is not None and self.bought.asin == product.asin

    def note(self, world: WebShop) -> None:
        """Take down what `world` shows now."""
        if world.page == "results":
            self.queries[world.query] = len(world.hits)
        elif world.item is not None:
            item = world.item
            seen = self.seen.setdefault(item.asin, Seen.in_shop(world, item))
            if world.page == "done":
                self.bought, self.chosen, self.match = item, dict(world.chosen), world.match()
            elif world.page != "item":
                seen.read[world.page] = world.said(world.page)


def retell(world: WebShop, episode: Episode) -> Story:
    """The story of an episode of `world`'s task, told by playing its replies again."""
    again, story = type(world)(world.task), Story()
    for turn in episode.turns:
        if turn.valid:
            text = turn.reply.text
            again.step(text if "<action>" in text.lower() else f"<action>{text}</action>")
            story.note(again)
    return story


def lowest_price(product: Product) -> float:
    """What the price tag says, at the least."""
    return float(product.price_tag.split()[0].lstrip("$"))


def offered(product: Product, goal: Goal) -> dict[str, tuple[str, str]]:
    """Group of the goal -> (group of the product, value) of the option that answers it; those not offered are left out.

    The very value first, then one that is alike, each in the group of that name first.
    """
    found = {}
    for group, wanted in goal.options.items():
        groups = sorted(product.options, key=lambda own: own != group)
        choices = [(own, value) for own in groups for value in product.options[own]]
        same = [choice for choice in choices if choice[1] == wanted]
        alike = same or [choice for choice in choices if answers(choice[1], goal, group)]
        if alike:
            found[group] = alike[0]
    return found


def named(goal: Goal, group: str) -> str:
    """An option of the goal in words; those that people wrote have no group."""
    return goal.options[group] if goal.human else f"{group} {goal.options[group]}"


def lacks(seen: Seen, goal: Goal) -> list[str]:
    """What of the goal an item does not meet, as the pages that were read tell it."""
    said = not_offered(seen.product, goal)
    return said + (_unsaid(seen, goal) if seen.all_read else [])


def not_offered(product: Product, goal: Goal) -> list[str]:
    """The options of the goal that an item does not have; and the price, where it is too high."""
    have = offered(product, goal)
    said = [named(goal, group) for group in goal.options if group not in have]
    return said + ([f"price under {goal.budget:g}"] if lowest_price(product) > goal.budget else [])


def unsure(seen: Seen, goal: Goal) -> list[str]:
    """The wanted attributes that no page that was read speaks of, while some page is unread."""
    if seen.all_read:
        return []
    text = _text(seen)
    return [wanted for wanted in goal.attributes if wanted not in text]


def _unsaid(seen: Seen, goal: Goal) -> list[str]:
    """The wanted attributes that no page that was read names, nor one like them: the shop may know more."""
    text = _text(seen)
    told = [own for own in seen.product.attributes if own.lower() in text]
    return [each for each in goal.attributes if each not in text and not any(is_alike(own, each) for own in told)]


def _text(seen: Seen) -> str:
    return "\n".join([seen.product.title, *seen.read.values()]).lower()


def bought_right(story: Story, goal: Goal) -> bool:
    """Whether the score of a purchase tells that all was right but options that were not chosen."""
    if story.bought is None or story.match is None:
        return False
    return is_right(story.bought, story.chosen, story.match, goal)


def is_right(product: Product, chosen: Mapping[str, str], match: Match, goal: Goal) -> bool:
    """Whether the score of buying `product` tells that it lacks nothing but the options that were not chosen."""
    if not_offered(product, goal):
        return False
    asked_for = len(goal.attributes) + len(goal.options) + 1
    return match.reward * asked_for > asked_for - len(not_chosen(goal, chosen)) - 0.5


def digest(world: WebShop, episode: Episode) -> str:
    """An episode in a few lines: what was searched, what was looked at and lacked, what was bought."""
    story = retell(world, episode)
    lines = []
    if story.queries:
        lines.append("searched " + "; ".join(f"{query!r} ({found} found)" for query, found in story.queries.items()))
    for asin, seen in story.seen.items():
        lines.append(f"{asin} {seen.product.price_tag}: {_verdict(seen, story, world.goal)}")
    lines.append(_bought(story))
    return "\n".join(lines)


def reflect(world: WebShop, episode: Episode) -> str:
    """A truthful reflection: what was bought, what it lacked, the best item seen, what to do next."""
    story, goal = retell(world, episode), world.goal
    wrong = _wrong(story, goal)
    invalid = [number for number, turn in enumerate(episode.turns, start=1) if not turn.valid]
    out = episode.stop is StopReason.TURN_LIMIT
    category = (
        "none"
        if episode.won
        else "out-of-turns"
        if out
        else "invalid-reply"
        if invalid and not story.bought
        else "wrong-move"
    )
    failed = (
        "nothing"
        if episode.won
        else f"turn {len(episode.turns)}, " + ("no purchase" if story.bought is None else "buy now")
    )
    return (
        "<reflection>\n"
        f"strategy: searched {'; '.join(repr(query) for query in story.queries) or 'nothing'}\n"
        f"outcome: {_bought(story)}\n"
        f"reward: {episode.reward:.3g}\n"
        f"failed_at: {failed}\n"
        f"env_answer: {wrong}\n"
        f"error_category: {category}\n"
        f"plan: {_plan(world, story, episode.won)}\n"
        "</reflection>"
    )


def _verdict(seen: Seen, story: Story, goal: Goal) -> str:
    is_right = story.is_bought(seen.product) and bought_right(story, goal)
    missing, open_questions = [] if is_right else lacks(seen, goal), unsure(seen, goal)
    if missing:
        return f"lacks {', '.join(missing)}"
    return f"not read whether {', '.join(open_questions)}" if open_questions else "fits"


def _bought(story: Story) -> str:
    if story.bought is None or story.match is None:
        return "bought nothing"
    chosen = "".join(f", {group} {value}" for group, value in story.chosen.items())
    return f"bought {story.bought.asin}{chosen}: score {story.match.reward:.3g}"


def _wrong(story: Story, goal: Goal) -> str:
    """What kept the purchase from being right, as far as pages and score tell."""
    if story.bought is None or story.match is None:
        return "no purchase was made in time"
    if story.match.success:
        return "everything matched"
    seen, parts = story.seen[story.bought.asin], list[str]()
    if not bought_right(story, goal):
        parts += [f"not {wanted}" for wanted in lacks(seen, goal) if wanted in goal.attributes]
        parts += [f"price above {goal.budget:g}"] * (lowest_price(story.bought) > goal.budget)
        parts += ["another kind of product"] * (story.match.type < 1)  # as its title says
        parts += ["something did not match"] * (not parts)
    parts += [f"{named(goal, group)} not chosen" for group in not_chosen(goal, story.chosen)]
    return f"{story.bought.asin}: {', '.join(parts)}"


def _plan(world: WebShop, story: Story, won: bool) -> str:
    goal = world.goal
    if won and story.bought is not None:
        seen = story.seen[story.bought.asin]
        return f"search {seen.query!r}, open {story.bought.asin}, choose {_choices(seen, goal)}, buy"
    others = [seen for seen in story.seen.values() if not story.is_bought(seen.product)]
    left = [seen for seen in others if not lacks(seen, goal)]
    if story.bought is not None and bought_right(story, goal):
        left = [story.seen[story.bought.asin]]
    if left:
        best = min(left, key=lambda seen: len(unsure(seen, goal)))
        open_questions = unsure(best, goal)
        check = f", check {' and '.join(open_questions)}" if open_questions else ""
        return f"search {best.query!r}, open {best.product.asin}{check}, choose {_choices(best, goal)}, buy"
    avoid = f"not {', '.join(story.seen)}; " if story.seen else ""
    return f"{avoid}look at other results, or search in other words"


def _choices(seen: Seen, goal: Goal) -> str:
    return ", ".join(value for _, value in offered(seen.product, goal).values()) or "no options"
