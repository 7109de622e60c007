"""WebShop's split: no set asks for a product of another set, but with the split of the original's files."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mulligan import evaluate
from mulligan.envs import registry
from mulligan.envs.webshop.catalogue import from_files
from mulligan.envs.webshop.generate import records
from mulligan.errors import ParameterError
from mulligan.report.tables import eval_table
from mulligan.rollout.tasksets import FIRST_SEED, tasks_of
from scripted_play import task_set
from shirts import NOTE, item, shop_of

ORIGINAL = Path(os.environ.get("WEBSHOP_DATA", "no original files"))


def products_of(tasks: int, params: dict[str, Any]) -> dict[str, set[str]]:
    """The products that each set asks for, by shop."""
    drawn = {name: tasks_of("webshop", tasks, name, params, or_fewer=True) for name in FIRST_SEED}
    worlds = {name: [registry.build(task) for task in drawn[name]] for name in drawn}
    return {name: {f"{world.shop.name} {world.goal.asin}" for world in worlds[name]} for name in worlds}


def share_nothing(products: dict[str, set[str]]) -> bool:
    return sum(map(len, products.values())) == len(set().union(*products.values()))


@pytest.fixture
def files(tmp_path: Path) -> str:
    """300 generated products, as the original's files."""
    pairs = list(records(300, 0))
    return shop_of(tmp_path, [entry for entry, _ in pairs], {entry["asin"]: note for entry, note in pairs})


@pytest.mark.parametrize(
    ("tasks", "params"),
    [
        (100, {"products": 400}),
        (30, {"catalogue": "tiny", "products": 12, "world": -1}),
        (25, {"catalogue": "tiny", "products": 64}),
    ],
    ids=["generated", "tiny shops", "one tiny shop"],
)
def test_sets_share_no_product(tasks, params):
    products = products_of(tasks, params)
    assert all(products.values())
    assert share_nothing(products)


def test_sets_of_files_share_no_product(files):
    products = products_of(80, {"catalogue": files})
    assert share_nothing(products)
    # Of about 135, 30 and 135 products, 80 tasks name many.
    assert len(products["train"]) > 40
    assert 15 <= len(products["validation"]) <= 45
    assert len(products["eval"]) > 40


@pytest.mark.skipif(not ORIGINAL.exists(), reason="no WebShop data here")
def test_sets_of_the_originals_files_share_no_product():
    products = products_of(300, {"catalogue": str(ORIGINAL)})
    assert share_nothing(products)
    assert all(len(asked) > 25 for asked in products.values())


def test_a_list_holds_each_goal_once_and_stays_as_it_is():
    tasks = task_set("webshop", 120, "eval", products=100)
    worlds = [registry.build(task) for task in tasks]
    assert len({(world.goal.asin, *world.goal.options.values()) for world in worlds}) == 120
    assert len({world.goal.asin for world in worlds}) < 100
    assert tasks == task_set("webshop", 120, "eval", products=100)
    assert tasks[0].task_class == "webshop/generated"


def test_seeds_draw_each_product_alike_however_many_goals_it_has(tmp_path):
    many = {"color": [{"value": f"color {number}"} for number in range(30)]}
    entries = [item(1, customization_options=many), item(2, customization_options={}), item(3)]
    where = shop_of(tmp_path, entries, {f"B0{number}": NOTE for number in (1, 2, 3)})
    drawn = Counter(registry.make("webshop", seed, catalogue=where).goal.asin for seed in range(600))
    # 200 each, within four standard errors of 11.5; of 35 goals the first product has 30.
    assert all(154 <= drawn[asin] <= 246 for asin in ("b01", "b02", "b03"))


# --- The original's split


def test_the_originals_split_goes_by_order(files):
    def goals(first: int, count: int) -> list[int]:
        worlds = [registry.make("webshop", first + n, catalogue=files, split="original") for n in range(count)]
        return [world.goal.number for world in worlds]

    assert len(from_files(files).order) > 1600
    evaluation = FIRST_SEED["eval"]
    assert sorted(goals(evaluation, 500)) == list(range(500))
    assert goals(evaluation, 1) == goals(evaluation + 500, 1), "after the last the first comes again"
    assert sorted(goals(FIRST_SEED["validation"], 1000)) == list(range(500, 1500))
    assert goals(0, 2) == [1500, 1501]
    for name, first in FIRST_SEED.items():
        assert registry.make("webshop", first, catalogue=files, split="original").seed_set() == name
        assert registry.make("webshop", first, catalogue=files).seed_set() is None


def test_the_originals_split_needs_as_many_goals(tmp_path):
    where = shop_of(tmp_path, [item(3)], {"B03": NOTE})
    with pytest.raises(ParameterError, match="train"):
        registry.make("webshop", 0, catalogue=where, split="original")


def test_the_originals_split_is_named_where_its_figures_stand(files):
    for params, named in (({"split": "original"}, True), ({}, False)):
        result = evaluate(
            "webshop", "random", tasks=2, params={"catalogue": files, **params}, controls="off", room=False
        )
        (task_class,) = result.by_class
        assert (task_class == "webshop/file/original-split") == named
        assert ("original-split" in str(eval_table(result.to_dict()).title)) == named
