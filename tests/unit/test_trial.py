"""The trial loop: what the agent sees in an episode, what it is asked, what is recorded."""

from __future__ import annotations

import asyncio
import json

import numpy
import pytest

import mulligan
from counting import Counter, Recorder, counter, play
from mulligan.errors import Fault, ParameterError, StopReason, UnknownName, UsageError
from mulligan.policy.base import as_policy
from mulligan.report.run import trial_to_dict
from mulligan.types import Message, Sampling, Step, Task


def test_an_episode_is_one_growing_transcript():
    policy = Recorder()
    play(policy, episodes=1)
    for before, after in zip(policy.seen, policy.seen[1:], strict=False):
        assert after[: len(before)] == before
    assert [message["role"] for message in policy.seen[-1]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert policy.seen[-1][2]["content"] == "1"
    assert policy.seen[-1][-1]["content"] == "at 2\n(1 turn left)"
    assert policy.seen[0][0]["content"].startswith("Count to three.")


def test_a_stand_in_plays_some_episodes_and_the_agent_remembers_them_as_its_own():
    """About half of the episodes, the same ones each time; all reflections are the agent's."""
    task = mulligan.make_task("bandit", 3, params={"arms": 4})
    agent, stand_in = as_policy(lambda _: "<action>1</action>"), as_policy(lambda _: "<action>2</action>")

    def played(seed: int) -> mulligan.Trial:
        return mulligan.run_trial_sync(task, agent, stand_in=stand_in, seed=seed, memory="both", stop="never")

    coins = []
    for seed in range(16):
        trial = played(seed)
        assert trial == played(seed)
        coins += [episode.by_stand_in for episode in trial.episodes]
        for episode in trial.episodes:
            assert episode.turns[0].reply.text == f"<action>{2 if episode.by_stand_in else 1}</action>"
        assert {episode.reflection.text for episode in trial.episodes[:-1]} == {"<action>1</action>"}
        remembered = trial.episodes[2].opening[-1]["content"]
        for episode in trial.episodes[:2]:
            assert f"Arm {2 if episode.by_stand_in else 1} paid" in remembered
    assert 12 < sum(coins) < 36


def test_turns_record_what_happened():
    trial = play(Recorder(["1", "x", "2"]), episodes=1)
    first, second, third = trial.episodes[0].turns
    assert (first.observation, first.reply.text, first.valid, first.state_key) == ("start 0", "1", True, "")
    assert (second.valid, second.fault, second.feedback, second.state_key) == (False, Fault.INVALID, "not next", "1")
    assert (third.observation, third.valid, third.state_key) == ("at 1", True, "1")
    assert trial.episodes[0].stop is StopReason.TURN_LIMIT
    assert trial.episodes[0].final == "at 2"


def test_a_win_stops_the_trial_and_asks_for_no_reflection():
    policy = Recorder(["1", "2", "3"])
    trial = play(policy, episodes=3)
    assert [episode.stop for episode in trial.episodes] == [StopReason.WON]
    assert trial.solved_at == 0
    assert trial.episodes[0].reflection is None
    assert len(policy.seen) == 3


def test_stop_never_plays_all_episodes():
    trial = play(Recorder(["1", "2", "3"]), episodes=3, stop="never")
    assert [episode.stop for episode in trial.episodes] == [StopReason.WON] * 3


def test_the_reflection_request_tells_the_truth():
    policy = Recorder(["1", "2", "3", "x", "x", "x"])
    play(policy, stop="never", episodes=3)
    asked = [seen[-1]["content"] for seen in policy.seen if "Write a short" in seen[-1]["content"]]
    assert "you won. Reward: 1." in asked[0]
    assert "you did not win: the turns ran out. Reward: 0." in asked[1]


def test_a_note_is_asked_for_in_a_sentence_and_all_else_is_as_in_the_plain_style():
    heard = {}
    for style in ("plain", "note"):
        policy = Recorder(["x"])
        trial = play(policy, episodes=2, style=style)
        assert trial.episodes[0].reflection is not None
        assert trial.episodes[0].reflection.valid
        heard[style] = [seen[-1]["content"] for seen in policy.seen]
    asked = [place for place, said in enumerate(heard["plain"]) if "Write a short" in said]
    assert len(asked) == 1
    for place, (plain, note) in enumerate(zip(heard["plain"], heard["note"], strict=True)):
        assert (plain == note) == (place not in asked)
    assert "error_category" in heard["plain"][asked[0]]
    assert heard["note"][asked[0]].endswith(
        "You will play the same task again, from the same start. Write a short note for yourself between <reflection> "
        "and </reflection>: you will see it, and may see nothing else of this episode."
    )


def test_window_shows_only_the_last_turns():
    policy = Recorder(["x"])
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    play(policy, env, episodes=1, window=2)
    last = policy.seen[-1]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert last[1]["content"].startswith("Episode 1 of 1 begins.\nstart 0\n[4 turns left out]\nnot next")
    assert last[-1]["content"].endswith("(1 turn left)")
    play(policy, env, episodes=1, window=2, style="bare")
    assert policy.seen[-1][0]["content"].startswith("start 0\nat 0")  # nothing but what the environment says


def test_restart_fresh_redraws_chance_and_replay_does_not():
    for restart, expected in (("fresh", ["start 0", "start 1", "start 2"]), ("replay", ["start 0"] * 3)):
        trial = play(Recorder(), restart=restart)
        assert [episode.turns[0].observation for episode in trial.episodes] == expected


def test_plain_functions_are_policies_sync_and_async():
    async def awaited(messages: list[Message]) -> str:
        return str((len(messages)) // 2)

    assert play(lambda messages: str(len(messages) // 2), episodes=1).solved_at == 0  # type: ignore[arg-type]
    assert play(awaited, episodes=1).solved_at == 0  # type: ignore[arg-type]


def test_works_inside_a_running_event_loop():
    async def notebook() -> mulligan.Trial:
        return mulligan.run_trial_sync(counter(), Recorder(["1", "2", "3"]))

    assert asyncio.run(notebook()).solved_at == 0


def test_related_tasks_are_told_as_such():
    others = [mulligan.make_task("bandit", seed, params={"arms": seed}) for seed in (3, 5)]
    policy = Recorder(["<action>9</action>"])
    task = mulligan.make_task("bandit", 1, params={"arms": 2})
    trial = mulligan.run_trial_sync(task, policy, memory="reflection", related=others)
    assert trial.related == tuple(others)
    rules = [seen[0]["content"].partition(",")[0] for seen in policy.seen if len(seen) == 2]
    assert rules == ["There are 2 arms", "There are 3 arms", "There are 5 arms"]
    asked = [seen[-1]["content"] for seen in policy.seen if "Write a short" in seen[-1]["content"]]
    assert all("another task of the same kind" in text for text in asked)
    assert any("What you remember of earlier tasks of this kind" in seen[1]["content"] for seen in policy.seen)


def test_the_window_holds_for_the_reflection_too():
    policy = Recorder(["x"])
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    play(policy, env, episodes=2, window=2, memory="reflection")
    (asked,) = [seen for seen in policy.seen if "Write a short" in seen[-1]["content"]]
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "user", "assistant", "user"]


def test_numpys_numbers_become_pythons():
    """A world that counts in numpy is played and kept like any other: its numbers would not go into a run folder."""

    class Arrays(Counter):
        def step(self, reply: str) -> Step:
            step = super().step(reply)
            flags = numpy.array([step.done, step.won, step.valid])
            return step._replace(reward=numpy.float32(step.reward), done=flags[0], won=flags[1], valid=flags[2])

    trial = play(Recorder(["1", "x", "2"]), Arrays(counter().task), episodes=1)
    assert json.loads(json.dumps(trial_to_dict(trial)))["episodes"][0]["turns"][1]["valid"] is False
    assert play(Recorder(["1", "2", "3"]), Arrays(counter().task)).solved_at == 0


def test_reflection_sampling_has_its_own_limit():
    policy = Recorder()
    play(policy, sampling=Sampling(max_tokens=8), reflection_tokens=99, episodes=2)
    assert {sampling.max_tokens for sampling in policy.sampling} == {8, 99}


def test_unknown_settings_name_the_nearest():
    with pytest.raises(UnknownName, match="'episodes'"):
        play(Recorder(), episode=3)
    with pytest.raises(ParameterError, match="memory"):
        play(Recorder(), memory="reflections")
    with pytest.raises(UnknownName, match="'react'"):
        play(Recorder(), style="reakt")
    with pytest.raises(UsageError, match="episodes"):
        play(Recorder(), episodes=0)
    with pytest.raises(UsageError, match="env_timeout"):
        play(Recorder(), env_timeout=float("nan"))


def test_something_that_is_no_policy_is_refused():
    with pytest.raises(UsageError, match="start"):
        mulligan.run_trial_sync(counter(), 3)  # type: ignore[arg-type]
