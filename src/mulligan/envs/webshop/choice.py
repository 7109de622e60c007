"""Which shop and which goal a task of the shop asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mulligan.envs.webshop import files
from mulligan.envs.webshop.catalogue import Catalogue, from_files
from mulligan.envs.webshop.generate import generated
from mulligan.envs.webshop.people import from_people
from mulligan.envs.webshop.tiny import MOST, tiny
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.seeding import derive
from mulligan.types import ParamValue, Task

GENERATED = ("generated", "tiny")
"""Catalogues that are made up."""
SPLITS = ("auto", "original")
ORIGINAL_SPLIT = {"eval": slice(0, 500), "validation": slice(500, 1500), "train": slice(1500, None)}
"""The original's split of its goals, by their order."""
_SEEDS_EACH = 1_000_000_000
_BY_SEED = ("train", "validation", "eval")
"""Which set of the original's split each 10^9 seeds draw from; later seeds draw from the last."""


def check(params: Mapping[str, ParamValue]) -> None:
    """Complain of parameters that no shop has."""
    for name, least, most in (("products", 1, 2_000_000), ("per_page", 1, 50), ("longest", 0, 1_000_000)):
        if not least <= int(params[name]) <= most:
            raise ParameterError(f"webshop: {name}={params[name]} cannot be; give {least} to {most}")
    for name, known in (
        ("view", ("page", "compact")),
        ("pays", ("score", "success")),
        ("goals", ("synthetic", "human")),
        ("split", SPLITS),
    ):
        if params[name] not in known:
            raise UnknownName(f"webshop {name}", str(params[name]), known)
    if int(params["goal"]) < -1:
        raise ParameterError(f"webshop: goal={params['goal']} cannot be; -1 lets the seed choose, others count from 0")
    if int(params["world"]) < -1:
        raise ParameterError(
            f"webshop: world={params['world']} cannot be; -1 draws a catalogue for each task, others are seeds"
        )
    if params["catalogue"] == "tiny" and int(params["products"]) > MOST:
        raise ParameterError(f"webshop: products={params['products']} is too many for catalogue=tiny; give 1 to {MOST}")
    for name, value in (("goals", "human"), ("split", "original")):
        if params["catalogue"] in GENERATED and params[name] == value:
            raise ParameterError(
                f"webshop: {name}={value} needs the original's files; give catalogue=original or their path"
            )
    if params["catalogue"] not in GENERATED:
        source = files.find(_where(str(params["catalogue"])))
        if params["goals"] == "human":
            files.by_people(source)


def catalogue(task: Task) -> Catalogue:
    """The shop of a task; loaded or made once in a process."""
    name = task.text("catalogue")
    if name not in GENERATED:
        return (from_people if ("goals", "human") in task.params else from_files)(_where(name))
    products, world = task.integer("products"), task.integer("world")
    make = tiny if name == "tiny" else generated
    return make(products, derive(task.seed, "webshop world") if world == -1 else world)


def _where(name: str) -> str:
    if name != "original":
        return name
    where = os.environ.get("WEBSHOP_DATA")
    if not where:
        raise UsageError("webshop: catalogue='original' needs WEBSHOP_DATA, the folder with items_shuffle_1000.json")
    return where


def goal_number(task: Task, shop: Catalogue) -> int:
    """The goal a task asks for, or the one that its seed draws."""
    goals, number = len(shop.order), task.integer("goal")
    if number >= goals:
        raise ParameterError(f"webshop: goal={number} of {goals} in this catalogue; they count from 0")
    if number >= 0:
        return number
    if task.text("split") == "auto":
        return shop.draw(task.seed)
    part = _BY_SEED[min(max(0, task.seed) // _SEEDS_EACH, len(_BY_SEED) - 1)]
    numbers = range(goals)[ORIGINAL_SPLIT[part]]
    if not numbers:
        raise ParameterError(
            f"webshop: split=original has no goal for {part}: the catalogue has {goals} goals, of which the first 500 "
            "are for evaluation and the next 1,000 for validation"
        )
    return numbers[task.seed % _SEEDS_EACH % len(numbers)]


def original_set(number: int) -> str:
    """The set that the original's split puts a goal in."""
    return next(part for part, numbers in ORIGINAL_SPLIT.items() if numbers.stop is None or number < numbers.stop)
