"""Which shop and which goal a task of the shop asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mulligan.envs.webshop import files
from mulligan.envs.webshop.catalogue import Catalogue, from_files, from_people
from mulligan.envs.webshop.generate import generated
from mulligan.envs.webshop.tiny import MOST, tiny
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.seeding import derive
from mulligan.types import ParamValue, Task

GENERATED = ("generated", "tiny")
"""Catalogues that are made up."""
ORIGINAL_SPLIT = {"eval": slice(0, 500), "validation": slice(500, 1500), "train": slice(1500, None)}
"""The original's split of its goals, by their order."""
_SEEDS_EACH = 1_000_000_000
_BY_SEED = ("train", "validation", "eval")
"""Which set of the original's split each 10^9 seeds draw from; later seeds draw from the last."""
_NUMBERS = {
    "products": (1, 2_000_000),
    "per_page": (1, 50),
    "longest": (0, 1_000_000),
    "goal": (-1, 1_000_000_000),
    "world": (-1, 2**63),
}
"""The least and the largest value of a parameter."""
_WORDS = {
    "view": ("page", "compact"),
    "pays": ("score", "success"),
    "goals": ("synthetic", "human"),
    "split": ("auto", "original"),
}


def check(params: Mapping[str, ParamValue]) -> None:
    """Raise for parameters that no shop has."""
    is_made_up = params["catalogue"] in GENERATED
    for name, (least, most) in _NUMBERS.items():
        most = MOST if name == "products" and params["catalogue"] == "tiny" else most
        if not least <= int(params[name]) <= most:
            raise ParameterError(f"webshop: {name} must be {least} to {most} (got {params[name]})")
    for name, words in _WORDS.items():
        if params[name] not in words:
            raise UnknownName(f"webshop {name}", str(params[name]), words)
        if is_made_up and params[name] in ("human", "original"):
            raise ParameterError(f"webshop: {name}={params[name]} needs the original's files; set catalogue")
    if not is_made_up:
        source = files.find(_folder(str(params["catalogue"])))
        if params["goals"] == "human":
            files.by_people(source)


def catalogue(task: Task) -> Catalogue:
    """The shop of a task; loaded or made once in a process."""
    name = task.text("catalogue")
    if name not in GENERATED:
        return (from_people if ("goals", "human") in task.params else from_files)(_folder(name))
    products, world = task.integer("products"), task.integer("world")
    make = tiny if name == "tiny" else generated
    return make(products, derive(task.seed, "webshop world") if world == -1 else world)


def _folder(name: str) -> str:
    if name != "original":
        return name
    folder = os.environ.get("WEBSHOP_DATA")
    if not folder:
        raise UsageError("webshop: catalogue=original needs WEBSHOP_DATA, the folder with items_shuffle_1000.json")
    return folder


def goal_number(task: Task, shop: Catalogue) -> int:
    """The goal a task asks for, or the one that its seed draws."""
    goals, number = len(shop.order), task.integer("goal")
    if number >= goals:
        raise ParameterError(f"webshop: goal must be < {goals}, the goals of this catalogue (got {number})")
    if number >= 0:
        return number
    if task.text("split") == "auto":
        return shop.draw(task.seed)
    part = _BY_SEED[min(max(0, task.seed) // _SEEDS_EACH, len(_BY_SEED) - 1)]
    numbers = range(goals)[ORIGINAL_SPLIT[part]]
    if not numbers:
        raise ParameterError(f"webshop: split=original has no goal for {part}: the catalogue has only {goals} goals")
    return numbers[task.seed % _SEEDS_EACH % len(numbers)]


def original_set(number: int) -> str:
    """The set that the original's split puts a goal in."""
    return next(part for part, numbers in ORIGINAL_SPLIT.items() if numbers.stop is None or number < numbers.stop)
