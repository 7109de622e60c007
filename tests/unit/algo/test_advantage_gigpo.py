"""GiGPO's step term: by hand, against a plain loop, and where there must be none."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.algo.advantage import Options
from mulligan.algo.advantage.gigpo import step_advantages
from mulligan.algo.normalise import History
from trial_records import TrialRecord, batch_from_records, estimate


def batch_of(records, gamma_step=1.0, gamma_traj=0.5):
    return batch_from_records(records, gamma_step=gamma_step, gamma_traj=gamma_traj)


def slow_steps(records, gamma_step, gamma_traj):
    """For every turn of every trial: its return less the mean over the other trials at the same anchor."""
    batch = batch_of(records, gamma_step, gamma_traj)
    result = []
    for row in range(len(batch)):
        keyed = batch.phase[row] == 0 and batch.turn[row] > 0
        key = records[batch.trial[row]].state_keys[batch.episode[row]][batch.turn[row]] if keyed else ""
        visits = {}
        for other in range(len(batch)):
            if batch.phase[other] or not batch.turn[other] or batch.group[other] != batch.group[row]:
                continue
            there = records[batch.trial[other]].state_keys[batch.episode[other]][batch.turn[other]]
            if key and there == key and batch.episode[other] == batch.episode[row]:
                visits.setdefault(batch.trial[other], []).append(batch.value[other])
        others = [statistics.fmean(values) for trial, values in visits.items() if trial != batch.trial[row]]
        result.append(batch.value[row] - statistics.fmean(others) if others else 0.0)
    return result


def test_a_turn_is_compared_with_other_trials_in_the_same_state():
    # γ_step 1. Second turns: trial 0 in "a" with return 1, trial 1 in "a" with 0, trial 2 in "a" twice with 4 and 2
    # (one value, 3), trial 3 alone in "b".
    # trial 0: 1 - (0 + 3)/2 = -0.5; trial 1: 0 - (1 + 3)/2 = -2; trial 2: 4 - (1 + 0)/2 = 3.5 and 2 - 0.5 = 1.5
    records = [
        TrialRecord([[0, 1]], state_keys=[["", "a"]]),
        TrialRecord([[0, 0]], state_keys=[["", "a"]]),
        TrialRecord([[0, 2, 2]], state_keys=[["", "a", "a"]]),
        TrialRecord([[0, 9]], state_keys=[["", "b"]]),
    ]
    batch = batch_of(records)
    steps, usable = step_advantages(batch)
    assert steps == pytest.approx([0, -0.5, 0, -2, 0, 3.5, 1.5, 0, 0])
    assert usable.tolist() == [False, True, False, True, False, True, True, False, False]
    result = estimate("gigpo", batch, Options(scale="none", step_weight=2.0))
    # Episodes: 1, 0, 4, 9; means of the others 13/3, 14/3, 10/3, 5/3
    episodes = np.repeat([1 - 13 / 3, 0 - 14 / 3, 4 - 10 / 3, 9 - 5 / 3], [2, 2, 3, 2])
    assert result.values == pytest.approx(episodes + 2.0 * steps)
    assert result.metrics["anchor/share"] == pytest.approx(4 / 9)


def test_without_weight_it_is_grpo():
    records = [TrialRecord([[0, v], [v, 1.0]], state_keys=[["", "a"], ["", "b"]]) for v in (0, 1, 2, 5)]
    batch = batch_of(records)
    grpo = estimate("grpo", batch).values
    assert estimate("gigpo", batch, Options(step_weight=0.0)).values == pytest.approx(grpo)
    assert estimate("gigpo", batch).values != pytest.approx(grpo)


@pytest.mark.parametrize("difference", ["task", "seat", "opponent", "episode", "no key", "first turn"])
def test_what_is_not_the_same_situation_is_not_compared(difference):
    def record(number, reward):
        if difference == "episode":
            before = [[0.0]] * number
            return TrialRecord([*before, [0.0, reward]], state_keys=[*[[""]] * number, ["", "a"]])
        if difference == "first turn":
            return TrialRecord([[reward]], state_keys=[["a"]])
        other = {"task": {"task": number}, "seat": {"seat": number}, "opponent": {"opponent": str(number)}}
        key = "" if difference == "no key" else "a"
        return TrialRecord([[0.0, reward]], state_keys=[["", key]], **other.get(difference, {}))

    steps, usable = step_advantages(batch_of([record(0, 0.0), record(1, 1.0)], gamma_traj=0.0))
    assert not usable.any()
    assert not steps.any()


def test_reflections_get_no_step_term():
    records = [
        TrialRecord([[0, 0], [v]], state_keys=[["", "a"], [""]], reflected=[True, False]) for v in (0.0, 1.0, 5.0)
    ]
    batch = batch_of(records)
    steps, _ = step_advantages(batch)
    assert steps[batch.phase == 1].tolist() == [0, 0, 0]
    assert steps[batch.turn == 1].any()


def test_an_agents_own_scale_concerns_both_terms():
    # The same play paid in units and in hundreds: with σ_a of earlier updates the advantages are the same.
    def values(scale):
        batch = batch_of([TrialRecord([[0, v * scale]], state_keys=[["", "a"]]) for v in (0.0, 1.0, 2.0, 5.0)])
        history = History()
        history.observe(batch)
        return estimate("gigpo", batch, Options(scale="agent"), history).values

    assert values(1.0) == pytest.approx(values(100.0), rel=1e-5)
    assert values(1.0).any()


@st.composite
def trials(draw):
    rewards = draw(st.lists(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=1, max_size=4), min_size=1, max_size=3))
    keys = [draw(st.lists(st.sampled_from(["a", "b", ""]), min_size=len(e), max_size=len(e))) for e in rewards]
    return TrialRecord(rewards, task=draw(st.integers(0, 1)), state_keys=keys, reflected=[True] * len(rewards))


@given(st.lists(trials(), min_size=1, max_size=6))
def test_step_term_agrees_with_the_loop(records):
    steps, _ = step_advantages(batch_of(records, 0.9, 0.6))
    np.testing.assert_allclose(steps, slow_steps(records, 0.9, 0.6), atol=1e-9)
