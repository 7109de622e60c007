"""p@k, intervals and counts, against numbers worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import Fault, StopReason
from mulligan.eval.intervals import interval_of_mean
from mulligan.eval.passk import design_effect, pass_at, summarise, tokens, wilson
from mulligan.types import Completion, Episode, Reflection, Task, Trial, Turn

TASK = Task("bandit", 0, 1, "bandit/4")


def trial(*stops: StopReason, valid: bool = True) -> Trial:
    turn = Turn(
        "",
        Completion("a", prompt_tokens=10, completion_tokens=2),
        0.5,
        valid,
        "",
        fault=None if valid else Fault.INVALID,
    )
    return Trial(TASK, tuple(Episode(n, (turn,), "", stop) for n, stop in enumerate(stops)), "none")


W, L, T = StopReason.WON, StopReason.LOST, StopReason.TURN_LIMIT


def test_wilson_by_hand():
    # 8 of 10 at z = 1.96: centre (0.8 + 3.8416/20) / (1 + 3.8416/10) = 0.99208/1.38416 = 0.716738…
    # half = 1.96/1.38416 · sqrt(0.8·0.2/10 + 3.8416/400) = 1.416021 · sqrt(0.016 + 0.009604) = 0.226579…
    low, high = wilson(8, 10, z=1.96)
    assert low == pytest.approx(0.49016, abs=1e-5)
    assert high == pytest.approx(0.94332, abs=1e-5)


def test_wilson_at_the_ends():
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == 1.0
    assert wilson(0, 10)[1] > 0.2  # nothing solved is not proof of nothing
    assert wilson(0, 0) == (0.0, 1.0)


@given(total=st.integers(1, 500), share=st.floats(0, 1))
def test_wilson_holds_the_share_and_shrinks(total, share):
    successes = int(share * total)
    low, high = wilson(successes, total)
    assert 0 <= low <= successes / total <= high <= 1
    wider, narrower = wilson(successes, total), wilson(successes * 4, total * 4)
    assert narrower[1] - narrower[0] < wider[1] - wider[0]


def test_pass_at_counts_the_first_win():
    trials = [trial(W), trial(L, W), trial(L, T, L), trial(L, L, W)]
    assert pass_at(trials, 3) == [0.25, 0.5, 0.75]


def test_games_that_go_on_after_a_win_count_once():
    assert pass_at([trial(W, L, W), trial(L, W, W)], 3) == [0.5, 1.0, 1.0]


@given(st.lists(st.lists(st.sampled_from([W, L]), min_size=3, max_size=3), min_size=1, max_size=20))
def test_pass_at_never_falls(stops):
    found = pass_at([trial(*row) for row in stops], 3)
    assert found == sorted(found)


def test_summary_counts_everything():
    note = Reflection("n", valid=False, completion=Completion("n", prompt_tokens=100, completion_tokens=20))
    first = trial(L, W)
    noted = Trial(TASK, (Episode(0, first.episodes[0].turns, "", L, reflection=note), first.episodes[1]), "reflection")
    failed = trial(StopReason.REQUEST_FAILED, valid=False)
    found = summarise([noted, failed], 2)
    assert found.played == [2, 1]
    assert found.stop_reasons == {"lost": 1, "request_failed": 1, "won": 1}
    assert found.faults == {"invalid": 1}
    assert found.failed == 1
    assert found.valid == pytest.approx(2 / 3)
    assert (found.reflections, found.reflections_valid) == (1, 0.0)
    assert (found.prompt_tokens, found.completion_tokens) == (130, 26)  # 3 turns of 10 + 2, one note of 100 + 20
    assert tokens(noted) == (120, 24)
    assert found.returns == [0.5, 0.5]
    assert found.won == [0.0, 1.0]


def paid(*rewards: float) -> Trial:
    turns = [replace(trial(L).episodes[0].turns[0], reward=reward) for reward in rewards]
    return Trial(TASK, tuple(Episode(index, (turn,), "", L) for index, turn in enumerate(turns)), "history")


def test_the_best_of_k_is_the_mean_of_the_highest():
    """Two trials with rewards 0.2, 0.8 and 0.5, 0.1: after one episode (0.2 + 0.5) / 2, after two (0.8 + 0.5) / 2."""
    found = summarise([paid(0.2, 0.8), paid(0.5, 0.1)], 2)
    assert found.best == pytest.approx([0.35, 0.65])
    assert found.p == [0.0, 0.0]


def test_episodes_nobody_played_have_no_mean():
    found = summarise([trial(W)], 3)
    assert found.returns == [0.5, None, None]
    assert found.returns_ci == [None, None, None]  # one value has no spread


def test_the_interval_of_returns_by_hand():
    # 0, 1, 2, 3: mean 1.5, sd sqrt(5/3) = 1.290994, half 1.959964 · 1.290994 / 2 = 1.265151
    found = summarise([paid(reward) for reward in (0, 1, 2, 3)], 1)
    ((low, high),) = found.returns_ci
    assert found.returns == [1.5]
    assert (high - low) / 2 == pytest.approx(1.265151, abs=1e-5)


def related(solved: str, k: int = 2) -> list[Trial]:
    """Trials that play their own task and the next ones, in a circle; "x" where the last episode is won."""
    tasks = [replace(TASK, seed=seed) for seed in range(len(solved))]
    circle = [tuple(tasks[(place + n) % len(tasks)] for n in range(k)) for place in range(len(tasks))]
    trials = [trial(*[L] * (k - 1), W if won == "x" else L) for won in solved]
    return [replace(one, task=own[0], related=own[1:]) for one, own in zip(trials, circle, strict=True)]


@pytest.mark.parametrize(
    ("solved", "effect"),
    [
        ("xx--xx--", 1.6),  # ±½: neighbours agree as often as not, Σ = 8·¼ over 8·¼; times 8 / (8 - 3)
        ("xxxx----", 2.0),  # (8 + 2·(6 - 2))·¼ over 8·¼ is 2, times 8/5: but k = 2 is the most
        ("x-x-x-x-", 1.0),  # (8 - 16)·¼ is negative: never worth more than as many independent ones
        ("--------", 2.0),  # nothing varies: the worst is assumed
    ],
)
def test_trials_that_share_tasks_are_worth_fewer_independent_ones(solved, effect):
    trials = related(solved)
    found = summarise(trials, 2)
    assert found.effective == pytest.approx([8, 8 / effect])
    assert found.ci[0] == wilson(0, 8)  # no first episode shares its task
    wins = solved.count("x")
    assert found.ci[1] == pytest.approx(wilson(wins, 8, effect=effect))
    assert summarise([replace(one, related=()) for one in trials], 2).ci[1] == wilson(wins, 8)


def test_differences_over_shared_tasks_have_wider_intervals():
    trials = related("xx--xx--" * 4)
    gains = [float(one.solved_at is not None) for one in trials]
    effect = design_effect(gains, trials, 2)
    assert effect == pytest.approx(32 / 29)
    mean, (low, high) = interval_of_mean(np.array([gains]))
    _, (lower, higher) = interval_of_mean(np.array([gains]), effect=effect)
    wider = math.sqrt(effect)
    assert (mean - lower, higher - mean) == pytest.approx((wider * (mean - low), wider * (high - mean)))
