"""grpo, rloo and reinforce_pp: who is compared with whom, by hand, against a plain loop, and under permutation."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.algo.advantage import ESTIMATORS, Options
from mulligan.algo.batch import REFLECT
from mulligan.algo.normalise import History
from trial_records import TrialRecord, batch_from_records, estimate

GROUP_BASED = ("gigpo", "grpo", "reinforce_pp", "rloo")


def batch_of(records, gamma_traj=0.5, gamma_step=1.0):
    return batch_from_records(records, gamma_step=gamma_step, gamma_traj=gamma_traj)


def advantages(name, records, options=Options(), history=None, **discounts):  # noqa: B008
    return estimate(name, batch_of(records, **discounts), options, history)


@st.composite
def trials(draw):
    records = []
    for _ in range(draw(st.integers(1, 10))):
        lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        reward = st.sampled_from([0.0, 0.5, 1.0, -0.1])
        records.append(
            TrialRecord(
                [draw(st.lists(reward, min_size=length, max_size=length)) for length in lengths],
                task=draw(st.integers(0, 1)),
                seat=draw(st.sampled_from([1, 2])),
                state_keys=[[draw(st.sampled_from("ab")) for _ in range(length)] for length in lengths],
                reflected=[draw(st.booleans()) for _ in lengths],
                task_class="class",
            )
        )
    return records


def slow_baseline(batch, row, history, options):
    """Mean over the other trials at the row's key, as the definition reads; None where there is none."""

    def at(i):
        return (batch.group[i], batch.episode[i], batch.phase[i])

    first = {}
    for i in range(len(batch)):
        if at(i) == at(row):
            first.setdefault(batch.trial[i], batch.value[i])
    if options.baseline == "group":
        return statistics.fmean(first.values()), first
    if len(first) >= 3:
        return statistics.fmean(v for trial, v in first.items() if trial != batch.trial[row]), first
    if history is None:
        return None, first
    phase = "reflect" if batch.phase[row] == REFLECT else "play"
    mean = history.baselines.mean([f"{batch.class_labels[batch.task_class[row]]}/episode {batch.episode[row]}/{phase}"])
    return (None if np.isnan(mean[0]) else mean[0]), first


def slow_grpo(batch, history, options):
    result = []
    for row in range(len(batch)):
        baseline, first = slow_baseline(batch, row, history, options)
        value = first[batch.trial[row]]
        centred = 0.0 if baseline is None else value - baseline
        spread_of = list(first.values())
        if len(first) < 4:
            seen = {}
            for i in range(len(batch)):
                if (batch.episode[i], batch.phase[i]) == (batch.episode[row], batch.phase[row]):
                    seen.setdefault(batch.trial[i], batch.value[i])
            spread_of = list(seen.values())
        spread = statistics.stdev(spread_of) if len(spread_of) > 1 else 0.0
        scaled = options.scale == "std" and spread > 1e-6
        result.append(centred / (spread + 1e-6) if scaled else centred)
    return result


def test_each_is_compared_with_the_mean_of_the_others():
    # returns 0, 1, 2, 5 → means of the others 8/3, 7/3, 2, 1; standard deviation sqrt((4+1+0+9)/3) = sqrt(14/3)
    records = [TrialRecord([[0.0, value]]) for value in (0, 1, 2, 5)]
    expected = np.array([0 - 8 / 3, 1 - 7 / 3, 2 - 2, 5 - 1])
    assert advantages("rloo", records).values == pytest.approx(np.repeat(expected, 2))
    grpo = advantages("grpo", records).values
    assert grpo == pytest.approx(np.repeat(expected / np.sqrt(14 / 3), 2), rel=1e-5)
    assert advantages("grpo", records, Options(scale="none")).values == pytest.approx(np.repeat(expected, 2))


def test_the_papers_own_mean_shrinks_the_signal():
    # mean 2 with the sample in it: -2, -1, 0, 3 — 1 - 1/4 of what comparing with the others gives
    records = [TrialRecord([[value]]) for value in (0, 1, 2, 5)]
    assert advantages("rloo", records, Options(baseline="group")).values == pytest.approx([-2, -1, 0, 3])


def test_small_groups_are_scaled_by_the_batch():
    # 3 trials with 0, 0, 3 and 3 with 1, 1, 1: |S| = 3 < 4, so all share the batch's deviation of 0,0,3,1,1,1:
    # mean 1, squares 1+1+4 = 6, over 5: sqrt(1.2). Means of the others: 1.5, 1.5, 0.
    records = [TrialRecord([[v]], task=0) for v in (0, 0, 3)] + [TrialRecord([[1.0]], task=1) for _ in range(3)]
    result = advantages("grpo", records)
    expected = np.array([-1.5, -1.5, 3, 0, 0, 0]) / np.sqrt(1.2)
    assert result.values == pytest.approx(expected, rel=1e-5)
    assert result.values[3:].tolist() == [0, 0, 0]
    assert result.metrics["groups/no_signal"] == 1
    assert result.metrics["groups/total"] == 2


@pytest.mark.parametrize(("baseline", "silent"), [("group", 1), ("leave_one_out", 0), ("agent", 0)])
def test_a_group_is_without_signal_only_if_it_is_its_own_baseline(baseline, silent):
    """Two pairs of trials, one of them alike: nothing beside its own mean, something beside earlier updates."""
    records = [TrialRecord([[value]], task=task) for task, value in ((0, 0), (0, 0), (1, 0), (1, 1))]
    assert advantages("grpo", records, Options(baseline=baseline)).metrics["groups/no_signal"] == silent


def test_trials_that_stopped_are_absent_from_later_baselines():
    # Two trials win at once; three go on and get 0, 0, 3 in episode 1. With γ_traj 0 each episode stands alone.
    # Their baseline there: means of the other two survivors, 1.5, 1.5, 0; the winners count neither as 0 nor as 1.
    records = [TrialRecord([[1.0]]) for _ in range(2)] + [TrialRecord([[0.0], [v]]) for v in (0, 0, 3)]
    result = advantages("rloo", records, gamma_traj=0.0)
    second = batch_of(records, gamma_traj=0.0).episode == 1
    assert result.values[second] == pytest.approx([-1.5, -1.5, 3])
    # first episodes: returns 1, 1, 0, 0, 0: others' means 1/4 and 2/4
    assert result.values[~second] == pytest.approx([0.75, 0.75, -0.5, -0.5, -0.5])
    assert result.metrics["survivors/0"] == 5
    assert result.metrics["survivors/1"] == 3


def test_reflections_are_scored_with_their_own_value_and_baseline():
    # All fail first; then 0, 0, 3. γ_traj 0.5: play in episode 0 is worth 0, 0, 1.5, the reflections 0, 0, 3.
    records = [TrialRecord([[0.0], [v]], reflected=[True, False]) for v in (0, 0, 3)]
    batch = batch_of(records)
    result = estimate("rloo", batch)
    assert result.values[batch.phase == REFLECT] == pytest.approx([-1.5, -1.5, 3])
    first = (batch.phase != REFLECT) & (batch.episode == 0)
    assert result.values[first] == pytest.approx([-0.75, -0.75, 1.5])


@pytest.mark.parametrize("name", GROUP_BASED)
def test_equally_good_reflections_get_nothing(name):
    # The old mistake: reflections scored 0 and centred with the group got -mean, whatever they said.
    records = [TrialRecord([[0.0], [1.0]], reflected=[True, False]) for _ in range(4)]
    batch = batch_of(records)
    assert estimate(name, batch).values[batch.phase == REFLECT].tolist() == [0.0] * 4


def test_long_episodes_do_not_weigh_more():
    # Returns at turn 0: 0 (one turn), 0 (one turn), 3 (five turns). By trials, the others of the first have mean 1.5.
    records = [TrialRecord([[0.0]]), TrialRecord([[0.0]]), TrialRecord([[0.0, 0.0, 0.0, 0.0, 3.0]])]
    assert advantages("rloo", records).values[:2] == pytest.approx([-1.5, -1.5])


@pytest.mark.parametrize("name", GROUP_BASED)
def test_seats_are_never_mixed(name):
    # The first seat is worth 10 more whatever one does: it must not show.
    values = [0.0, 1.0, 2.0, 5.0]
    first = [TrialRecord([[v + 10.0]], seat=1) for v in values]
    second = [TrialRecord([[v]], seat=2) for v in values]
    mixed = [record for pair in zip(first, second, strict=True) for record in pair]
    result = advantages(name, mixed).values
    assert result[0::2] == pytest.approx(result[1::2])
    assert result[0] < 0 < result[6]


def test_small_groups_fall_back_on_earlier_updates():
    records = [TrialRecord([[v]], task=("new", v), task_class="c") for v in (1.0, 0.0)]
    before = advantages("rloo", records, history=History())
    assert before.values.tolist() == [0.0, 0.0]
    assert before.metrics["baseline/none"] == 2
    history = History()
    history.observe(batch_of([TrialRecord([[v]], task="old", task_class="c") for v in (0.0, 0.0, 0.0, 1.0)]))
    after = advantages("rloo", records, history=history)
    assert after.values == pytest.approx([0.75, -0.25])  # the class paid 1/4 on average
    assert (after.metrics["baseline/none"], after.metrics["baseline/running"]) == (0, 2)
    # not the running mean of another seat, opponent, episode or phase
    elsewhere = [TrialRecord([[1.0]], task_class="c", seat=2), TrialRecord([[1.0]], task_class="c", opponent="x")]
    assert advantages("rloo", elsewhere, history=history).metrics["baseline/none"] == 2
    deeper = advantages("rloo", [TrialRecord([[0.0], [1.0]], task_class="c", reflected=[True, False])], history=history)
    assert deeper.metrics["baseline/none"] == 2  # the reflection, and episode 1


def test_a_lone_surprise_is_not_divided_by_a_spread_of_nothing():
    # One trial, running mean 0.25: A = 0.75, not 0.75 / 1e-6.
    history = History()
    history.observe(batch_of([TrialRecord([[v]], task_class="c") for v in (0.0, 0.0, 0.0, 1.0)]))
    for name in ("grpo", "gigpo", "reinforce_pp"):
        assert advantages(name, [TrialRecord([[1.0]], task_class="c")], history=history).values == pytest.approx([0.75])


def test_reinforce_pp_keeps_each_turns_return_and_does_not_centre_again():
    # γ_step 0.5; episodes [0, 2], [0, 4], [0, 6] → G = (1, 2), (2, 4), (3, 6); others' means of G_0: 2.5, 2, 1.5
    # A before scaling: (-1.5, -0.5), (0, 2), (1.5, 4.5): mean 1, squares 6.25+2.25+1+1+0.25+12.25 = 23, over 5: 4.6
    records = [TrialRecord([[0.0, v]]) for v in (2, 4, 6)]
    result = advantages("reinforce_pp", records, gamma_step=0.5)
    expected = np.array([-1.5, -0.5, 0, 2, 1.5, 4.5])
    assert result.values == pytest.approx(expected / np.sqrt(4.6), rel=1e-5)
    plain = advantages("reinforce_pp", records, Options(scale="none"), gamma_step=0.5)
    assert plain.values == pytest.approx(expected)


def test_reinforce_pp_takes_its_spread_over_turns_alone():
    # γ_traj 1; episodes [0], [v] with a reflection between, v = 0, 3, 6: G of the first turn, the reflection and the
    # second turn are all v. Others' means: 4.5, 3, 1.5, so that A before scaling is -4.5, 0, 4.5 at each of the three.
    # Over the six turns: mean 0, squares 4 * 20.25 = 81, over 5: 16.2. Over all nine steps it would be 121.5 / 8.
    records = [TrialRecord([[0.0], [float(v)]], reflected=[True, False]) for v in (0, 3, 6)]
    result = advantages("reinforce_pp", records, gamma_traj=1.0)
    expected = np.repeat([-4.5, 0.0, 4.5], 3) / np.sqrt(16.2)
    assert result.values == pytest.approx(expected, rel=1e-5)


@settings(max_examples=40)
@given(
    records=trials(),
    gamma_traj=st.sampled_from([0.0, 0.6, 1.0]),
    baseline=st.sampled_from(["leave_one_out", "group"]),
    scale=st.sampled_from(["std", "none"]),
    remember=st.booleans(),
)
def test_grpo_agrees_with_the_loop(records, gamma_traj, baseline, scale, remember):
    batch = batch_of(records, gamma_traj=gamma_traj, gamma_step=0.9)
    history = None
    if remember:
        history = History()
        history.observe(batch_of(records[: len(records) // 2 + 1]))
    options = Options(baseline=baseline, scale=scale)
    result = estimate("grpo", batch, options, history)
    np.testing.assert_allclose(result.values, slow_grpo(batch, history, options), atol=1e-9)
    unscaled = Options(baseline=baseline, scale="none")
    rloo = estimate("rloo", batch, options, history).values
    np.testing.assert_allclose(rloo, slow_grpo(batch, history, unscaled), atol=1e-9)
    if history is None and baseline == "leave_one_out":
        found = [slow_baseline(batch, row, None, options)[0] for row in range(len(batch)) if batch.turn[row] == 0]
        assert result.metrics["baseline/none"] == sum(baseline is None for baseline in found)


@pytest.mark.parametrize("name", GROUP_BASED)
@settings(max_examples=30)
@given(records=trials(), random=st.randoms(use_true_random=False))
def test_a_permutation_of_the_trials_permutes_the_advantages(name, records, random):
    order = list(range(len(records)))
    random.shuffle(order)

    def by_trial(some):
        batch = batch_of(some, gamma_step=0.9)
        values = estimate(name, batch).values
        return [values[batch.trial == trial] for trial in range(len(some))]

    straight, shuffled = by_trial(records), by_trial([records[place] for place in order])
    for place, values in zip(order, shuffled, strict=True):
        np.testing.assert_allclose(values, straight[place], atol=1e-9)


@settings(max_examples=30)
@given(records=trials(), shift=st.sampled_from([-3.0, 0.5, 40.0]))
def test_paying_everybody_more_changes_nothing_with_groups_of_enough_trials(records, shift):
    # The same shift for all of one group at γ_traj 0: every S_n moves as one.
    many = [record for record in records for _ in range(3)]
    moved = [
        TrialRecord(
            [[*episode[:-1], episode[-1] + shift] for episode in record.rewards], task=record.task, seat=record.seat
        )
        for record in many
    ]
    plain = [TrialRecord(record.rewards, task=record.task, seat=record.seat) for record in many]
    np.testing.assert_allclose(
        advantages("rloo", plain, gamma_traj=0.0).values, advantages("rloo", moved, gamma_traj=0.0).values, atol=1e-9
    )


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"ppo"}))
def test_an_empty_batch_has_no_advantages(name):
    assert len(advantages(name, []).values) == 0
