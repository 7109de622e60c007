"""Exact returns of matches: against hand-derived values and the slower computation, and kept once they are known."""

from __future__ import annotations

import pytest

import mulligan
from mulligan.errors import UsageError
from mulligan.eval import matches
from mulligan.eval.ceilings import ceilings_of
from mulligan.trial.settings import TrialSettings


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path))


def values(env: str = "rps", episodes: int = 3, **params: object) -> matches.Values:
    task = mulligan.make_task(env, params=params)
    return matches.values_of_matches(task, TrialSettings(episodes=episodes))


def test_one_habit_by_hand():
    """Rock 8 times in 10, paper and scissors 1 each: paper wins 0.8 and loses 0.1, in every match."""
    one = values(opponent="mostly-rock", throws=4)
    assert one.static == one.clairvoyant == pytest.approx(0.7)
    assert one.optimal == pytest.approx([0.7, 0.7, 0.7])


def test_two_biased_habits_by_hand():
    """Mostly rock or mostly paper: first paper, which wins .45 and loses .1. Rock (.45) or paper (.45) say with 8/9 who
    it is, who throws that again with 8/9 * .8 + 1/9 * .1 and the other of the two with 8/9 * .1 + 1/9 * .8: then paper
    loses to scissors (.1), and scissors to rock. Scissors (.1) say nothing."""
    two = values(opponent="mostly-rock,mostly-paper", throws=1, episodes=2)
    again, other = 6.5 / 9, 1.6 / 9
    assert two.optimal == pytest.approx([0.35, 0.45 * (again - 0.1) + 0.45 * (again - other) + 0.1 * 0.35])
    assert (two.static, two.clairvoyant) == (pytest.approx(0.35), pytest.approx(0.7))


@pytest.mark.parametrize(
    ("env", "params"),
    [
        ("rps", {"opponent": "seen", "throws": 2}),  # which is the same with renamed throws
        ("rps", {"opponent": "mostly-rock:2,copies,win-stay,no-paper", "throws": 3}),  # which is not
        ("dilemma", {"opponent": "seen", "rounds": 3}),
    ],
)
def test_the_same_as_the_optimum_of_the_model(env, params):
    ours, theirs = values(env, **params), mulligan.optimum(env, params=params)
    assert sum(ours.optimal) == pytest.approx(theirs.best.value())
    assert ours.optimal == pytest.approx(theirs.best.returns)
    assert ours.static == pytest.approx(theirs.alone.returns[0])
    assert ours.clairvoyant == pytest.approx(theirs.clairvoyant.returns[0])


def test_ceilings_of_unseen_habits():
    """Too large for the optimum of the model; docs/opponents.md has the figures of the third match."""
    tasks = [mulligan.make_task("rps", seed, params={"opponent": "unseen", "throws": 3}) for seed in range(30)]
    ceilings = ceilings_of(tasks, TrialSettings(episodes=3))
    assert ceilings.optimal == pytest.approx([0.1460, 0.3275, 0.4145], abs=1e-4)
    assert ceilings.equilibrium == [0.0] * 3


def test_values_are_kept(monkeypatch):
    before = values(throws=2)
    monkeypatch.setattr(matches, "best_by_match", None)
    assert values(throws=2) == before


def test_too_many_beliefs_and_other_trials(monkeypatch):
    assert values(opponent="copies>beats@2", throws=2) is None
    task = mulligan.make_task("rps", params={"throws": 2})
    assert matches.values_of_matches(task, TrialSettings(restart="replay")) is None
    with pytest.raises(UsageError, match="too many habits: 264"):
        values(opponent="seen,drawn", throws=1)
    monkeypatch.setattr(matches, "MOST_NUMBERS", 100)
    with pytest.raises(UsageError, match="too many beliefs: more than 12 after a round"):
        values(throws=5)
