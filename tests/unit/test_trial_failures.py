"""What a trial does when something fails: requests, reflections, worlds, players; and the agent's own faults."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import ClassVar

import pytest

import mulligan
from counting import Counter, Recorder, counter, play
from mulligan import calls
from mulligan.envs.bandit import Bandit
from mulligan.errors import ContextFull, Fault, RequestFailed, StopReason
from mulligan.report.run import trial_from_dict, trial_to_dict
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task


def test_a_failed_request_ends_the_episode_and_the_trial_goes_on():
    policy = Recorder(["1", RequestFailed("no answer"), "1", "2", "3"])
    trial = play(policy, memory="reflection")
    assert [episode.stop for episode in trial.episodes] == [StopReason.REQUEST_FAILED, StopReason.WON]
    assert trial.failed
    assert "no answer" in trial.episodes[0].error
    assert trial.episodes[0].reflection is None
    assert len(trial.episodes[0].turns) == 1


def test_a_failure_in_continuing_history_starts_a_new_list():
    policy = Recorder(["1", RequestFailed("no answer"), "1", "2", "3"])
    trial = play(policy, memory="history")
    assert not trial.episodes[1].continues
    roles = [message["role"] for message in policy.seen[2]]
    assert roles == ["system", "user"]


def test_a_policy_that_raises_anything_is_a_failed_request():
    trial = play(Recorder([ValueError("broken")]), episodes=2)
    assert [episode.stop for episode in trial.episodes] == [StopReason.REQUEST_FAILED] * 2
    assert trial.episodes[0].error == "ValueError: broken"


def test_who_calls_is_told_why_a_trial_failed():
    """A mistake in one's own function is the first thing that goes wrong; three stop reasons do not say which."""

    def mistaken(messages: list[Message]) -> str:
        return {}["action"]

    with pytest.warns(UserWarning, match="episode 1: KeyError: 'action'") as told:
        trial = mulligan.run_trial_sync(counter(), mistaken)
    assert (len(told), told[0].filename, len(trial.episodes)) == (1, __file__, 3)
    with pytest.warns(UserWarning, match="KeyError"):
        asyncio.run(mulligan.run_trial(counter(), mistaken))


def test_a_full_context_is_an_outcome_not_a_failure():
    trial = play(Recorder([ContextFull("no room")]), episodes=1)
    assert trial.episodes[0].stop is StopReason.CONTEXT_FULL
    assert not trial.failed


def test_an_environment_that_raises_ends_the_trial():
    class Breaking(Counter):
        def step(self, reply: str) -> Step:
            if self.said == 1:
                raise RuntimeError("the world fell apart")
            return super().step(reply)

    trial = play(Recorder(["1", "2", "3"]), Breaking(counter().task))
    assert [episode.stop for episode in trial.episodes] == [StopReason.ENV_RAISED]
    assert trial.episodes[0].error == "RuntimeError: the world fell apart"
    assert trial.failed


@pytest.mark.parametrize(("failure", "failed"), [(RequestFailed("503"), True), (ContextFull("no room"), False)])
def test_a_reflection_that_could_not_be_asked_for_is_a_failure_of_the_trial(failure, failed):
    """The next episode plays without what it should know: not a figure to count, or to train on, in silence."""

    class Unreflecting(Recorder):
        async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
            if "Write a short reflection" in messages[-1]["content"]:
                raise failure
            return await super().reply(messages, sampling)

    trial = play(Unreflecting(), episodes=2)
    assert [episode.stop for episode in trial.episodes] == [StopReason.TURN_LIMIT] * 2
    assert trial.episodes[0].error.startswith("no reflection: ")
    assert (trial.episodes[0].unreflected, trial.failed) == (failed, failed)
    assert trial_from_dict(json.loads(json.dumps(trial_to_dict(trial)))) == trial


def test_faults_are_told_apart():
    class Talkative(Recorder):
        async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
            self.played += 1
            return [Completion("  "), Completion("", finish="length"), Completion("no")][self.played % 3]

    trial = play(Talkative(), episodes=1)
    assert {turn.fault for turn in trial.episodes[0].turns} == {Fault.EMPTY, Fault.CUT_OFF, Fault.INVALID}


def test_not_moving_is_no_better_than_losing():
    class Game(Counter):
        kind: ClassVar[str] = "versus"
        timeout_reward: ClassVar[float] = -1.0

    trial = play(Recorder(["x"]), Game(counter().task), episodes=1)
    assert trial.episodes[0].reward == -1.0
    assert [turn.reward for turn in trial.episodes[0].turns] == [0.0, 0.0, -1.0]


def test_cancelling_closes_the_conversation():
    class Hanging(Recorder):
        async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
            await asyncio.sleep(60)
            raise AssertionError

    policy = Hanging()

    async def cancel() -> None:
        task = asyncio.ensure_future(mulligan.run_trial(counter(), policy))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert (policy.started, policy.closed) == (1, 1)


def test_a_related_task_that_cannot_be_built_ends_the_trial_there(monkeypatch):
    class Picky(Bandit):
        def __init__(self, task):
            if task.seed == 3:
                raise OSError("no file for 3")
            super().__init__(task)

    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Picky)
    tasks = [mulligan.make_task("bandit", seed) for seed in (1, 3, 5)]
    trial = run_trial_sync(tasks[0], Recorder(["<action>9</action>"]), related=tasks[1:])
    assert [episode.stop.value for episode in trial.episodes][-1] == "env_raised"
    assert len(trial.episodes) == 2
    assert trial.failed
    assert "no file for 3" in trial.episodes[-1].error


def test_worlds_that_break_elsewhere_end_the_trial_too():
    class NoRules(Counter):
        def rules(self) -> str:
            raise RuntimeError("no rules")

    class NoDigest(Counter):
        def digest(self, episode: Episode) -> str:
            raise RuntimeError("no digest")

    class NoStep(Counter):
        def step(self, reply: str) -> Step:
            return ("not", "a", "step")  # type: ignore[return-value]

    for kind, said in ((NoRules, "no rules"), (NoDigest, "no digest"), (NoStep, "not Step")):
        trial = play(Recorder(), kind(counter().task), memory="history")
        assert trial.episodes[-1].stop is StopReason.ENV_RAISED
        assert said in trial.episodes[-1].error


def test_a_scripted_player_or_a_policy_that_breaks_ends_its_trial_alone():
    class BadStart(Recorder):
        def start(self, task: Task, seed: int) -> Recorder:
            raise RuntimeError("no model")

    class BadEyes(Recorder):
        def watch(self, world: object) -> None: ...

        def ended(self, episode: Episode) -> None: ...

        def see(self, step: Step, timeout_reward: float | None = None) -> None:
            raise RuntimeError("the player cannot count that")

    class NoReward(Counter):
        def step(self, reply: str) -> Step:
            return super().step(reply)._replace(reward=None)  # type: ignore[arg-type]

    (episode,) = play(BadStart()).episodes
    assert (episode.stop, episode.error) == (StopReason.REQUEST_FAILED, "RuntimeError: no model")
    (episode,) = play(BadEyes()).episodes
    assert (episode.stop, episode.error) == (StopReason.ENV_RAISED, "RuntimeError: the player cannot count that")
    assert play(Recorder(), NoReward(counter().task)).episodes[0].stop is StopReason.ENV_RAISED


@pytest.mark.parametrize("limit", [None, 5.0])
def test_a_timeout_inside_the_environment_is_told_as_what_it_is(limit):
    """Not as "no answer within None s": the world did answer, that something of its own did not."""

    class Remote(Counter):
        def step(self, reply: str) -> Step:
            raise TimeoutError("the simulator's socket timed out")

    (episode,) = play(Recorder(), Remote(counter().task), env_timeout=limit).episodes
    assert (episode.stop, episode.error) == (
        StopReason.ENV_RAISED,
        "TimeoutError: the simulator's socket timed out",
    )


def test_an_iterator_that_ended_inside_the_environment_is_no_hang():
    class Scripted(Counter):
        def step(self, reply: str) -> Step:
            return next(iter(()))

    (episode,) = play(Recorder(), Scripted(counter().task), env_timeout=2.0).episodes
    assert episode.stop is StopReason.ENV_RAISED
    assert "StopIteration" in episode.error


def test_a_full_context_is_no_better_than_losing():
    class Game(Counter):
        kind: ClassVar[str] = "versus"
        timeout_reward: ClassVar[float] = -1.0

    trial = play(Recorder(["1", ContextFull("no room")]), Game(counter().task), episodes=1)
    assert trial.episodes[0].reward == -1.0
    full_at_once = play(Recorder([ContextFull("no room")]), Game(counter().task), episodes=1)
    assert (full_at_once.episodes[0].turns, full_at_once.episodes[0].reward) == ((), -1.0)
    kept = json.loads(json.dumps(trial_to_dict(full_at_once)))
    assert trial_from_dict(kept) == full_at_once


def test_rules_that_are_never_told_end_the_trial():
    class Silent(Bandit):
        def rules(self) -> str:
            threading.Event().wait()
            return super().rules()

    world = Silent(mulligan.make_task("bandit"))
    trial = run_trial_sync(world, lambda messages: "<action>1</action>", env_timeout=0.05)
    assert "no answer within 0.05 s" in trial.episodes[0].error


def test_only_calls_in_the_main_thread_are_what_ctrl_c_interrupts():
    first, second = threading.Event(), threading.Event()
    slow = calls.Thread(calls.call, first.wait)
    slower = calls.Thread(calls.call, second.wait)
    first.set()
    slow.outcome.result(60)
    second.set()
    slower.outcome.result(60)
    assert not calls.under_way
