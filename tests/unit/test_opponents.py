"""Opponents as text: names, weights, switches."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import mulligan
from mulligan.algo.build import batch_from_groups
from mulligan.envs import tictactoe
from mulligan.envs.kuhn.habits import PLAYABLE
from mulligan.envs.opponents import at_episode, at_next_episode, chances_of, parse_pool, settle_opponent
from mulligan.errors import MulliganError, ParameterError, StopReason, UnknownName
from mulligan.policy.scripted import RandomPolicy
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Group

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


@pytest.mark.parametrize(
    ("env", "params", "complaint"),
    [
        ("rps", {"turns": 3}, "rps: turns must be 10 with throws=10 (got 3); leave it out"),
        ("dilemma", {"rounds": 4, "turns": 6}, "dilemma: turns must be 4 with rounds=4 (got 6); leave it out"),
        ("kuhn", {"hands": 3, "turns": 5}, "kuhn: turns must be 12 with hands=3 (got 5); leave it out"),
    ],
)
def test_turns_that_contradict_the_length_of_a_match_are_refused(env, params, complaint):
    with pytest.raises(ParameterError) as raised:
        mulligan.make_task(env, 0, params)
    assert str(raised.value) == complaint
    length = params.keys() - {"turns"}
    task = mulligan.make_task(env, 0, {name: params[name] for name in length})
    assert mulligan.make_task(env, 0, {**dict(task.params), "turns": task.turns}) == task  # as the optimum asks for it
    assert mulligan.make_task("kuhn", 0, {"turns": 3}).turns == 3  # of a single hand they can be chosen


# In training


def test_baselines_are_kept_by_opponent_and_seat():
    """Also in Tic-Tac-Toe: a draw against minimax and one against a player who takes corners are worth differently."""
    groups = []
    for seed in range(12):
        task = mulligan.make_task("tictactoe", seed, {"opponent": "minimax,prefers-corners"})
        groups.append(Group(task, (run_trial_sync(task, RandomPolicy(), episodes=1),)))
    labels = batch_from_groups(groups, gamma_step=1.0, gamma_traj=1.0).class_labels
    assert {group.task.opponent for group in groups} == {"minimax", "prefers-corners"}
    assert len(labels) == len({(group.task.opponent, group.task.seat) for group in groups}) == 4


# Opponents that fail


def illegal(*_: object) -> list[int]:
    return [99]


def raising(*_: object) -> list[int]:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize(
    ("cells", "complaint"),
    [(illegal, "broken played 99, which is no move of tictactoe"), (raising, "broken raised ZeroDivisionError")],
)
def test_an_opponent_of_tictactoe_that_fails_forfeits(monkeypatch, seat, cells, complaint):
    monkeypatch.setitem(tictactoe.HABITS, "broken", tictactoe.Habit("fails", cells))
    assert_forfeit("tictactoe", {"opponent": "broken", "seat": seat}, complaint)


def test_one_that_hangs_forfeits_too_also_at_the_first_move_of_the_game(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setitem(tictactoe.HABITS, "broken", tictactoe.Habit("hangs", lambda board: go_on.wait() and [0]))
    try:
        for seat in (1, 2):
            params = {"opponent": "broken", "seat": seat}
            assert_forfeit("tictactoe", params, "broken gave no answer within 0.2 s", env_timeout=0.2)
    finally:
        go_on.set()


def test_opponents_of_poker_that_fail_forfeit(monkeypatch):
    monkeypatch.setitem(PLAYABLE, "broken", {})
    assert_forfeit("kuhn", {"opponent": "broken", "seat": 2}, "broken raised KeyError")
    habits = pytest.importorskip("mulligan.envs.adapters.spiel_opponents")._HABITS
    monkeypatch.setitem(habits["leduc_poker"], "broken", lambda state: {7: 1.0})
    for env in ("leduc", "openspiel:leduc_poker"):
        assert_forfeit(env, {"opponent": "broken", "seat": 2}, f"broken played 7, which is no move of {env}")


def assert_forfeit(env: str, params: dict, complaint: str, **settings: object) -> None:
    trial = run_trial_sync(mulligan.make_task(env, params=params), RandomPolicy(), **settings)
    assert [episode.stop for episode in trial.episodes] == [StopReason.OPPONENT_FAILED]
    assert complaint in trial.episodes[0].error
    assert trial.episodes[0].reward == 0
    assert not trial.episodes[0].won
    assert trial.failed  # so that training and evaluation leave it out
