"""What memory shows of earlier episodes: in a trial, and on its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counting import REFLECTION, Counter, Recorder, counter, openings, play
from mulligan.errors import ContextFull, StopReason
from mulligan.policy.base import estimate_tokens
from mulligan.trial import memory as remembering
from mulligan.trial.prompts import headline
from mulligan.types import Completion, Episode, Message, Reflection, Sampling, Task


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
    for context in range(10, 300, 3):
        first, *later = play(Narrow(context), env, episodes=3, memory=memory, style=style).episodes
        if first.stop is StopReason.TURN_LIMIT and not first.error:
            had_room += 1
            assert [(episode.stop, episode.error) for episode in later] == [(StopReason.TURN_LIMIT, "")] * 2, context
    assert had_room > 33


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
    return remembering.recall(past, mode, budget, headline, most=most)  # type: ignore[arg-type]


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
    text = remembering.recall(past, "history", 20, None)
    assert 10 < estimate_tokens(text) <= 20
    assert facts.endswith(f" {text}")
    assert text.startswith("b")
    assert remembering.recall(past, "history", 1, None) == ""  # not "=ok"


@given(count=st.integers(1, 8), size=st.integers(0, 400), budget=st.integers(20, 400), most=st.integers(1, 6))
def test_memory_keeps_its_budget(count, size, budget, most):
    """Within the budget, but for the one line that says what was dropped; and the newest is always there."""
    text = shown(recollections(count, size), "reflection", budget, most)
    note, _, rest = text.partition("]\n\n") if text.startswith("[") else ("", "", text)
    blocks = [block for block in rest.split("\n\n") if block]
    assert sum(estimate_tokens(block) for block in blocks) <= budget + 1
    assert f"Episode {count}:" in text
    assert len(blocks) + (int(note.split()[0][1:]) if note else 0) == count
