"""How differently the same task is played."""

from __future__ import annotations

import math
import random

import pytest

from mulligan.envs.registry import make_task
from mulligan.eval.passk import diversity
from mulligan.trial.runner import run_trial_sync


def _trial(seed, *actions):
    """A trial of one episode with just these actions."""
    said = iter(actions)
    task = make_task("minesweeper", seed, turns=len(actions))
    return run_trial_sync(task, lambda messages: next(said), episodes=1, memory="none")


def test_the_entropy_of_sequences_is_that_of_their_shares():
    one, other = ("<action>(1, 1)</action>",), ("<action>(9, 9)</action>",)
    assert diversity([_trial(0, *one)] * 4) == 0.0
    # three of one, one of the other: 0.75 ln(4/3) + 0.25 ln 4
    three = [_trial(0, *one)] * 3 + [_trial(0, *other)]
    assert diversity(three) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    # tasks count alike: one of them played in one way, one in two
    assert diversity([*three, *[_trial(1, *one)] * 9]) == pytest.approx(diversity(three) / 2)


def test_thoughts_and_spaces_make_no_difference_and_order_does():
    first = _trial(0, "<action>(9, 9)</action>", "<action>(8, 9)</action>")
    same = _trial(0, "far out <action>( 9,9 )</action>", "again: <action>(8, 9)</action>")
    swapped = _trial(0, "<action>(8, 9)</action>", "<action>(9, 9)</action>")
    assert diversity([first, same]) == 0.0
    assert diversity([first, swapped]) == pytest.approx(math.log(2))


def test_a_random_player_is_nearly_as_diverse_as_can_be():
    rng = random.Random(0)
    trials = [
        _trial(0, *(f"<action>({rng.randint(1, 6)}, {rng.randint(1, 6)})</action>" for _ in range(4)))
        for _ in range(32)
    ]
    assert diversity(trials) > 3.0
