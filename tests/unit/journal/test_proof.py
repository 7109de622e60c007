"""The journal's proof: who is held out, the uplift's interval at any time, do no harm, and the alarm for drift."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mulligan.errors import ParameterError
from mulligan.journal.proof import DriftAlarm, Evidence, Proof, evidence, harms, held_out, uplift


def play(rng, with_journal, without, chances):
    """Episodes of one class with binary outcomes: on, rewards. The arguments are chances, [episode]."""
    on = rng.random(len(chances)) < chances
    return on, (rng.random(len(chances)) < np.where(on, with_journal, without)).astype(float)


def evidence_of(on, rewards, chances):
    return evidence(*(np.asarray(each, dtype=float) for each in (on, rewards, chances)), np.zeros((2, 2)))


def ever_excluded(proof, effects):
    """Whether any interval of the stream excluded the weighted mean effect of the episodes up to then."""
    centred = Evidence(proof.surprises, proof.predictions - proof.weights * effects, proof.weights)
    return bool(centred.excludes(0.0, 0.95).any())


# Who is held out


def test_the_hold_out_is_the_same_everywhere():
    # Frozen: a new version must not move an episode from one arm to the other.
    chosen = [number for number in range(60) if held_out("shop", "refund", f"episode {number}", 0.1)]
    assert chosen == [7, 9, 24, 28, 49, 56]


def test_the_hold_out_has_its_share_and_differs_between_classes():
    ids = [f"{number}" for number in range(6000)]
    refund, search = ([held_out("shop", name, each, 0.1) for each in ids] for name in ("refund", "search"))
    assert np.mean(refund) == pytest.approx(0.1, abs=0.015)
    assert np.mean(np.logical_and(refund, search)) == pytest.approx(0.01, abs=0.005)  # 0.1 · 0.1: independent


def test_a_larger_share_keeps_who_was_held_out():
    ids = [f"{number}" for number in range(500)]
    assert all(held_out("a", "b", each, 0.2) for each in ids if held_out("a", "b", each, 0.05))


def test_parts_of_a_name_are_not_run_together():
    ids = [f"{number}" for number in range(200)]
    assert [held_out("a", "bc", each, 0.5) for each in ids] != [held_out("ab", "c", each, 0.5) for each in ids]


# Uplift


def test_uplift_by_hand():
    # Chance 1/2: weights 1/2, each surprise is the outcome minus its prediction (off: with the other sign).
    # Episode 1, on, 1: pooled 1/2, predictions 1/2 and 1/2: surprise 1/2, predicted effect 0.
    # Episode 2, off, 0: pooled (1 + .5)/2 = 3/4; on (1 + 3/4)/2 = 7/8; off 3/4: surprise 3/4, predicted 1/2 · 1/8.
    proof = evidence_of([True, False], [1, 0], [0.5, 0.5])
    assert proof.surprises == pytest.approx([0.5, 0.75])
    assert proof.predictions == pytest.approx([0, 1 / 16])
    assert uplift([True, False], [1, 0], [0.5, 0.5]).mean == 1  # 21/16 over weights of 1, cut off at the largest effect


@pytest.mark.parametrize(
    ("with_journal", "without", "chance"),
    [
        (0.5, 0.5, 0.9),
        (0.02, 0.02, 0.95),  # rare successes, the smallest hold-out
        (0.97, 0.99, 0.95),
        ("wave", "wave", 0.9),  # both arms drift together
        ("wave", 0.5, 0.9),  # the effect drifts
        ("jump", "jump", "reversed"),  # outcomes and the hold-out's share jump together
    ],
)
def test_the_interval_holds_the_truth_at_all_times(with_journal, without, chance):
    rng, episodes = np.random.default_rng(1), 400
    time = np.arange(episodes)
    shapes = {
        "wave": 0.5 + 0.45 * np.sin(time / 40),
        "jump": np.where(time < 200, 0.2, 0.8),
        "reversed": np.where(time < 200, 0.9, 0.1),
    }
    first, second, chances = (
        np.broadcast_to(shapes.get(each, each), episodes).astype(float) for each in (with_journal, without, chance)
    )
    wrong = 0
    for _ in range(60):
        on, rewards = play(rng, first, second, chances)
        wrong += ever_excluded(evidence_of(on, rewards, chances), first - second)
    assert wrong <= 3  # 5 % of 60


def test_an_interval_for_one_look_would_not_hold():
    # What the test above could miss: at 60 % the same streams are excluded often, so it can fail.
    rng, chances = np.random.default_rng(2), np.full(600, 0.5)
    wrong = 0
    for _ in range(50):
        on, rewards = play(rng, np.full(600, 0.5), np.full(600, 0.5), chances)
        wrong += evidence_of(on, rewards, chances).excludes(0.0, 0.6).any()
    assert wrong > 5


def test_excludes_is_what_the_interval_says():
    rng, chances = np.random.default_rng(3), np.full(400, 0.8)
    on, rewards = play(rng, 0.9, 0.3, chances)
    estimate = uplift(on, rewards, chances)
    proof = evidence_of(on, rewards, chances)
    assert estimate.low < 0.6 < estimate.high
    assert not proof.excludes(estimate.low + 1e-6, 0.95)[-1]
    assert proof.excludes(estimate.low - 1e-6, 0.95)[-1]
    assert not proof.excludes(estimate.high - 1e-6, 0.95)[-1]
    assert proof.excludes(estimate.high + 1e-6, 0.95)[-1]


def test_an_uplift_is_found_and_its_interval_narrows():
    rng, chances = np.random.default_rng(4), np.full(5000, 0.9)
    on, rewards = play(rng, 0.7, 0.5, chances)
    widths = [(each := uplift(on[:n], rewards[:n], chances[:n])).high - each.low for n in (200, 1000, 5000)]
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.2  # 500 held out; for a single look it would be 0.09
    assert uplift(on, rewards, chances).low > 0


def test_a_confounded_comparison_is_not_fooled():
    # Outcomes rise from 0.2 to 0.8 while the journal goes from mostly off to mostly on: its effect is 0,
    # the plain difference of means is about 0.48.
    rng, chances = np.random.default_rng(5), np.repeat([0.1, 0.9], 2000)
    level = np.repeat([0.2, 0.8], 2000)
    on, rewards = play(rng, level, level, chances)
    assert rewards[on].mean() - rewards[~on].mean() > 0.4
    estimate = uplift(on, rewards, chances)
    assert estimate.low < 0 < estimate.high
    assert abs(estimate.mean) < 0.1


def test_rewards_keep_their_unit():
    on, chances = [True, False] * 200, [0.5] * 400
    rewards = [float(number % 4 < 2) for number in range(400)]
    unit = uplift(on, rewards, chances)
    scaled = uplift(on, [100 * each - 50 for each in rewards], chances, bounds=(-50, 50))
    assert (scaled.mean, scaled.low, scaled.high) == pytest.approx((100 * unit.mean, 100 * unit.low, 100 * unit.high))


def test_episodes_that_were_not_randomised_say_nothing():
    on, rewards, chances = [True, False] * 50, [0.5, 0.25] * 50, [0.5] * 100
    more = uplift([True, *on, True], [0.0, *rewards, 0.0], [1.0, *chances, 1.0])
    expected = uplift(on, rewards, chances)
    proof = Proof()
    for batch in (([True], [0.0], [1.0]), (on, rewards, chances)):
        proof.observe(*batch)
    for found in (more, proof.uplift()):
        assert (found.mean, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))
        assert found.episodes == 100
    nothing = uplift([True], [1.0], [1.0])
    assert math.isnan(nothing.mean)
    assert (nothing.low, nothing.high, nothing.episodes) == (-1, 1, 0)
    assert uplift([], [], []).episodes == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([True], [2.0], [0.9]), "reward must be between 0 and 1 (got 2); give the class its bounds"),
        (([True], [math.nan], [0.9]), "reward must be between 0 and 1 (got nan); give the class its bounds"),
        (([True], [1.0], [0.0]), "the chance of what was done must be above 0 and at most 1 (got 0 for on)"),
        (([False], [1.0], [1.5]), "the chance of what was done must be above 0 and at most 1 (got 1.5 for on)"),
        (([True], [1.0, 0.0], [0.9]), "proof needs one entry an episode (got 1 on, 2 rewards, 1 chances)"),
    ],
)
def test_impossible_episodes_are_refused(arguments, message):
    with pytest.raises(ParameterError) as caught:
        uplift(*arguments)
    assert str(caught.value) == message


def test_impossible_settings_are_refused():
    with pytest.raises(ParameterError, match=r"share must be between 0 and 1 \(got 5\)"):
        held_out("a", "b", "c", 5)
    with pytest.raises(ParameterError, match=r"lowest reward must be below its highest \(got 1 and 1\)"):
        uplift([True], [1.0], [0.5], bounds=(1, 1))
    with pytest.raises(ParameterError, match=r"level must be between 0 and 1 \(got 95\)"):
        uplift([True], [1.0], [0.5], level=95)
    with pytest.raises(ParameterError, match=r"average_run must be >= 1 \(got 0\)"):
        DriftAlarm("a", average_run=0)


# Do no harm


def lives(rng, with_journal, without, episodes):
    """Streams of a class whose hold-out of 10 % is reversed at each switch -> the switches."""
    luck, chances = rng.random((2, episodes)), np.full(episodes, 0.9)
    switches = ()
    while True:
        on = luck[0] < chances
        found = harms(on, (luck[1] < np.where(on, with_journal, without)).astype(float), chances).switches
        if len(found) == len(switches):
            return switches
        switches = found[: len(switches) + 1]
        chances[switches[-1] :] = 1 - chances[switches[-1] - 1]


def test_harm_switches_the_class_off_and_help_on_again():
    # Hurts by 0.4 for 800 episodes, then helps by 0.4.
    rng = np.random.default_rng(6)
    with_journal = np.where(np.arange(3000) < 800, 0.1, 0.9)
    for _ in range(5):
        off, on_again = lives(rng, with_journal, 0.5, 3000)
        assert off < 600
        assert 800 < on_again < 2500


def test_harm_that_begins_late_is_noticed():
    # 1,000 episodes of help do not outweigh 1,000 of harm: the mean over all is 0.
    rng, with_journal = np.random.default_rng(7), np.where(np.arange(2000) < 1000, 0.9, 0.1)
    for _ in range(5):
        switches = lives(rng, with_journal, 0.5, 2000)
        assert len(switches) == 1
        assert 1000 < switches[0] < 1900


def test_a_harmless_journal_stays_on():
    rng = np.random.default_rng(8)
    assert sum(bool(lives(rng, 0.5, 0.5, 800)) for _ in range(40)) <= 2


def test_an_interval_below_zero_switches_off():
    on = [number % 2 == 0 for number in range(100)]
    rewards = [0.0 if each else 1.0 for each in on]
    lengths = range(1, 101)
    below = next(n for n in lengths if uplift(on[:n], rewards[:n], [0.5] * n).high < 0)
    verdict = harms(on, rewards, [0.5] * 100)
    assert verdict.switches[0] <= below
    assert not verdict.on
    assert verdict.words.startswith(f"the journal has been off for {100 - verdict.switches[0]} episodes: ")
    then = verdict.switches[0]
    assert harms(on[:then], rewards[:then], [0.5] * then).words.startswith("the journal is off from now on: ")


def test_every_switch_needs_more_evidence_than_the_one_before():
    # Otherwise the chances of a wrong switch would add up without end.
    needed = []
    for earlier in ([], [1, 2], [1, 2, 3, 4]):
        proof = Proof()
        proof.load_state_dict(proof.state_dict() | {"switches": earlier})
        while len(proof.switches) == len(earlier):
            proof.observe([True, False], [0.0, 1.0], [0.5, 0.5])
        needed.append(proof.episodes)
    assert needed[0] < needed[1] < needed[2]


def test_nothing_yet_leaves_the_journal_on():
    verdict = harms([], [], [])
    assert verdict.on
    assert verdict.switches == ()


def test_episodes_one_by_one_give_what_all_at_once_do():
    # Through JSON after each: as if every episode came to another process.
    rng, chances = np.random.default_rng(13), np.full(400, 0.7)
    on, rewards = play(rng, np.where(np.arange(400) < 150, 0.1, 0.95), 0.6, chances)
    state = Proof((0, 2)).state_dict()
    for episode in range(400):
        proof = Proof((0, 2))
        proof.load_state_dict(json.loads(json.dumps(state)))
        proof.observe([on[episode]], [2 * rewards[episode]], [chances[episode]])
        state = proof.state_dict()
    together = uplift(on, 2 * rewards, chances, bounds=(0, 2))
    single = proof.uplift()
    assert (single.mean, single.low, single.high) == pytest.approx((together.mean, together.low, together.high))
    assert single.episodes == 400
    assert proof.verdict() == harms(on, 2 * rewards, chances, bounds=(0, 2))
    assert len(proof.switches) == 2


# Drift


def first_alarm(alarm, outcomes):
    for number, outcome in enumerate(outcomes, 1):
        if drift := alarm.observe(float(outcome)):
            return number, drift
    return None


def test_a_drop_raises_the_alarm_and_says_so():
    rng = np.random.default_rng(9)
    for name in "abc":
        outcomes = np.concatenate([rng.random(400) < 0.8, rng.random(400) < 0.4])
        number, drift = first_alarm(DriftAlarm(name), outcomes)
        assert 400 < number < 500
        assert drift.drop
        assert "worse" in drift.words


def test_a_rise_is_told_from_a_drop():
    rng = np.random.default_rng(10)
    outcomes = np.concatenate([rng.uniform(0, 30, 400), rng.uniform(20, 50, 400)])  # graded, in the class's own unit
    number, drift = first_alarm(DriftAlarm("graded", bounds=(0, 50)), outcomes)
    assert 400 < number < 500
    assert not drift.drop


def test_false_alarms_are_as_rare_as_promised():
    # average_run 100, 3,000 episodes: 30 false alarms at the most, on average. Far fewer would be a blunt alarm.
    rng, alarm = np.random.default_rng(11), DriftAlarm("still", average_run=100)
    alarms = sum(alarm.observe(float(outcome)) is not None for outcome in rng.random(3000) < 0.7)
    assert 5 < alarms <= 30


def test_the_alarm_goes_on_from_its_state():
    rng = np.random.default_rng(12)
    outcomes = [*(rng.random(300) < 0.8), *(rng.random(300) < 0.3)]
    whole = first_alarm(DriftAlarm("a"), outcomes)
    first, second = DriftAlarm("a"), DriftAlarm("a")
    assert first_alarm(first, outcomes[:310]) is None
    second.load_state_dict(first.state_dict())
    rest = first_alarm(second, outcomes[310:])
    assert (rest[0] + 310, rest[1]) == whole
