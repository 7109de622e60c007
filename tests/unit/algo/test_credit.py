"""Returns across episodes: hand-worked numbers, the laws they keep, and the flat form against plain loops."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.algo.build import penalty_for_length
from mulligan.algo.credit import FORMS, flat_returns

NUMBERS = st.floats(-4, 4, allow_nan=False).map(lambda x: round(x, 3))
GAMMAS = st.sampled_from([0.0, 0.3, 0.6, 0.95, 1.0])
EPISODES = st.lists(st.lists(NUMBERS, max_size=4), min_size=1, max_size=4)
PLAYED = st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=4)
FAILED_THEN_WON = [[0.0] * 5, [0.0, 0.0, 10.0]]


def flat(nested):
    return [value for inner in nested for value in inner]


def of_one_trial(rewards, shaping=None, **discounts):
    values, extra = np.array(flat(rewards), dtype=float), None if shaping is None else np.array(flat(shaping))
    counts, episodes = np.array([len(episode) for episode in rewards], dtype=int), np.array([len(rewards)])
    return flat_returns(values, counts, episodes, shaping=extra, **discounts)


def cross_episode_returns(rewards, shaping=None, **discounts):
    """Returns ``[episode][turn]`` of one trial."""
    ends = np.cumsum([len(episode) for episode in rewards], dtype=int)
    return [part.tolist() for part in np.split(of_one_trial(rewards, shaping, **discounts).turn, ends[:-1])]


def reflection_returns(rewards, **discounts):
    """What the reflection in each gap between episodes is trained with."""
    return of_one_trial(rewards, **discounts).entry.tolist()[1:]


def slow_returns(rewards, gamma_step, gamma_traj, form):
    """The definitions, term by term. Returns (turns, value on entering each episode)."""

    def g(n, t):
        return sum(gamma_step ** (k - t) * rewards[n][k] for k in range(t, len(rewards[n])))

    episodes = range(len(rewards))
    if form == "paper":
        later = [sum(gamma_traj ** (m - n) * g(m, 0) for m in episodes if m > n) for n in episodes]
        turns = [[g(n, t) + later[n] for t in range(len(rewards[n]))] for n in episodes]
        return turns, [g(n, 0) + later[n] for n in episodes]
    if form == "final":
        played = [n for n in episodes if rewards[n]]
        last = played[-1] if played else -1
        entry = [gamma_traj ** (last - n) * g(last, 0) if n <= last else 0.0 for n in episodes]
        return [[g(n, t) if n == last else entry[n] for t in range(len(rewards[n]))] for n in episodes], entry
    walked = [list(episode) or [0.0] for episode in rewards]  # an episode without a turn is a border all the same
    if form == "difference":
        sums = [sum(episode) for episode in walked]
        gains = [total - before for total, before in zip(sums, [0.0, *sums], strict=False)]
        walked = [[0.0] * (len(episode) - 1) + [gain] for episode, gain in zip(walked, gains, strict=True)]
    running, turns = 0.0, []
    for episode in reversed(walked):
        running *= gamma_traj
        values = []
        for place, reward in enumerate(reversed(episode)):
            running = reward + (gamma_step * running if place else running)
            values.insert(0, running)
        turns.insert(0, values)
    kept = [values if episode else [] for values, episode in zip(turns, rewards, strict=True)]
    return kept, [values[0] for values in turns]


def test_worked_example_in_every_form():
    # g_0 of the second episode: 0.95² · 10 = 9.025; one border further 0.6 · 9.025 = 5.415
    discounts = {"gamma_step": 0.95, "gamma_traj": 0.6}
    paper = cross_episode_returns(FAILED_THEN_WON, **discounts)
    assert paper[0] == pytest.approx([5.415] * 5)
    assert paper[1] == pytest.approx([9.025, 9.5, 10.0])
    # chained also pays for the turns left: 0.95⁴ · 5.415 = 0.81450625 · 5.415 = 4.41055134
    chained = cross_episode_returns(FAILED_THEN_WON, **discounts, form="chained")
    assert chained[0][0] == pytest.approx(4.41055134)
    assert chained[0][4] == pytest.approx(5.415)
    # d = [0, 10]: the same as chained here
    difference = cross_episode_returns(FAILED_THEN_WON, **discounts, form="difference")
    assert difference[1][0] == pytest.approx(9.025)
    assert difference[0] == pytest.approx(chained[0])
    final = cross_episode_returns(FAILED_THEN_WON, **discounts, form="final")
    assert final[0] == pytest.approx([5.415] * 5)
    assert final[1] == pytest.approx([9.025, 9.5, 10.0])


@pytest.mark.parametrize("form", sorted(FORMS))
def test_reflection_is_worth_what_follows_it(form):
    assert reflection_returns(FAILED_THEN_WON, gamma_step=0.95, gamma_traj=0.6, form=form) == pytest.approx([9.025])


def test_reflection_sees_all_later_episodes_in_the_paper_form():
    # episodes worth 1, 2, 4 at γ_traj 0.5: after the first 2 + 0.5 · 4 = 4, after the second 4
    assert reflection_returns([[1], [2], [4]], gamma_step=1, gamma_traj=0.5) == [4.0, 4.0]
    assert reflection_returns([[1]], gamma_step=1, gamma_traj=0.5) == []


@pytest.mark.parametrize(("form", "expected"), [("paper", 1.5), ("chained", 1.5), ("difference", 1.0), ("final", 0.5)])
def test_two_episodes_that_both_pay_one(form, expected):
    # paper 1 + 0.5·1; difference d = [1, 0] → 1 + 0.5·0; final 0.5·1
    assert cross_episode_returns([[1], [1]], gamma_step=0.95, gamma_traj=0.5, form=form)[0] == [expected]


@pytest.mark.parametrize("form", sorted(FORMS))
@given(trials=st.lists(EPISODES, min_size=1, max_size=4), gamma_step=GAMMAS, gamma_traj=GAMMAS)
def test_flat_form_agrees_with_the_loop(form, trials, gamma_step, gamma_traj):
    turn_counts = np.array([len(episode) for trial in trials for episode in trial], dtype=np.int64)
    rewards = np.array([reward for trial in trials for episode in trial for reward in episode])
    returns = flat_returns(
        rewards,
        turn_counts,
        np.array([len(t) for t in trials]),
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
    )
    expected = [slow_returns(trial, gamma_step, gamma_traj, form) for trial in trials]
    np.testing.assert_allclose(returns.turn, [x for turns, _ in expected for e in turns for x in e], atol=1e-9)
    np.testing.assert_allclose(returns.entry, [x for _, entry in expected for x in entry], atol=1e-9)


@pytest.mark.parametrize("form", ["paper", "chained"])
@given(rewards=EPISODES, gamma_step=GAMMAS)
def test_without_credit_across_episodes_each_stands_alone(form, rewards, gamma_step):
    together = cross_episode_returns(rewards, gamma_step=gamma_step, gamma_traj=0.0, form=form)
    alone = [cross_episode_returns([e], gamma_step=gamma_step, gamma_traj=0.7, form="paper")[0] for e in rewards]
    assert flat(together) == pytest.approx(flat(alone))


@pytest.mark.parametrize("form", ["paper", "chained", "final"])
@given(episode=st.lists(NUMBERS, min_size=1, max_size=6), gamma_step=GAMMAS, gamma_traj=GAMMAS)
def test_one_episode_is_plain_reinforcement_learning(form, episode, gamma_step, gamma_traj):
    plain = [sum(gamma_step**k * r for k, r in enumerate(episode[t:])) for t in range(len(episode))]
    returns = cross_episode_returns([episode], gamma_step=gamma_step, gamma_traj=gamma_traj, form=form)
    assert returns[0] == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("form", sorted(FORMS))
@given(rewards=PLAYED, factor=st.floats(-10, 10).map(lambda x: round(x, 2)), gamma_traj=GAMMAS)
def test_scaling_all_rewards_scales_all_returns(form, rewards, factor, gamma_traj):
    settings = {"gamma_step": 0.95, "gamma_traj": gamma_traj, "form": form}
    scaled = cross_episode_returns([[factor * r for r in e] for e in rewards], **settings)
    plain = cross_episode_returns(rewards, **settings)
    assert flat(scaled) == pytest.approx([factor * x for x in flat(plain)], abs=1e-8)
    assert reflection_returns([[factor * r for r in e] for e in rewards], **settings) == pytest.approx(
        [factor * x for x in reflection_returns(rewards, **settings)], abs=1e-8
    )


@given(
    progress=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    weight=st.floats(0, 3),
    gamma_traj=st.floats(0, 0.999),
    gamma_step=st.floats(0.5, 1),
)
def test_winning_now_beats_a_near_miss_and_then_a_win(progress, weight, gamma_traj, gamma_step):
    # The same moves with the same progress; in one trial they win, in the other they just miss and win the next time.
    total = sum(progress) or 1.0
    shaping = [weight * share / total for share in progress]
    win = [0.0] * (len(progress) - 1) + [1.0]
    settings = {"gamma_step": gamma_step, "gamma_traj": gamma_traj}
    now = cross_episode_returns([win], [shaping], **settings)
    later = cross_episode_returns([[0.0] * len(win), win], [shaping, shaping], **settings)
    assert all(first > second for first, second in zip(now[0], later[0], strict=True))


def test_shaping_that_crossed_the_border_would_make_failing_pay():
    # One turn each, progress 0.3. Wrong: 0.3 + 0.9·1.3 = 1.47 > 1.3. Right: 0.3 + 0.9·1 = 1.2 < 1.3.
    wrong = cross_episode_returns([[0.3], [1.3]], gamma_step=1, gamma_traj=0.9)
    right = cross_episode_returns([[0.0], [1.0]], [[0.3], [0.3]], gamma_step=1, gamma_traj=0.9)
    assert wrong[0][0] == pytest.approx(1.47)
    assert right[0][0] == pytest.approx(1.2)
    assert right[1][0] == pytest.approx(1.3)


def test_reflection_sees_the_shaping_of_the_episode_it_prepares_and_no_other():
    # episodes with task rewards 0, 0, 1 and shaping 5, 0.25, 7 at γ_traj 0.5:
    # before episode 1: 0 + 0.5·1 + 0.25 = 0.75, before episode 2: 1 + 7 = 8
    returns = of_one_trial([[0], [0], [1]], [[5], [0.25], [7]], gamma_step=1, gamma_traj=0.5)
    assert returns.entry[1:] == pytest.approx([0.75, 8.0])


def test_length_costs_nothing_up_to_half_the_limit_and_all_at_the_limit():
    # limit 100, penalty 0.4: at 75 half of the way, 0.2; beyond the limit no more than 0.4
    penalties = [penalty_for_length(tokens, 100, 0.4) for tokens in (0, 50, 75, 100, 140)]
    assert penalties == pytest.approx([0, 0, -0.2, -0.4, -0.4])


def test_advantages_come_without_torch():
    code = "import sys, mulligan.algo.advantage, mulligan.algo.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
