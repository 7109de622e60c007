"""Intervals over seeds and worlds: by hand, as laws, and by simulation."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from mulligan.eval.intervals import difference, interval_of_mean, over_seeds, share_interval, spread, student
from mulligan.eval.passk import wilson


def ones(word: str) -> list[float]:
    return [float(letter) for letter in word]


def half(interval) -> float:
    return (interval[1] - interval[0]) / 2


TASK_DEVIATION = 2.0


def simulate(rng, share, seeds, deviation, difficulty):
    """Outcomes [seed, task] where logit p = μ + a_seed + b_task, and `share` is solved over all tasks and seeds."""
    centre = _centre(share, math.hypot(deviation, TASK_DEVIATION))
    odds = centre + deviation * rng.standard_normal((seeds, 1)) + difficulty
    return (rng.random((seeds, len(difficulty))) < 1 / (1 + np.exp(-odds))).astype(float)


@cache
def _centre(share, deviation):
    """The μ at which logit p = μ + deviation · normal has this mean, by bisection."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        mean = float((weights / (1 + np.exp(-middle - deviation * nodes))).sum() / weights.sum())
        low, high = (middle, high) if mean < share else (low, middle)
    return low


def test_students_quantiles():
    assert student(2) == pytest.approx(4.3027, abs=1e-3)
    assert student(10) == pytest.approx(2.2281, abs=1e-3)
    assert student(511) == pytest.approx(1.9646, abs=1e-3)


def test_one_seed_has_wilsons_interval():
    assert share_interval(np.array([ones("1110010000")])) == pytest.approx(wilson(4, 10))


def test_spread_by_hand():
    # Seeds 1100 and 1000: means 1/2 and 1/4, variance of the means 2 · (1/8)² = 1/32.
    # Deviations / 4: (1, 1, -1, -1)/8 and (3, -1, -1, -1)/16; mean over seeds (5, 1, -3, -3)/32.
    # Worlds: (25 + 1 + 9 + 9)/1024 = 44/1024. Around that mean ∓(1, -3, 1, 1)/32: chance 2 · 12/1024 over 2 - 1.
    found = spread(np.array([ones("1100"), ones("1000")]))
    assert found.mean == pytest.approx(3 / 8)
    assert np.square(found.shared).sum() == pytest.approx(44 / 1024)
    assert found.seed_variance == pytest.approx(1 / 32 - (0.75 * 24 / 1024) ** 2 * 32)


def test_seeds_that_solve_the_same_tasks_are_worth_one():
    wins = ones("1110010000")
    assert share_interval(np.array([wins] * 3)) == pytest.approx(share_interval(np.array([wins])))


def test_seeds_that_are_apart_make_it_wider():
    apart = np.array([ones("1" * 300 + "0" * 212), ones("1" * 200 + "0" * 312), ones("1" * 100 + "0" * 412)])
    assert half(share_interval(apart)) > 3 * half(share_interval(apart[:1]))


def test_tasks_that_are_one_world_count_once():
    wins = ones("1110010000")
    twice = np.array([[*wins, *wins]])
    assert share_interval(twice, [*range(10), *range(10)]) == pytest.approx(wilson(4, 10))
    assert share_interval(np.ones((3, 20)), [*range(10), *range(10)]) == pytest.approx(wilson(10, 10))


def test_a_difference_is_paired_by_task():
    # 20 ones among 100 differences: half 1.984 · sqrt(0.2 · 0.8 / 99) = 0.0798
    first, second = np.array([ones("1" * 60 + "0" * 40)]), np.array([ones("1" * 40 + "0" * 60)])
    gain, interval = difference(first, second)
    assert gain == pytest.approx(0.2)
    assert half(interval) == pytest.approx(0.0798, abs=1e-4)
    assert difference(first, first)[1] == (0.0, 0.0)


def test_seeds_that_belong_together_are_paired_too():
    """Seed 1 is worse for both: as pairs nothing is left of that."""
    second = np.array([ones("1" * 60 + "0" * 40), ones("1" * 20 + "0" * 80)])
    first = second.copy()
    first[:, 60:70] = 1.0
    paired, unpaired = (difference(first, second, same_seeds=same)[1] for same in (True, False))
    assert half(paired) < half(unpaired) / 2
    assert half(paired) + 0.1 > 0.1


def test_games_that_were_not_played_are_left_out():
    values = np.array([[1.0, -1.0, math.nan, 0.0], [1.0, 1.0, 1.0, math.nan]])
    mean, (low, high) = interval_of_mean(values)
    assert mean == pytest.approx((0 + 1) / 2)
    assert low < mean < high


def test_outcomes_of_other_tasks_are_not_pooled():
    part = {"outcomes": [[1], [0]], "worlds": [0, 1], "trials": 2, "effective": [2.0], "p": [0.5]}
    assert over_seeds([{**part, "tasks_digest": "a"}, {**part, "tasks_digest": "b"}]) is None
    assert over_seeds([{**part, "tasks_digest": "a"}, {**part, "tasks_digest": "a"}]) is not None


@pytest.mark.parametrize(
    ("seeds", "deviation", "share"),
    [(1, 0.0, 0.05), (1, 0.0, 0.5), (3, 0.0, 0.95), (3, 0.1, 0.5), (3, 0.3, 0.2), (5, 0.1, 0.05), (5, 0.3, 0.8)],
)
def test_intervals_hold_the_truth_in_about_95_of_100(seeds, deviation, share):
    """Of 400 simulations: two standard errors are 2 %."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        wins = simulate(rng, share, seeds, deviation, TASK_DEVIATION * rng.standard_normal(512))
        low, high = share_interval(wins)
        held += low <= share <= high
    assert 0.92 <= held / 400 <= 0.985


def test_tasks_of_one_world_are_worth_one_trial():
    solved = np.array([[1.0, 0.0, 1.0, 1.0]])
    assert share_interval(solved, [0] * 4) == pytest.approx(wilson(0.75, 1))
