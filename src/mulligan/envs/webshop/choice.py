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
SPLITS = {"test": slice(0, 500), "validation": slice(500, 1500), "train": slice(1500, None), "all": slice(0, None)}
_SEEDS_EACH = 1_000_000_000
_BY_SEED = ("train", "validation", "test")
"""Which split each 10^9 seeds draw from."""


def check(params: Mapping[str, ParamValue]) -> None:
    """Complain of parameters that no shop has."""
    for name, least, most in (("products", 1, 2_000_000), ("per_page", 1, 50), ("longest", 0, 1_000_000)):
        if not least <= int(params[name]) <= most:
            raise ParameterError(f"webshop: {name}={params[name]} cannot be; give {least} to {most}")
    for name, known in (
        ("view", ("page", "compact")),
        ("pays", ("score", "success")),
        ("goals", ("synthetic", "human")),
    ):
        if params[name] not in known:
            raise UnknownName(f"webshop {name}", str(params[name]), known)
    if params["split"] not in ("auto", *SPLITS):
        raise UnknownName("webshop split", str(params["split"]), ("auto", *SPLITS))
    if int(params["goal"]) < -1:
        raise ParameterError(f"webshop: goal={params['goal']} cannot be; -1 lets the seed choose, others count from 0")
    if int(params["world"]) < -1:
        raise ParameterError(
            f"webshop: world={params['world']} cannot be; -1 draws a catalogue for each task, others are seeds"
        )
    if params["catalogue"] == "tiny" and int(params["products"]) > MOST:
        raise ParameterError(f"webshop: products={params['products']} is too many for catalogue=tiny; give 1 to {MOST}")
    if params["catalogue"] not in GENERATED:
        source = files.find(_where(str(params["catalogue"])))
        if params["goals"] == "human":
            files.by_people(source)
    elif params["goals"] == "human":
        raise ParameterError("webshop: goals=human needs the original's files; give catalogue=original or their path")


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
    split = task.text("split")
    if split == "auto":
        own = min(max(0, task.seed) // _SEEDS_EACH, len(_BY_SEED) - 1)
        split = "all" if task.text("catalogue") in GENERATED else _BY_SEED[own]
    numbers = range(goals)[SPLITS[split]]
    if not numbers:
        raise ParameterError(
            f"webshop: split={split} is empty: the catalogue has {goals} goals, and the first 500 are for test"
        )
    if split == "all":
        return numbers[derive(task.seed, "webshop goal") % len(numbers)]
    return numbers[task.seed % _SEEDS_EACH % len(numbers)]
