"""The flat batch: who is in it, in which order, with which value."""

from __future__ import annotations

import dataclasses

import pytest

from mulligan.algo.batch import PLAY, REFLECT, samples_of
from mulligan.algo.build import batch_from_groups
from mulligan.errors import StopReason, UsageError
from mulligan.types import Completion, Episode, Group, Reflection, Task, Trial, Turn
from trial_records import TrialRecord, batch_from_records

TASK = Task("kuhn", 7, 4, "kuhn/vs-aggressive", (("opponent", "aggressive"), ("seat", 1)))


def turn(reward=0.0, key="", valid=True, shaping=0.0, tokens=0):
    return Turn("o", Completion("a", completion_tokens=tokens), reward, valid, key, shaping=shaping)


def episode(index, turns, stop=StopReason.LOST, reflection=None):
    return Episode(index, tuple(turns), "end", stop, reflection=reflection)


def written(valid=True, tokens=0):
    return Reflection("r", valid, completion=Completion("r", completion_tokens=tokens))


def test_steps_stand_in_order_of_play_with_their_returns():
    # γ_step 0.5, γ_traj 0.5. Trial 0: episodes [0, 0], [0, 8] → g_0 of the second = 4, so both turns of the first have
    # 2, its reflection 4, and the second episode 4, 8. Trial 1: one episode [3].
    records = [
        TrialRecord([[0, 0], [0, 8]], reflected=[True, True], state_keys=[["", "a"], ["x", "b"]]),
        TrialRecord([[3]], reflected=[True]),
    ]
    batch = batch_from_records(records, gamma_step=0.5, gamma_traj=0.5)
    assert batch.value.tolist() == [2, 2, 4, 4, 8, 3]
    assert batch.reward.tolist() == [0, 0, 0, 0, 8, 3]
    assert batch.phase.tolist() == [PLAY, PLAY, REFLECT, PLAY, PLAY, PLAY]  # reflections that nothing follows are out
    assert batch.trial.tolist() == [0, 0, 0, 0, 0, 1]
    assert batch.episode.tolist() == [0, 0, 0, 1, 1, 0]
    assert batch.turn.tolist() == [0, 1, 0, 0, 1, 0]
    assert batch.state.tolist()[0] == batch.state.tolist()[2] == batch.state.tolist()[3] == -1  # turn 0 has no anchor
    assert batch.state[1] != batch.state[4]
    assert samples_of(batch).value.tolist() == [2, 4, 4, 3]


def test_group_and_class_keep_tasks_seats_and_opponents_apart():
    variants = [
        {"task": 1},
        {"task": 2},
        {"task": 1, "seat": 1},
        {"task": 1, "seat": 2},
        {"task": 1, "opponent": "x"},
    ]
    batch = batch_from_records([TrialRecord([[1.0]], **v) for v in [*variants, *variants]], gamma_step=1, gamma_traj=1)
    assert batch.group.tolist() == [0, 1, 2, 3, 4] * 2
    assert batch.task_class.tolist() == [0, 0, 1, 2, 3] * 2  # two tasks of one class share their running baseline


def test_penalties_and_progress_reach_the_returns_of_their_episode_only():
    # γ_step 1, γ_traj 0.5, progress weight 0.3, invalid 0.1, length 0.2 at limit 10 (8 tokens: 0.6 of the way, 0.12).
    # Episode 0: shaping 0.3·0.5 = 0.15, then -0.1. Episode 1: reward 1 with 0.3·1, minus 0.12 for length.
    # turn 0: 0.15 - 0.1 + 0.5·1 = 0.55; turn 1: -0.1 + 0.5 = 0.4; reflection (not valid): 1 + 0.3 - 0.12 - 0.1 = 1.08
    trial = Trial(
        TASK,
        (
            episode(0, [turn(shaping=0.5), turn(valid=False, key="k")], reflection=written(valid=False)),
            episode(1, [turn(1.0, shaping=1.0, tokens=8)], StopReason.WON),
        ),
        "both",
    )
    batch = batch_from_groups(
        [Group(TASK, (trial,))],
        gamma_step=1.0,
        gamma_traj=0.5,
        shaping_weight=0.3,
        invalid_penalty=0.1,
        length_penalty=0.2,
        length_limit=10,
    )
    assert batch.value == pytest.approx([0.55, 0.4, 1.08, 1.18])
    assert batch.shaping == pytest.approx([0.15, -0.1, -0.1, 0.18])
    assert batch.state.tolist() == [-1, 0, -1, -1]


def test_failed_trials_and_foreign_reflections_are_no_steps():
    supplied = Reflection("somebody else's", True)
    fine = Trial(TASK, (episode(0, [turn(0.0)], reflection=supplied), episode(1, [turn(1.0)])), "both", index=1)
    broken = Trial(TASK, (episode(0, [turn(9.0)]), episode(1, [turn(9.0)], StopReason.ENV_RAISED)), "both")
    batch = batch_from_groups([Group(TASK, (broken,)), Group(TASK, (broken, fine))], gamma_step=1.0, gamma_traj=0.5)
    assert batch.value.tolist() == [0.5, 1.0]
    assert batch.phase.tolist() == [PLAY, PLAY]
    assert batch.source == ((1, 1),)


def test_an_overlong_reflection_that_filled_the_context_is_scored_with_what_followed():
    # The context was full when episode 1 began: nothing was earned, and the reflection is to blame.
    full = Trial(TASK, (episode(0, [turn(0.0)], reflection=written()), episode(1, [], StopReason.CONTEXT_FULL)), "both")
    batch = batch_from_groups([Group(TASK, (full,))], gamma_step=1.0, gamma_traj=0.5)
    assert batch.value.tolist() == [0.0, 0.0]
    assert batch.phase.tolist() == [PLAY, REFLECT]


@pytest.mark.parametrize("form", ["paper", "chained", "final"])
def test_in_a_game_a_note_that_filled_the_context_is_worth_the_loss(form):
    """As a lost game of one turn is: the turn before it has 0.5 · -1, the note -1."""
    begun = episode(0, [turn(0.0)], reflection=written())
    full = dataclasses.replace(episode(1, [], StopReason.CONTEXT_FULL), forfeit=-1.0)
    for last in (full, episode(1, [turn(-1.0)])):
        groups = [Group(TASK, (Trial(TASK, (begun, last), "both"),))]
        batch = batch_from_groups(groups, gamma_step=1.0, gamma_traj=0.5, form=form)
        assert batch.value.tolist()[:2] == [-0.5, -1.0]


def test_no_trials_give_an_empty_batch():
    batch = batch_from_groups([], gamma_step=0.9, gamma_traj=0.6)
    assert len(batch) == 0
    assert len(samples_of(batch).value) == 0


def test_progress_that_is_no_number_is_refused():
    record = TrialRecord([[1.0]], shaping=[[float("nan")]])
    with pytest.raises(UsageError, match="shaping"):
        batch_from_records([record], gamma_step=0.9, gamma_traj=0.6)
