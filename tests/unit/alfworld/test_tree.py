"""ALFWorld's own folder tree: json_2.1.1/<split>/<task>/<trial>/ with game.tw-pddl and traj_data.json.

A game file holds pddl_domain, grammar (the task in words is a line of it), pddl_problem, walkthrough and solvable. As
the domain and the grammar are not ours to keep, most tests let stand-ins pass for them.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import mulligan
from alfworld_names import FOLDERS
from mulligan.envs.alfworld import games
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.games import GameError, Unsolvable, find, fingerprint, game_name, load, pick, source
from mulligan.envs.alfworld.generate import make
from mulligan.envs.alfworld.pddl import write_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import KINDS, Kind, World

DOMAIN = "(define (domain alfred) ; a comment\n (:requirements :adl))"
GRAMMAR = 'grammar :: """\n {{ "intro": [ {{"rhs": "#task#"}} ],\n "task": [ {{ "rhs": {task} }} ] }}\n""";'
TASK_NAMES = {kind: name for name, kind in FOLDERS.items()}
DATA = Path(os.environ.get("ALFWORLD_DATA") or "nowhere")


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = fingerprint(DOMAIN.partition(";")[0] + "(:requirements :adl))")
    monkeypatch.setattr(games, "_DOMAINS", games._DOMAINS | {domain})
    monkeypatch.setattr(games, "_GRAMMARS", games._GRAMMARS | {fingerprint(GRAMMAR.format(task=""))})


def game(seed: int, kind: Kind, **changes: object) -> tuple[dict[str, object], World]:
    """What a game file holds."""
    problem, world = make(seed, kind, 8, 12)
    held: dict[str, object] = {
        "pddl_domain": DOMAIN,
        "grammar": GRAMMAR.format(task=json.dumps(f"Your task is to: {world.task}")),
        "pddl_problem": write_problem(problem),
        "walkthrough": plan(Game(world)),
        "solvable": True,
    }
    return {**held, **changes}, world


def trial(tree: Path, split: str, task: str, held: dict[str, object] | None, number: int = 1) -> Path:
    """A trial's folder as ALFWorld's download has it; without a game file where `held` is None."""
    folder = tree / "json_2.1.1" / split / task / f"trial_T2019_{number}"
    folder.mkdir(parents=True)
    (folder / "traj_data.json").write_text(json.dumps({"task_type": task.partition("-")[0], "plan": {}}))
    (folder / "initial_state.pddl").write_text("(define (problem plan))")
    if held is not None:
        (folder / "game.tw-pddl").write_text(json.dumps(held, indent=4))
    return folder


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    (tmp_path / "logic").mkdir()
    (tmp_path / "logic" / "alfred.pddl").write_text(DOMAIN)
    (tmp_path / "logic" / "alfred.twl2").write_text(GRAMMAR)
    return tmp_path


def test_each_split_has_its_games_with_their_own_words(tree: Path) -> None:
    worlds: dict[str, dict[str, World]] = {"train": {}, "valid_seen": {}, "valid_unseen": {}}
    for number, kind in enumerate(KINDS):
        split = list(worlds)[number % 3]
        held, world = game(number, kind)
        folder = trial(tree, split, f"{TASK_NAMES[kind]}-Thing-None-Place-{number}", held)
        worlds[split][str(folder / "game.tw-pddl")] = world
    for split, wanted in worlds.items():
        loaded = {path.file: load(path) for path in find(split)}
        assert {file: world.intro() for file, world in loaded.items()} == {f: w.intro() for f, w in wanted.items()}
        assert [world.goal for world in loaded.values()] == [wanted[file].goal for file in loaded]
    assert len(find("official")) == 6
    # The folder itself may be named too.
    assert find(str(tree / "json_2.1.1" / "valid_seen")) == find("valid_seen")


def test_what_alfworld_leaves_out_is_left_out(tree: Path) -> None:
    held, _ = game(0, "heat")
    kept = trial(tree, "valid_seen", "pick_heat_then_place_in_recep-Apple-None-Fridge-1", held)
    trial(tree, "valid_seen", "pick_heat_then_place_in_recep-AppleSliced-None-Fridge-1", held)
    trial(tree, "valid_seen", "pick_and_place_with_movable_recep-Apple-Bowl-Fridge-1", held)
    trial(tree, "valid_seen", "pick_heat_then_place_in_recep-Apple-None-Fridge-1", None, 2)
    assert [path.file for path in find("valid_seen")] == [str(kept / "game.tw-pddl")]


def test_games_have_the_same_name_wherever_the_tree_lies(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Worlds belong to training or evaluation by their names."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "deep" / "down"
    task, held = "pick_and_place_simple-Mug-None-Shelf-1", game(0, "pick")[0]
    folders = [(tree, "train"), (elsewhere, "train"), (tree, "valid_train")]  # which repeats some of "train"
    files = [trial(folder, split, task, held) / "game.tw-pddl" for folder, split in folders]
    names = [load(find(str(file))[0]).name for file in files]
    assert names == [f"{task}/trial_T2019_1"] * 3
    lines = tree / "games.jsonl"
    lines.write_text("".join(json.dumps({**game(seed, "pick")[0], "task": "put it"}) + "\n" for seed in range(2)))
    assert len({load(path).name for path in find(str(lines))}) == 2  # also where they have no id


def test_a_sink_is_refused_where_the_domain_lets_none_clean(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = str(game(0, "clean")[0]["pddl_problem"])
    assert "sinkbasintype" in problem
    with_sink, _ = game(0, "clean", pddl_problem=problem.replace("sinkbasintype", "sinktype"))
    folder = trial(tree, "train", "pick_clean_then_place_in_recep-Mug-None-Shelf-1", with_sink)
    path = find(str(folder / "game.tw-pddl"))[0]
    assert load(path).name  # in the games' own domain sinks clean
    monkeypatch.setattr(games, "_WITHOUT_SINKS", fingerprint(DOMAIN.partition(";")[0] + "(:requirements :adl))"))
    with pytest.raises(GameError, match="sinks"):
        source(path)


def test_unsolvable_games_are_passed_over(tree: Path) -> None:
    trial(tree, "valid_seen", "pick_and_place_simple-Mug-None-Shelf-1", game(0, "pick", solvable=False)[0])
    trial(tree, "valid_seen", "pick_and_place_simple-Mug-None-Shelf-2", game(1, "pick")[0])
    assert [pick("valid_seen", -1, seed, KINDS, 12)[0] for seed in range(3)] == [1, 1, 1]
    with pytest.raises(Unsolvable, match=r"Shelf-1/trial_T2019_1/game\.tw-pddl"):
        pick("valid_seen", 0, 0, KINDS, 12)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"pddl_domain": DOMAIN + "(:action fly)"}, "pddl_domain"),
        ({"grammar": GRAMMAR.format(task='"Your task is to: rest."') + "more"}, "grammar"),
        ({"grammar": GRAMMAR.format(task='"Rest."')}, "grammar"),
        ({"grammar": "no rules"}, "grammar"),
        ({"pddl_problem": None}, "pddl_problem"),
    ],
)
def test_a_foreign_file_is_refused_by_name(tree: Path, changes: dict[str, object], names: str) -> None:
    folder = trial(tree, "train", "look_at_obj_in_light-Mug-None-DeskLamp-1", game(0, "look", **changes)[0])
    with pytest.raises(GameError, match=re.escape(str(folder / "game.tw-pddl")) + f".*{names}"):
        load(find("train")[0])


def test_a_game_of_the_tree_is_played_and_won(tree: Path) -> None:
    held, world = game(4, "clean")
    trial(tree, "valid_unseen", "pick_clean_then_place_in_recep-Mug-None-Shelf-7", held)
    env = mulligan.make("alfworld", 5, params={"games": "valid_unseen", "kind": "clean", "plan": 12, "turns": 14})
    assert world.task in env.reset()
    assert env.task.task_class == "alfworld/clean"
    steps = plan(Game(world))
    assert steps
    outcomes = [env.step(f"<action>{command}</action>") for command in steps]
    assert [step.done for step in outcomes] == [False] * (len(steps) - 1) + [True]
    assert outcomes[-1].won


@pytest.mark.skipif(not (DATA / "grammar.twl2").exists(), reason="ALFWORLD_DATA names no lines with their grammar")
def test_official_games_are_the_same_in_lines_and_in_a_tree(tmp_path: Path) -> None:
    """Some official games, written as the tree has them, with their own domain and grammar."""
    domain, grammar = (DATA / "domain.pddl").read_text(), (DATA / "grammar.twl2").read_text()
    lines = find(str(DATA))[::20]
    for path in lines:
        problem, task = source(path)
        own_grammar = re.sub(r'"Your task is to: [^"]*"', json.dumps(f"Your task is to: {task}"), grammar)
        folder = tmp_path / "json_2.1.1" / "valid_seen" / game_name(path)
        folder.mkdir(parents=True)
        held = {"pddl_domain": domain, "grammar": own_grammar, "pddl_problem": problem, "solvable": True}
        (folder / "game.tw-pddl").write_text(json.dumps(held))
    paths = {game_name(path): path for path in lines}
    in_tree = find(str(tmp_path))
    assert len(in_tree) == len(lines) > 10
    for path in in_tree:
        other = load(paths[game_name(path)])
        world = load(path)
        assert (world.name, world.intro(), world.goal) == (other.name, other.intro(), other.goal)
        assert plan(Game(world)) == plan(Game(other))
