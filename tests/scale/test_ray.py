"""Worlds in workers of Ray: the same trials as here; a worker that is killed loses and doubles none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.errors import StopReason, UsageError
from mulligan.policy.base import as_policy
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.ray_worlds import RayWorlds
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

sys.path.insert(0, str(Path(__file__).parent))
from slow_worlds import Slow

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore::ResourceWarning")]
WORKERS, TIMEOUT = 2, 5.0


@pytest.fixture(scope="module")
def worlds() -> Iterator[RayWorlds]:
    mulligan.register(Slow)
    worlds = RayWorlds(WORKERS, env_timeout=TIMEOUT)
    yield worlds
    worlds.close()


def agent(messages: list[mulligan.Message]) -> str:
    return f"<action>{len(messages)}</action>"


def trials(play: Any, env: str, policy: Any = agent, tasks: int = 6, **params: Any) -> list[Trial]:
    jobs = [Job(mulligan.make_task(env, seed, params=params), seed=1) for seed in range(tasks)]
    ended: list[tuple[int, Trial]] = []
    settings = TrialSettings(episodes=2, memory="both", stop="never", env_timeout=TIMEOUT)
    playing = collect(
        jobs, as_policy(policy), settings, concurrency=8, play=play, on_trial=lambda *trial: ended.append(trial)
    )
    asyncio.run(playing)
    assert sorted(index for index, _ in ended) == list(range(tasks)), "each job gave one trial"
    return [trial for _, trial in sorted(ended, key=lambda pair: pair[0])]


@pytest.mark.parametrize(
    ("env", "policy"), [("Slow", agent), ("minesweeper", RandomPolicy()), ("kuhn", RandomPolicy())]
)
def test_the_trials_are_those_that_are_played_here(worlds, env, policy):
    assert trials(worlds.play, env, policy) == trials(run_trial, env, policy)


def test_errors_of_a_world_read_as_they_do_here(worlds):
    (elsewhere,) = trials(worlds.play, "Slow", tasks=1, fault="raise")
    assert elsewhere.episodes[-1].error == "_Own: it broke"
    assert elsewhere == trials(run_trial, "Slow", tasks=1, fault="raise")[0]


def test_a_worker_that_is_killed_loses_and_doubles_nothing(worlds, tmp_path):
    log = tmp_path / "log"
    parameters = {"log": str(log), "seconds": 0.05}

    async def play_and_kill() -> list[Trial]:
        playing = asyncio.create_task(asyncio.to_thread(trials, worlds.play, "Slow", tasks=16, **parameters))
        for _ in range(2):  # in the middle of trials, one worker and later another process
            seen = set(log.read_text().split()) if log.exists() else set()
            while not (new := (set(log.read_text().split()) if log.exists() else set()) - seen):
                await asyncio.sleep(0.01)
            os.kill(int(min(new)), signal.SIGKILL)
        return await playing

    killed = asyncio.run(play_and_kill())
    processes = set(log.read_text().split())
    assert len(processes) > WORKERS, "no worker was started anew"
    assert killed == trials(run_trial, "Slow", tasks=16, **parameters)


def test_a_world_that_hangs_or_kills_its_process_ends_its_own_trial_alone(worlds):
    for fault, stop in (("hang", StopReason.ENV_HUNG), ("kill", StopReason.ENV_RAISED)):
        ended = trials(worlds.play, "Slow", fault=fault)
        assert [trial.failed for trial in ended] == [True, *[False] * 5], fault
        assert ended[0].episodes[-1].stop is stop
    assert "WorkerLost" in ended[0].episodes[-1].error


def test_what_cannot_be_played_there_is_said(worlds):
    with pytest.raises(UsageError, match=r"scripted players .* leave out ray\.workers"):
        trials(worlds.play, "minesweeper", ExpertPolicy())
    with pytest.raises(UsageError, match=r"10\.0\.0\.1:6379 is a cluster that a run folder names"):
        RayWorlds(2, "10.0.0.1:6379")
    with pytest.raises(UsageError, match=r"ray\.workers must be <= 0, the cores of Ray that are free \(got 1\)"):
        RayWorlds(1)
