"""The iterated prisoner's dilemma: habits by hand, what probing costs, the exact optimum."""

from __future__ import annotations

import math
import statistics

import pytest

import mulligan
from mulligan.envs.dilemma import SEEN, UNSEEN
from mulligan.errors import MulliganError, StopReason
from mulligan.eval.optimal import OptimalPolicy
from mulligan.policy.scripted import ExpertPolicy
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings

MOVES = {"C": "<action>cooperate</action>", "D": "<action>defect</action>"}


def play(opponent: str, agents: str, seed: int = 0) -> tuple[str, float]:
    """What the opponent does while the agent does this, and what the match pays."""
    params = {"opponent": opponent, "rounds": len(agents)}
    env = mulligan.make("dilemma", seed=seed, params=params)
    env.reset()
    rewards = [env.step(MOVES[letter]).reward for letter in agents]
    return "".join("CD"[theirs] for _, theirs in env.played), sum(rewards)


@pytest.mark.parametrize(
    ("habit", "expected"),
    [
        ("tit-for-tat", "CCDCCDD"),
        ("always-defect", "DDDDDDD"),
        ("always-cooperate", "CCCCCCC"),
        ("pavlov", "CCDDDCD"),  # cooperates where both did the same in the round before
        ("grim", "CCDDDDD"),
        ("tit-for-two-tats", "CCCCCCD"),
        ("suspicious", "DCDCCDD"),
        ("alternates", "CDCDCDC"),
    ],
)
def test_habits_by_hand(habit, expected):
    assert play(habit, "CDCCDDC")[0] == expected


def test_habits_that_draw():
    """Shares of 2,000 rounds, within 4 standard errors."""
    for habit, cooperates in (("random:0.3", 0.3), ("random:0.7", 0.7), ("generous", 1 / 3)):
        played = "".join(play(habit, "D" * 101, seed)[0][1:] for seed in range(20))
        assert played.count("C") / len(played) == pytest.approx(cooperates, abs=0.043)
    assert play("generous", "CCCC")[0] == "CCCC"


def test_what_a_match_pays():
    """The points, by 5 and by the rounds; tit-for-tat defects in the fourth alone."""
    assert play("tit-for-tat", "CCDCD")[1] == pytest.approx((3 + 3 + 5 + 0 + 5) / 5 / 5)
    assert play("always-defect", "CD")[1] == pytest.approx((0 + 1) / 5 / 2)


@pytest.mark.parametrize(
    ("agents", "stop"), [("CCC", StopReason.DRAWN), ("CCD", StopReason.WON), ("DCC", StopReason.LOST)]
)
def test_a_match_is_won_with_more_than_cooperation_pays(agents, stop):
    """Tit-for-tat: 9 points, 11, and 5 + 0 + 3."""
    replies = iter(MOVES[letter] for letter in agents)
    task = mulligan.make_task("dilemma", params={"opponent": "tit-for-tat", "rounds": 3})
    assert run_trial_sync(task, lambda messages: next(replies), episodes=1).episodes[0].stop is stop


def test_who_is_exploited_throughout_has_not_drawn():
    task = mulligan.make_task("dilemma", params={"opponent": "always-defect"})
    episode = run_trial_sync(task, lambda messages: MOVES["C"], episodes=1).episodes[0]
    assert (episode.reward, episode.stop) == (0.0, StopReason.LOST)


def test_probing_pays_from_a_threshold_on():
    """Points of 6 rounds, sums over the 5 habits. For the present match: cooperate, and defect last, or as soon as the
    opponent does: 20 + 5 + 20 + 20 + 20 = 85; later, with the one that always defects known, 86. To find out the one
    that never minds costs 4 of them at first (81), and then all get their best: 20 + 6 + 30 + 20 + 20 = 96. Worth it
    where 85 + 86 (γ + γ²) < 81 + 96 (γ + γ²): γ + γ² > 0.4."""
    optimum = mulligan.optimum("dilemma", gamma_traj=0.6)
    assert optimum.alone.returns == pytest.approx([85 / 150])
    assert optimum.myopic.returns == pytest.approx([85 / 150, 86 / 150, 86 / 150])
    assert optimum.best.returns == pytest.approx([81 / 150, 96 / 150, 96 / 150])
    assert optimum.clairvoyant.returns == pytest.approx([96 / 150])
    assert optimum.threshold == pytest.approx((math.sqrt(2.6) - 1) / 2, abs=1e-6)  # .306
    two = mulligan.optimum("dilemma", episodes=2)
    assert two.threshold == pytest.approx(0.4, abs=1e-6)


def test_the_optimal_player_gets_what_was_computed():
    """The habits of the pool draw nothing: one trial against each is the whole of it."""
    settings = TrialSettings(episodes=3, memory="history")
    best = mulligan.optimum("dilemma").best
    tasks = [mulligan.make_task("dilemma", params={"opponent": name, "pool": "seen"}) for name in SEEN]
    trials = [run_trial_sync(task, OptimalPolicy(settings), settings=settings) for task in tasks]
    for n in range(3):
        assert statistics.mean(trial.episodes[n].reward for trial in trials) == pytest.approx(best.returns[n])
        assert statistics.mean(trial.episodes[n].won for trial in trials) == pytest.approx(best.won[n])


def test_the_expert_plays_each_match_for_itself():
    """As the myopic optimum does: 85, then 86 of 150 points."""
    tasks = [mulligan.make_task("dilemma", params={"opponent": name, "pool": "seen"}) for name in SEEN]
    trials = [run_trial_sync(task, ExpertPolicy(1.0, 1.0), episodes=2, memory="history") for task in tasks]
    means = [statistics.mean(trial.episodes[n].reward for trial in trials) for n in range(2)]
    assert means == pytest.approx([85 / 150, 86 / 150])
    known = [run_trial_sync(task, ExpertPolicy(kind="omniscient"), episodes=1) for task in tasks]
    assert statistics.mean(trial.episodes[0].reward for trial in known) == pytest.approx(96 / 150)


def test_habits_of_training_and_of_evaluation_are_different_ones():
    assert not set(SEEN) & set(UNSEEN)
    assert {mulligan.make_task("dilemma", seed=seed).opponent for seed in range(100)} == set(SEEN)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"opponent": "tit-for-tats"}, "did you mean 'tit-for-tat'"),
        ({"opponent": "random:0.5"}, "unknown opponent of dilemma"),
        ({"rounds": 0}, "rounds must be 1 to 1000"),
    ],
)
def test_bad_input_is_one_line(params, complaint):
    with pytest.raises(MulliganError) as raised:
        mulligan.make_task("dilemma", params=params)
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("params", [{}, {"view": "compact"}, {"opponent": "unseen"}, {"opponent": "grim>pavlov"}])
def test_keeps_the_contract(params):
    mulligan.check_env("dilemma", params=params)
