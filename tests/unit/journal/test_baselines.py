"""Baselines per class and agent: by hand, over time, and across a restart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mulligan.errors import ParameterError
from mulligan.journal.baselines import ENOUGH, Baselines


def observe_all(baselines, rewards, task_class="refund", agent="bot"):
    for reward in rewards:
        baselines.observe(task_class, agent, float(reward))


def test_the_history_by_hand():
    baselines = Baselines()
    observe_all(baselines, [1, 0])
    # Decay 0.98: the first outcome weighs 0.98 beside 1. Mean 0.98 / 1.98; spread √(mean · (1 − mean)).
    # Decay 0.9: 0.9 / 1.9. Trend: the difference.
    found = baselines.of("refund", "bot")
    mean = 0.98 / 1.98
    assert (found.episodes, found.mean) == (2, pytest.approx(mean))
    assert found.spread == pytest.approx(math.sqrt(mean * (1 - mean)))
    assert found.trend == pytest.approx(0.9 / 1.9 - mean)


def test_an_advantage_is_against_the_history_before():
    baselines = Baselines()
    observe_all(baselines, [0, 100] * 20)
    before = baselines.of("refund", "bot")
    assert baselines.observe("refund", "bot", 100.0) == before
    assert before.advantage(100) == pytest.approx((100 - before.mean) / before.spread)
    assert 0.9 < before.advantage(100) < 1.1  # whatever the unit


def test_too_little_data_gives_no_advantage():
    baselines = Baselines()
    assert math.isnan(baselines.of("refund", "bot").mean)
    observe_all(baselines, [0, 1] * ENOUGH, agent="other")
    observe_all(baselines, [0, 1] * ENOUGH, task_class="search")
    observe_all(baselines, [0, 1] * ((ENOUGH - 2) // 2))
    few = baselines.of("refund", "bot")  # others' outcomes do not count
    assert (few.enough, few.advantage(1.0)) == (False, None)
    observe_all(baselines, [0, 1])
    assert baselines.of("refund", "bot").enough
    equal = Baselines()
    observe_all(equal, [1] * 50)
    assert not equal.of("refund", "bot").enough


def test_a_trend_shows_and_chance_alone_rarely_does():
    rng, still = np.random.default_rng(0), []
    for _ in range(40):
        baselines = Baselines()
        observe_all(baselines, rng.random(60) < 0.5)
        still.append(baselines.of("refund", "bot").direction)
    assert 33 <= still.count("level") < 40  # two standard deviations: about 38
    observe_all(baselines, rng.random(12) < 0.02)
    assert baselines.of("refund", "bot").direction == "down"
    observe_all(baselines, [1] * 15)
    assert baselines.of("refund", "bot").direction == "up"


def test_baselines_survive_a_restart():
    baselines, again = Baselines(), Baselines()
    observe_all(baselines, [0, 1, 0.5] * 10)
    again.load_state_dict(json.loads(json.dumps(baselines.state_dict())))
    assert again.of("refund", "bot") == baselines.of("refund", "bot")
    observe_all(again, [1])
    assert again.of("refund", "bot").episodes == 31


def test_a_reward_must_be_a_number():
    with pytest.raises(ParameterError, match=r"reward must be a finite number \(got nan\)"):
        Baselines().observe("refund", "bot", math.nan)
