"""Ratings, scores and who is copied, by hand-worked numbers."""

from __future__ import annotations

import pytest

from mulligan.envs import registry
from mulligan.population.rating import Rating, Result, after, rated
from mulligan.population.selection import Score, copies, scored
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Trial
from scripted_play import ScriptedPolicy


def test_glickmans_example():
    """glicko2.pdf: a player of 1500 (200) beats 1400 (30) and loses to 1550 (100) and 1700 (300).

    Glickman's one step has 1464.06, 151.52 and 0.05999; it ends close to the likeliest rating.
    """
    results = [Result(Rating(1400, 30), 1, 1.0), Result(Rating(1550, 100), 1, 0.0), Result(Rating(1700, 300), 1, 0.0)]
    after_period = rated(Rating(1500, 200, 0.06), results)
    assert after_period.value == pytest.approx(1464.06, abs=0.05)
    assert after_period.deviation == pytest.approx(151.52, abs=0.25)
    assert after_period.volatility == pytest.approx(0.05999, abs=0.00001)


def test_many_games_with_a_share_of_points_count_as_so_many_games():
    single = [Result(Rating(1400, 30), 1, score) for score in (1.0, 1.0, 0.0, 0.5)]
    assert rated(Rating(), [Result(Rating(1400, 30), 4, 0.625)]) == pytest.approx(rated(Rating(), single))


def test_hundreds_of_games_against_what_was_expected_do_not_go_too_far():
    """A newcomer meets somebody of 800 (30) in 240 games and has half of the points: it is about as strong.

    Glickman's one step, from where it was expected to win 98 of 100, ends at -3,047.
    """
    newcomer = rated(Rating(), [Result(Rating(800, 30), 240, 0.5)])
    assert newcomer.value == pytest.approx(800, abs=20)
    assert newcomer.deviation < 60
    ratings: dict[str, Rating] = {}
    for round_ in range(40):  # rounds of a population, in which the better one changes
        score = 0.95 if round_ % 2 else 0.2
        games = [("agent/0", "agent/1", 96, score), ("agent/0", "aggressive", 48, 0.9), ("agent/1", "cfr", 48, 0.1)]
        ratings = after(ratings, games)
    assert all(0 < rating.value < 3_000 for rating in ratings.values())


def test_ratings_of_both_sides_move_apart_and_grow_unsure_without_games():
    ratings = after({}, [("agent/0", "agent/1", 10, 0.8)])
    assert ratings["agent/0"].value - 1500 == pytest.approx(1500 - ratings["agent/1"].value)
    assert ratings["agent/0"].value > 1600
    later = after(ratings, [("agent/2", "agent/1", 1, 0.5)])
    assert later["agent/0"].value == ratings["agent/0"].value
    assert later["agent/0"].deviation > ratings["agent/0"].deviation


def test_the_best_quarter_is_copied_to_the_worst_where_the_difference_is_no_luck():
    values = [0.1, 0.9, 0.3, 0.5, 0.6, 0.2, 0.8, 0.4]
    scores = {number: Score((value - 0.05, value + 0.05), ()) for number, value in enumerate(values)}
    assert copies(scores) == [(1, 0), (6, 5)]
    # 1 of 3 tasks more, and the error of the differences (1, 0, 0) is as large: 1/3
    assert copies({0: Score((0.0, 0.0, 1.0), ()), 1: Score((1.0, 0.0, 1.0), ())}) == []
    # 2 of 10 more and never one less: an error of .13. By each one's own, .16 and .16, it would be .23
    alike = (1.0,) * 4 + (0.0,) * 4
    assert copies({0: Score((*alike, 0.0, 0.0), ()), 1: Score((*alike, 1.0, 1.0), ())}) == [(1, 0)]
    assert copies({0: Score((0.5,), ()), 1: Score((0.6,), ()), 2: Score((0.7,), ())}) == [(2, 0)]


def test_tasks_that_failed_for_either_agent_tell_nothing_of_their_difference():
    assert copies({0: Score((0.0, None, 0.0), ()), 1: Score((None, 1.0, 1.0), ())}) == [(1, 0)]
    assert copies({0: Score((0.0, None), ()), 1: Score((None, 1.0), ())}) == []
    assert Score((0.0, None, 1.0), ()).value == 0.5


def test_a_score_is_the_last_episode_its_gain_or_the_mean():
    """Two tasks of a bandit with four arms: one is solved at the second attempt, the other one never."""

    def trial(arms: list[int], paying: int) -> Trial:
        replies = [f"<action>{arm}</action>" for arm in arms]
        seed = next(number for number in range(100) if registry.build(_task(number)).paying == paying)
        return run_trial_sync(_task(seed), ScriptedPolicy(replies), episodes=3, memory="history")

    trials = [trial([1, 2], 2), trial([1], 3)]
    assert [len(each.episodes) for each in trials] == [2, 3]
    assert scored(trials, 3, "last").episodes == (0.0, 0.5, 0.5)
    assert scored(trials, 3, "last").value == scored(trials, 3, "gain").value == 0.5
    assert scored(trials, 3, "mean").value == pytest.approx((2 / 3 + 0) / 2)
    assert scored(trials, 3, "last").error == pytest.approx(0.5)  # (1, 0): spread .707, over the root of 2


def test_the_luck_of_cards_and_dice_is_no_part_of_a_score():
    """Paper against somebody who throws rock 8 times in 10: 0.8 - 0.1 a throw, whatever was thrown."""
    params = {"opponent": "mostly-rock", "throws": 4}
    tasks = [registry.make_task("rps", seed, **params) for seed in range(5)]
    trials = [run_trial_sync(task, ScriptedPolicy(["<action>paper</action>"]), episodes=3) for task in tasks]
    assert len({trial.episodes[2].reward for trial in trials}) > 1
    score = scored(trials, 3, "last")
    assert score.value == pytest.approx(0.7)
    assert score.error == pytest.approx(0.0, abs=1e-9)


def _task(seed: int):
    return registry.make_task("bandit", seed, arms=4)
