"""WebShop's memory and players: what is remembered of an episode, who wins how often."""

from __future__ import annotations

import pytest

from mulligan import evaluate
from mulligan.envs import registry
from mulligan.envs.webshop.env import WebShop
from mulligan.errors import UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.seeding import generator
from mulligan.trial.reflection import parse_reflection
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion
from scripted_play import ScriptedPolicy
from shirts import NOTE, item, shop_of

# --- Memory


def told(env: WebShop, *actions: str) -> tuple[str, str, dict[str, str]]:
    """Digest, reflection and its fields of one episode."""
    policy = ScriptedPolicy([f"<action>{action}</action>" for action in actions])
    trial = run_trial_sync(env, policy, episodes=1, memory="none")
    reflection = parse_reflection(Completion(env.reflect(trial.episodes[0])))
    assert reflection.valid
    return env.digest(trial.episodes[0]), reflection.text, dict(reflection.fields)


def test_remembers_what_was_seen_and_no_more(shirts):
    read = ("click[features]", "click[< prev]", "click[description]", "click[< prev]")
    actions = ("search[cotton]", "click[b01]", "click[< prev]", "click[b02]", *read, "click[red]", "click[buy now]")
    digest, _, fields = told(shirts, *actions)
    score = 2 / 5 + (shirts.goal.options["color"] == "red") / 5
    assert digest.split("\n") == [
        "searched 'cotton' (12 found)",
        "b01 $11.0: not read whether easy care, slim fit",
        "b02 $12.0: lacks slim fit",
        f"bought b02, color red: score {score:.3g}",
    ]
    assert "b02: not slim fit" in fields["env_answer"]
    assert fields["error_category"] == "wrong-move"
    assert fields["plan"].startswith("search 'cotton', open b01, check easy care and slim fit, choose ")


READ = ("click[features]", "click[< prev]", "click[description]", "click[< prev]")


def test_attributes_that_no_page_names_are_not_told(shirts):
    # The shop knows that b03 is slim fit, and b02 is not; their pages say the same.
    digests = [told(shirts, "search[cotton]", f"click[{asin}]", *READ)[0] for asin in ("b02", "b03")]
    assert [digest.split("\n")[1] for digest in digests] == ["b02 $12.0: lacks slim fit", "b03 $13.0: lacks slim fit"]


def test_what_a_page_had_no_room_for_was_not_read(shirts):
    cut = registry.make("webshop", 0, catalogue=shirts.task["catalogue"], goal=0, longest=14)
    assert "b02 $12.0: lacks easy care, slim fit" in told(cut, "search[cotton]", "click[b02]", *READ)[0]


def test_a_reflection_names_nothing_that_neither_pages_nor_score_told(shirts):
    colour, size = shirts.goal.options.values()
    actions = ("search[cotton]", "click[b02]", f"click[{colour}]", f"click[{size}]", "click[buy now]")
    digest, _, fields = told(shirts, *actions)
    assert "score 0.8" in digest
    assert fields["env_answer"] == "b02: something did not match"
    assert fields["plan"] == "not b02; look at other results, or search in other words"


def test_a_score_tells_more_than_pages(shirts):
    digest, _, fields = told(shirts, "search[cotton]", "click[b03]", *READ, "click[buy now]")
    assert "b03 $13.0: fits" in digest
    chosen = ", ".join(shirts.goal.options.values())
    assert fields["env_answer"].startswith("b03: color ")
    assert fields["plan"] == f"search 'cotton', open b03, choose {chosen}, buy"


def test_remembers_options_and_prices_that_do_not_fit(tmp_path):
    only = {"color": [{"value": "green"}], "size": [{"value": "40"}]}
    entries = [item(3), item(40, customization_options=only)]
    env = registry.make("webshop", 0, catalogue=shop_of(tmp_path, entries, {"B03": NOTE}), goal=0)
    digest, _, fields = told(env, "search[brand40]", "click[b40]", "click[buy now]")
    missing = [f"color {env.goal.options['color']}"] + ["size 42"] * (env.goal.options["size"] == "42")
    dear = [f"price under {env.goal.budget:g}"] * (env.goal.budget < 50)
    assert f"b40 $50.0: lacks {', '.join(missing + dear)}" in digest
    assert fields["plan"] == "not b40; look at other results, or search in other words"


def test_a_win_is_remembered_as_the_way_to_win(shirts):
    colour, size = shirts.goal.options.values()
    actions = ("search[cotton]", "click[b03]", f"click[{colour}]", f"click[{size}]", "click[buy now]")
    digest, _, fields = told(shirts, *actions)
    assert digest.endswith(f"bought b03, color {colour}, size {size}: score 1")
    assert fields["plan"] == f"search 'cotton', open b03, choose {colour}, {size}, buy"
    assert fields["error_category"] == "none"


def test_nothing_bought_is_said(shirts):
    digest, _, fields = told(shirts, "search[cotton]")
    assert digest == "searched 'cotton' (12 found)\nbought nothing"
    assert (fields["error_category"], fields["reward"]) == ("out-of-turns", "0")


# --- The player


PRESET = {"products": 1000, "view": "compact", "per_page": 5, "longest": 240, "turns": 12, "pays": "success"}


def solved(kind: str, skill: float, recall: float, tasks: int = 60, episodes: int = 3, **params: object) -> list[float]:
    """Share of tasks won within 1, 2, 3 episodes."""
    first: list[int] = []
    for seed in range(tasks):
        env = registry.make("webshop", seed, **(params or PRESET))
        player = env.player(kind, generator(seed, "test"), skill, recall)
        for episode in range(episodes):
            env.reset()
            for _ in range(env.task.turns):
                step = env.step(player.act())
                player.see(step)
                assert step.valid, step.feedback
                if step.done:
                    break
            if step.won:
                first.append(episode)
                break
    return [sum(episode < k for episode in first) / tasks for k in range(1, episodes + 1)]


def test_who_knows_the_product_always_wins():
    assert solved("omniscient", 1.0, 0.0, episodes=1) == [1.0]
    assert solved("omniscient", 1.0, 0.0, episodes=1, products=3000) == [1.0]


def test_the_expert_shops_well_and_learns_from_its_attempts():
    plain, recalling = solved("expert", 1.0, 0.0), solved("expert", 1.0, 1.0)
    assert 0.4 < plain[0] < 0.7, "hard enough that a first attempt often fails"
    assert plain[0] == recalling[0], "there is nothing to remember yet"
    assert plain[2] < 0.75
    assert recalling[2] > 0.9
    assert solved("expert", 0.5, 0.0, episodes=1)[0] < plain[0] - 0.2
    assert solved("expert", 0.0, 0.0, episodes=1)[0] < 0.05


def test_reading_and_remembering_are_worth_more_than_a_place_in_a_list():
    rule, expert = solved("first-listed", 1.0, 1.0), solved("expert", 1.0, 1.0)
    assert rule[0] < expert[0] - 0.2
    assert 0.25 < rule[2] < 0.55, "it tries three products of about six"
    assert rule[2] < expert[2] - 0.35
    without_memory = solved("first-listed", 1.0, 0.0)
    assert without_memory == [rule[0]] * 3, "it buys the same again"


def test_the_rule_buys_the_next_listed_product_at_each_attempt(tmp_path):
    where = shop_of(tmp_path, [item(number) for number in range(1, 9)], {"B08": NOTE})
    env = registry.make("webshop", 0, catalogue=where, goal=0)
    trial = run_trial_sync(env, ExpertPolicy(1.0, 1.0, kind="first-listed"), episodes=3, memory="history")
    bought = [episode.final.split()[1] for episode in trial.episodes]
    env.step(trial.episodes[0].turns[0].reply.text)
    affordable = [product.asin for product in env.session.listed() if product.price <= env.goal.budget]
    assert bought == affordable[: len(bought)]
    assert all(len(episode.turns) == 5 for episode in trial.episodes), "search, open, two options, buy"


def test_a_product_without_the_options_is_passed_over(tmp_path):
    only = {"color": [{"value": "green"}], "size": [{"value": "40"}, {"value": "42"}]}
    entries = [item(1, customization_options=only), item(3)]
    env = registry.make("webshop", 0, catalogue=shop_of(tmp_path, entries, {"B03": NOTE}), goal=0)
    for kind in ("first-listed", "expert"):
        trial = run_trial_sync(env, ExpertPolicy(kind=kind), episodes=1, memory="none")
        assert trial.solved_at == 0


def test_a_right_product_is_bought_again_where_only_options_were_missing():
    env = registry.make("webshop", 3, **PRESET)
    player = env.player("expert", generator(3, "test"), 1.0, 1.0)
    straight = env.player("omniscient", generator(3, "test"), 1.0, 1.0)
    env.reset()
    while env.session.page != "item":
        player.see(env.step(straight.act()))
    player.see(env.step("<action>click[buy now]</action>"))
    assert not env.session.match().success
    env.reset()
    while not (step := env.step(player.act())).done:
        player.see(step)
    assert step.won


def test_the_room_shows_the_rule():
    result = evaluate("webshop", "expert", tasks=4, params=PRESET, seed_set="validation", controls="off")
    assert "first-listed, perfect memory" in result.room


def test_plays_in_trials_with_every_memory():
    for memory in ("history", "reflection", "both"):
        trial = run_trial_sync(registry.make_task("webshop", 3), ExpertPolicy(0.7, 1.0), episodes=3, memory=memory)
        assert not trial.failed
        assert all(turn.valid for episode in trial.episodes for turn in episode.turns)


def test_an_unknown_player_is_named():
    with pytest.raises(UnknownName, match="expert"):
        run_trial_sync(registry.make_task("webshop", 0), ExpertPolicy(kind="experts"), episodes=1)
