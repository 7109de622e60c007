"""The trial loop: what the agent sees, when it is asked to reflect, what happens when something fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import ClassVar

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mulligan
from mulligan.envs.bandit import Bandit
from mulligan.errors import ContextFull, Fault, RequestFailed, StopReason, UnknownName, UsageError
from mulligan.report.run import trial_from_dict, trial_to_dict
from mulligan.trial import memory as remembering
from mulligan.trial.prompts import headline
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Episode, Message, Reflection, Sampling, Step, Task

REFLECTION = "<reflection>\nplan: try the next number\nerror_category: wrong-move\n</reflection>"


class Counter:
    """Say the numbers 1, 2, 3 in order; without digest, so that history is the transcript."""

    turns: ClassVar[int] = 3

    def __init__(self, task: Task) -> None:
        self.task = task

    def rules(self) -> str:
        return "Count to three."

    def reset(self, chance: int = 0) -> str:
        self.said = 0
        self.chance = chance
        return f"start {chance}"

    def step(self, reply: str) -> Step:
        if reply != str(self.said + 1):
            return Step(f"at {self.said}", valid=False, state_key=str(self.said), feedback="not next")
        self.said += 1
        won = self.said == 3
        return Step(f"at {self.said}", float(won), won, won, state_key=str(self.said))


def counter(**overrides: object) -> Counter:
    return Counter(Task("counter", seed=1, turns=3, task_class="counter", **overrides))  # type: ignore[arg-type]


class Recorder:
    """Answers from a list (or a function of the messages) and keeps what it was shown."""

    name = "recorder"

    def __init__(self, replies: Sequence[str | Exception] | None = None) -> None:
        self.replies = list(replies or ["1", "2", "x"])
        self.seen: list[list[Message]] = []
        self.sampling: list[Sampling] = []
        self.started = self.closed = self.played = 0

    def start(self, task: Task, seed: int) -> Recorder:
        self.started += 1
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append([dict(message) for message in messages])  # type: ignore[misc]
        self.sampling.append(sampling)
        if "Write a short" in messages[-1]["content"]:
            return Completion(REFLECTION, prompt_tokens=5, completion_tokens=7)
        answer = self.replies[self.played % len(self.replies)]
        self.played += 1
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer, prompt_tokens=3, completion_tokens=1)

    def close(self) -> None:
        self.closed += 1


def play(policy: Recorder, env: Counter | None = None, **options: object) -> mulligan.Trial:
    return run_trial_sync(env or counter(), policy, **options)


def openings(policy: Recorder) -> list[str]:
    """The last message of each first request of an episode."""
    return [messages[-1]["content"] for messages in policy.seen if messages[-1]["content"].endswith("start 0")]


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


@pytest.mark.parametrize(("memory", "asked"), [("none", 0), ("history", 0), ("reflection", 2), ("both", 2)])
def test_reflections_are_asked_for_only_where_memory_shows_them(memory, asked):
    policy = Recorder()
    trial = play(policy, memory=memory)
    assert sum("Write a short reflection" in seen[-1]["content"] for seen in policy.seen) == asked
    assert sum(episode.reflection is not None for episode in trial.episodes) == asked
    assert trial.episodes[-1].reflection is None  # nothing comes after the last episode


def test_without_memory_every_attempt_looks_like_the_first():
    policy = Recorder()
    play(policy, memory="none")
    starts = [seen for seen in policy.seen if len(seen) == 2]
    assert len(starts) == 3
    assert starts[0] == starts[1] == starts[2]
    assert starts[0][1]["content"] == "start 0"
    assert policy.started == policy.closed == 3


def test_reflection_memory_starts_anew_and_shows_the_reflection_only():
    policy = Recorder()
    trial = play(policy, memory="reflection")
    second = openings(policy)[1]
    assert second == (
        "What you remember of this task:\n"
        "Episode 1: you did not win: the turns ran out, reward 0.\n"
        "plan: try the next number\nerror_category: wrong-move\n\n"
        "Episode 2 of 3 begins.\nstart 0"
    )
    assert "You answered" not in second
    assert not any(episode.continues for episode in trial.episodes)
    assert (policy.started, policy.closed) == (1, 1)


def test_history_without_digest_goes_on_in_the_same_list():
    policy = Recorder()
    trial = play(policy, memory="history")
    assert [episode.continues for episode in trial.episodes] == [False, True, True]
    for before, after in zip(policy.seen, policy.seen[1:], strict=False):
        assert after[: len(before)] == before
    last = policy.seen[-1]
    assert [message["role"] for message in last[1:]] == ["user", "assistant"] * 8 + ["user"]
    joined = last[7]["content"]
    assert joined == (
        "not next\nat 2\nEpisode 1 is over: you did not win: the turns ran out. Reward: 0.\n\n"
        "Episode 2 of 3 begins.\nstart 0"
    )


def test_both_goes_on_with_the_reflection_in_between():
    policy = Recorder()
    play(policy, memory="both")
    last = policy.seen[-1]
    assert sum(message["content"] == REFLECTION for message in last) == 2
    assert [message["role"] for message in last[1:]] == ["user", "assistant"] * 10 + ["user"]


def test_history_that_outgrows_its_budget_starts_anew_and_says_so():
    policy = Recorder()
    trial = play(policy, memory="history", memory_tokens=40)
    assert not trial.episodes[2].continues
    assert "left out" in openings(policy)[-1]


def test_digest_replaces_the_transcript_and_starts_anew():
    class Digesting(Counter):
        def digest(self, episode: Episode) -> str:
            return f"came to {self.said}"

    policy = Recorder()
    trial = play(policy, Digesting(counter().task), memory="history")
    assert [episode.continues for episode in trial.episodes] == [False, False, False]
    assert "came to 2" in openings(policy)[1]
    assert "You answered" not in openings(policy)[1]


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


class Narrow(Recorder):
    """A model with a short context, whose episodes all take the same; a token is a word."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        asked = "Write a short" in messages[-1]["content"]
        text = REFLECTION if asked else "x"
        taken, more = sum(self.count_tokens(message["content"]) for message in messages), self.count_tokens(text)
        if taken + more > self.context:
            raise ContextFull(f"{taken} tokens")
        self.seen.append(list(messages))
        return Completion(text, prompt_tokens=taken, completion_tokens=more)


@pytest.mark.parametrize(("memory", "context"), [("history", 190), ("reflection", 290), ("both", 290)])
def test_memory_leaves_the_next_episode_its_room_in_the_context(memory, context):
    """An environment without a digest, a model whose context holds one episode and a half."""
    policy = Narrow(context)
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    trial = play(policy, env, episodes=3, memory=memory)
    assert [(episode.stop, episode.error) for episode in trial.episodes] == [(StopReason.TURN_LIMIT, "")] * 3
    assert "What you remember" in policy.seen[-1][1]["content"]


@pytest.mark.parametrize("memory", ["history", "reflection", "both"])
@pytest.mark.parametrize("style", ["note", "bare"])
def test_what_had_room_in_the_first_episode_has_room_in_the_later_ones(memory, style):
    """However little the context leaves: what memory says of itself counts too."""
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    had_room = 0
    for context in range(10, 300):
        first, *later = play(Narrow(context), env, episodes=3, memory=memory, style=style).episodes
        if first.stop is StopReason.TURN_LIMIT and not first.error:
            had_room += 1
            assert [(episode.stop, episode.error) for episode in later] == [(StopReason.TURN_LIMIT, "")] * 2, context
    assert had_room > 100


def test_window_shows_only_the_last_turns():
    policy = Recorder(["x"])
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    play(policy, env, episodes=1, window=2)
    last = policy.seen[-1]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert last[1]["content"].startswith("Episode 1 of 1 begins.\nstart 0\n[4 turns left out]\nnot next")
    assert last[-1]["content"].endswith("(1 turn left)")


def test_restart_fresh_redraws_chance_and_replay_does_not():
    for restart, expected in (("fresh", ["start 0", "start 1", "start 2"]), ("replay", ["start 0"] * 3)):
        trial = play(Recorder(), restart=restart)
        assert [episode.turns[0].observation for episode in trial.episodes] == expected


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

    with pytest.warns(UserWarning, match="in episode 1: KeyError: 'action'") as told:
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


def test_plain_functions_are_policies_sync_and_async():
    async def awaited(messages: list[Message]) -> str:
        return str((len(messages)) // 2)

    assert play(lambda messages: str(len(messages) // 2), episodes=1).solved_at == 0  # type: ignore[arg-type]
    assert play(awaited, episodes=1).solved_at == 0  # type: ignore[arg-type]


def test_works_inside_a_running_event_loop():
    async def notebook() -> mulligan.Trial:
        return mulligan.run_trial_sync(counter(), Recorder(["1", "2", "3"]))

    assert asyncio.run(notebook()).solved_at == 0


def test_reflections_from_elsewhere_replace_the_agents_own():
    policy = Recorder()
    foreign = Reflection("from another task", valid=True)
    play(policy, memory="reflection", reflections=lambda index: foreign)
    assert "from another task" in openings(policy)[1]
    assert not any("Write a short reflection" in seen[-1]["content"] for seen in policy.seen)


def test_reflections_from_elsewhere_are_shown_where_history_would_go_on():
    policy = Recorder()
    play(policy, memory="both", reflections=lambda index: Reflection("from another task", valid=True))
    assert "from another task" in openings(policy)[1]


def test_related_tasks_are_told_as_such():
    others = [mulligan.make_task("bandit", seed, arms=seed) for seed in (3, 5)]
    policy = Recorder(["<action>9</action>"])
    task = mulligan.make_task("bandit", 1, arms=2)
    trial = mulligan.run_trial_sync(task, policy, memory="reflection", related=others)
    assert trial.related == tuple(others)
    rules = [seen[0]["content"].partition(",")[0] for seen in policy.seen if len(seen) == 2]
    assert rules == ["There are 2 arms", "There are 3 arms", "There are 5 arms"]
    asked = [seen[-1]["content"] for seen in policy.seen if "Write a short" in seen[-1]["content"]]
    assert all("another task of the same kind" in text for text in asked)
    assert any("What you remember of earlier tasks of this kind" in seen[1]["content"] for seen in policy.seen)


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


def test_the_window_holds_for_the_reflection_too():
    policy = Recorder(["x"])
    env = Counter(Task("counter", seed=1, turns=6, task_class="counter"))
    play(policy, env, episodes=2, window=2, memory="reflection")
    (asked,) = [seen for seen in policy.seen if "Write a short" in seen[-1]["content"]]
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "user", "assistant", "user"]


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


def test_a_scripted_player_or_a_policy_that_breaks_ends_its_trial_alone():
    class BadStart(Recorder):
        def start(self, task: Task, seed: int) -> Recorder:
            raise RuntimeError("no model")

    class BadEyes(Recorder):
        def watch(self, world: object) -> None: ...

        def ended(self, episode: Episode) -> None: ...

        def see(self, step: Step) -> None:
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
    del kept["episodes"][0]["forfeit"]  # as a run of an earlier version
    assert trial_from_dict(kept).episodes[0].reward == 0.0


def test_reflection_sampling_has_its_own_limit():
    policy = Recorder()
    play(policy, sampling=Sampling(max_tokens=8), reflection_tokens=99, episodes=2)
    assert {sampling.max_tokens for sampling in policy.sampling} == {8, 99}


def test_unknown_settings_name_the_nearest():
    with pytest.raises(UnknownName, match="'episodes'"):
        play(Recorder(), episode=3)
    with pytest.raises(UnknownName, match="'reflection'"):
        play(Recorder(), memory="reflections")
    with pytest.raises(UnknownName, match="'react'"):
        play(Recorder(), style="reakt")
    with pytest.raises(UsageError, match="episodes=0"):
        play(Recorder(), episodes=0)
    with pytest.raises(UsageError, match="env_timeout=nan"):
        play(Recorder(), env_timeout=float("nan"))


def test_something_that_is_no_policy_is_refused():
    with pytest.raises(UsageError, match="not a policy"):
        mulligan.run_trial_sync(counter(), 3)  # type: ignore[arg-type]


# What memory shows, on its own ------------------------------------------------------------------------------------


def recollections(count: int, size: int = 10) -> list[remembering.Recollection]:
    return [
        remembering.Recollection(
            Episode(n, (), "", StopReason.LOST, reflection=Reflection(f"note {n} " + "x" * size, valid=True)),
            f"facts {n}",
        )
        for n in range(count)
    ]


def shown(past: list[remembering.Recollection], mode: str, budget: int = 10_000, most: int = 5) -> str:
    return remembering.recall(past, mode, budget=budget, max_reflections=most, headline=headline)  # type: ignore[arg-type]


def test_newest_last_oldest_dropped_first_and_said():
    text = shown(recollections(7), "reflection")
    assert "note 0" not in text
    assert "note 1" not in text
    assert text.startswith("[2 earlier episodes left out]")
    assert text.index("note 2") < text.index("note 6")


def test_history_is_kept_where_only_the_reflection_is_too_old():
    text = shown(recollections(7), "both")
    assert "facts 0\n[your reflection is left out]" in text
    assert "note 0" not in text
    assert "note 6" in text


def test_an_episode_with_nothing_to_tell_is_still_said_to_have_been_played():
    empty = [remembering.Recollection(Episode(0, (), "", StopReason.TURN_LIMIT), "")]
    assert shown(empty, "history") == "Episode 1: you did not win: the turns ran out, reward 0."


def test_memory_without_headlines_keeps_its_budget_in_whole_words():
    """The bare style, with a digest in one line: tiny models have short contexts, and half a fact is another one."""
    facts = " ".join(f"b{number}=ok" for number in range(10, 60))
    past = [remembering.Recollection(Episode(0, (), "", StopReason.LOST), facts)]
    text = remembering.recall(past, "history", budget=20, max_reflections=5, headline=None)
    assert 10 < remembering.estimate_tokens(text) <= 20
    assert facts.endswith(f" {text}")
    assert text.startswith("b")
    assert remembering.recall(past, "history", budget=1, max_reflections=5, headline=None) == ""  # not "=ok"


@given(count=st.integers(1, 8), size=st.integers(0, 400), budget=st.integers(20, 400), most=st.integers(1, 6))
def test_memory_keeps_its_budget(count, size, budget, most):
    """Within the budget, but for the one line that says what was dropped; and the newest is always there."""
    text = shown(recollections(count, size), "reflection", budget, most)
    note, _, rest = text.partition("]\n\n") if text.startswith("[") else ("", "", text)
    blocks = [block for block in rest.split("\n\n") if block]
    assert sum(remembering.estimate_tokens(block) for block in blocks) <= budget + 1
    assert f"Episode {count}:" in text
    assert len(blocks) + (int(note.split()[0][1:]) if note else 0) == count
