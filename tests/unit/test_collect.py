"""Many trials at once: when there is a reason to stop them all, and when there is none."""

from __future__ import annotations

import asyncio

import pytest

import mulligan
from mulligan.errors import ContextFull, PolicyError, RequestFailed, StopReason
from mulligan.policy.base import Policy
from mulligan.rollout.collect import HOPELESS, Job, collect
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Message, Sampling, Task, Trial


class Reader:
    """Has no room for the prompts of some tasks; to all others it answers, later than it refuses those."""

    name = "reader"

    def __init__(self, too_long: range) -> None:
        self.too_long = too_long

    def start(self, task: Task, seed: int) -> _Reading:
        return _Reading(task.seed in self.too_long)


class _Reading:
    def __init__(self, is_full: bool) -> None:
        self.is_full = is_full

    async def reply(self, messages: list[Message], sampling: Sampling) -> Completion:
        if self.is_full:
            raise ContextFull("the prompt of 9000 tokens leaves no room in a context of 1024")
        for _ in range(10):
            await asyncio.sleep(0)
        return Completion("<action>1</action>")

    def close(self) -> None:
        pass


class Stumbling:
    """Fails whoever asks first, as an engine does whose memory runs out once."""

    name = "stumbling"

    def __init__(self, times: int) -> None:
        self.times = times

    def start(self, task: Task, seed: int) -> Stumbling:
        return self

    async def reply(self, messages: list[Message], sampling: Sampling) -> Completion:
        await asyncio.sleep(0)  # all ask before the first is told
        self.times -= 1
        if self.times >= 0:
            raise RequestFailed("out of memory")
        return Completion("<action>1</action>")

    def close(self) -> None:
        pass


def play(policy: Policy, *, tasks: int = 4, group: int = HOPELESS, retries: int = 0) -> list[Trial]:
    jobs = [Job(mulligan.make_task("bandit", seed), 0, index) for seed in range(tasks) for index in range(group)]
    found: dict[int, Trial] = {}
    settings = TrialSettings(memory="none", episodes=1)
    asyncio.run(collect(jobs, policy, settings, concurrency=1024, on_trial=found.__setitem__, retries=retries))
    return [found[place] for place in range(len(jobs))]


def test_one_task_that_does_not_fit_the_context_ends_no_run():
    """A group of eight trials of a long task is over at once, before anything else is; training for a month would end
    there, and again at each resume."""
    trials = play(Reader(range(1)))
    stops = [trial.episodes[0].stop for trial in trials]
    assert set(stops[:HOPELESS]) == {StopReason.CONTEXT_FULL}
    assert StopReason.CONTEXT_FULL not in stops[HOPELESS:]
    assert all(not trial.failed for trial in trials)  # a played outcome


def test_many_tasks_that_do_not_fit_end_no_run_where_others_do():
    stops = [trial.episodes[0].stop for trial in play(Reader(range(20)), tasks=40, group=1)]
    assert stops.count(StopReason.CONTEXT_FULL) == 20


def test_a_context_that_nothing_fits_into_is_said():
    with pytest.raises(PolicyError, match=r"32 trials.*9000 tokens"):
        play(Reader(range(4)))


def test_a_failure_that_playing_again_mends_ends_no_run():
    """An engine out of memory fails all who ask at once; with retries they are played again, as is promised."""
    assert not any(trial.failed for trial in play(Stumbling(32), retries=2))


def test_a_policy_that_never_answers_is_given_up():
    with pytest.raises(PolicyError, match=r"8 trials.*out of memory"):
        play(Stumbling(10_000), retries=2)
