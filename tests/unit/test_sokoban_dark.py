"""Sokoban in the dark: what is shown, what it tells, and who plays it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.registry import build, make, make_task
from mulligan.envs.sokoban import dark, solver
from mulligan.envs.sokoban.env import NAMES, Sokoban, say
from mulligan.envs.sokoban.explorer import Explorer, way_to_see
from mulligan.errors import ParameterError, StopReason
from mulligan.policy.scripted import ExpertPolicy
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Episode, Step, Task, Trial, Turn
from sokoban_worlds import ARROWS, Simulator, reflection

LEVEL = ("########", "#   #  #", "# $@   #", "#   $. #", "#     .#", "########")
REPLIES = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=12)


def dark_world(folder: Path, *lines: str, name: str = "own.txt", **params: str | int) -> Sokoban:
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    env = make("sokoban", levels=str(file), **{"sight": 1, **params})
    assert isinstance(env, Sokoban)
    return env


def board_text(*rows: str) -> str:
    return "\n".join(" ".join(row) for row in rows)


# --- What is shown


def test_cells_become_known_as_the_player_comes_near(tmp_path: Path) -> None:
    env = dark_world(tmp_path, *LEVEL)
    # the player is in row 2, column 3: rows 1 to 3 and columns 2 to 4 are within one step
    assert env.reset() == board_text("????????", "??__#???", "??XP_???", "??__X???", "????????", "????????")
    # right, to column 4: column 5 of rows 1 to 3 as well; what was seen stays
    step = env.step("<action>right</action>")
    assert step.observation == board_text("????????", "??__#_??", "??X_P_??", "??__XO??", "????????", "????????")
    assert step.state_key == step.observation.replace(" ", "").replace("\n", "")
    # down pushes the box in row 3 into row 4, which nobody had seen; the player is in row 3 and now sees row 4
    pushed = env.step("<action>down</action>")
    assert pushed.observation == board_text(
        "????????", "??__#_??", "??X__???", "??__PO??", "???_X_??", "????????"
    ).replace("? ? X _ _ ? ? ?", "? ? X _ _ _ ? ?")
    # the box is at the lower wall, which nobody has seen: it does not move, and the cell behind it is shown
    blocked = env.step("<action>down</action>")
    assert blocked.feedback == "Blocked: move 1 (down)."
    assert blocked.observation.splitlines()[-1] == "? ? ? ? # ? ? ?"
    assert env.reset() == board_text("????????", "??__#???", "??XP_???", "??__X???", "????????", "????????")


def test_cells_are_named_as_they_become_known(tmp_path: Path) -> None:
    env = dark_world(tmp_path, *LEVEL, view="cells")
    assert env.reset() == "walls d1\ngoals none\nboxes b2 d3\nyou c2"
    assert env.step("<action>right</action>").observation == "walls d1\ngoals e3\nboxes b2 d3\nyou d2"
    # in one reply through e2, where f3 is seen, and back: what was seen on the way counts
    assert env.step("<action>right, right, left</action>").observation == "walls d1\ngoals e3\nboxes b2 d3\nyou e2"
    assert env.known().count(dark.UNKNOWN) < 36
    unread = env.step("fly")
    assert (unread.valid, unread.observation) == (False, "walls d1\ngoals e3\nboxes b2 d3\nyou e2")


def test_the_rules_say_what_is_hidden() -> None:
    rules = {view: make("sokoban", 3, sight=1, view=view).rules() for view in ("board", "cells")}
    for text in rules.values():
        assert "only the cells within 1 step of yourself, diagonals included" in text
        assert "2 boxes and 2 goals" in text
    assert "? is a cell that you have not seen yet" in rules["board"]
    assert "?" not in rules["cells"]
    assert "within" not in make("sokoban", 3).rules()
    assert make("sokoban", 3, sight=2).task.task_class == "sokoban/6x6/2/sight2"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(1, 3), REPLIES)
def test_it_is_the_same_game_behind_a_mask(seed: int, sight: int, replies: list[list[str]]) -> None:
    """The full view's game, shown where an independent simulator says that the player has been near."""
    env, lit = make("sokoban", seed, sight=sight, turns=12), make("sokoban", seed, turns=12)
    world = Simulator(lit.reset())
    seen = near(world.player, sight)
    assert env.reset() == shown(world, seen)
    for names in replies:
        for name in names:
            if world.won:
                break
            dy, dx = ARROWS[name]
            ahead, behind = ((world.player[0] + n * dy, world.player[1] + n * dx) for n in (1, 2))
            pushes = ahead in world.boxes
            if world.move(name):
                seen |= near(world.player, sight)
            elif pushes:
                seen.add(behind)
        step, expected = env.step(say(names)), lit.step(say(names))
        assert step.observation == shown(world, seen)
        assert step.state_key == shown(world, seen).replace(" ", "").replace("\n", "")
        assert step[1:5] == expected[1:5]
        assert (step.feedback, step.shaping) == (expected.feedback, expected.shaping)
        if step.done:
            break


def near(at: tuple[int, int], sight: int) -> set[tuple[int, int]]:
    steps = range(-sight, sight + 1)
    return {(at[0] + dy, at[1] + dx) for dy in steps for dx in steps}


def shown(world: Simulator, seen: set[tuple[int, int]]) -> str:
    rows = [line.split() for line in world.draw().split("\n")]
    return board_text(*("".join(c if (y, x) in seen else "?" for x, c in enumerate(row)) for y, row in enumerate(rows)))


# --- Nothing tells of cells that were not seen


def named_cells(text: str) -> set[str]:
    return set(re.findall(r"\b[a-z]\d{1,2}\b", text))


def texts_by_episode(trial: Trial) -> list[list[str]]:
    """All that an agent reads and writes, but the rules, whose example names two cells."""
    return [
        [
            *(message["content"] for message in episode.opening if message["role"] != "system"),
            *(text for turn in episode.turns for text in (turn.observation, turn.feedback)),
            episode.final,
            episode.reflection.text if episode.reflection else "",
        ]
        for episode in trial.episodes
    ]


@pytest.mark.parametrize("sight", [1, 2])
def test_no_text_names_a_cell_that_was_never_seen(sight: int) -> None:
    hidden_at_the_end = 0
    for seed in range(40):
        task = make_task("sokoban", seed, sight=sight, view="cells", lost="hopeless", rows=7, cols=7)
        trial = run_trial_sync(task, ExpertPolicy(0.3, 0.5, kind="hasty"), episodes=3, memory="both")
        world, seen = build(task), 0
        assert isinstance(world, Sokoban)
        for episode, texts in zip(trial.episodes, texts_by_episode(trial), strict=True):
            seen |= world.map_seen(episode)
            names = world_names(world, seen)
            for text in texts:
                assert named_cells(text) <= names, text
        hidden_at_the_end += len(world_names(world, ~0)) - len(names)
    assert hidden_at_the_end > (100 if sight == 1 else 10)  # there was something to tell


def world_names(world: Sokoban, seen: int) -> set[str]:
    cols = world.cols
    inside = [(y, x) for y in range(1, world.level.rows - 1) for x in range(1, cols - 1)]
    return {f"{chr(96 + x)}{y}" for y, x in inside if seen >> y * cols + x & 1}


def in_file(cells: str, cols: int) -> list[str]:
    text = cells.translate(str.maketrans("_OXP", " .$@"))
    return [text[start : start + cols] for start in range(0, len(text), cols)]


def playing(env: Sokoban, replies: list[str]) -> tuple[list[Step], Episode]:
    observation, steps, turns, step = env.reset(), list[Step](), list[Turn](), Step("")
    for reply in replies:
        steps.append(step := env.step(reply))
        turns.append(Turn(observation, Completion(reply), step.reward, step.valid, step.state_key, step.feedback))
        observation = step.observation
        if step.done:
            break
    stop = StopReason.WON if step.won else StopReason.LOST if step.done else StopReason.TURN_LIMIT
    return steps, Episode(0, tuple(turns), observation, stop)


@pytest.mark.parametrize("view", ["board", "cells"])
@pytest.mark.parametrize("lost", ["ends", "hopeless"])
def test_levels_that_differ_where_nobody_looked_tell_the_same(tmp_path: Path, view: str, lost: str) -> None:
    """The strongest form: whatever is told, endings, digests and reflections too, is a function of what was seen."""
    rng, compared, ended = random.Random(5), 0, 0
    for seed in range(60):
        level = make("sokoban", seed, rows=7, cols=7, turns=8).level  # type: ignore[attr-defined]
        params = {"view": view, "lost": lost, "turns": 8}
        world = dark_world(tmp_path, *in_file(level.cells, 7), name=f"{seed}.txt", **params)
        replies = [say(rng.choices(NAMES, k=3)) for _ in range(8)]
        steps, episode = playing(world, replies)
        seen = world.map_seen(episode)
        inside = [y * 7 + x for y in range(1, 6) for x in range(1, 6)]
        hidden = [cell for cell in inside if not seen >> cell & 1 and level.cells[cell] in "_#"]
        for cell in rng.sample(hidden, min(3, len(hidden))):
            other = "_" if level.cells[cell] == "#" else "#"
            cells = level.cells[:cell] + other + level.cells[cell + 1 :]
            try:
                twin = dark_world(tmp_path, *in_file(cells, 7), name=f"{seed}-{cell}.txt", **params)
            except ParameterError:  # it cannot be solved with a wall there
                continue
            twin_steps, twin_episode = playing(twin, replies)
            assert twin_steps == steps
            assert twin_episode.stop == episode.stop
            assert twin.digest(twin_episode) == world.digest(episode)
            assert reflection(twin, twin_episode) == reflection(world, episode)
            compared += 1
            ended += steps[-1].done
    assert compared > 50
    assert ended > 10


@pytest.mark.parametrize("kind", ["expert", "hasty"])
def test_players_see_no_more_than_an_agent(tmp_path: Path, kind: str) -> None:
    """Beside two levels that look alike so far, they play the same."""
    rng, compared = random.Random(2), 0
    for seed in range(30):
        level = make("sokoban", seed, rows=7, cols=7, turns=8).level  # type: ignore[attr-defined]
        hidden = [y * 7 + x for y in range(1, 6) for x in range(1, 6) if level.cells[y * 7 + x] in "_#"]
        cell = rng.choice(hidden)
        cells = level.cells[:cell] + ("_" if level.cells[cell] == "#" else "#") + level.cells[cell + 1 :]
        try:
            worlds = [
                dark_world(tmp_path, *in_file(each, 7), name=f"{number}-{seed}.txt", turns=8)
                for number, each in enumerate((level.cells, cells))
            ]
        except ParameterError:
            continue
        players = [Explorer(world, kind, random.Random(9), 0.7, 0.0) for world in worlds]
        for _ in range(8):
            if worlds[0].known() != worlds[1].known():
                break
            replies = [player.act() for player in players]
            assert replies[0] == replies[1]
            compared += 1
            steps = [world.step(reply) for world, reply in zip(worlds, replies, strict=True)]
            if steps[0].done:
                break
    assert compared > 40


# --- How it ends


def test_a_level_ends_only_where_what_was_seen_says_so(tmp_path: Path) -> None:
    # The goal is in the lower left. Three steps right push the box to the right wall, where no goal is.
    env = dark_world(tmp_path, "#######", "#     #", "#@$   #", "#     #", "#.    #", "#######", lost="ends")
    pushed = env.step("<action>right, right, right</action>")
    assert solver.solve(7, env.key()).dead
    assert not pushed.done, "the lowest cell along that wall was not seen: it may have the goal"
    seen = env.step("<action>down</action>")
    assert (seen.done, seen.won, seen.feedback) == (True, False, "No way to win is left.")
    lit = dark_world(tmp_path, "#######", "#     #", "#@$   #", "#     #", "#.    #", "#######", lost="ends", sight=0)
    assert lit.step("<action>right, right, right</action>").done


def test_what_may_be_hidden_is_judged_kindly() -> None:
    """A position that can be won within n moves is never called lost, nor longer than n."""
    rng, kinder, lost = random.Random(1), 0, 0
    for seed in range(60):
        env = make("sokoban", seed, sight=1)
        assert isinstance(env, Sokoban)
        for _ in range(7):
            step = env.step(say(rng.choices(NAMES, k=3)))
            true, kind = solver.solve(env.cols, env.key()), env.verdict(step.state_key)
            if kind.dead:
                assert true.dead
                lost += 1
            elif true.moves is not None:
                assert kind.moves is not None
                assert len(kind.moves) <= len(true.moves)
                kinder += len(kind.moves) < len(true.moves)
            if step.done:
                break
    assert kinder > 20
    assert lost > 5


def test_how_levels_end_changes_nothing_in_what_is_won() -> None:
    def won(lost: str) -> list[bool]:
        trials = [
            run_trial_sync(make_task("sokoban", seed, sight=1, lost=lost), ExpertPolicy(0.6), episodes=1, seed=seed)
            for seed in range(40)
        ]
        return [trial.solved_at is not None for trial in trials]

    assert won("runs") == won("ends") == won("hopeless")
    assert 4 < sum(won("runs")) < 36


# --- What is remembered, and who plays


def test_digest_and_note_tell_the_level_as_it_was_at_the_start(tmp_path: Path) -> None:
    env = dark_world(tmp_path, *LEVEL, view="cells")
    # right; then down, which pushes the box of d3 to d4: the note says d3
    episode = playing(env, ["<action>right</action>", "<action>down</action>"])[1]
    found = "walls d1\ngoals e3\nboxes b2 d3"
    assert env.digest(episode).startswith(f"{found}\nc2: right\nd2: down\n")
    assert reflection(env, episode) == f"<reflection>{found}</reflection>"
    # with f4 seen too, all boxes and goals are known, and the solver says how to begin
    further = playing(env, ["<action>right</action>", "<action>right, down, right</action>"])[1]
    note = reflection(env, further).splitlines()
    assert note[:3] == ["<reflection>walls d1", "goals e3 f4", "boxes b2 d3"]
    assert re.fullmatch(r"c2: \w+, \w+, \w+</reflection>", note[3])
    quiet = dark_world(tmp_path, *LEVEL, view="cells", advice="none")
    assert len(reflection(quiet, further).splitlines()) == 3


def test_a_note_grows_over_the_episodes(tmp_path: Path) -> None:
    env = dark_world(tmp_path, *LEVEL, view="cells")
    player = Explorer(env, "expert", random.Random(0), 1.0, 1.0)
    first = player.reflect(playing(env, ["<action>left</action>"])[1]).text
    second = player.reflect(playing(env, ["<action>right</action>"])[1]).text
    assert named_cells(first) < named_cells(second) | {"a2"}
    assert "goals e3" in second


def test_reports_in_parts_show_the_board_as_far_as_it_was_seen(tmp_path: Path) -> None:
    env = dark_world(tmp_path, *LEVEL)
    said = reflection(env, playing(env, ["<action>right</action>"])[1])
    assert "? ? X P _ _ ? ?" in said
    assert "plan: play on where nothing was seen yet" in said
    assert env.digest(playing(env, ["<action>right</action>"])[1]).startswith(
        "moves right\n0 of 2 boxes on goals; what"
    )


def test_the_way_to_see_most() -> None:
    def cells(*rows: str) -> tuple[int, int, str]:
        return len(rows), len(rows[0]), "".join(rows)

    # right shows three cells with one move and three more with each further one; left shows none
    assert way_to_see(*cells("#######", "#__??##", "#P_??##", "#__??##", "#######"), 1, 1) == "r"
    # nothing to be seen by walking: the box in the corridor must be pushed
    assert way_to_see(*cells("#######", "###?###", "#PX_??#", "###?###", "#######"), 1, 1) == "r"
    # all was seen
    assert way_to_see(*cells("#####", "#P_O#", "#_X_#", "#####"), 1, 1) == ""


def success(kind: str, skill: float, recall: float, **params: int) -> list[float]:
    """p@1..p@3 over 40 levels."""
    solved = [0, 0, 0]
    for seed in range(40):
        task: Task = make_task("sokoban", seed, sight=1, **params)
        memory = "history" if recall else "none"
        trial = run_trial_sync(task, ExpertPolicy(skill, recall, kind=kind), episodes=3, memory=memory, seed=seed)
        for attempt in range(3):
            solved[attempt] += trial.solved_at is not None and trial.solved_at <= attempt
    return [count / 40 for count in solved]


def test_in_the_dark_a_map_is_worth_a_lot() -> None:
    assert success("omniscient", 0.0, 0.0)[0] == 1.0
    forgetful, mindful = success("expert", 1.0, 0.0), success("expert", 1.0, 1.0)
    assert forgetful[0] < 0.9
    assert mindful[2] > forgetful[2] + 0.2
    for kind in ("expert", "hasty"):
        assert success(kind, 0.5, 1.0)[2] > success(kind, 0.5, 0.0)[2] + 0.1


def test_doubtful_advice_needs_the_whole_board() -> None:
    with pytest.raises(ParameterError, match="advice='doubtful' needs sight=0"):
        make("sokoban", 1, sight=1, advice="doubtful")
    with pytest.raises(ParameterError, match=r"sight must be 0 to 16 \(got -1\)"):
        make("sokoban", 1, sight=-1)
