"""The simulation of docs/scaling.md, on cases that can be worked out by hand; and its committed figures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "results" / "scaling"


@pytest.fixture(scope="module")
def simulate() -> ModuleType:
    about = importlib.util.spec_from_file_location("simulate", FOLDER / "simulate.py")
    assert about is not None
    assert about.loader is not None
    module = sys.modules["simulate"] = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def test_two_trials_share_a_gpu(simulate):
    """10 and 30 tokens: 10 steps with two sequences, then 20 with one; then both are trained on."""
    trials = [[[10]], [[30]]]
    one, two = (simulate.STEP_BASE + count * simulate.STEP_EACH for count in (1, 2))
    training = 40 * (1 + simulate.READ_BEFORE) / simulate.TRAINED
    assert simulate.run(simulate.Setting(slots=2), [trials]) == pytest.approx(10 * two + 20 * one + training)
    one_at_a_time = simulate.run(simulate.Setting(slots=1), [trials])
    assert one_at_a_time == pytest.approx(40 * one + training)


def test_lock_step_waits_for_the_slowest_reply(simulate):
    """Two turns of 10 and 30, and of 30 and 10 tokens: each turn takes as long as its longer reply."""
    trials = [[[10, 30]], [[30, 10]]]
    one, two = (simulate.STEP_BASE + count * simulate.STEP_EACH for count in (1, 2))
    training = 80 * (1 + simulate.READ_BEFORE) / simulate.TRAINED
    lock_step = simulate.run(simulate.Setting(slots=2, lock_step=True), [trials])
    assert lock_step == pytest.approx(2 * (10 * two + 20 * one) + training)
    assert simulate.run(simulate.Setting(slots=2), [trials]) == pytest.approx(40 * two + training)


def test_steps_wait_for_a_worker(simulate):
    """Two replies of 10 tokens end together; one worker steps one world after the other, 5 s each."""
    setting = simulate.Setting(slots=2, workers=1, env_seconds=5.0)
    training = 20 * (1 + simulate.READ_BEFORE) / simulate.TRAINED
    two = simulate.STEP_BASE + 2 * simulate.STEP_EACH
    assert simulate.run(setting, [[[[10]], [[10]]]]) == pytest.approx(10 * two + 10 + training)


def test_the_committed_figures_are_those_of_the_simulation(simulate):
    turns = json.loads((FOLDER / "turns.json").read_text())
    committed = json.loads((FOLDER / "simulation.json").read_text())
    assert simulate.occupancy(simulate.Setting(), turns) == pytest.approx(committed["group"]["staleness 0"]["8"])
