"""A game between two agents: each side's own trial, what neither side is told, and sides that stall or fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from mulligan.envs import registry
from mulligan.errors import StopReason, UsageError
from mulligan.policy.base import as_policy
from mulligan.population import table
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

REPLIES = {
    "kuhn": ["pass", "bet"],
    "rps": ["rock", "paper", "scissors"],
    "dilemma": ["cooperate", "defect"],
    "tictactoe": [f"({row}, {column})" for row in (1, 2, 3) for column in (1, 2, 3)],
    "leduc": ["fold", "call", "raise"],
}


class Heard:
    """A function policy that answers by chance, or as `reply` says, and keeps all that it was told."""

    def __init__(self, env: str, seed: int, reply: Callable[[str], str] | None = None) -> None:
        self.rng, self.messages, self.name = random.Random(seed), list[list[str]](), f"player {seed}"
        self.reply = reply or (lambda text: self.rng.choice(REPLIES[env]))

    async def __call__(self, messages) -> str:
        self.messages.append([message["content"] for message in messages])
        if "<reflection>\n" in messages[-1]["content"]:
            return f"<reflection>written by {self.name}</reflection>"
        return f"<action>{self.reply(messages[-1]['content'])}</action>"


def played(env: str, first: Heard, second: Heard, seed: int = 0, memory="both", **params) -> tuple[Trial, Trial]:
    task = registry.make_task(env, seed, **params)
    settings = TrialSettings(memory=memory, episodes=3)
    players = [
        table.Player("agent/0", as_policy(first), settings),
        table.Player("agent/1", as_policy(second), settings),
    ]
    return asyncio.run(asyncio.wait_for(table.play(task, players, seed=seed, index=0), 60))


@pytest.mark.parametrize("env", ["kuhn", "rps", "tictactoe", "leduc"])
def test_what_one_side_wins_the_other_one_loses(env):
    if env == "leduc":
        pytest.importorskip("pyspiel")
    rewards = set()
    for seed in range(6):
        mine, theirs = played(env, Heard(env, seed), Heard(env, seed + 10), seed)
        assert (mine.task.opponent, theirs.task.opponent) == ("agent/1", "agent/0")
        assert mine.task.seat is None or {mine.task.seat, theirs.task.seat} == {1, 2}
        assert len(mine.episodes) == len(theirs.episodes) == 3
        for one, other in zip(mine.episodes, theirs.episodes, strict=True):
            if StopReason.TURN_LIMIT not in (one.stop, other.stop):
                rewards.add(one.reward)
                assert one.reward == pytest.approx(-other.reward)
                assert {one.stop, other.stop} in ({StopReason.WON, StopReason.LOST}, {StopReason.DRAWN})
    assert len(rewards) > 1


def test_both_sides_of_a_game_that_is_not_zero_sum_are_paid():
    def cooperates(text: str) -> str:
        return "cooperate"

    mine, theirs = played("dilemma", Heard("dilemma", 1, cooperates), Heard("dilemma", 2, cooperates))
    assert [episode.reward for trial in (mine, theirs) for episode in trial.episodes] == pytest.approx([0.6] * 6)


def test_nothing_of_the_others_hand_notes_or_words_is_told():
    """All that a side reads in its first hand, up to a showdown, is the same whatever the other side holds."""
    told: dict[tuple[str, int, str], set[tuple[str, ...]]] = {}
    others: dict[tuple[str, int, str], set[str]] = {}
    for seed in range(40):

        def bets(text: str) -> str:
            return "bet"

        first, second = Heard("kuhn", 1, bets), Heard("kuhn", 2, bets)
        trials = played("kuhn", first, second, seed)
        cards = [trial.episodes[0].turns[0].observation[len("Your card: ")] for trial in trials]
        for number, (heard, trial) in enumerate(zip((first, second), trials, strict=True)):
            key = (f"side {number}", trial.task.seat or 0, cards[number])
            told.setdefault(key, set()).add(tuple(heard.messages[0]))
            others.setdefault(key, set()).add(cards[1 - number])
            words = "\n".join(text for messages in heard.messages for text in messages)
            assert f"written by player {2 - number}" not in words
            assert f"written by player {1 + number}" in words  # its own reflections it does read
    assert max(map(len, others.values())) == 2  # each card was met by both of the others
    assert all(len(messages) == 1 for messages in told.values())


def test_a_throw_is_made_without_knowing_the_others():
    """Both copy the other's last throw: each sees the throws before, and none of the one that is being made."""

    def copies(text: str) -> str:
        if "So far (you/opponent): nothing" in text:
            return "rock"
        return text.partition("\n")[0].rsplit("/", 1)[1]

    def paper_first(text: str) -> str:
        return "paper" if "So far (you/opponent): nothing" in text else copies(text)

    mine, theirs = played("rps", Heard("rps", 1, copies), Heard("rps", 2, paper_first), memory="none", throws=4)
    throws = [[turn.reply.text[8:-9] for turn in trial.episodes[0].turns] for trial in (mine, theirs)]
    assert throws == [["rock", "paper", "rock", "paper"], ["paper", "rock", "paper", "rock"]]


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("stalling", [0, 1])
def test_who_stalls_loses_the_ante_and_the_other_side_wins_it(seat, stalling):
    players = [Heard("kuhn", number, (lambda text: "hm") if number == stalling else None) for number in (0, 1)]
    trials = played("kuhn", *players, seat=seat)
    assert not any(trial.failed for trial in trials)
    for episode in trials[stalling].episodes:
        assert (episode.reward, episode.stop) == (-1.0, StopReason.TURN_LIMIT)
    for episode in trials[1 - stalling].episodes:
        assert (episode.reward, episode.stop) == (1.0, StopReason.WON)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_side_that_fails_ends_the_trial_of_both(failing):
    class Broken(Heard):
        async def __call__(self, messages):
            raise RuntimeError("no weights")

    players = [Broken("kuhn", n) if n == failing else Heard("kuhn", n) for n in (0, 1)]
    trials = played("kuhn", *players)
    assert trials[failing].episodes[-1].stop is StopReason.REQUEST_FAILED
    assert trials[1 - failing].episodes[-1].stop is StopReason.OPPONENT_FAILED


def test_the_same_seed_gives_the_same_game():
    def told() -> list[str]:
        trials = played("tictactoe", Heard("tictactoe", 1), Heard("tictactoe", 2), 3)
        return [episode.final for trial in trials for episode in trial.episodes]

    assert told() == told()


def test_games_without_another_side_are_refused():
    with pytest.raises(UsageError, match="minesweeper, where nobody plays the other side"):
        table.check("minesweeper")
