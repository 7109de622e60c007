"""The maths from plain lists: hand-worked numbers, the examples of docs/algo.md, and what cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from mulligan.algo.library import cross_episode_advantages, cross_episode_returns, reflection_returns
from mulligan.algo.normalise import History
from mulligan.errors import ParameterError, UnknownName

GUIDE = Path(__file__).parents[3] / "docs" / "algo.md"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """Everything that the guide's blocks define, run as they stand there."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE):
        exec(block, names)
    return names


def test_returns_are_those_of_the_formulas():
    rewards = [[0, 0, 0, 0, 0], [0, 0, 10]]  # g_0 of the second = .95² · 10 = 9.025, and .6 · 9.025 = 5.415
    paper = cross_episode_returns(rewards)
    assert paper[0] == pytest.approx([5.415] * 5)
    assert paper[1] == pytest.approx([9.025, 9.5, 10])
    assert cross_episode_returns(rewards, form="chained")[0][0] == pytest.approx(0.95**4 * 5.415)
    assert reflection_returns(rewards) == pytest.approx([9.025])
    assert cross_episode_returns([[1], [1]], gamma_traj=0.5, form="difference") == [[1.0], [0.0]]
    assert cross_episode_returns([[1], [1]], gamma_traj=0.5, form="final") == [[0.5], [1.0]]


def test_advantages_compare_attempts_of_one_number_and_task():
    trials = [[[0], [1]], [[2], [5]], [[4], [3]], [[100]]]
    values = cross_episode_advantages(trials, groups=["a", "a", "a", "b"], estimator="rloo", gamma_traj=0)
    firsts = [0 - (2 + 4) / 2, 2 - (0 + 4) / 2, 4 - (0 + 2) / 2]
    seconds = [1 - (5 + 3) / 2, 5 - (1 + 3) / 2, 3 - (1 + 5) / 2]
    assert [trial[0][0] for trial in values[:3]] == pytest.approx(firsts)
    assert [trial[1][0] for trial in values[:3]] == pytest.approx(seconds)
    assert values[3] == [[0.0]]  # alone, and nothing is known of earlier updates


def test_small_groups_are_compared_with_earlier_updates():
    history = History()
    for _ in range(2):
        first = cross_episode_advantages([[[1]], [[3]]], ["a", "b"], estimator="rloo", history=history)
    assert [trial[0][0] for trial in first] == pytest.approx([1 - 2, 3 - 2])


def test_no_trials_have_no_advantages():
    assert cross_episode_advantages([], []) == []


def test_what_cannot_be_is_said():
    with pytest.raises(UnknownName, match=r"form of returns 'papers'.*paper"):
        cross_episode_returns([[1]], form="papers")
    with pytest.raises(UnknownName, match=r"estimator of plain rewards 'ppo'"):
        cross_episode_advantages([[[1]]], ["a"], estimator="ppo")
    with pytest.raises(ParameterError, match="got 2 for 1 trials"):
        cross_episode_advantages([[[1]]], ["a", "b"])
    with pytest.raises(ParameterError, match=r"every episode a turn"):
        cross_episode_returns([[1], []])


def test_the_example_for_verl(example):
    rewards = torch.zeros(4, 3)
    rewards[:, 2] = torch.tensor([0.0, 1.0, 0.0, 0.0])  # trial x: 0 then 1; trial y: 0 then 0
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]])
    index = [("t", "x", 0), ("t", "x", 1), ("t", "y", 0), ("t", "y", 1)]
    advantages, _ = example["cross_episode"](token_level_rewards=rewards, response_mask=mask, index=index)
    assert advantages.shape == rewards.shape
    assert advantages[1, 0] == 0  # masked
    index += [("t", "z", 0), ("t", "z", 1)]
    more, ones = torch.cat([rewards, torch.zeros(2, 3)]), torch.ones(6, 3)
    values = example["cross_episode"](token_level_rewards=more, response_mask=ones, index=index)[0]
    assert values[0, 0] > 0 > values[2, 0]  # x's first attempt led to a success; y's did not
    assert values[1, 0] > 0 > values[3, 0]


def test_the_example_for_trl(example):
    columns = {"trial": ["x", "y", "x"], "attempt": [1, 1, 0], "reward": [1.0, 0.5, 0.0]}
    returns = example["cross_episode_reward"](prompts=["p"] * 3, completions=["c"] * 3, **columns)
    assert returns == pytest.approx([1.0, 0.5, 0.6])
