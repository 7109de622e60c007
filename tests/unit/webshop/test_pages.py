"""WebShop: pages and clicks, replies that are none, the reward by hand, parameters."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.envs import registry
from mulligan.envs.check import check_env
from mulligan.envs.webshop.catalogue import Goal, Product, read_product
from mulligan.envs.webshop.env import WebShop
from mulligan.envs.webshop.reward import answers, judge, likeness, title_share
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.types import Step
from shirts import NOTE, item, shop_of


def play(env: WebShop, *actions: str) -> Step:
    for action in actions:
        step = env.step(f"<action>{action}</action>")
    return step


# --- Pages


def test_pages_say_what_the_shop_shows(shirts):
    assert shirts.reset().startswith("Search page\nInstruction: Find me easy care, slim fit shirts with color: ")
    results = play(shirts, "search[cotton Shirts]").observation.split("\n")
    assert results[0] == "Results for 'cotton shirts', page 1 of 2, 12 found"
    assert results[1] == "b01 Brand1 Cotton Shirt $11.0"
    assert (len(results), results[-1]) == (12, "[back to search] [next >]")
    assert play(shirts, "click[next >]").observation.split("\n")[1:] == [
        "b11 Brand11 Cotton Shirt $21.0",
        "b12 Brand12 Cotton Shirt $22.0",
        "[back to search] [< prev]",
    ]
    assert play(shirts, "click[B12]").observation == (
        "Item b12\nBrand12 Cotton Shirt\nPrice: $22.0, rating: N.A.\ncolor: red; blue\nsize: 40; 42\n"
        "[back to search] [< prev] [description] [features] [reviews] [buy now]"
    )
    assert "\ncolor (chosen: blue): red; blue\n" in play(shirts, "click[red]", "click[blue]").observation
    assert play(shirts, "click[features]").observation == (
        "Features b12\n- Comes folded\n- Easy care\n[back to search] [< prev]"
    )
    assert "\nnothing\n" in play(shirts, "click[< prev]", "click[reviews]").observation
    assert play(shirts, "click[back to search]").observation == shirts.reset()


def test_going_back_forgets_the_options_but_reading_does_not(shirts):
    play(shirts, "search[cotton]", "click[b01]", "click[red]", "click[description]", "click[< prev]")
    assert shirts.session.chosen == {"color": "red"}
    play(shirts, "click[< prev]")
    assert (shirts.session.page, shirts.session.chosen) == ("results", {})
    play(shirts, "click[next >]", "click[b12]", "click[< prev]")
    assert shirts.session.number == 2, "back to the page of results it came from"
    play(shirts, "click[b12]", "search[cotton]")
    assert (shirts.session.page, shirts.session.number) == ("results", 1), "a search may be asked for from any page"


@pytest.mark.parametrize(
    "reply",
    [
        "<action>click[next >]</action>",
        "<action>click[Next>]</action>",
        "<action>click[next]</action>",
        "Let me look at more. <action> CLICK[ next > ] </action>",
    ],
)
def test_buttons_with_arrows_can_be_said_in_several_ways(shirts, reply):
    play(shirts, "search[cotton]")
    assert shirts.step(reply).valid
    assert shirts.session.number == 2
    assert shirts.step(reply.replace("next >", "< prev").replace("Next>", "<prev").replace("next", "prev")).valid
    assert shirts.session.number == 1


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ("<action>click[b11]</action>", "[b11]"),  # on the next page
        ("<action>click[buy now]</action>", "[buy now]"),
        ("<action>click[search]</action>", "[search]"),
        ("<action>search[]</action>", "search[]"),
        ("<action>search[" + "red " * 20_000 + "]</action>", "79999"),
        ("<action>search[" + "x" * 200_000 + "]</action>", "search[words]"),
        ("<action>b01</action>", "search[words]"),
        ("<action>click[b01]</action><action>click[b02]</action>", "search[words]"),
        ("click[b01]", "search[words]"),
        ("", "search[words]"),
    ],
    ids=lambda value: value[:40],
)
def test_what_is_no_action_changes_nothing(shirts, reply, names):
    before = play(shirts, "search[cotton]")
    step = shirts.step(reply)
    assert (step.valid, step.reward, step.done) == (False, 0.0, False)
    assert (step.observation, step.state_key) == (before.observation, before.state_key)
    assert names in step.feedback


def test_a_search_for_nothing_known_finds_nothing(shirts):
    step = play(shirts, "search[zebra ?!]")
    assert step.valid
    assert step.observation == "Results for 'zebra ?!', page 1 of 1, 0 found\n[back to search]"


def test_buying_ends_the_episode_with_the_score(shirts):
    colour, size = shirts.goal.options.values()
    step = play(shirts, "search[cotton]", "click[b03]", f"click[{colour}]", f"click[{size}]", "click[buy now]")
    # B03's note has both attributes; options and price fit: (2 + 2 + 1) / 5.
    assert (step.reward, step.done, step.won) == (1.0, True, True)
    assert step.observation.endswith("Your score (min 0.0, max 1.0): 1")
    after = play(shirts, "search[cotton]")
    assert not after.valid
    assert shirts.legal() == []


def test_progress_adds_up_to_what_the_item_is_worth(shirts):
    shirts.reset()
    other = "blue" if shirts.goal.options["color"] == "red" else "red"
    actions = ("search[cotton]", "click[b04]", f"click[{other}]", "click[features]", "click[< prev]")
    progress = [play(shirts, action).shaping for action in actions]
    # B04 has no attributes but says "easy care"; the price fits; no option does: 2 of 5.
    assert progress == pytest.approx([0, 0.4, 0, 0, 0])
    assert play(shirts, "click[< prev]").shaping == pytest.approx(-0.4), "leaving it gives it up"


def test_keeps_the_contract(tmp_path):
    check_env("webshop", products=300)
    where = shop_of(tmp_path, [item(number) for number in range(1, 13)], {"B03": NOTE})
    check_env("webshop", catalogue=where, attributes=True, per_page=3)


def test_long_texts_are_cut_where_asked(tmp_path):
    where = shop_of(tmp_path, [item(1, full_description="word " * 1000)], {"B01": NOTE})
    for longest, shown in ((40, 40), (0, 4999)):
        env = registry.make("webshop", 0, catalogue=where, goal=0, longest=longest)
        text = play(env, "search[cotton]", "click[b01]", "click[description]").observation.split("\n")[1]
        assert 0 <= shown - len(text.strip()) <= 5


# --- The reward, by hand


def goal(**changes: Any) -> Goal:
    asked = ("easy care", "slim fit"), {"color": "red", "size": "40"}, 20.0
    base = Goal(0, "b03", "", *asked, "Brand3 Cotton Shirt", "shirts", "Clothing › Shirts", "fashion")
    return base._replace(**changes)


def bought(attributes: tuple[str, ...] = (), **changes: Any) -> Product:
    return read_product(item(3, **changes), {"attributes": attributes})


def test_the_reward_is_the_share_of_what_matches():
    everything = judge(bought(("slim fit",)), goal(), {"color": "red", "size": "40"})
    assert (everything.reward, everything.success) == (1.0, True)  # "Easy care" is a feature
    # One attribute of two, one option of two, the price: 3 of 5.
    assert judge(bought(), goal(), {"color": "red", "size": "42"}).reward == pytest.approx(3 / 5)
    assert judge(bought(), goal(), {}).missing == ("slim fit",)
    # Above the budget: 2 of 5; at the budget it is still within.
    assert judge(bought(pricing=[20.01]), goal(), {"color": "red"}).reward == pytest.approx(2 / 5)
    assert judge(bought(pricing=[20.0]), goal(), {"color": "red"}).price


def test_attributes_match_by_likeness_or_by_text():
    assert not judge(bought(("easy-care", "Fit: slim")), goal(), {}).missing
    assert judge(bought(("slimming",), small_description=[]), goal(), {}).missing == ("easy care", "slim fit")
    assert not judge(bought(full_description="SLIM FIT"), goal(), {}).missing


@pytest.mark.parametrize(
    ("group", "wanted", "chosen", "answered"),
    [
        # All words of the chosen one are among "size x large"; but "large" beside "large x" is 10 of 12 letters, 83 %.
        ("size", "x-large", "large", True),
        ("size", "large", "x-large", False),
        ("size", "30 ml", "50 ml", False),
        # A chosen one is taken for the first colour it names: "blue" is asked for, "dark" is among "color dark red".
        ("color", "blue", "navy blue", True),
        ("color", "dark red", "dark green", True),
        ("color", "navy stripes", "dark navy", False),
        # "rust" is not like "style rustic" and "tan" not like "item shape rectangular"; but the very option counts.
        ("style", "rustic", "rustic", True),
        ("style", "rustic", "rusty", False),
        ("item shape", "rectangular", "rectangular", True),
    ],
)
def test_an_option_is_answered_as_in_the_original(group, wanted, chosen, answered):
    assert answers(chosen, goal(options={group: wanted}), group) is answered


def test_options_of_people_have_no_group():
    """Values alone are compared then: "large" is among "x large", and "dark" is both colours' name."""
    assert answers("x-large", goal(options={"option 1": "large"}, human=True), "option 1")
    assert answers("dark navy", goal(options={"option 1": "dark red"}, human=True), "option 1")
    assert not answers("medium", goal(options={"option 1": "large"}, human=True), "option 1")


def test_what_was_not_asked_for_does_not_count():
    options = {"color": [{"value": "red"}], "fabric": [{"value": "cotton"}]}
    product = bought(("slim fit",), customization_options=options)
    # The title says "cotton", but no option that was asked for does.
    assert judge(product, goal(), {"fabric": "cotton"}).options == 0
    match = judge(product, goal(options={"color": "red"}), {"color": "red", "fabric": "cotton"})
    assert (match.options, match.reward) == (1, 1.0)


def test_an_option_may_be_chosen_in_another_group():
    assert judge(bought(), goal(), {"pattern": "red"}).options == 1


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, 1.0),
        # 2 of the goal's 3 nouns (brand3, cotton, shirt) is more than a fifth, whatever the shop calls it.
        ({"name": "Cotton Shirt", "query": "tops", "product_category": "X"}, 1.0),
        ({"name": "Wool Hat"}, 0.0),  # no common noun is worth nothing, even where the shop files it the same
    ],
)
def test_another_kind_of_product_is_worth_less(changes, kind):
    assert judge(bought(**changes), goal(), {}).type == kind


def test_nouns_are_all_words_but_function_words_and_numbers():
    # women, shoe, black, pack, running, men: "'s", "2", "12oz" and "for" are none. 4 of these 6 are in the other title.
    assert title_share("Black Running-Shoe, Women", "Women's Shoe Black 2 Pack 12oz for Running Men") == pytest.approx(
        4 / 6
    )
    assert title_share("Anything", "2 of the 3") == 0.2


def test_a_kind_that_is_hardly_like_it():
    wanted = goal(title="Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliet")
    other = {"query": "tops", "product_category": "Clothing › Tops"}
    # 1 of 10 nouns: not less than a tenth, not more than a fifth; 1 of 11 is less than a tenth.
    assert title_share("Alpha Male", wanted.title) == pytest.approx(0.1)
    assert judge(bought(name="Alpha Male", **other), wanted, {}).type == 0.5
    assert judge(bought(name="Alpha Male"), wanted, {}).type == 1.0
    assert judge(bought(name="Alpha Male"), wanted._replace(title=wanted.title + " Kilo"), {}).type == 0.1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("easy care", "care easy", 100),
        ("easy care", "very easy care", 100),  # all words of one are in the other
        ("essential oil", "essential oils", 96),  # 13 letters in order of 13 and 14: 26/27
        ("tea bag", "tea tree", 60),  # "tea" of "tea" and "tea bag": 6/10
        ("red", "blue", 29),  # one "e" of 3 and 4 letters: 2/7
        ("black_style", "black", 62),  # an underscore makes one word: 10/16
        ("16×24", "16", 67),  # × is left out, so that the other is "1624": 4/6
        ("crème", "crme", 100),
        ("", "red", 0),
    ],
)
def test_likeness_by_hand(one, other, expected):
    assert likeness(one, other) == likeness(other, one) == expected


# --- Parameters


@pytest.mark.parametrize(
    ("params", "error", "names"),
    [
        ({"products": 0}, ParameterError, "products .*0"),
        ({"per_page": 0}, ParameterError, "per_page .*0"),
        ({"split": "origin"}, UnknownName, "'original'"),
        ({"split": "original"}, ParameterError, "split=original"),
        ({"goal": -2}, ParameterError, "goal .*-2"),
        ({"goal": 10**9, "products": 50}, ParameterError, "goal .*1000000000"),
        ({"catalogue": "original"}, UsageError, "WEBSHOP_DATA"),
        ({"catalogue": "no/such/place"}, UsageError, "'no/such/place'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_refuses_impossible_parameters(monkeypatch, params, error, names):
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    with pytest.raises(error, match=names):
        registry.make("webshop", 0, **params)


def test_the_originals_files_are_found_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBSHOP_DATA", shop_of(tmp_path, [item(3)], {"B03": NOTE}))
    env = registry.make("webshop", 5, catalogue="original")
    assert env.task.task_class == "webshop/original"
    assert env.goal.asin == "b03"
