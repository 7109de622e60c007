"""ALFWorld's game files: both forms are found and read, and what is damaged or foreign is refused with its place."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from alfworld_names import FOLDERS
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.games import GameError, find, game_name, load, pick, source
from mulligan.envs.alfworld.generate import FITS, make
from mulligan.envs.alfworld.pddl import read_problem, write_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import KINDS, Kind, read_goal, task_line
from mulligan.errors import UsageError

ROOT = Path(__file__).parents[3]
OFFICIAL = Path(os.environ.get("ALFWORLD_DATA", ROOT / "no official games"))
official = pytest.mark.skipif(not OFFICIAL.exists(), reason="no official ALFWorld games here")


def game(seed: int = 0, kind: Kind = "heat", **changes: object) -> dict[str, object]:
    problem, world = make(seed, kind, 8, 12)
    return {"id": f"{kind}-{seed}", "task": world.task, "pddl_problem": write_problem(problem), **changes}


def write(path: Path, *games: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, games))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_json_lines_and_folders_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    write(tmp_path / "valid_seen.jsonl.gz", game(0), game(1, "cool"))
    tree = tmp_path / "json_2.1.1" / "train"
    write(tree / "pick_heat_then_place_in_recep-Egg" / "trial_1" / "game.tw-pddl", game(2))
    write(tree / "pick_and_place_simple-Apple" / "trial_1" / "game.tw-pddl", game(3, "pick", solvable=False))
    write(tree / "pick_and_place_simple-AppleSliced" / "trial_1" / "game.tw-pddl", game(3, "pick"))
    write(tree / "pick_and_place_with_movable_recep-Egg" / "trial_1" / "game.tw-pddl", game(3, "pick"))
    assert len(find("official")) == 4  # the last two are of kinds that ALFWorld leaves out
    assert len(find("valid_seen")) == len(find("train")) == 2
    assert [pick("valid_seen", -1, seed, KINDS, 12)[0] for seed in (0, 1, 2, 3)] == [0, 1, 0, 1]
    assert pick("valid_seen", -1, 0, ("cool",), 12)[0] == 1
    for seed in (0, 1):  # what is marked as unsolvable is passed over
        assert pick("train", -1, seed, KINDS, 12)[1].goal.kind == "heat"


def test_a_game_can_be_asked_for_by_number(tmp_path: Path) -> None:
    games = str(write(tmp_path / "own.jsonl", game(0), game(1, "cool")))
    number, world = pick(games, 1, 77, KINDS, 12)
    assert (number, world.goal.kind) == (1, "cool")
    with pytest.raises(GameError, match=r"game .*< 2.*got 2"):
        pick(games, 2, 0, KINDS, 12)
    with pytest.raises(GameError, match=r"line 2: kind .*cool.*pick, look"):
        pick(games, 1, 0, ("pick", "look"), 12)
    with pytest.raises(GameError, match=r"plan >= \d.*plan=3"):
        pick(games, 1, 0, KINDS, 3)
    with pytest.raises(GameError, match="look"):
        pick(games, -1, 0, ("look",), 12)


def test_without_games_the_error_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(UsageError, match=r"valid_seen.*ALFWORLD_DATA"):
        find("valid_seen")
    with pytest.raises(UsageError, match="nowhere"):
        find(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="JSON lines"):
        find(str(tmp_path))


def changed(old: str, new: str, count: int = -1) -> str:
    problem = str(game()["pddl_problem"])
    assert old in problem
    return problem.replace(old, new, count)


FIRST_FACT = "(atlocation agent1 loc_bar_start)"


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (lambda: changed("(:domain alfred)", "(:domain blocks)"), "alfred"),
        (lambda: changed(FIRST_FACT, "(flies agent1)"), r"\(flies agent1\)"),
        (lambda: changed(FIRST_FACT, "()"), r"\(\)"),
        (lambda: changed(FIRST_FACT, "(atLocation agent1)"), r"\(agent location\).*agent\)"),
        (lambda: changed(FIRST_FACT, "(atLocation agent1 loc_bar_99)"), "loc_bar_99.*undeclared"),
        (lambda: changed(FIRST_FACT, "(atLocation loc_bar_1 agent1)"), "location agent"),
        (lambda: changed(FIRST_FACT, "(atLocation (agent1) loc_bar_1)"), "undeclared location"),
        (lambda: changed(FIRST_FACT, ""), "agent"),
        (lambda: changed(FIRST_FACT, f"{FIRST_FACT} (atLocation agent1 loc_bar_1)"), "agent"),
        (lambda: changed("agent1 - agent", "agent1 - robot"), "robot"),
        (lambda: changed(")\n    (:init", "lost)\n    (:init"), "lost"),
        (lambda: changed("(:goal", "(:metric"), ":goal"),
        (lambda: str(game()["pddl_problem"])[:-200], "missing"),
        (lambda: str(game()["pddl_problem"]) + "(more)", "one problem"),
        (lambda: str(game()["pddl_problem"]) + ")", r"'\)'"),
        (lambda: "", "one problem"),
        (lambda: changed("(heatable ?o)", ""), "six kinds"),
        (lambda: changed("(heatable ?o)", "(heatable ?z)"), "six kinds"),
        (lambda: changed("(heatable ?o)", "(heatable ?r)"), "six kinds"),
        (lambda: changed("(heatable ?o)", "(or (heatable ?o))"), "or"),
        (lambda: changed("(heatable ?o)", "(" * 200 + ")" * 200), "goal"),
        (lambda: changed("(heatable ?o)", "(" * 20_000 + ")" * 20_000), "goal"),
        (lambda: changed("microwavetype - rtype", "microwavetype - otype"), "receptacletype"),
        (lambda: changed("(receptacletype microwave_bar_2 microwavetype)", ""), "goal .*heat"),
    ],
)
def test_what_lies_outside_the_domain_is_refused(tmp_path: Path, problem, names: str) -> None:  # type: ignore[no-untyped-def]
    file = write(tmp_path / "games.jsonl", game(1), game(pddl_problem=problem()))
    with pytest.raises(GameError, match=names) as caught:
        load(find(str(file))[1])
    assert str(caught.value).startswith(f"alfworld: {str(file)!r}, line 2")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"{", "JSON"),
        (b'{\n"pddl_problem":\n oops}', "JSON"),
        (b"[1, 2]", "pddl_problem"),
        (b'{"grammar": "x"}', "pddl_problem"),
        (b"\xff\xfe\x00", "UnicodeDecodeError"),
        (json.dumps(game(task="")).encode(), "task"),
        (json.dumps(game(pddl_domain="(define (domain alfred))")).encode(), "pddl_domain"),
        (json.dumps(game(grammar="nothing")).encode(), "grammar"),
        (json.dumps(game(grammar='"task": [ { "rhs": "Your task is to: dance." } ]')).encode(), "grammar"),
        (json.dumps(game(solvable=False)).encode(), "unsolvable"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: bytes, names: str) -> None:
    file = tmp_path / "game.tw-pddl"
    file.write_bytes(text)
    with pytest.raises(GameError, match=rf"game\.tw-pddl'.*{names}") as caught:
        load(find(str(file))[0])
    assert "\n" not in str(caught.value)


def test_damaged_lines_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl.gz"
    file.write_bytes(gzip.compress(b"x" * 1000)[:-20])
    with pytest.raises(GameError, match=r"games\.jsonl\.gz"):
        find(str(file))
    file.write_bytes(gzip.compress(json.dumps(game()).encode() + b"\n{broken"))
    with pytest.raises(GameError, match=r"line 2 .*JSON"):
        load(find(str(file))[1])


def test_a_game_that_is_won_at_the_start_is_refused(tmp_path: Path) -> None:
    problem, world = make(0, "pick", 8, 12)
    target = world.r_names[world.goal_targets[0]]
    receptacle = next(name for name in problem.objects if name.startswith(target.split()[0] + "_bar_"))
    thing = next(name for name in problem.objects if name.startswith(world.goal.object_type.removesuffix("type") + "_"))
    text = write_problem(problem).replace("(:init", f"(:init (inreceptacle {thing} {receptacle})")
    with pytest.raises(GameError, match="goal"):
        load(find(str(write(tmp_path / "a.jsonl", game(pddl_problem=text))))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_problems_are_read_as_they_were_written(kind: Kind) -> None:
    for seed in range(5):
        problem, world = make(seed, kind, 12, 12)
        again = read_problem(write_problem(problem), "again")
        assert (again.objects, again.facts) == (problem.objects, problem.facts)
        assert read_goal(again, "again") == world.goal


def test_case_comments_and_nesting_do_not_matter() -> None:
    problem, world = make(3, "pick2", 8, 12)
    text = write_problem(problem).replace("(:init", "; a (comment\n(:INIT (= (total-cost) 0)")
    assert read_problem(text.upper(), "upper").facts == problem.facts
    thing, target = world.goal.object_type, world.goal.target_type
    nested = (
        f"(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {thing}) (receptacleType ?r "
        f"{target}) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 {thing}) "
        f"(receptacleType ?r {target}) (inReceptacle ?o2 ?r)))))))"
    )
    start = text.index("(:goal")
    assert read_goal(read_problem(f"{text[:start]}(:goal {nested}))", "nested"), "nested") == world.goal


@official
def test_every_official_game_can_be_loaded_and_won(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(OFFICIAL))
    paths = find("official")
    for path in paths[:: max(1, len(paths) // 60)]:
        world = load(path)
        name, task = game_name(path), source(path)[1]
        assert world.goal.kind == next(kind for start, kind in FOLDERS.items() if f"/{start}" in f"/{name}")
        assert task in {task_line(world.goal, 0), task_line(world.goal, 1)}
        game = Game(world)
        steps = plan(game)
        assert steps is not None
        assert all(game.play(step) for step in steps)
        assert game.won()
        assert len(steps) <= 12


@official
def test_generated_rooms_keep_the_official_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits where is what official games say, type by type."""
    monkeypatch.setenv("ALFWORLD_DATA", str(OFFICIAL))
    paths = find("official")
    for path in paths[:: max(1, len(paths) // 30)]:
        world = load(path)
        for kind, holds in zip(world.r_types, world.can_hold, strict=True):
            fits = next(f for name, f in FITS.items() if f"{name}type".lower() == kind)
            assert holds <= {f"{thing}type".lower() for thing in fits}
