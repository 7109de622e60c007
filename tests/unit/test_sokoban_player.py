"""Sokoban's player, and what digests and reflections tell of an episode."""

from __future__ import annotations

import random
from pathlib import Path

from mulligan.envs.base import Env
from mulligan.envs.registry import build, make, make_task
from mulligan.envs.sokoban.env import Sokoban, say
from mulligan.errors import StopReason
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Episode, Step, Turn
from sokoban_worlds import reflection, world_of


def playing(env: Env, replies: list[str]) -> Episode:
    """The episode that `replies` make."""
    observation, turns, step = env.reset(), [], Step("")
    for reply in replies:
        step = env.step(reply)
        turns.append(Turn(observation, Completion(reply), step.reward, step.valid, step.state_key, step.feedback))
        observation = step.observation
    return Episode(0, tuple(turns), observation, StopReason.WON if step.won else StopReason.TURN_LIMIT)


# --- Player, digest, reflection


def wins(count: int, kind: str = "expert", skill: float = 1.0, **params: int) -> int:
    won = 0
    for seed in range(count):
        env = make("sokoban", seed, **params)
        assert isinstance(env, Sokoban)
        player = env.player(kind, random.Random(seed), skill, 0.0)
        for _ in range(env.task.turns):
            step = env.step(player.act())
            assert step.valid
            player.see(step)
            won += step.won
            if step.done:
                break
    return won


def test_the_expert_always_wins_in_time_and_skill_matters() -> None:
    assert wins(40) == 40
    assert wins(10, turns=5) == 10  # 5 turns of 3 moves are the 15 the bound promises
    assert wins(5, rows=10, cols=10, boxes=4, solution=30, turns=10) == 5
    assert wins(40, kind="omniscient", skill=0.0) == 40
    assert wins(40, skill=0.0) < 10 < wins(40, skill=0.6) < 40


def test_a_player_that_remembers_takes_care_where_it_lost(tmp_path: Path) -> None:
    env = world_of(tmp_path, "#####", "#   #", "#@$ #", "#   #", "#  .#", "#####", moves=4)
    careful, careless = (env.player("expert", random.Random(3), 0.0, recall) for recall in (1.0, 0.0))
    for player in (careful, careless):
        env.reset()
        player.act()
        player.see(env.step("<action>right, down, right, up</action>"))  # the box is in the upper right corner now
    env.reset()
    assert {careful.act() for _ in range(20)} == {say("rurd")}  # then one more push down
    assert len({careless.act() for _ in range(20)}) > 5


def test_digest_tells_the_moves_played_and_the_last_board(tmp_path: Path) -> None:
    env = world_of(tmp_path, "#######", "#@$  .#", "#######")
    episode = playing(env, ["<action>RIGHT</action>", "<action>fly</action>", "<action>r, r, l</action>"])
    assert env.digest(episode) == (
        "moves right | right, right\n1 of 1 boxes on goals; the board at the end:\n"
        "# # # # # # #\n# _ _ _ P * #\n# # # # # # #"
    )


def test_replies_without_tags_are_remembered_as_they_were_played():
    """In the style "bare" the runner adds the tags: what is told of an episode must not depend on that."""
    said = {}
    for style in ("bare", "plain"):
        trial = run_trial_sync(
            make_task("sokoban", seed=3), lambda messages, style=style: "up, up" if style == "bare" else UP_UP,
            episodes=1, style=style,
        )  # fmt: skip
        (episode,) = trial.episodes
        assert all(turn.valid for turn in episode.turns)
        env = build(trial.task)
        said[style] = env.digest(episode), reflection(env, episode)
    assert said["bare"] == said["plain"]
    assert "up, up | up, up" in said["bare"][0]


UP_UP = "<action>up, up</action>"


def test_reflection_finds_the_move_that_lost(tmp_path: Path) -> None:
    env = world_of(tmp_path, "######", "#    #", "# $@ #", "# .  #", "######")
    # left pushes the box against the left wall, where there is no goal: lost from turn 2 on
    lost = reflection(
        env, playing(env, ["<action>right</action>", "<action>left, left</action>", "<action>up</action>"])
    )
    assert lost.splitlines() == [
        "<reflection>",
        "strategy: played right | left, left | up",
        "outcome: not won, 0 of 1 boxes on goals",
        "reward: 0",
        "failed_at: turn 2, left, left",
        "reasoning: after it no moves can bring every box onto a goal",
        "env_answer: 0 of 1 boxes on goals",
        "error_category: wrong-move",
        "plan: play up, left, down",
        "</reflection>",
    ]
    late = reflection(env, playing(env, ["<action>up, up</action>"]))
    assert "failed_at: turn 1, up, up" in late
    assert "reasoning: 2 more moves would have solved it" in late
    assert "env_answer: Blocked: move 2 (up)." in late
    assert "error_category: out-of-turns" in late
    unread = reflection(env, playing(env, ["up", "<action>up</action>"]))
    assert "failed_at: turn 1, no move" in unread
    assert "error_category: invalid-reply" in unread
    won = reflection(env, playing(env, ["<action>up, left, down</action>"]))
    for said in ("outcome: won, 1 of 1", "failed_at: nothing", "error_category: none", "plan: play up, left, down"):
        assert said in won
