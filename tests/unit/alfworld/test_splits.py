"""Which ALFWorld games may be trained on: official ones as their files say, generated ones by canonical world."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mulligan
from alfworld_names import FOLDERS
from mulligan.envs import registry
from mulligan.envs.alfworld.env import world_key
from mulligan.envs.alfworld.games import SETS, listing, pick
from mulligan.envs.alfworld.generate import make
from mulligan.envs.alfworld.pddl import Fact, Problem, write_problem
from mulligan.envs.alfworld.views import VIEWS, view_of
from mulligan.envs.alfworld.world import KINDS, Kind, World, make_goal, task_line, write_goal
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import belongs, stream, tasks_of

PARAMS: dict[str, Any] = {"kind": "all", "plan": 12, "turns": 14}
COUNTS = {"train": 6, "valid_train": 3, "valid_seen": 3, "valid_unseen": 2}
TASK_NAMES = {kind: name for name, kind in FOLDERS.items()}


def game(seed: int, ident: str) -> dict[str, object]:
    problem, world = make(seed, KINDS[seed % 6], 8, 12)
    return {"id": ident, "task": world.task, "pddl_problem": write_problem(problem)}


def games() -> Iterator[tuple[str, str, int]]:
    """Split, name and seed of each game. The first of valid_train and of valid_unseen stand in train too."""
    seed = 0
    for split, count in COUNTS.items():
        for number in range(count):
            also = {("valid_train", 0): 0, ("valid_unseen", 0): 1}.get((split, number))
            made = seed if also is None else also
            yield split, f"{TASK_NAMES[KINDS[made % 6]]}-Thing/trial_{made}", made
            seed += also is None


@pytest.fixture(params=["folders", "files", "ids"])
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The official games as a folder tree, as a file for each split, and as one file whose ids name the split."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    for split, name, seed in games():
        held = json.dumps(game(seed, f"{split}/{name}"))
        if request.param == "folders":
            folder = tmp_path / "json_2.1.1" / split / name
            folder.mkdir(parents=True)
            (folder / "game.tw-pddl").write_text(held)
        else:
            with (tmp_path / ("all.jsonl" if request.param == "ids" else f"{split}.jsonl")).open("a") as file:
                file.write(f"{held}\n")
    return tmp_path


def played(games: str, seed_set: str) -> set[str]:
    """The games of a set that its first 200 seeds bring."""
    tasks = itertools.islice(stream("alfworld", seed_set, {**PARAMS, "games": games}), 200)
    return {registry.build(task).world.name for task in tasks if task}  # type: ignore[attr-defined]


def named(*splits: str) -> set[str]:
    return {name for split, name, _ in games() if split in splits}


def test_the_files_split_decides(data: Path) -> None:
    valid = named("valid_train", "valid_seen", "valid_unseen")
    assert len(named("train") & valid) == 2  # a copy in train does not make them training games
    for source in ("official", str(data)):
        assert played(source, "train") == named("train") - valid
        assert played(source, "validation") == named("valid_train")
        assert played(source, "eval") == named("valid_seen", "valid_unseen")


def test_training_games_are_all_trained_on_and_validated_beside(data: Path) -> None:
    if (data / "all.jsonl").exists():
        pytest.skip("the parameter games=train needs folders or files of that name")
    valid = named("valid_train", "valid_seen", "valid_unseen")
    assert played("train", "train") == named("train") - valid
    assert played("train", "validation") == named("valid_train")
    drawn = draw_tasks(Mixture.parse("alfworld", {**PARAMS, "games": "train"}), 60, seed=0, update=0)
    assert {registry.build(each.task).world.name for each in drawn} == named("train") - valid  # type: ignore[attr-defined]
    for split in ("valid_train", "valid_seen", "valid_unseen"):
        assert played(split, SETS[split]) == named(split)
        assert not played(split, "train")


def test_a_folder_that_is_a_split_is_known_by_its_name(data: Path) -> None:
    tree = data / "json_2.1.1"
    if not tree.exists():
        pytest.skip("of folders only")
    assert set(listing(str(tree / "valid_unseen")).sets) == {"eval"}
    assert played(str(tree / "train"), "train") == played("official", "train")  # those beside it are kept apart too
    one = next((tree / "valid_seen").rglob("game.tw-pddl"))
    assert listing(str(one)).sets == ("eval",)


def test_a_file_that_is_a_split_is_trained_on_without_the_games_of_those_beside_it(data: Path) -> None:
    if not (data / "train.jsonl").exists():
        pytest.skip("of files only")
    (data / "valid_seen.txt").write_text("no games")
    assert played(str(data / "train.jsonl"), "train") == played("official", "train")


def test_games_of_no_split_are_split_by_their_worlds(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps(game(seed, f"game/{seed}")) for seed in range(30)))
    assert set(listing(str(file)).sets) == {None}
    sets = {seed_set: played(str(file), seed_set) for seed_set in ("train", "validation", "eval")}
    assert len(sets["train"] | sets["validation"] | sets["eval"]) == sum(map(len, sets.values())) == 30
    assert min(len(sets["train"]), len(sets["eval"])) > 6


def test_a_numbered_game_keeps_its_set(data: Path) -> None:
    for number, seed_set in enumerate(listing("official").sets):
        kind = pick("official", number, 0, KINDS, 12)[1].goal.kind
        task = mulligan.make_task("alfworld", 0, params={**PARAMS, "games": "official", "game": number, "kind": kind})
        assert registry.build(task).seed_set() == seed_set  # type: ignore[attr-defined]
        assert belongs(task, seed_set or "")


# Generated worlds -------------------------------------------------------------------------------------------------


def household(things: list[tuple[str, int]], kind: Kind = "pick", thing: str = "mug", target: str = "desk") -> World:
    """Desk 0, drawers 1 and 2, sofa 3, safe 4, with things in them."""
    stands = ["desk_bar_0", "drawer_bar_1", "drawer_bar_2", "sofa_bar_3", "safe_bar_4"]
    facts: list[Fact] = [("atlocation", "agent1", "loc_bar_start")]
    for number, stand in enumerate(stands):
        facts += [("receptacletype", stand, f"{stand.partition('_')[0]}type")]
        facts += [("receptacleatlocation", stand, f"loc_bar_{number}")]
    for number, (name, receptacle) in enumerate(things):
        ident = f"{name}_bar_{number}"
        facts += [("objecttype", ident, f"{name}type"), ("inreceptacle", ident, stands[receptacle])]
        facts += [("objectatlocation", ident, f"loc_bar_{receptacle}"), ("pickupable", ident)]
    declared = {"agent1": "agent", "loc_bar_start": "location"} | {f"loc_bar_{n}": "location" for n in range(5)}
    declared |= dict.fromkeys(stands, "receptacle")
    declared |= {f"{name}_bar_{number}": "object" for number, (name, _) in enumerate(things)}
    declared |= {f"{stand.partition('_')[0]}type": "rtype" for stand in stands}
    declared |= {f"{name}type": "otype" for name, _ in things}
    goal = make_goal(kind, f"{thing}type", f"{target}type")
    return World(Problem("test", declared, tuple(facts), write_goal(goal)), goal, task_line(goal), "test")


def keys(world: World) -> list[str]:
    return [world_key(world, view_of(view, world)) for view in VIEWS]


def test_a_world_is_floor_plan_goal_and_where_the_wanted_things_lie() -> None:
    first = household([("mug", 1), ("pen", 0)])
    assert keys(first) == ["pick mug desk: desk drawer drawer+ safe sofa"] * 2 + ["one: a c d d+ ep"]
    for same in (
        [("mug", 1)],  # without the distractor
        [("mug", 1), ("book", 3), ("pen", 2), ("pen", 0)],  # with others
        [("pen", 0), ("mug", 2)],  # in the other drawer: its number is arbitrary
        [("mug", 1), ("mug", 1)],  # with a spare one beside it
    ):
        assert keys(household(same)) == keys(first)
    for other in (
        household([("mug", 3), ("pen", 0)]),
        household([("mug", 1), ("mug", 2)]),
        household([("mug", 1), ("mug", 3)]),
        household([("mug", 1)], target="sofa"),
        household([("mug", 1), ("mug", 1)], kind="pick2"),
    ):
        assert all(ours != theirs for ours, theirs in zip(keys(first), keys(other), strict=True))


def test_cells_tell_no_names_so_that_things_by_other_names_are_one_world() -> None:
    mug, book = household([("mug", 1)]), household([("book", 1)], thing="book")
    assert [ours == theirs for ours, theirs in zip(keys(mug), keys(book), strict=True)] == [False, False, True]


def test_lists_hold_each_generated_world_once() -> None:
    params = {"kind": "look", "places": 8, "plan": 6, "turns": 8}
    envs: list[Any] = [registry.build(task) for task in tasks_of("alfworld", 60, "eval", params)]
    assert len({env.world_key() for env in envs}) == 60
    envs = [registry.build(task) for task in tasks_of("alfworld", 60, "eval", {**params, "view": "cells"})]
    assert len({env.reset() + " ".join(env.view.facts([*enumerate(env.world.inside)])) for env in envs}) == 60
    assert len({env.world_key() for env in envs}) < 60  # in cells, c1 and c2 may be swapped
