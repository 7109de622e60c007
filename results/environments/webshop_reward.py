"""WebShop's goals and reward natively and in the original's own code.

    WEBSHOP_DATA=... python results/environments/webshop_reward.py PATH_TO_ORIGINAL [TAGGER ...]

PATH_TO_ORIGINAL is a checkout of princeton-nlp/WebShop; of its needs spacy, thefuzz==0.19.0, flask, tqdm and rich are
used, no Java. TAGGER is a model of spaCy, by name or by path (en_core_web_sm, which the original loads, when none is
named); of several, the others are compared with the first too.

First the goals, one by one: those made of templates, and those that people wrote (made up here where the data has no
items_human_ins.json). Then purchases: the goal's own product with its options right, partly right, wrong, few or none;
others of its kind, of its category, found by its instruction, any; at their price, at the budget and a cent above it.
Each is judged by both. What the titles' nouns decide is told apart: in the first table the original is given the native
nouns, and nothing may differ but what is done otherwise on purpose, namely that the very option that was asked for
always counts; in the second it has its tagger. Fails where anything else differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import random
import sys
import tempfile
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from mulligan.envs.webshop import files
from mulligan.envs.webshop.catalogue import Catalogue, Goal, Product, from_files, from_people
from mulligan.envs.webshop.reward import Match, judge, nouns

GOALS, OTHERS = 7000, 2
"""Goals of each sort that purchases are made for; other products of each sort that are bought for one."""
HOW = ("right", "partly right", "wrong", "few", "none")
CLOSE = 1e-9
PARTS = ("type", "attributes", "options", "price", "reward")
ON_PURPOSE = ("the very option", "success by that")
Chosen = dict[str, str]


class Original(NamedTuple):
    """The original's modules and what they made of the files."""

    goal: Any
    products: dict[str, Any]
    """By id, in lower case."""
    goals: list[dict[str, Any]]


class Purchase(NamedTuple):
    sort: str
    goal: Goal
    product: Product
    chosen: Chosen


def main() -> int:
    parser = argparse.ArgumentParser(description="WebShop's goals and reward natively and in the original's code.")
    parser.add_argument("original", type=Path)
    parser.add_argument("tagger", nargs="*", default=["en_core_web_sm"])
    options = parser.parse_args()
    modules = load(options.original, options.tagger[0])
    taggers = named_taggers(modules[0].nlp, options.tagger)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        where = write_files(Path(folder))
        os.environ["MULLIGAN_CACHE"] = folder
        for human, shop in ((False, from_files(where)), (True, from_people(where))):
            title = "Goals in the form of people's" if human else "Goals of templates"
            original = goals_of(modules, Path(folder), human)
            wrong += compare_goals(title, shop, original)
            wrong += compare_purchases(title, list(purchases(shop, OTHERS)), original, taggers)
    return int(wrong > 0)


# --- The original


def load(checkout: Path, tagger: str) -> tuple[Any, Any]:
    """Its modules `goal` and `engine`; its search, which needs Java, is left out."""
    for name in ("pyserini", "pyserini.search", "pyserini.search.lucene"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["pyserini.search.lucene"].LuceneSearcher = None  # type: ignore[attr-defined]
    sys.path.insert(0, str(checkout))
    warnings.simplefilter("ignore")  # thefuzz says that it is slow, spaCy that a model is of another version
    spacy: Any = importlib.import_module("spacy")
    by_name = spacy.load
    spacy.load = lambda name: by_name(tagger)
    try:
        return tuple(importlib.import_module(f"web_agent_site.engine.{name}") for name in ("goal", "engine"))  # type: ignore[return-value]
    finally:
        spacy.load = by_name


def named_taggers(first: Any, names: list[str]) -> dict[str, Callable[[str], Any]]:
    """Each tagger by name and version, remembering what it found."""
    load_model = importlib.import_module("spacy").load
    models = [first, *(load_model(name) for name in names[1:])]
    return {f"{each.meta['lang']}_{each.meta['name']} {each.meta['version']}": lru_cache(None)(each) for each in models}


def native(title: str) -> list[Any]:
    """The native nouns in the form that the original asks its tagger for."""
    return [types.SimpleNamespace(text=word, pos_="NOUN") for word in nouns(title)]


def write_files(folder: Path) -> str:
    """The data as the original reads it, in `folder`: no .gz, prices as text, and goals of people."""
    source = files.find(os.environ["WEBSHOP_DATA"])
    products = [entry for _, entry in files.entries(source.products)]
    notes = dict(files.entries(source.instructions))
    for entry in products:
        if isinstance(entry["pricing"], list):
            entry["pricing"] = " - ".join(f"${price}" for price in entry["pricing"])
    people = source.products.with_name("items_human_ins.json")
    written = [path for path in (people, people.with_name(f"{people.name}.gz")) if path.is_file()]
    asked = dict(files.entries(written[0])) if written else dict(made_up(products, notes))
    for name, value in (("items_shuffle", products), ("items_ins_v2", notes), ("items_human_ins", asked)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    return str(folder)


def made_up(products: list[Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Instructions as people would write them: for every other product up to three, some of which name no attribute."""
    rng = random.Random(0)
    for entry in products[::2]:
        values = [
            each["value"].strip().replace("/", " | ").lower()
            for group in (entry["customization_options"] or {}).values()
            for each in rng.sample(group or [], min(1, len(group or [])))
        ]
        has = notes.get(entry["asin"], {}).get("attributes", [])
        yield (
            entry["asin"],
            [
                {
                    "instruction": f"i am looking for {entry['query']}, number {number}" + "." * number,
                    "instruction_attributes": rng.sample(has, min(len(has), number)),
                    "instruction_options": rng.sample(values, rng.randint(0, len(values))),
                }
                for number in range(rng.randint(1, 3))
            ],
        )


def goals_of(modules: tuple[Any, Any], folder: Path, human: bool) -> Original:
    goal, engine = modules
    engine.DEFAULT_ATTR_PATH = str(folder / "items_ins_v2.json")
    engine.HUMAN_ATTR_PATH = str(folder / "items_human_ins.json")
    engine.tqdm, engine.print, goal.print = lambda each, total: each, lambda *said: None, lambda *said: None
    listed, _, prices, _ = engine.load_products(str(folder / "items_shuffle.json"), human_goals=human)
    goals = goal.get_goals(listed, prices, human)
    random.seed(233)  # as its server does
    random.shuffle(goals)
    return Original(goal, {each["asin"].lower(): each for each in listed}, goals)


# --- Goals


def compare_goals(title: str, shop: Catalogue, original: Original) -> int:
    """How many goals differ, part by part; the budget is drawn anew by each process of the original."""
    different: Counter[str] = Counter()
    for number, theirs in enumerate(original.goals):
        ours = shop.goal(number)
        wanted = theirs["goal_options"]
        pairs = {
            "product": (ours.asin, theirs["asin"].lower()),
            "attributes": (ours.attributes, tuple(theirs["attributes"])),
            "options": (list(ours.options.values()), list(wanted if ours.human else wanted.values())),
            "groups": (list(ours.options), list(ours.options if ours.human else wanted)),
            "instruction": (without_price(ours.instruction), without_price(theirs["instruction_text"])),
            "title and kind": (
                (ours.title, ours.kind, ours.crumbs, ours.category),
                (theirs["name"], theirs["query"], theirs["product_category"], theirs["category"]),
            ),
        }
        for part, (own, other) in pairs.items():
            if own != other:
                different[part] += 1
                different["but for blanks"] += plain(own) != plain(other)
    columns = [*pairs, "but for blanks"]
    counts = Counter({**different, "here": len(shop.order), "in the original": len(original.goals)})
    show(f"{title}; on the right how many differ", ["here", "in the original", *columns], {"goals": counts})
    return different["but for blanks"] + abs(len(shop.order) - len(original.goals))


def without_price(text: str) -> str:
    return text.partition(", and price lower than ")[0]


def plain(value: object) -> str:
    """A value in which runs of blanks of all kinds are one."""
    return " ".join(str(value).replace("\\xa0", " ").split())


# --- Purchases


def purchases(shop: Catalogue, others: int) -> Iterator[Purchase]:
    """Purchases of every sort, some of them at the budget or a cent above."""
    rng = random.Random(0)
    alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    place = {product.asin: number for number, product in enumerate(shop.products)}
    for number, product in enumerate(shop.products):
        alike["kind", product.kind].append(number)
        alike["category", product.category].append(number)
    for goal in map(shop.goal, sorted(rng.sample(range(len(shop.order)), min(GOALS, len(shop.order))))):
        own = shop.products[place[goal.asin]]
        made = [Purchase(f"its product, options {how}", goal, own, choose(own, goal, how, rng)) for how in HOW]
        sorts = {
            "of its kind": alike["kind", goal.kind],
            "of its category": alike["category", goal.category],
            "found by its instruction": shop.search(goal.instruction),
            "any product": range(len(shop.products)),
        }
        for sort, numbers in sorts.items():
            for number in rng.sample(numbers, min(others, len(numbers))):
                product = shop.products[number]
                made.append(Purchase(sort, goal, product, choose(product, goal, rng.choice(HOW), rng)))
        for purchase in made:
            price = rng.choice([purchase.product.price] * 2 + [goal.budget, goal.budget + 0.01])
            yield purchase._replace(product=dataclasses.replace(purchase.product, price=price))


def choose(product: Product, goal: Goal, how: str, rng: random.Random) -> Chosen:
    """Options of a product: those of the goal where they are offered, or not."""
    chosen = {}
    for group, values in product.options.items():
        wanted = [value for value in goal.options.values() if value in values]
        if how == "none" or (how == "few" and rng.random() < 0.5):
            continue
        right = wanted and (how == "right" or (how == "partly right" and rng.random() < 0.5))
        chosen[group] = wanted[0] if right else rng.choice(values)
    return chosen


def compare_purchases(
    title: str, made: list[Purchase], original: Original, taggers: dict[str, Callable[[str], Any]]
) -> int:
    """Both tables; how many differences are not on purpose."""
    plainly: defaultdict[str, Counter[str]] = defaultdict(Counter)
    tagged: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for purchase in made:
        match = judge(purchase.product, purchase.goal, purchase.chosen)
        note(plainly[purchase.sort], purchase, match, original)
        note_taggers(tagged[purchase.sort], purchase, match, original, taggers)
    what = f"{title}: purchases that differ"
    show(f"{what}, the original given the native nouns", ["purchases", *PARTS, *ON_PURPOSE], plainly)
    first, *others = taggers
    columns = ["purchases", "title decides", "type", "reward", "success", *(f"type: {other}" for other in others)]
    show(f"{what}, the original with its tagger ({first}); on the right other taggers from it", columns, tagged)
    return sum(counts[part] for counts in plainly.values() for part in PARTS)


def note(counts: Counter[str], purchase: Purchase, match: Match, original: Original) -> None:
    """What differs when the original has the native nouns."""
    goal, chosen = purchase.goal, purchase.chosen
    wanted = list(goal.options.values()) if goal.human else list(goal.options.items())
    reward, info = ask(original, purchase, native)
    hits = [original.goal.get_option_reward(list(chosen.values()), [each])[1] > 0 for each in wanted]
    very = [value in chosen.values() for value in goal.options.values()]
    added = sum(own and not hit for own, hit in zip(very, hits, strict=True))
    size = len(goal.attributes) + len(goal.options) + 1
    pairs = {
        "type": (match.type, info["r_type"]),
        "attributes": (1 - len(match.missing) / len(goal.attributes), info["r_att"]),
        "options": (match.options, info.get("r_option", 0) * len(goal.options) + added),
        "price": (match.price, info["r_price"]),
        "reward": (match.reward, reward + info["r_type"] * added / size),
    }
    counts["purchases"] += 1
    counts["the very option"] += added > 0
    counts["success by that"] += match.success and reward < 1 - CLOSE
    for part, (ours, theirs) in pairs.items():
        if abs(ours - theirs) > CLOSE:
            counts[part] += 1
            sys.stderr.write(f"DIFFERENT {part}: {ours}, not {theirs}: {purchase.sort} {goal} {chosen}\n")


def note_taggers(
    counts: Counter[str], purchase: Purchase, match: Match, original: Original, taggers: dict[str, Any]
) -> None:
    """What differs when the original has its tagger, and from tagger to tagger."""
    (_, first), *others = taggers.items()
    reward, info = ask(original, purchase, first)
    counts["purchases"] += 1
    counts["title decides"] += info["r_type"] != (1.0 if info["query_match"] or info["category_match"] else 0.5)
    counts["type"] += abs(match.type - info["r_type"]) > CLOSE
    counts["reward"] += abs(match.reward - reward) > CLOSE
    counts["success"] += match.success != (reward > 1 - CLOSE)
    for name, tagger in others:
        counts[f"type: {name}"] += ask(original, purchase, tagger)[1]["r_type"] != info["r_type"]


def ask(original: Original, purchase: Purchase, tagger: Callable[[str], Any]) -> tuple[float, dict[str, Any]]:
    """The original's reward and its parts."""
    goal, product = purchase.goal, purchase.product
    asked = {
        "query": goal.kind,
        "product_category": goal.crumbs,
        "name": goal.title,
        "attributes": list(goal.attributes),
        "goal_options": list(goal.options.values()) if goal.human else goal.options,
        "price_upper": goal.budget,
    }
    original.goal.nlp = tagger
    bought = original.products[product.asin]
    reward, info = original.goal.get_reward(bought, asked, product.price, purchase.chosen, verbose=True)
    return reward, info


def show(title: str, columns: Sequence[str], rows: Mapping[str, Counter[str]]) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(("", *columns)):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    added = {"all": sum(rows.values(), Counter[str]())} if len(rows) > 1 else {}
    for label, counts in {**rows, **added}.items():
        table.add_row(label, *(f"{counts[column]:,}" for column in columns))
    Console(width=170).print(table)


if __name__ == "__main__":
    sys.exit(main())
