"""WebShop: find a product that an instruction asks for, choose its options, buy it (Yao et al., arXiv 2207.01206).

The pages, actions and reward of the original, without its web server, Java and tagger; `reward.py` says what differs in
the reward. The instruction stands on the search page alone.

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

import os
import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mulligan.envs import drawing
from mulligan.envs.base import LONGEST_REPLY, Player, action_text, check_choices, check_range, tagged
from mulligan.envs.webshop import files, memory, pages
from mulligan.envs.webshop.catalogue import Catalogue, from_files, from_people
from mulligan.envs.webshop.generate import MOST_TINY, generated, tiny
from mulligan.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES, Session
from mulligan.envs.webshop.search import as_query
from mulligan.errors import ParameterError, UsageError
from mulligan.seeding import derive
from mulligan.types import Episode, ParamValue, Step, Task

LONGEST_QUERY = 1_000
"""Characters of a query; a longer one is no action."""
_GENERATED = ("generated", "tiny")
_ORIGINAL_SPLIT = {"train": slice(1500, None), "validation": slice(500, 1500), "eval": slice(0, 500)}
"""The original's split of its goals, by their order. Each 10^9 seeds draw from the next set."""
_SEEDS_EACH = 1_000_000_000
_WORDS = {
    "view": ("page", "compact"),
    "pays": ("score", "success"),
    "goals": ("synthetic", "human"),
    "split": ("auto", "original"),
}
_LONGEST_ECHO = 60
_CANONICAL = re.compile(r"<action>(search|click)\[([^\[\]<>]*|< prev|next >)\]</action>")
_COMMAND = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_ARROWS = re.compile(r"<\s*(prev)|(next)\s*>", re.IGNORECASE)
_BRACKETS = re.compile(r"(?:search|click)\[([^\]]*)\]")
_BRIEF = {BUY: "buy", BACK: "back", PREVIOUS: "prev", NEXT: "next"}
_SHORT = {short: button for button, short in _BRIEF.items()} | {"previous": PREVIOUS, "<prev": PREVIOUS, "next>": NEXT}


def click(text: str) -> str:
    return f"<action>click[{text}]</action>"


def search(query: str) -> str:
    return f"<action>search[{as_query(query)}]</action>"


class WebShop:
    """Buy what an instruction asks for in an online shop: search, compare, choose options."""

    defaults: ClassVar[dict[str, ParamValue]] = {
        "catalogue": "generated", "products": 3000, "world": 0, "goals": "synthetic", "goal": -1, "split": "auto",
        "per_page": 10, "longest": 1200, "attributes": False, "view": "page", "pays": "score",
    }  # fmt: skip
    turns: ClassVar[int] = 12
    players: ClassVar[tuple[str, ...]] = ("expert", "first-listed", "omniscient")
    room_players: ClassVar[tuple[str, ...]] = ("first-listed",)
    draw = staticmethod(drawing.shop)

    def __init__(self, task: Task) -> None:
        self.task = task
        self.shop = _catalogue(task)
        self.goal = self.shop.goal(_goal_number(task, self.shop))
        self.compact = task.text("view") == "compact"
        sub_pages = (*SUB_PAGES, "attributes") if task["attributes"] else SUB_PAGES
        self.session = Session(self.shop, self.goal, task.integer("per_page"), task.integer("longest"), sub_pages)
        self.moves = 0
        """Replies of this episode, whatever they were."""

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        is_made_up = params["catalogue"] in _GENERATED
        check_range("webshop", params, "products", 1, MOST_TINY if params["catalogue"] == "tiny" else 2_000_000)
        check_range("webshop", params, "per_page", 1, 50)
        check_range("webshop", params, "longest", 0, 1_000_000)
        check_range("webshop", params, "goal", -1, 1_000_000_000)
        check_range("webshop", params, "world", -1, 2**63)
        check_choices("webshop", params, _WORDS)
        for name, needed in (("goals", "human"), ("split", "original")):
            if is_made_up and params[name] == needed:
                raise ParameterError(f"webshop: {name}={needed} needs the original's files; set catalogue")
        if not is_made_up:
            source = files.find(_folder(str(params["catalogue"])))
            if params["goals"] == "human":
                files.by_people(source)
        return params

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        name = params["catalogue"] if params["catalogue"] in (*_GENERATED, "original") else "file"
        return f"webshop/{name}" + "/original-split" * (params["split"] == "original")

    def rules(self) -> str:
        return pages.compact_rules(self.session) if self.compact else pages.RULES

    def reset(self, chance: int = 0) -> str:
        self.session.reset()
        self.moves = 0
        return self.render()

    def render(self) -> str:
        """The open page in words."""
        return pages.compact_page(self.session) if self.compact else pages.page(self.session)

    def step(self, reply: str) -> Step:
        self.moves += 1
        session = self.session
        if session.page == "done":
            return self._invalid("You have bought something already.")
        command = self._read(reply)
        if isinstance(command, str):
            return self._invalid(command)
        verb, text = command
        worth_before = session.worth()
        if verb == "search":
            session.search(text)
        elif text in session.clickables():
            session.click(text)
        else:
            return self._invalid(f"There is no [{text[:_LONGEST_ECHO]}] to click on this page.")
        if session.page == "done":
            match = session.match()
            earned = match.reward if self.task.text("pays") == "score" else float(match.success)
            return Step(self.render(), earned, True, match.success, True, session.key())
        return Step(self.render(), state_key=session.key(), shaping=session.worth() - worth_before)

    def legal(self) -> Sequence[str]:
        """Every click; where there is none, searches with the words of the instruction."""
        goal = self.goal
        if self.session.page != "search":
            return [self.write(click(text)) for text in self.session.clickables()]
        if self.shop.tiny:
            return [self.write(search(name)) for name in self.shop.names[goal.kind]]
        short = pages.request(goal).partition(";")[0] if self.compact else goal.instruction.partition(", and price")[0]
        return [search(short), search(" ".join([*goal.attributes, *goal.options.values()]))]

    def write(self, reply: str) -> str:
        """A reply as scripted players give it: in the tiny shop without search[] and click[]."""
        if not (self.shop.tiny and self.compact):
            return reply
        bare = _BRACKETS.sub(r"\1", reply)
        return next((bare.replace(long, short) for long, short in _BRIEF.items() if long in bare), bare)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.webshop.player import FirstListed, Shopper  # players know the world, and not the reverse

        if kind == "first-listed":
            return FirstListed(self, rng, skill, recall)
        return Shopper(self, kind, rng, skill, recall)

    def digest(self, episode: Episode) -> str:
        return (memory.compact_digest if self.compact else memory.digest)(self._replay(episode))

    def reflect(self, episode: Episode) -> str:
        story = self._replay(episode)
        return memory.compact_reflection(story) if self.compact else memory.reflection(story, episode)

    def world_key(self) -> str:
        """The product that is asked for; of the generated catalogue its family, all of which a shopper looks at."""
        family = f"{self.goal.kind}:{self.goal.attributes[0]}"
        return f"{self.shop.name}:{family if self.shop.made_up and not self.shop.tiny else self.goal.asin}"

    def task_key(self) -> str:
        which = str(self.goal.number) if self.goal.human else ",".join(self.goal.options.values())
        return f"{self.shop.name}:{self.goal.asin}:{which}"

    def seed_set(self) -> str | None:
        """The set of tasks that the original's split puts the goal in; None where products are split by their names."""
        if self.task.text("split") != "original":
            return None
        return next(part for part, goals in _ORIGINAL_SPLIT.items() if self.goal.number >= goals.start)

    def _replay(self, episode: Episode) -> memory.Story:
        """What an episode showed, found by playing its replies again."""
        replayed = WebShop(self.task)
        story = memory.Story(replayed.shop, replayed.goal)
        for turn in episode.turns:
            if turn.valid:
                replayed.step(tagged(turn.reply.text))
                story.note(replayed.session)
        return story

    def _read(self, reply: str) -> tuple[str, str] | str:
        """The command of a reply, or what is wrong with it."""
        command = _CANONICAL.fullmatch(reply) if len(reply) <= LONGEST_REPLY else None
        if command is None:
            # The original's buttons hold < and >, which are no part of an action elsewhere.
            text = action_text(_ARROWS.sub(r"\1\2", reply)) if len(reply) <= LONGEST_REPLY else None
            if self.compact and text and not {"[", "]"} & set(text):
                text = f"{'search' if self.session.page == 'search' else 'click'}[{text}]"
            command = _COMMAND.fullmatch(text) if text is not None else None
        if command is None:
            return "No action could be read; answer with search[words] or click[what the page shows] in <action> tags."
        verb, words = command[1].lower(), " ".join(command[2].lower().split())
        if not words:
            return f"{verb}[] names nothing."
        if verb == "search" and len(words) > LONGEST_QUERY:
            return f"A query may have {LONGEST_QUERY} characters, not {len(words)}."
        if verb == "click" and words not in self.session.values():
            words = _SHORT.get(words, words)
        return verb, words

    def _invalid(self, why: str) -> Step:
        return Step(self.render(), valid=False, state_key=self.session.key(), feedback=why)


def _catalogue(task: Task) -> Catalogue:
    """The shop of a task; loaded or made once in a process."""
    name, products, world = task.text("catalogue"), task.integer("products"), task.integer("world")
    if name not in _GENERATED:
        return (from_people if task.text("goals") == "human" else from_files)(_folder(name))
    seed = derive(task.seed, "webshop world") if world == -1 else world
    return tiny(products, seed) if name == "tiny" else generated(products, seed)


def _folder(catalogue: str) -> str:
    if catalogue != "original":
        return catalogue
    if folder := os.environ.get("WEBSHOP_DATA"):
        return folder
    raise UsageError("webshop: catalogue=original needs WEBSHOP_DATA, the folder with items_shuffle_1000.json")


def _goal_number(task: Task, shop: Catalogue) -> int:
    """The goal a task asks for, or the one that its seed draws."""
    goals, number = len(shop.order), task.integer("goal")
    if number >= goals:
        raise ParameterError(f"webshop: goal must be < {goals}, the goals of this catalogue (got {number})")
    if number >= 0:
        return number
    if task.text("split") == "auto":
        return shop.draw(task.seed)
    part = min(max(0, task.seed) // _SEEDS_EACH, len(_ORIGINAL_SPLIT) - 1)
    name, numbers = list(_ORIGINAL_SPLIT.items())[part]
    drawn = range(goals)[numbers]
    if not drawn:
        raise ParameterError(f"webshop: split=original has no goal for {name}: the catalogue has only {goals} goals")
    return drawn[task.seed % _SEEDS_EACH % len(drawn)]
