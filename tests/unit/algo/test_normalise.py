"""What is remembered between updates: running means and spreads, by hand, and through a checkpoint."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.algo.advantage import Options
from mulligan.algo.arrays import dense_ids
from mulligan.algo.normalise import History, RunningStatistics
from trial_records import TrialRecord, batch_from_records, estimate


def observe(statistics, **samples):
    """One update: ``observe(statistics, a=[1.0, 2.0], b=[3.0])``."""
    ids = np.repeat(np.arange(len(samples)), [len(values) for values in samples.values()])
    values = np.array([value for some in samples.values() for value in some], dtype=float)
    statistics.observe(list(samples), *dense_ids(ids), values)


def batch_of(records):
    return batch_from_records(records, gamma_step=1.0, gamma_traj=0.5)


def test_exponential_average_by_hand():
    # First update 0, 2: number 2, mean 1, squares 2. Faded by half: number 1, mean 1, squares 1.
    # Second update 4, 4: number 2, mean 4, squares 0. Together: mean (1·1 + 2·4)/3 = 3,
    # squares 1 + 0 + 3²·1·2/3 = 7, variance 7/3.
    statistics = RunningStatistics(decay=0.5)
    observe(statistics, a=[0, 2])
    assert statistics.mean(["a"]) == pytest.approx([1.0])
    assert statistics.spread(["a"]) == pytest.approx([1.0])
    observe(statistics, a=[4, 4], b=[7])
    assert statistics.mean(["a", "b", "c"]) == pytest.approx([3.0, 7.0, np.nan], nan_ok=True)
    assert statistics.spread(["a"]) == pytest.approx([np.sqrt(7 / 3)])


def test_spread_of_nothing_is_unknown():
    statistics = RunningStatistics()
    observe(statistics, one=[5.0], same=[2.0, 2.0])
    assert np.isnan(statistics.spread(["one", "same", "never seen"])).all()


@given(st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=5), min_size=1, max_size=6))
def test_without_fading_every_sample_counts_the_same(updates):
    statistics = RunningStatistics(decay=1.0)
    for update in updates:
        observe(statistics, a=update)
    everything = [value for update in updates for value in update]
    assert statistics.mean(["a"])[0] == pytest.approx(np.mean(everything), abs=1e-9)
    assert np.nan_to_num(statistics.spread(["a"])[0]) == pytest.approx(np.std(everything), abs=1e-6)


def test_history_goes_on_after_a_checkpoint_as_if_nothing_had_happened():
    def fresh():
        return History(RunningStatistics(decay=0.8), RunningStatistics(decay=0.8))

    def records(seed):
        rng = np.random.default_rng(seed)
        return [
            TrialRecord(rng.random((2, 2)).tolist(), task=k, task_class="c", reflected=[True, False]) for k in range(6)
        ]

    straight, before = fresh(), fresh()
    for seed in range(4):
        straight.observe(batch_of(records(seed)))
        before.observe(batch_of(records(seed)))
    resumed = fresh()
    resumed.load_state_dict(json.loads(json.dumps(before.state_dict())))
    for history in (straight, resumed):
        history.observe(batch_of(records(9)))
    assert resumed.state_dict() == straight.state_dict()
    new, options = batch_of(records(10)), Options(scale="agent")
    expected = estimate("grpo", new, options, straight)
    assert expected.values.any()
    np.testing.assert_array_equal(estimate("grpo", new, options, resumed).values, expected.values)


def test_estimators_do_not_touch_the_history():
    history = History()
    history.observe(batch_of([TrialRecord([[1.0]]), TrialRecord([[0.0]])]))
    state = json.dumps(history.state_dict())
    for name in ("gigpo", "grpo", "reinforce_pp", "rloo"):
        estimate(name, batch_of([TrialRecord([[5.0]])]), Options(scale="agent"), history)
    assert json.dumps(history.state_dict()) == state


@pytest.mark.parametrize("name", ["gigpo", "grpo", "rloo", "reinforce_pp"])
def test_an_agents_own_scale_makes_hundreds_of_units(name):
    values = [0.0, 0.2, 0.4, 1.0]

    def advantages(unit):
        history, batch = History(), batch_of([TrialRecord([[unit * v]]) for v in values])
        history.observe(batch)
        return estimate(name, batch, Options(scale="agent"), history).values

    result = advantages(1)
    assert result == pytest.approx(advantages(100), rel=1e-4)
    # σ of 0, 0.2, 0.4, 1 (ddof 0): mean 0.4, squares 0.16+0.04+0+0.36 = 0.56, over 4: sqrt(0.14). The last is
    # compared with (0 + 0.2 + 0.4)/3 = 0.2.
    assert result[3] == pytest.approx((1.0 - 0.2) / np.sqrt(0.14), rel=1e-4)


def test_the_scale_comes_from_earlier_updates_not_from_this_one():
    history = History()
    history.observe(batch_of([TrialRecord([[v]]) for v in (0.0, 2.0)]))  # σ = 1
    records = [TrialRecord([[v]]) for v in (0.0, 0.0, 10.0)]  # others' means 5, 5, 0
    result = estimate("rloo", batch_of(records), Options(scale="agent"), history).values
    assert result == pytest.approx([-5, -5, 10], rel=1e-5)


def test_as_long_as_nothing_differed_the_agents_own_batch_gives_the_scale():
    # After updates of nothing but failures, σ is 0. The first success must not be divided by it.
    # This batch: 0, 0, 0, 2: mean 0.5, squares 0.75 + 2.25 = 3, over 3: σ = 1.
    history = History()
    history.observe(batch_of([TrialRecord([[0.0]]) for _ in range(8)]))
    records = [TrialRecord([[v]]) for v in (0.0, 0.0, 0.0, 2.0)]
    result = estimate("grpo", batch_of(records), Options(scale="agent"), history).values
    assert result == pytest.approx([-2 / 3, -2 / 3, -2 / 3, 2.0], rel=1e-5)


def test_centring_by_the_agents_own_mean():
    history = History()
    history.observe(batch_of([TrialRecord([[v]], task_class="old") for v in (0.0, 2.0)]))  # μ = 1, σ = 1
    options = Options(baseline="agent", scale="agent")
    result = estimate("grpo", batch_of([TrialRecord([[v]], task_class="new") for v in (4.0, 1.0)]), options, history)
    assert result.values == pytest.approx([3.0, 0.0], rel=1e-5)
    unknown = estimate("grpo", batch_of([TrialRecord([[4.0]])]), options, History())
    assert unknown.values.tolist() == [0.0]
    assert unknown.metrics["baseline/none"] == 1


def test_each_trial_is_one_sample_whatever_its_length():
    history = History()
    history.observe(batch_of([TrialRecord([[0.0]]), TrialRecord([[0.0] * 9 + [3.0]])]))
    batch = batch_of([TrialRecord([[2.0]])])
    assert estimate("rloo", batch, Options(), history).values == pytest.approx([0.5])  # mean 1.5, not 30/11
