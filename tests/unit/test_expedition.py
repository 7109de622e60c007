"""Expedition: each world's values by hand, the environment against its model, words, and worlds that cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.app.cli.main import main
from mulligan.envs.expedition import views
from mulligan.envs.expedition.env import FILLERS, Expedition
from mulligan.envs.expedition.model import CAMP, Action, Model, State, Told
from mulligan.envs.expedition.player import Chances, best_now, drifted, most_telling, posterior
from mulligan.errors import ParameterError, StopReason, UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout.tasksets import tasks_of
from mulligan.types import Episode

WORLDS = ("signpost", "lookout", "toolbox", "camp")
Chooser = Callable[[Model, State, Chances], list[Action]]


def made(seed: int = 0, **params: Any) -> Expedition:
    env = mulligan.make(mulligan.make_task("expedition", seed, params=params))
    assert isinstance(env, Expedition)
    return env


def explore(model: Model, state: State, chances: Chances) -> list[Action]:
    telling = most_telling(model, state, chances) if max(chances) < 0.5 else []
    return telling or best_now(model, state, chances)


def returns(model: Model, choose: Chooser, episodes: int = 3) -> tuple[list[float], list[float]]:
    """Exact expected return, and chance to win, of each attempt of an agent that forgets nothing."""
    rewards, wins = [0.0] * episodes, [0.0] * episodes

    def play(index: int, state: State, chances: Chances, weight: float) -> None:
        action = choose(model, state, chances)[0]  # those of equal value are the same but for names
        outcomes: dict[tuple[Told, State, bool], float] = {}
        for place, chance in enumerate(chances):
            for each in model.outcomes(place, state, action):
                probability = weight * chance * each.probability
                rewards[index] += probability * each.reward
                wins[index] += probability * each.won
                key = (each.told, each.state, each.done)
                outcomes[key] = outcomes.get(key, 0.0) + probability
        for (told, after, done), probability in outcomes.items():
            if probability > 0:
                learned = posterior(model, chances, state, action, told)
                if not done:
                    play(index, after, learned, probability)
                elif index + 1 < episodes:
                    play(index + 1, model.begin(0), drifted(model, learned), probability)

    play(0, model.begin(0), tuple(chance for chance, _ in model.worlds()), 1.0)
    return rewards, wins


@pytest.mark.parametrize(
    ("params", "myopic", "exploring"),
    [
        # 1/8 + 7/8 * .1 = .2125; then it is known with 1/8, and else one of 7 doors: .1 + .9 * 2/8, .1 + .9 * 3/8
        ({"world": "signpost"}, [0.2125, 0.325, 0.4375], [0, 1, 1]),
        # two of twelve rooms an attempt: 2/12, 4/12, 6/12
        ({"world": "lookout"}, [1 / 6, 1 / 3, 1 / 2], [0, 1, 1]),
        # one of four tools an attempt; 1/4 < .3, so that the myopic player never tries one
        ({"world": "toolbox"}, [0.3, 0.3, 0.3], [0.25, 0.5, 0.75]),
        # three times berries; or the tower (-.1) and berries once, then berries and the site that was shown, right in
        # 85 %; where it was wrong, the tower again, since no site is likelier than not: .1 + .85, .85 * 1.1 + .15 * 0
        ({"world": "camp"}, [0.3, 0.3, 0.3], [0, 0.95, 0.935]),
    ],
)
def test_returns_of_each_attempt_are_those_of_the_table(params, myopic, exploring):
    model = made(**params).model()
    assert returns(model, best_now)[0] == pytest.approx(myopic)
    assert returns(model, explore)[0] == pytest.approx(exploring)


def test_the_attempts_of_the_table_are_won_as_often_as_it_says():
    wins = {world: returns(made(world=world).model(), best_now)[1] for world in ("signpost", "lookout", "toolbox")}
    assert wins["signpost"] == pytest.approx([0.125, 0.25, 0.375])
    assert wins["lookout"] == pytest.approx([1 / 6, 1 / 3, 1 / 2])
    assert wins["toolbox"] == [0, 0, 0]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", ["expert", "explorer"])
def test_played_trials_come_to_the_computed_returns(world, kind):
    expected = returns(made(world=world).model(), best_now if kind == "expert" else explore)[0]
    totals = [0.0] * 3
    for seed in range(120):
        task = mulligan.make_task("expedition", seed, params={"world": world, "view": "compact"})
        trial = mulligan.run_trial_sync(task, ExpertPolicy(1.0, 1.0, kind=kind), memory="history", episodes=3)
        totals = [total + episode.reward / 120 for total, episode in zip(totals, trial.episodes, strict=True)]
    assert totals == pytest.approx(expected, abs=0.12)  # 2.6 standard deviations of a coin's 120 tosses


@pytest.mark.parametrize("world", WORLDS)
def test_the_omniscient_player_wins_every_attempt(world):
    task = mulligan.make_task(
        "expedition", 7, params={"world": world, "drift": 0.5} if world == "camp" else {"world": world}
    )
    trial = mulligan.run_trial_sync(task, ExpertPolicy(omniscient=True), memory="none", episodes=4)
    assert [episode.won for episode in trial.episodes] == [True] * 4  # and goes on after a win


def test_a_sign_costs_the_attempt_and_names_the_door():
    env = made()
    prize = env.view.names.places[env.prize_place]
    other = next(name for name in env.view.names.places if name != prize)
    read = env.step("<action>read the sign</action>")
    assert (read.reward, read.done, read.won) == (0, True, False)
    assert read.observation == f"The sign says: the prize is behind the {prize} door."
    env.reset()
    opened = env.step(f"<action>open {prize}</action>")
    assert (opened.reward, opened.done, opened.won) == (1, True, True)
    env.reset()
    wrong = env.step(f"<action>{other}</action>")
    assert (wrong.reward, wrong.done, wrong.won) == (0.1, True, False)
    assert not env.step(f"<action>{prize}</action>").valid  # one thing an attempt


def test_hours_of_the_camp():
    """Trails of two sites, 0 and 1, 2 and 3, …; searching takes 2 hours and the walk, an attempt has 6."""
    model = made(world="camp").model()
    hours = {
        (CAMP, 0): 1 + 2, (CAMP, 1): 2 + 2, (0, 1): 1 + 2, (1, 0): 1 + 2, (0, 2): 2 + 2, (1, 3): 4 + 2, (0, 0): 2,
    }  # fmt: skip
    assert {way: model.duration(State(6, way[0]), Action("search", way[1])) for way in hours} == hours
    assert model.duration(State(6, 1), Action("take")) == 2 + 2
    assert model.duration(State(6, 0), Action("scout")) == 1 + 4
    env = made(world="camp")
    near, far = (place for place in range(10) if place // 2 == (env.prize_place // 2 + 1) % 5)
    first = env.step(env.model().reply(Action("search", near)))
    assert first.observation.endswith("3 hours left.")
    assert not first.done
    too_far = env.step(env.model().reply(Action("search", (near + 2) % 10)))
    assert not too_far.valid
    assert too_far.feedback == "There is no time for that: it takes 4 hours, and 3 are left."
    assert env.step(env.model().reply(Action("search", far))).done


def test_the_tower_errs_as_often_as_it_should_and_anew_in_each_attempt():
    wrong = {0: 0, 1: 0}
    both = 0
    for seed in range(300):
        env = made(seed, world="camp")
        misses = []
        for chance in wrong:
            env.reset(chance)
            env.step("<action>climb tower</action>")
            misses.append(env.facts[0] != Told("shown", env.prize_place))
            wrong[chance] += misses[-1]
        both += all(misses)
    assert wrong == {0: pytest.approx(45, abs=19), 1: pytest.approx(45, abs=19)}  # 15 %, three standard deviations
    assert both == pytest.approx(300 * 0.15**2, abs=8)
    certain = [made(seed, world="camp", error=0.0) for seed in range(30)]
    for env in certain:
        env.step("<action>climb tower</action>")
    assert all(env.facts == [Told("shown", env.prize_place)] for env in certain)


def test_a_treasure_that_drifts():
    moved = 0
    for seed in range(200):
        env = made(seed, world="camp", drift=0.25)
        places = []
        for chance in (0, 1, 2, 1, 0):
            env.reset(chance)
            places.append(env.prize_place)
        assert places[:2] == places[:2:-1]  # the same attempt is the same again
        moved += sum(places[index] != places[index + 1] for index in (0, 1))
    assert moved == pytest.approx(100, abs=26)  # three standard deviations
    # Shown with 85 %, and there an attempt later with .85 * .5 + .15 / 9 * .5 = 43 %: the explorer looks again.
    task = mulligan.make_task("expedition", 0, params={"world": "camp", "drift": 0.5})
    trial = mulligan.run_trial_sync(task, ExpertPolicy(1.0, 1.0, kind="explorer"), memory="history", episodes=3)
    assert [episode.turns[0].reply.text for episode in trial.episodes] == ["<action>climb tower</action>"] * 3
    steady = made(3, world="camp")
    steady.reset(5)
    assert steady.prize_place == steady.first_prize


@pytest.mark.parametrize(
    ("world", "words", "action"),
    [
        ("signpost", "open the {0} door", Action("search", 0)),
        ("signpost", "{1}", Action("search", 1)),
        ("signpost", "OPEN {0}.", Action("search", 0)),
        ("signpost", "sign", Action("scout")),
        ("lookout", "go to the {2} room", Action("search", 2)),
        ("lookout", "Climb the tower!", Action("scout")),
        ("toolbox", "{3}", Action("search", 3)),
        ("toolbox", "use the {sure}", Action("take")),
        ("camp", "pick", Action("take")),
        ("camp", "Search the {4}", Action("search", 4)),
        ("signpost", "open {0} or {1}", None),
        ("signpost", "open the barn door", None),
        ("signpost", "climb tower", None),
        ("toolbox", "pick berries", None),
        ("camp", "open", None),
    ],
)
def test_replies_are_read_leniently_and_never_guessed(world, words, action):
    env = made(world=world)
    names = env.view.names
    step = env.step(f"I think so. <action>{words.format(*names.places, sure=names.sure)}</action>")
    assert step.valid == (action is not None)
    if action is not None:
        outcomes = env.model().outcomes(env.prize_place, env.model().begin(0), action)
        assert env.facts[0] in [outcome.told for outcome in outcomes]
        assert env.model().told(step) == env.facts[0]
    else:
        assert "<action>" in step.feedback


def test_memory_is_what_an_attempt_showed():
    def play(view: str) -> str:
        env = made(world="camp", view=view)
        wrong = (env.prize_place + 2) // 2 * 2 % 10
        replies = iter(
            ["<action>nonsense</action>", env.model().reply(Action("take")), env.model().reply(Action("search", wrong))]
        )
        trial = mulligan.run_trial_sync(env, lambda messages: next(replies), episodes=1, memory="none")
        return env.digest(trial.episodes[0]).replace(env.view.names.places[wrong], "HERE")

    assert play("plain") == "You picked berries: 0.1.\nThe treasure is not at the HERE."
    assert play("compact") == "HERE=0"
    nothing = Episode(0, (), "", StopReason.CONTEXT_FULL)
    assert (made().digest(nothing), made(view="compact").digest(nothing)) == ("", "no")


@pytest.mark.parametrize("world", WORLDS)
def test_names_that_training_has_together_are_not_evaluated_wherever_the_prize_lies(world):
    params = {"world": world, "view": "compact"}
    sets = {}
    for seed_set in ("train", "eval"):
        tasks = tasks_of("expedition", 300, seed_set, params)
        sets[seed_set] = {frozenset(Expedition(task).view.names.places) for task in tasks}
    assert not sets["train"] & sets["eval"]


def test_a_small_world_has_as_many_tasks_as_names_and_prizes():
    """495 sets of four cells out of twelve, with the prize at any of the four."""
    tasks = tasks_of("expedition", 512, "eval", {"world": "toolbox", "view": "compact"})
    worlds = [Expedition(task) for task in tasks]
    assert len({world.task_key() for world in worlds}) == 512
    assert len({world.world_key() for world in worlds}) < 300


def test_names_come_from_lists_of_hundreds_and_unseen_ones_are_nowhere_else():
    usual: set[str] = set()
    unseen: set[str] = set()
    for world in WORLDS:
        lists = [views.word_list(world, words) for words in ("usual", "unseen")]
        names = [name for words in lists for name in words]
        assert len(names) >= 200
        assert len(set(names)) == len(names)
        assert not FILLERS & set(names)
        assert all(re.fullmatch("[a-z]+", name) for name in names)
        usual |= set(lists[0])
        unseen |= set(lists[1])
    assert not usual & unseen
    drawn = {name for seed in range(30) for name in made(seed, doors=24, words="unseen").view.names.places}
    assert drawn <= unseen


@pytest.mark.parametrize("view", ["plain", "compact"])
@pytest.mark.parametrize("world", WORLDS)
def test_rules_are_the_same_for_all_tasks(world, view):
    """What is said first is then computed once for many trials."""
    assert len({made(seed, world=world, view=view).rules() for seed in range(5)}) == 1


def test_the_number_of_doors_may_be_a_range():
    doors = {len(made(seed, doors="4-6").view.names.places) for seed in range(40)}
    assert doors == {4, 5, 6}
    assert made(doors="24").task.task_class == "expedition/signpost/24"


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"world": "toolbox", "sure": 1.5}, "sure .*below the prize of 1 .*1.5"),
        ({"consolation": 1.0}, "consolation .*below the prize"),
        ({"consolation": float("nan")}, "consolation .*nan"),
        ({"world": "camp", "berries": 0.4}, "berries, 3 times an attempt, .*below the prize"),
        ({"world": "camp", "error": 0.6}, r"error must be 0 to 0.5 \(got 0.6\)"),
        ({"world": "camp", "error": 0.5, "trails": 2, "sites": 1}, "tower that errs with 0.5 tells nothing of 2 sites"),
        ({"world": "camp", "drift": -0.1}, "drift must be 0 to 1"),
        ({"world": "camp", "hours": 3}, "hours must be 4 to 100, to reach and search every place"),
        ({"world": "lookout", "hours": 1}, "hours must be 2 to 100"),
        ({"world": "lookout", "climb": 5}, r"climb must be 1 to 4 \(got 5\)"),
        ({"world": "lookout", "search": 0}, "search must be 1"),
        ({"world": "camp", "hours": 12}, "turns must be >= 6"),
        ({"doors": 1}, "doors must be 2 to 24"),
        ({"doors": "12-4"}, "doors must be 2 to 24"),
        ({"doors": "many"}, "doors must be a number or a range"),
        ({"world": "camp", "trails": 9}, "trails must be 2 to 8"),
        ({"prize": 0}, "prize must be"),
        ({"tools": 5}, "signpost has no tools; it has doors, prize, consolation"),
        ({"view": "compact", "words": "unseen"}, "words=unseen needs view=plain"),
    ],
)
def test_impossible_worlds_are_refused_in_one_line(params, complaint):
    with pytest.raises(ParameterError, match=complaint) as caught:
        made(**params)
    assert "\n" not in str(caught.value)


def test_an_unknown_world_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="lookout"):
        made(world="lokout")


def test_people_see_a_map(capsys):
    words = "play expedition --env.world camp --policy player:explorer:1:1 --episodes 1"
    with pytest.raises(SystemExit, match="0"):
        main(words.split())
    shown = capsys.readouterr().out
    assert shown.count("<camp> with the tower and the berries") == 3  # at the start, after the tower, after the berries
    assert shown.count("[!]") == 2
    env = made(world="camp")
    env.step(env.model().reply(Action("search", (env.prize_place + 2) % 10)))
    assert "[camp]" in env.picture()
    assert "<x>" in env.picture()


def test_nano_says_every_action_and_reads_every_fact_in_one_token():
    tokenizers = pytest.importorskip("tokenizers")
    file = Path(mulligan.__file__).parent / "models" / "nano_tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    for world in WORLDS:
        words = set()
        for seed in range(20):
            env = made(seed, world=world, view="compact")
            words |= {env.view.action(action) for action in env.model().actions(State(100))}
            facts = [Told(fact, place) for fact in ("prize", "miss", "shown") for place in range(env.model().places)]
            words |= {env.view.fact(told) for told in [*facts, Told("paid")]}
            words |= {env.view.status(State(hours)) for hours in range(1, 7)} - {""}
        assert {word: len(tokenizer.encode(word).ids) for word in words} == dict.fromkeys(words, 1)
