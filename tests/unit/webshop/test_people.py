"""Goals that people wrote: a made-up file of them, whole and damaged."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from mulligan.envs import registry
from mulligan.envs.check import check_env
from mulligan.envs.webshop.catalogue import from_people
from mulligan.errors import ParameterError, UnknownName, UsageError
from shirts import NOTE, item, shop_of

PEOPLE = {
    "B02": [
        {
            "asin": "B02",
            "instruction": "i want a slim fit shirt, red if you can...",
            "attributes": ["easy care", "slim fit"],
            "instruction_attributes": ["slim fit"],
            "instruction_options": ["red"],
            "worker_id": "W1",
        },
        {"instruction": "nothing is asked for", "instruction_attributes": [], "instruction_options": ["red"]},
        {"instruction": "Any easy care shirt.", "instruction_attributes": ["easy care"], "instruction_options": []},
    ],
    "B01": [{"instruction": "b", "instruction_attributes": ["easy care"], "instruction_options": ["42", "blue"]}],
    "B99": [{"instruction": "not in this shop", "instruction_attributes": ["a"], "instruction_options": []}],
}


def shop(folder: Path, people: Any = PEOPLE, packed: bool = False) -> str:
    text = people if isinstance(people, str) else json.dumps(people)
    if packed:
        (folder / "items_human_ins.json.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "items_human_ins.json").write_text(text)
    return shop_of(folder, [item(number) for number in range(1, 4)], {"B03": NOTE})


@pytest.mark.parametrize("packed", [False, True])
def test_goals_are_the_instructions_in_the_order_of_the_products(tmp_path, packed):
    catalogue = from_people(shop(tmp_path, packed=packed))
    listed = [("b01", "b"), ("b02", "i want a slim fit shirt, red if you can"), ("b02", "Any easy care shirt")]
    random.Random(233).shuffle(listed)
    goals = [catalogue.goal(number) for number in range(len(catalogue.order))]
    # B01 costs 11 and B02 12 dollars: a budget follows, and the full stops at the end are left out.
    assert [(goal.asin, goal.instruction.partition(", and price lower than ")[0]) for goal in goals] == listed
    assert all(f", and price lower than {goal.budget:.2f} dollars" in goal.instruction for goal in goals)
    first = next(goal for goal in goals if goal.asin == "b01")
    assert (first.attributes, list(first.options.values()), first.human) == (("easy care",), ["42", "blue"], True)


def test_the_right_purchase_is_a_success(tmp_path):
    where = shop(tmp_path)
    goals = [registry.make("webshop", 0, catalogue=where, goals="human", goal=number).goal for number in range(3)]
    number = next(goal.number for goal in goals if goal.options == {"option 1": "red"})
    for chosen, score in (("red", 3 / 3), ("blue", 2 / 3)):
        env = registry.make("webshop", 0, catalogue=where, goals="human", goal=number)
        assert "red if you can, and price lower than" in env.reset()
        # B02's texts do not say "slim fit" and it has no attributes: B03 has.
        for action in ("search[cotton]", "click[b03]", f"click[{chosen}]", "click[buy now]"):
            step = env.step(f"<action>{action}</action>")
        assert step.reward == pytest.approx(score)
    assert len({registry.make("webshop", 0, catalogue=where, goals="human", goal=n).task_key() for n in range(3)}) == 3


def test_the_compact_view_leaves_the_options_to_the_instruction(tmp_path):
    env = registry.make("webshop", 0, catalogue=shop(tmp_path), goals="human", view="compact")
    assert env.reset() == f"{env.goal.instruction.partition(', and price')[0]}; under {env.goal.budget:g}"


def test_keeps_the_contract(tmp_path):
    check_env("webshop", catalogue=shop(tmp_path), goals="human")


@pytest.mark.parametrize(
    ("people", "names"),
    [
        ("{", "entry 1"),
        ({"B01": "shirts"}, "B01.*str"),
        ({"B01": ["shirts"]}, "B01"),
        ({"B01": [{"instruction": "a"}]}, "B01.*instruction_attributes"),
        ({"B01": [{**PEOPLE["B01"][0], "instruction_options": "red"}]}, "B01.*red"),
        ({"B99": PEOPLE["B99"]}, "no instruction"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_says_what_is_wrong_with_the_file(tmp_path, people, names):
    with pytest.raises(UsageError, match=rf"items_human_ins\.json.*{names}"):
        from_people(shop(tmp_path, people))


def test_says_what_cannot_be(tmp_path):
    with pytest.raises(ParameterError, match="goals=human"):
        registry.make("webshop", 0, goals="human")
    with pytest.raises(UnknownName, match="did you mean 'human'"):
        registry.make("webshop", 0, goals="humans")
    where = shop_of(tmp_path, [item(3)], {"B03": NOTE})
    with pytest.raises(UsageError, match=r"items_human_ins\.json"):
        registry.make("webshop", 0, catalogue=where, goals="human")
