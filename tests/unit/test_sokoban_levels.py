"""Sokoban's solver against brute force, its generated levels, and levels from files."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from mulligan.envs.registry import build, make, make_task
from mulligan.envs.sokoban import levels, solver
from mulligan.envs.sokoban.env import NAMES
from mulligan.errors import ParameterError, UsageError
from sokoban_worlds import Simulator

ROOT = Path(__file__).parents[2]
BOXOBAN = Path(os.environ.get("BOXOBAN_DATA", ROOT / "no official levels"))


def shortest(board: str) -> int | None:
    """Moves of a shortest solution, by breadth-first search over everything; None where there is none."""
    world = Simulator(board)
    layer = {(world.player, frozenset(world.boxes))}
    seen, depth = set(layer), 0
    while layer:
        if any(boxes == world.goals for _, boxes in layer):
            return depth
        following = set()
        for player, boxes in layer:
            for name in NAMES:
                world.player, world.boxes = player, set(boxes)
                world.move(name)
                following.add((world.player, frozenset(world.boxes)))
        layer, depth = following - seen, depth + 1
        seen |= layer
    return None


def spaced(level: levels.Level) -> str:
    return "\n".join(
        " ".join(level.cells[start : start + level.cols]) for start in range(0, len(level.cells), level.cols)
    )


def replays_to_a_win(board: str, moves: str) -> bool:
    world = Simulator(board)
    letters = {name[0]: name for name in NAMES}
    for letter in moves:
        assert not world.won
        assert world.move(letters[letter])
    return world.won


def level_of(*lines: str) -> levels.Level:
    level, _ = levels.parse("\n".join(lines))
    return level


# --- Solver


@pytest.mark.parametrize(
    ("lines", "solutions"),
    [
        (("#####", "#@$.#", "#####"), {"r"}),
        # the box must go down, so the player walks round: up and left to stand above it, then one push
        (("######", "#    #", "# $@ #", "# .  #", "######"), {"uld"}),
        # one push to each side, and one step back over the middle in between
        (("#######", "#.$@$.#", "#######"), {"lrr", "rll"}),
        # right pushes the box to column 3; then round it: up, right to column 3 above it, and two pushes down
        (("#####", "#   #", "#@$ #", "#   #", "#  .#", "#####"), {"rurdd"}),
        # the goal is under the player, the box right of it: round above or below to its far side, and one push back
        (("######", "#    #", "# +$ #", "#    #", "######"), {"urrdl", "drrul"}),
    ],
)
def test_known_shortest_solutions(lines: tuple[str, ...], solutions: set[str]) -> None:
    level = level_of(*lines)
    found = solver.solve(level.cols, level.cells)
    assert found.moves in solutions
    assert not found.dead
    assert shortest(spaced(level)) == len(found.moves)


@pytest.mark.parametrize(
    "lines",
    [
        ("#####", "#$ .#", "# @ #", "#####"),  # a box in a corner
        ("######", "# $  #", "# @ .#", "#    #", "######"),  # a box along a wall without a goal
        ("######", "#.$$.#", "#  @ #", "#    #", "######"),  # two boxes side by side along a wall hold each other
        ("#######", "#@ $#.#", "#######"),  # a goal behind a wall
        (
            "#######",
            "#.$$ @#",
            "#.    #",
            "#     #",
            "#######",
        ),  # the first box home blocks the second, whichever it is
    ],
)
def test_lost_positions_are_proven_lost(lines: tuple[str, ...]) -> None:
    level = level_of(*lines)
    assert solver.solve(level.cols, level.cells) == (None, True)
    assert shortest(spaced(level)) is None


def test_a_solved_position_needs_no_moves() -> None:
    assert solver.solve(5, "######P*######") == ("", False)


def test_the_solver_agrees_with_brute_force() -> None:
    rng = random.Random(5)
    dead = 0
    for _ in range(400):
        rows, cols, boxes = rng.randint(5, 6), rng.randint(5, 6), rng.randint(1, 2)
        inner = [y * cols + x for y in range(1, rows - 1) for x in range(1, cols - 1)]
        cells = ["#"] * (rows * cols)
        floor = rng.sample(inner, len(inner) - rng.randint(0, 3))
        for cell in floor:
            cells[cell] = "_"
        for cell in rng.sample(floor, boxes):
            cells[cell] = "O"
        player, *boxed = rng.sample(floor, boxes + 1)
        cells[player] = "+" if cells[player] == "O" else "P"
        for cell in boxed:
            cells[cell] = "*" if cells[cell] == "O" else "X"
        level = levels.Level(cols, "".join(cells))
        expected, found = shortest(spaced(level)), solver.solve(cols, level.cells)
        assert (None if found.moves is None else len(found.moves)) == expected, spaced(level)
        assert found.dead == (expected is None)
        assert found.moves is None or replays_to_a_win(spaced(level), found.moves)
        dead += found.dead
    assert 100 < dead < 350  # both answers were tried


def test_a_solver_that_gives_up_claims_nothing() -> None:
    level = levels.generate(0, 10, 10, 4, 30)
    assert solver.solve(level.cols, level.cells, nodes=1) == (None, False)


# --- Generated levels


def test_generated_levels_are_solvable_within_the_bound_and_varied() -> None:
    boards = [make("sokoban", seed).reset() for seed in range(100)]
    lengths = []
    for board in boards:
        world = Simulator(board)
        edge = {(y, x) for y, x in world.cells if y in (0, 5) or x in (0, 5)}
        assert len(world.cells) == 36
        assert edge <= world.walls
        assert len(world.boxes) == len(world.goals) == 2
        assert world.home == 0
        moves = solver.solve(6, board.replace(" ", "").replace("\n", "")).moves
        assert moves is not None
        assert replays_to_a_win(board, moves)
        assert 5 <= len(moves) <= 15
        lengths.append(len(moves))
    assert len(set(boards)) >= 95
    assert len({frozenset(Simulator(board).walls) for board in boards}) >= 80
    assert set(lengths) >= set(range(6, 15))


@pytest.mark.parametrize(
    ("rows", "cols", "boxes", "solution"),
    [
        (5, 5, 1, 5),
        (5, 5, 2, 8),
        (6, 6, 4, 14),
        (7, 6, 1, 40),
        (8, 8, 3, 20),
        (9, 9, 4, 20),
        (10, 10, 4, 30),
        (5, 16, 6, 30),
    ],
)
def test_other_sizes_keep_the_promise_too(rows: int, cols: int, boxes: int, solution: int) -> None:
    for seed in range(5):
        task = make_task("sokoban", seed, rows=rows, cols=cols, boxes=boxes, solution=solution, turns=solution)
        board = build(task).reset()
        world = Simulator(board)
        assert max(world.cells) == (rows - 1, cols - 1)
        assert len(world.boxes) == boxes
        assert world.home == 0
        moves = solver.solve(cols, board.replace(" ", "").replace("\n", "")).moves
        assert moves is not None
        assert len(moves) <= solution
        assert replays_to_a_win(board, moves)
        assert task.task_class == f"sokoban/{rows}x{cols}/{boxes}"


def test_a_task_is_the_same_world_each_time_and_replays() -> None:
    task = make_task("sokoban", 11)
    rng = random.Random(0)
    levels.generate.cache_clear()
    first = build(task)
    opening = first.reset()
    replies = [rng.choice(first.legal()) for _ in range(7)]  # type: ignore[attr-defined]
    steps = [first.step(reply) for reply in replies]
    levels.generate.cache_clear()
    second = build(task)
    assert second.reset(chance=3) == opening
    assert [second.step(reply) for reply in replies] == steps
    assert first.world_key() == second.world_key() != make("sokoban", 12).world_key()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"rows": 4}, "rows must be 5 to 16"),
        ({"cols": 17}, "cols must be 5 to 16"),
        ({"boxes": 0}, "boxes must be 1 to 4"),
        ({"boxes": 5}, "boxes must be 1 to 4"),
        ({"moves": 0}, "moves must be 1 to 20"),
        ({"solution": 7}, "solution must be 8 to 200"),
        ({"level": 3}, "level must be -1"),
        ({"turns": 4}, "give turns=5 or solution=12"),
    ],
)
def test_impossible_parameters_say_the_way_out(params: dict[str, int], says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        make("sokoban", **params)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- Level files

FIRST = ("######", "#@$ .#", "######")
SECOND = ("#######", "#+$ $.#", "#     #", "#     #", "#######")


def write_levels(file: Path, *drawings: tuple[str, ...]) -> None:
    text = "".join(f"; {number}\n" + "\n".join(lines) + "\n\n" for number, lines in enumerate(drawings))
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def test_boxoban_levels_are_picked_by_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deeper").mkdir()
    write_levels(tmp_path / "deeper" / "b.txt.gz", SECOND)
    write_levels(tmp_path / "a.txt", FIRST, SECOND)
    (tmp_path / "LICENSE").write_text("not a level")
    monkeypatch.setenv("BOXOBAN_DATA", str(tmp_path))
    tasks = [make_task("sokoban", seed, levels="boxoban") for seed in range(4)]
    assert [task["level"] for task in tasks] == [0, 1, 2, 0]
    assert [task.task_class for task in tasks[:2]] == ["sokoban/3x6/1/boxoban", "sokoban/5x7/2/boxoban"]
    boards = [build(task).reset() for task in tasks]
    assert boards[0] == boards[3] == "# # # # # #\n# P X _ O #\n# # # # # #"
    assert boards[1] == boards[2] == "# # # # # # #\n# + X _ X O #\n# _ _ _ _ _ #\n# _ _ _ _ _ #\n# # # # # # #"
    assert make("sokoban", 0, levels="boxoban", level=1).reset() == boards[1]
    with pytest.raises(ParameterError, match=r"level must be 0 to 2 .*'boxoban'.* 3"):
        make("sokoban", levels="boxoban", level=3)


def test_files_are_taken_in_the_order_of_their_names(tmp_path: Path) -> None:
    for floor, name in ((5, "e"), (3, "c"), (1, "a"), (4, "d"), (2, "b")):
        write_levels(tmp_path / f"{name}.txt", ("#" * (floor + 5), f"#@${' ' * floor}.#", "#" * (floor + 5)))
    assert [make_task("sokoban", seed, levels=str(tmp_path))["cols"] for seed in range(5)] == [6, 7, 8, 9, 10]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    write_levels(file, FIRST)
    small = make("sokoban", levels=str(file))
    write_levels(file, SECOND)
    assert make("sokoban", levels=str(file)).reset() != small.reset()


def test_without_level_files_the_error_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOXOBAN_DATA", raising=False)
    with pytest.raises(UsageError, match="BOXOBAN_DATA"):
        make("sokoban", levels="boxoban")
    monkeypatch.setenv("BOXOBAN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere"):
        make("sokoban", levels="boxoban")
    with pytest.raises(ParameterError, match="holds no level"):
        make("sokoban", levels=str(tmp_path))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("######", "# $ .#", "######"), "has 0 players instead of 1"),
        (("######", "#@$.@#", "######"), "has 2 players instead of 1"),
        (("######", "#@$..#", "######"), "has 1 boxes and 2 goals"),
        (("#####", "#@  #", "#####"), "has 0 boxes and 0 goals"),
        (("######", "#@$ .#", "#####"), "has rows of different lengths"),
        (("######", "#@$x.#", "######"), "has the character 'x'"),
        (("######", "#@$ . ", "######"), "is not closed by walls"),
        (("#####", "#@ *#", "#####"), "is solved already"),
        (("######", "#$@ .#", "######"), "cannot be solved"),
    ],
)
def test_a_level_that_cannot_be_played_is_named(tmp_path: Path, lines: tuple[str, ...], says: str) -> None:
    file = tmp_path / "bad.txt"
    write_levels(file, FIRST, lines)
    make_task("sokoban", 0, levels=str(file))
    with pytest.raises(ParameterError) as caught:
        make_task("sokoban", 1, levels=str(file))
    assert f"level 1 of {str(file)!r} {says}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "noise.txt").write_bytes(bytes(range(256)))
    (tmp_path / "noise.txt.gz").write_bytes(b"\x1f\x8bnot really")
    for name in ("noise.txt", "noise.txt.gz"):
        with pytest.raises(ParameterError, match=rf"{name}' cannot be read as levels"):
            make("sokoban", levels=str(tmp_path / name))


@pytest.mark.skipif(not BOXOBAN.exists(), reason="no Boxoban levels here")
def test_boxoban_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXOBAN_DATA", str(BOXOBAN))
    for seed in range(12):
        task = make_task("sokoban", seed, levels="boxoban")
        assert task.task_class == "sokoban/10x10/4/boxoban"
        board = build(task).reset()
        moves = solver.solve(10, board.replace(" ", "").replace("\n", "")).moves
        assert moves is not None
        assert replays_to_a_win(board, moves)


@pytest.mark.parametrize(("rows", "boxes", "solution"), [(5, 1, 200), (6, 1, 190), (6, 2, 200)])
def test_a_bound_that_no_small_board_needs_is_no_mistake(rows: int, boxes: int, solution: int) -> None:
    for seed in range(2):
        level = levels.generate(seed, rows, rows, boxes, solution)
        assert 0 < len(solver.solve(rows, level.cells).moves or "") <= solution
