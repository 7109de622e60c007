"""WebShop for short contexts: the compact view, what it remembers, the tiny shop, what purchases pay."""

from __future__ import annotations

import pytest

from mulligan.envs import registry
from mulligan.envs.check import check_env
from mulligan.envs.webshop.env import WebShop
from mulligan.envs.webshop.generate import tiny
from mulligan.envs.webshop.pages import whole_words
from mulligan.errors import ParameterError, UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.seeding import generator
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Episode, Step
from scripted_play import ScriptedPolicy, task_set
from shirts import NOTE, item, shop_of

TINY = {"catalogue": "tiny", "view": "compact", "products": 12, "world": -1, "turns": 7, "pays": "success"}


def play(env: WebShop, *actions: str) -> Step:
    for action in actions:
        step = env.step(f"<action>{action}</action>")
    return step


@pytest.fixture
def compact(tmp_path):
    """Twelve shirts; the third is asked for, the fourth has a range of prices, the fifth has other sizes."""
    only = {"color": [{"value": "red"}, {"value": "blue"}], "size": [{"value": "44"}, {"value": "46"}]}
    changed = {4: {"pricing": [14.2, 19.9]}, 5: {"customization_options": only}}
    entries = [item(number, **changed.get(number, {})) for number in range(1, 13)]
    where = shop_of(tmp_path, entries, {"B03": NOTE})
    return registry.make("webshop", 0, catalogue=where, goal=0, view="compact", per_page=5)


# --- Pages


def test_pages_in_few_words(compact):
    options = "; ".join(f"{group} {value}" for group, value in compact.goal.options.items())
    assert compact.reset() == f"easy care, slim fit shirts; {options}; under {compact.goal.budget:g}"
    lines = play(compact, "search[cotton]").observation.split("\n")
    assert lines == [
        "b01 brand1 cotton shirt $11",
        "b02 brand2 cotton shirt $12",
        "b03 brand3 cotton shirt $13",
        "b04 brand4 cotton shirt $15-20",  # 14.2 to 19.9, rounded up
        "b05 brand5 cotton shirt $15",
        "next >",
    ]
    assert play(compact, "click[b05]").observation == "color: red, blue\nsize: 44, 46"
    assert play(compact, "click[red]", "click[44]").observation == "color red; size 44"
    assert play(compact, "click[features]").observation == "- Comes folded\n- Easy care"
    assert play(compact, "click[< prev]").observation == "color red; size 44", "reading keeps the choice"
    assert play(compact, "search[zebra]").observation == "nothing found"


def test_what_was_shown_is_not_said_again(compact):
    first = compact.reset()
    play(compact, "search[cotton]", "click[b01]")
    assert play(compact, "click[< prev]").observation == "b01\nb02\nb03\nb04\nb05\nnext >"
    assert play(compact, "click[next >]").observation.split("\n")[0] == "b06 brand6 cotton shirt $16"
    assert play(compact, "click[back to search]").observation == "search"
    assert compact.reset() == first, "a new episode knows nothing"
    assert play(compact, "search[cotton]").observation.startswith("b01 brand1 cotton shirt")


def test_an_answer_without_brackets_searches_or_clicks(compact):
    assert play(compact, "cotton").observation.startswith("b01 ")
    assert play(compact, "B02").observation.startswith("color:")
    assert play(compact, "red", "buy").done
    compact.reset()
    assert not play(compact, "search[red").valid, "half a command is no query"
    assert "[b01]" in play(compact, "click[b01]").feedback
    play(compact, "cotton")
    for reply in ("search[red", "zebra", "x" * 150_000):  # half a command, not on the page, too long
        before = compact.render()
        step = play(compact, reply)
        assert (step.valid, step.observation) == (False, before)


def test_a_title_that_is_cut_stands_in_full_on_its_page(tmp_path):
    title = "Shirt " + " ".join(f"word{number}" for number in range(20))
    where = shop_of(tmp_path, [item(1, name=title)], {"B01": NOTE})
    env = registry.make("webshop", 0, catalogue=where, goal=0, view="compact")
    (line,) = play(env, "shirt").observation.split("\n")
    assert len(line) <= 70
    assert play(env, "b01").observation.split("\n")[0] == title.lower()


# --- Memory


def episode_of(env: WebShop, *actions: str) -> Episode:
    policy = ScriptedPolicy([f"<action>{action}</action>" for action in actions])
    return run_trial_sync(env, policy, episodes=1, memory="none").episodes[0]


def test_remembers_what_each_product_lacked_and_scored(compact):
    read = ("click[features]", "click[< prev]", "click[description]", "search[brand2]")
    wrong = next(value for value in ("red", "blue") if value != compact.goal.options["color"])
    actions = ("search[cotton]", "click[b05]", "click[< prev]", "click[b01]", *read, "click[b02]", "click[buy now]")
    episode = episode_of(compact, *actions[:-1], f"click[{wrong}]", "click[buy now]")
    # B05 has no size 40 or 42, B01 is seen not to be slim fit. B02 has one attribute of two and the price: 2 of 5.
    other_size = f"b05=* no size {compact.goal.options['size']}"
    assert compact.digest(episode) == f"cotton {other_size}, b01=* no slim fit; brand2 b02=* 0.4"
    facts = f"b02=* 0.4, {other_size}, b01=* no slim fit; cotton; brand2"
    assert compact.reflect(episode) == f"<reflection>{facts}</reflection>"


def test_a_product_is_not_blamed_for_options_that_were_not_chosen(compact):
    episode = episode_of(compact, "search[cotton]", "click[b03]", "click[buy now]")
    assert episode.reward == pytest.approx(3 / 5)
    assert compact.digest(episode) == "cotton b03=ok"
    colour, size = compact.goal.options.values()
    won = episode_of(compact, "search[cotton]", "click[b03]", f"click[{colour}]", f"click[{size}]", "click[buy now]")
    assert (won.won, compact.digest(won)) == (True, "cotton b03=ok")


def test_a_product_is_right_where_its_score_says_so_and_no_page_did(compact):
    read = ("click[features]", "click[< prev]", "click[description]", "click[< prev]")
    seen = ("search[cotton]", "click[b03]", *read)
    assert compact.digest(episode_of(compact, *seen)) == "cotton b03=* no slim fit"
    assert compact.digest(episode_of(compact, *seen, "click[buy now]")) == "cotton b03=ok"


def test_what_is_not_known_of_a_product_is_not_said(compact):
    episode = episode_of(compact, "search[cotton]", "click[b01]", "click[< prev]")
    assert compact.digest(episode) == "cotton"
    assert episode_of(compact, "click[b01]").stop == "turn_limit"
    assert compact.digest(episode_of(compact, "click[b01]")) == "nothing"


# --- What a purchase pays


def test_success_alone_can_be_paid(tmp_path):
    where = shop_of(tmp_path, [item(3), item(4)], {"B03": NOTE})
    env = registry.make("webshop", 0, catalogue=where, goal=0, pays="success")
    step = play(env, "search[cotton]", "click[b04]", "click[buy now]")
    assert (step.reward, step.done, step.won) == (0.0, True, False)
    assert step.observation.endswith("Your score (min 0.0, max 1.0): 0.4"), "the score is said all the same"
    env.reset()
    colour, size = env.goal.options.values()
    step = play(env, "search[cotton]", "click[b03]", f"click[{colour}]", f"click[{size}]", "click[buy now]")
    assert (step.reward, step.won) == (1.0, True)


# --- The tiny shop


def test_a_tiny_shop_has_four_products_of_each_kind_and_hides_what_is_wanted():
    for seed in range(20):
        shop = tiny(12, seed)
        kinds = [product.kind for product in shop.products]
        assert [kinds.count(kind) for kind in set(kinds)] == [4, 4, 4]
        for product in shop.products:
            listed = {word for name in shop.names[product.kind] for word in shop.search(name)}
            assert {shop.products[number].kind for number in listed} == {product.kind}
            assert len(listed) == 4, "the two names of a kind find all of it"
            for wanted in product.wanted:
                assert wanted not in product.title.lower()
                assert shop.search(wanted) == (), "search does not see the attributes"


def test_every_task_has_a_shop_of_its_own():
    worlds = [registry.build(task) for task in task_set("webshop", 30, "eval", **TINY)]
    assert len({tuple(product.asin for product in world.shop.products) for world in worlds}) == 30
    assert registry.make("webshop", 7, **TINY).shop is registry.make("webshop", 7, **TINY).shop
    fixed = [registry.make("webshop", seed, catalogue="tiny", products=12, world=3) for seed in (1, 2)]
    assert fixed[0].shop is fixed[1].shop


def test_short_pages_keep_the_contract():
    check_env("webshop", **TINY)
    check_env("webshop", products=300, view="compact", per_page=3, attributes=True)


def test_scripted_players_answer_in_bare_words():
    env = registry.make("webshop", 5, **TINY)
    assert env.legal() == [f"<action>{name}</action>" for name in env.shop.names[env.goal.kind]]
    trial = run_trial_sync(env, ExpertPolicy(0.7, 0.5), episodes=3, memory="history", style="bare")
    replies = [turn.reply.text for episode in trial.episodes for turn in episode.turns]
    assert not any("[" in reply for reply in replies)
    assert all(turn.valid for episode in trial.episodes for turn in episode.turns)


def test_a_tiny_shop_is_remembered_in_a_word_for_each_product():
    env = registry.make("webshop", 5, **TINY)
    others = [each for each in env.shop.products if each.kind == env.goal.kind and each.asin != env.goal.asin]
    query, wrong = others[0].title.lower().split()[0], others[0].asin
    episode = episode_of(registry.make("webshop", 5, **TINY), query, wrong, "buy")
    assert env.digest(episode) == f"{query} {wrong}=*"


def test_a_second_attempt_in_a_tiny_shop_profits_from_the_first():
    def solved(recall: float) -> list[float]:
        first = []
        for seed in range(60):
            trial = run_trial_sync(registry.make_task("webshop", seed, **TINY), ExpertPolicy(1.0, recall), episodes=3)
            first.append(3 if trial.solved_at is None else trial.solved_at)
        return [sum(at < k for at in first) / len(first) for k in (1, 2, 3)]

    plain, recalling = solved(0.0), solved(1.0)
    assert 0.35 < plain[0] < 0.65
    assert plain[0] == recalling[0]
    assert recalling[1] > plain[1] + 0.15
    assert recalling[2] > 0.9


def test_who_knows_the_product_always_wins_in_a_tiny_shop():
    for seed in range(40):
        env = registry.make("webshop", seed, **TINY)
        player = env.player("omniscient", generator(seed), 1.0, 0.0)
        while not (step := env.step(player.act())).done:
            pass
        assert step.won


@pytest.mark.parametrize(
    ("params", "error", "names"),
    [
        ({"view": "compacted"}, UnknownName, "'compact'"),
        ({"pays": "wins"}, UnknownName, "score"),
        ({"world": -2}, ParameterError, "world .*-2"),
        ({"catalogue": "tiny", "products": 65}, ParameterError, "products .*1 to 64"),
        ({"catalogue": "tiny"}, ParameterError, "products .*3000"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_refuses_impossible_parameters(params, error, names):
    with pytest.raises(error, match=names):
        registry.make("webshop", 0, **params)


def test_a_text_of_one_word_is_cut_and_not_left_out():
    assert whole_words("a long tit") == "a long"
    assert whole_words("商品" * 30) == "商品" * 30
