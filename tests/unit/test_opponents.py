"""Opponents as text: names, weights, switches."""

from __future__ import annotations

from collections import Counter

import pytest

from mulligan.envs.opponents import at_episode, at_next_episode, chances_of, parse_pool, settle_opponent
from mulligan.errors import MulliganError, ParameterError, UnknownName

NAMES = ("rock", "copycat", "mcts:100")


def check(name: str) -> None:
    if name not in NAMES:
        raise UnknownName("opponent of game", name, NAMES)


def settled(spec: str, seed: int = 0) -> dict:
    return settle_opponent("game", {"opponent": spec, "pool": ""}, seed, check)


def test_one_opponent_stays_and_several_are_drawn_by_weight():
    assert settled("rock") == {"opponent": "rock", "pool": "rock"}
    drawn = Counter(settled("rock,copycat:3", seed)["opponent"] for seed in range(400))
    assert 70 < drawn["rock"] < 130
    assert settled("rock,copycat:3", 5) == settled("rock,copycat:3", 5)
    assert settled("rock, copycat:3")["pool"] == "rock, copycat:3"


def test_a_number_that_belongs_to_a_name_is_no_weight():
    assert parse_pool("game", "mcts:100,mcts:100:2,rock:0.5", check) == [
        ("mcts:100", 1.0),
        ("mcts:100", 2.0),
        ("rock", 0.5),
    ]


def test_who_plays_changes_at_the_switch():
    assert [at_episode("copycat>rock@3", n) for n in range(4)] == ["copycat", "copycat", "rock", "rock"]
    assert at_episode("mcts:100", 7) == "mcts:100"
    episodes = {settled("copycat>rock", seed)["opponent"] for seed in range(60)}
    assert episodes == {"copycat>rock@2", "copycat>rock@3", "copycat>rock@4"}


def test_every_opponent_that_may_be_drawn_has_its_chance():
    """Half of the weight is the hidden switch's, a third of it for each episode; the same one named twice is one."""
    chances = chances_of("game", "rock,copycat>rock:2,rock", check)
    assert chances == pytest.approx({"rock": 1 / 2} | {f"copycat>rock@{switch}": 1 / 6 for switch in (2, 3, 4)})


def test_after_its_change_an_opponent_is_the_second_for_ever():
    world = ("copycat>rock@3", 0)
    seen = []
    for _ in range(4):
        seen.append(world)
        world = at_next_episode(*world)
    assert seen == [("copycat>rock@3", 0), ("copycat>rock@3", 1), ("rock", 0), ("rock", 0)]


def test_what_was_settled_is_settled_again_as_itself():
    """A task is built anew from its own parameters."""
    once = settled("rock,copycat>rock", 3)
    assert settle_opponent("game", dict(once), 3, check) == once


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("paper", "unknown opponent of game 'paper'"),
        ("", "unknown opponent of game ''"),
        ("rock,", "unknown opponent of game ''"),
        ("rock:0,copycat:0", "must have a weight above 0"),
        ("rock:x", "unknown opponent of game 'rock:x'"),
        ("rock>paper", "unknown opponent of game 'paper'"),
        ("rock>copycat@1", "from 2 to 100"),
        ("rock>copycat@", "from 2 to 100"),
        ("rock:-1", "unknown opponent of game"),
    ],
)
def test_bad_opponents_are_one_line(spec: str, complaint: str):
    with pytest.raises((MulliganError, ParameterError), match=complaint) as raised:
        settled(spec)
    assert "\n" not in str(raised.value)
