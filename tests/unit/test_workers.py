"""Trials in processes of their own: the same as here, and one clear line where a process fails."""

from __future__ import annotations

import pytest

from mulligan.envs.registry import make_task
from mulligan.errors import MulliganError
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout import groups, workers
from mulligan.rollout.collect import Job
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import belongs
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import trust

SETTINGS = TrialSettings(episodes=3), TrialSettings(episodes=2, memory="history")
JOBS = [(Job(make_task("bandit", seed), seed), SETTINGS[seed % 2]) for seed in range(2 * workers.FEWEST + 1)]


def test_several_processes_play_the_same_trials_in_the_same_order():
    player = ExpertPolicy(0.5, 0.5)
    here = workers.play(JOBS, player)
    apart = workers.play(JOBS, player, processes=2)
    assert apart == here
    assert {trial.memory for trial in here} == {"history", here[0].memory}
    assert len({tuple(turn.reply.text for turn in trial.episodes[0].turns) for trial in here}) > 1


def test_few_trials_stay_here(monkeypatch):
    monkeypatch.setattr(workers, "_begin", lambda: pytest.fail("a process for a handful of trials"))
    few = JOBS[: workers.FEWEST]
    assert [trial.task for trial in workers.play(few, ExpertPolicy(), 8)] == [job.task for job, _ in few]


@pytest.mark.parametrize(("env", "related"), [("minesweeper", 1)])
def test_several_processes_draw_the_same_tasks(env, related, monkeypatch):
    mixture, wanted = Mixture.parse(env, {}), {"seed": 3, "update": -1, "related": related, "name": "warmstart"}
    here = draw_tasks(mixture, 2 * workers.FEWEST, **wanted)
    looked = []
    monkeypatch.setattr(groups, "belongs", lambda task, *rest: looked.append(task) or belongs(task, *rest))
    apart = workers.draw(mixture, 2 * workers.FEWEST, **wanted, processes=2)
    assert apart == here
    assert len(looked) < workers.FEWEST  # the others were looked at elsewhere


def test_a_world_that_cannot_be_built_is_said_where_it_is_drawn(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    trust(tmp_path / "broken.py")
    mixture = Mixture.parse(f"{tmp_path / 'broken.py'}:Broken", {})
    with pytest.raises(MulliganError, match="RuntimeError: no such world"):
        workers.draw(mixture, 2 * workers.FEWEST, seed=0, update=-1, processes=2)


BROKEN = """
from mulligan.envs.minesweeper.env import MineSweeper

class Broken(MineSweeper):
    def __init__(self, task):
        raise RuntimeError("no such world")
"""

PRINTS = """
import os

from mulligan.envs.bandit import Bandit

class Loud(Bandit):
    def reset(self, chance=0):
        print("hello")
        os.write(1, b"good day\\n")  # as libraries do that are not written in Python
        return super().reset(chance)
"""


def test_what_an_environment_prints_is_no_answer(tmp_path, capfd):
    (tmp_path / "loud.py").write_text(PRINTS)
    name = f"{tmp_path / 'loud.py'}:Loud"
    trust(name)
    jobs = [(Job(make_task(name, seed), seed), SETTINGS[0]) for seed in range(2 * workers.FEWEST)]
    assert len(workers.play(jobs, ExpertPolicy(), processes=2)) == len(jobs)
    said = capfd.readouterr().err
    assert "hello" in said
    assert "good day" in said


def test_a_process_that_fails_is_told(capfd):
    player = ExpertPolicy()
    player.name = Unreadable()
    with pytest.raises(MulliganError):
        workers.play(JOBS, player, processes=2)


class Unreadable:
    """Cannot be read again."""

    def __reduce__(self):
        return int, ("no number",)
