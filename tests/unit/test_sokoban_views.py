"""Sokoban in the names of cells, and levels that end where they are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan import evaluate
from mulligan.envs.registry import build, make, make_task
from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.env import Sokoban
from mulligan.errors import StopReason, UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.trial.runner import run_trial_sync
from scripted_play import ScriptedPolicy
from sokoban_worlds import reflection

LEVEL = ("#######", "# #   #", "# $@. #", "#   $.#", "#######")


def world_of(folder: Path, **params: str) -> Sokoban:
    file = folder / "own.txt"
    file.write_text("\n".join(LEVEL) + "\n")
    env = make("sokoban", levels=str(file), **params)
    assert isinstance(env, Sokoban)
    return env


def test_cells_name_walls_and_goals_once_and_then_what_moves(tmp_path):
    env = world_of(tmp_path, view="cells")
    # Inside the outer wall: 5 columns a to e, 3 rows; the wall within is the second cell of the first row.
    assert env.reset() == "walls b1\ngoals d2 e3\nboxes b2 d3\nyou c2"
    assert env.step("<action>left</action>").observation == "boxes a2 d3\nyou b2"
    env.reset()
    assert env.step("<action>right, up, left</action>").observation == "boxes b2 d3\nyou c1"
    unread = env.step("left")
    assert (unread.valid, unread.observation) == (False, "boxes b2 d3\nyou c1")


def test_a_box_on_a_goal_has_a_star(tmp_path):
    env = world_of(tmp_path, view="cells")
    env.reset()
    # down to c3, then right pushes the lower box from d3 to the goal e3
    assert env.step("<action>down, right</action>").observation == "boxes b2 e3*\nyou d3"
    # back to a3, up to a2, and the upper box goes from b2 to the goal d2
    env.step("<action>left, left, left</action>")
    step = env.step("<action>up, right, right</action>")
    assert (step.observation, step.won) == ("boxes d2* e3*\nyou c2", True)


def test_the_views_are_one_game():
    """The same replies give the same positions, rewards and ends in both views; only the words differ."""
    tasks = [make_task("sokoban", 7, view=view) for view in ("board", "cells")]
    played = []
    for task in tasks:
        env = build(task)
        env.reset()
        steps = [env.step(f"<action>{move}</action>") for move in ("up, left", "right, right", "down", "up, up, left")]
        played.append([(step.state_key, step.reward, step.done, step.valid, step.feedback) for step in steps])
    assert played[0] == played[1]
    rules = [build(task).rules() for task in tasks]
    assert rules[0] != rules[1]


def test_a_lost_level_ends_if_asked(tmp_path):
    ends, runs = world_of(tmp_path, lost="ends"), world_of(tmp_path)
    for env in (ends, runs):
        env.reset()
    # left pushes the upper box to a2, at the left wall, where there is no goal
    step = ends.step("<action>left</action>")
    assert (step.done, step.won, step.reward) == (True, False, 0.0)
    assert step.feedback == "No way to win is left."
    assert not runs.step("<action>left</action>").done
    assert not ends.legal()
    assert runs.legal()
    for reply in ("<action>right</action>", "what?"):
        again = ends.step(reply)
        assert (again.done, again.valid, again.feedback) == (False, False, "The game is over.")
    assert ends.key() == step.state_key
    assert "ends where no way to win is left" in ends.rules()
    assert "no way to win" not in runs.rules()


def test_the_runner_calls_it_lost_and_the_note_names_the_turn(tmp_path):
    task = world_of(tmp_path, lost="ends", view="cells").task
    trial = run_trial_sync(task, ScriptedPolicy(["<action>left</action>"]), episodes=1)
    episode = trial.episodes[0]
    assert episode.stop is StopReason.LOST
    assert len(episode.turns) == 1
    # instead: round below the box to its left side, so that it can be pushed home
    assert (
        reflection(build(task), episode) == "<reflection>boxes b2 d3\nyou c2\ndown, left, left\nleft: lost</reflection>"
    )
    assert build(task).digest(episode) == "c2: left\nlost"


def test_cells_remember_the_place_where_it_was_lost_and_how_slow_it_was(tmp_path):
    task = world_of(tmp_path, lost="ends", view="cells").task
    replies = ["<action>up, down</action>", "<action>down, right</action>", "<action>up, left, left</action>"]
    late = run_trial_sync(task, ScriptedPolicy(replies), episodes=1).episodes[0]
    # c2 up and back; d3 home, the player in d3; up to d2, then left from c2 pushes the other box against the wall
    assert (
        reflection(build(task), late)
        == "<reflection>boxes b2 e3*\nyou d3\nleft, left, left\nup, left, left: lost</reflection>"
    )
    assert build(task).digest(late) == "c2: up, down\nc2: down, right\nd3: up, left, left\nlost"
    slow = run_trial_sync(task, ScriptedPolicy(["<action>up, down</action>"] * 7), episodes=1).episodes[0]
    assert reflection(build(task), slow) == "<reflection>too slow</reflection>"
    assert build(task).digest(slow).endswith("c2: up, down\n0 of 2 boxes on goals")


def test_scripted_notes_can_do_without_the_solvers_advice(tmp_path):
    told = {}
    for view in ("cells", "board"):
        task = world_of(tmp_path, lost="ends", view=view, advice="none").task
        episode = run_trial_sync(task, ScriptedPolicy(["<action>left</action>"]), episodes=1).episodes[0]
        told[view] = reflection(build(task), episode)
    assert told["cells"] == "<reflection>boxes b2 d3\nyou c2\nleft: lost</reflection>"
    assert "plan: play the boxes in another order" in told["board"]
    with pytest.raises(UnknownName, match="advice 'some'; did you mean 'solver'"):
        world_of(tmp_path, advice="some")


def test_a_hopeless_level_ends_as_soon_as_the_turns_left_are_too_few(tmp_path):
    """Up and back wastes a turn; after the last turn in which a solution would still fit, the level is over."""
    world = world_of(tmp_path, lost="hopeless", view="cells")
    task = world.task
    needed = -(-len(solver.solve(world.cols, world.level.cells).moves or "") // world.moves)
    slow = run_trial_sync(task, ScriptedPolicy(["<action>up, down</action>"]), episodes=1).episodes[0]
    assert slow.stop is StopReason.LOST
    assert len(slow.turns) == task.turns - needed + 1
    assert slow.turns[-1].feedback == "No way to win is left in time."
    assert not any(turn.feedback for turn in slow.turns[:-1])
    assert reflection(world, slow) == "<reflection>boxes b2 d3\nyou c2\ndown, left, left\nup, down: lost</reflection>"
    assert world.digest(slow).endswith("c2: up, down\nlost")
    assert "ends where no way to win is left in time" in world.rules()
    # a reply that cannot be read changes nothing of that: the turn limit ends such an episode
    unread = ["what?"] * (task.turns - needed) + ["<action>up, down</action>"]
    late = run_trial_sync(task, ScriptedPolicy(unread), episodes=1).episodes[0]
    assert (late.stop, len(late.turns)) == (StopReason.TURN_LIMIT, task.turns)
    # a dead end is one whatever turns are left, and what is solved in time is won
    dead = run_trial_sync(task, ScriptedPolicy(["<action>left</action>"]), episodes=1).episodes[0]
    assert dead.turns[-1].feedback == "No way to win is left."
    assert run_trial_sync(task, ExpertPolicy(), episodes=1).solved_at == 0


def test_a_report_of_a_hopeless_level_says_that_time_ran_out(tmp_path):
    task = world_of(tmp_path, lost="hopeless").task
    slow = run_trial_sync(task, ScriptedPolicy(["<action>up, down</action>"]), episodes=1).episodes[0]
    said = reflection(build(task), slow)
    assert f"failed_at: turn {len(slow.turns)}, up, down" in said
    assert "error_category: out-of-turns" in said
    assert "env_answer: No way to win is left in time." in said


def test_how_levels_end_changes_nothing_in_what_is_won():
    def won(lost: str) -> list[bool]:
        params = {"lost": lost}
        found = evaluate("sokoban", "hasty:0.3", params=params, tasks=60, episodes=1, controls=(), room=False)
        return [trial.solved_at is not None for trial in found.trials]

    assert won("runs") == won("ends") == won("hopeless")
    assert 10 < sum(won("runs")) < 60


@pytest.mark.parametrize("name", ["view", "lost"])
def test_unknown_words_are_refused(name):
    with pytest.raises(UnknownName, match=f"{name} 'wide'"):
        make("sokoban", **{name: "wide"})
