"""Sokoban: the rules against a simulator of its own, the solver against brute force, levels, parser and player."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.base import Env
from mulligan.envs.registry import build, make, make_task
from mulligan.envs.sokoban import levels, solver
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.moves import NAMES, say
from mulligan.errors import ParameterError, StopReason, UnknownName, UsageError
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Episode, Step, Turn

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "sokoban-steps.txt"
BOXOBAN = Path(os.environ.get("BOXOBAN_DATA", ROOT / "no official levels"))
ARROWS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


# --- An independent implementation: sets of coordinates, written from the rules of the game


class Simulator:
    def __init__(self, board: str) -> None:
        self.cells = {(y, x): c for y, line in enumerate(board.split("\n")) for x, c in enumerate(line.split(" "))}
        self.walls = {at for at, c in self.cells.items() if c == "#"}
        self.goals = {at for at, c in self.cells.items() if c in "O*+"}
        self.boxes = {at for at, c in self.cells.items() if c in "X*"}
        (self.player,) = (at for at, c in self.cells.items() if c in "P+")

    def move(self, name: str) -> bool:
        """Whether anything moved."""
        dy, dx = ARROWS[name]
        target = (self.player[0] + dy, self.player[1] + dx)
        behind = (target[0] + dy, target[1] + dx)
        if target in self.walls or (target in self.boxes and (behind in self.walls or behind in self.boxes)):
            return False
        if target in self.boxes:
            self.boxes = self.boxes - {target} | {behind}
        self.player = target
        return True

    @property
    def home(self) -> int:
        return len(self.boxes & self.goals)

    @property
    def won(self) -> bool:
        return self.boxes == self.goals

    def draw(self) -> str:
        def glyph(at: tuple[int, int]) -> str:
            if at in self.walls:
                return "#"
            on_goal = at in self.goals
            if at == self.player:
                return "+" if on_goal else "P"
            if at in self.boxes:
                return "*" if on_goal else "X"
            return "O" if on_goal else "_"

        rows = max(y for y, _ in self.cells) + 1
        cols = max(x for _, x in self.cells) + 1
        return "\n".join(" ".join(glyph((y, x)) for x in range(cols)) for y in range(rows))


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


def world_of(folder: Path, *lines: str, moves: int = 3, turns: int = 7, view: str = "board") -> Sokoban:
    file = folder / "own.txt"
    file.write_text("\n".join(lines) + "\n")
    env = make("sokoban", levels=str(file), moves=moves, turns=turns, view=view)
    assert isinstance(env, Sokoban)
    return env


def playing(env: Env, replies: list[str]) -> Episode:
    """The episode that `replies` make."""
    observation, turns, step = env.reset(), [], Step("")
    for reply in replies:
        step = env.step(reply)
        turns.append(Turn(observation, Completion(reply), step.reward, step.valid, step.state_key, step.feedback))
        observation = step.observation
    return Episode(0, tuple(turns), observation, StopReason.WON if step.won else StopReason.TURN_LIMIT)


# --- Rules


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 300), st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=30))
def test_every_reply_does_what_the_rules_say(seed: int, replies: list[list[str]]) -> None:
    env = make("sokoban", seed)
    world = Simulator(env.reset())
    for names in replies:
        before, blocked = world.home, []
        for number, name in enumerate(names, start=1):
            if not world.won and not world.move(name):
                blocked.append(f"move {number} ({name})")
        step = env.step(say(names))
        assert step.observation == world.draw()
        assert step.state_key == world.draw().replace(" ", "").replace("\n", "")
        assert (step.reward, step.done, step.won) == (float(world.won), world.won, world.won)
        assert step.shaping == (world.home - before) / 2
        assert step.feedback == (f"Blocked: {', '.join(blocked)}." if blocked else "")
        if step.done:
            break


def test_a_win_in_the_middle_of_a_reply_counts_and_ends_it(tmp_path: Path) -> None:
    env = world_of(tmp_path, "######", "#@$ .#", "######")
    # right: the box goes to column 4; right: onto the goal in column 5. The third move would step back: not played
    step = env.step("<action>right, right, left</action>")
    assert step.observation == "# # # # # #\n# _ _ P * #\n# # # # # #"
    assert (step.reward, step.done, step.won, step.valid, step.shaping) == (1.0, True, True, True, 1.0)
    after = env.step("<action>left</action>")
    assert (after.valid, after.reward, after.done) == (False, 0.0, False)
    assert after.observation == step.observation
    assert list(env.legal()) == []
    assert env.reset() == "# # # # # #\n# P X _ O #\n# # # # # #"


def test_pushing_a_box_off_its_goal_costs_progress(tmp_path: Path) -> None:
    env = world_of(tmp_path, "########", "#@*  . #", "#   $  #", "#      #", "########")
    step = env.step("<action>right</action>")  # one of two boxes leaves its goal: (0 - 1) / 2
    assert step.shaping == -0.5
    assert step.observation.split("\n")[1] == "# _ + X _ O _ #"


def test_two_boxes_in_a_row_do_not_move(tmp_path: Path) -> None:
    env = world_of(tmp_path, "########", *2 * ("#      #",), "#@$$ ..#", *2 * ("#      #",), "########")
    first = env.reset()
    step = env.step("<action>right, left, right</action>")
    assert step.observation == first
    assert step.valid
    assert step.feedback == "Blocked: move 1 (right), move 2 (left), move 3 (right)."


@pytest.mark.parametrize(
    "reply",
    [
        "<action>up,left,down</action>",
        "<action> U l  D </action>",
        "I go.\n<ACTION>Up,\nLEFT, d,</ACTION> done",
        "<think><action>right</action></think><action>up left down</action>",
    ],
)
def test_ways_to_say_the_same_moves(reply: str) -> None:
    plain, other = make("sokoban", 4), make("sokoban", 4)
    assert other.step(reply) == plain.step("<action>up, left, down</action>")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("", "No moves could be read"),
        ("up, left", "No moves could be read"),
        ("<action></action>", "0 moves are not allowed; give 1 to 3 moves"),
        ("<action> , , </action>", "0 moves are not allowed"),
        ("<action>up, up, up, up</action>", "4 moves are not allowed; give 1 to 3 moves"),
        ("<action>up, jump</action>", "'jump' is not a move; use up, down, left or right"),
        ("<action>uld</action>", "'uld' is not a move"),
        ("<action>up</action><action>down</action>", "No moves could be read"),
        ("<action><action>up</action></action>", "No moves could be read"),
        ("<action>up", "No moves could be read"),
        ("\x00\xff\ud800" * 99, "No moves could be read"),
        ("<action>\ud800\x00</action>", "is not a move"),
        ("<action>" + "up " * 30_000 + "</action>", "30000 moves are not allowed"),
        ("<action>up</action>" + "x" * 1_000_000, "No moves could be read"),
    ],
)
def test_a_reply_that_is_no_move_changes_nothing_and_says_why(reply: str, says: str) -> None:
    env = make("sokoban", 1)
    env.reset()
    before = env.step("<action>up, left, down</action>")
    step = env.step(reply)
    assert (step.observation, step.state_key) == (before.observation, before.state_key)
    assert (step.valid, step.reward, step.shaping, step.done) == (False, 0.0, 0.0, False)
    assert says in step.feedback
    assert len(step.feedback) < 120


def test_rules_explain_every_glyph_and_the_number_of_moves() -> None:
    rules = make("sokoban", moves=4).rules()
    for said in ("# wall", "_ floor", "O goal", "X box", "* box on a goal", "P you", "+ you on a goal", "1 to 4 moves"):
        assert said in rules
    single = make("sokoban", moves=1, turns=15)
    assert "1 move, played in order: <action>up</action>" in single.rules()
    assert not single.step("<action>up, up</action>").valid
    assert set("".join(make("sokoban", 7).reset().split())) <= set(Sokoban.glyphs)


def test_legal_replies_are_all_legal_and_distinct() -> None:
    env = make("sokoban", 5)
    assert isinstance(env, Sokoban)
    replies = env.legal()
    assert len(replies) == len(set(replies)) == 4 + 16 + 64
    assert replies[:4] == tuple(say([name]) for name in NAMES)
    assert all(make("sokoban", 5).step(reply).valid for reply in replies)


def test_a_frozen_transcript() -> None:
    """A difference here means that levels, rules or wording changed for everybody: make it a decision."""
    env = make("sokoban", seed=2024)
    lines = [env.rules(), "", env.reset()]
    for action in ("jump", "right, down", "left, right, up", "up, up, left", "l, u"):
        reply = f"<action>{action}</action>"
        step = env.step(reply)
        lines += [f"> {reply}", step.observation]
        lines += [f"valid {step.valid} reward {step.reward:g} shaping {step.shaping:g} {step.feedback}".strip()]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(encoding="utf-8")


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
        ({"rows": 4}, "rows=4, outer walls included, must be 5 to 16"),
        ({"cols": 17}, "cols=17, outer walls included, must be 5 to 16"),
        ({"boxes": 0}, "boxes=0 on 6x6 cannot be; give 1 to 4"),
        ({"boxes": 5}, "boxes=5 on 6x6 cannot be; give 1 to 4, or a bigger board"),
        ({"moves": 0}, "moves=0 a turn cannot be; give 1 to 20"),
        ({"solution": 7}, "solution=7 moves for boxes=2 cannot be; give 8 to 200"),
        ({"level": 3}, "level=3 counts levels of a file"),
        ({"turns": 4}, "solution=15 moves do not fit into turns=4 of moves=3; give turns=5 or solution=12"),
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
    with pytest.raises(ParameterError, match=r"level=3 is beyond the 3 of levels='boxoban'; give 0 to 2"):
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
    with pytest.raises(UsageError, match="needs BOXOBAN_DATA; set it to a folder"):
        make("sokoban", levels="boxoban")
    monkeypatch.setenv("BOXOBAN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere' is no file or folder"):
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


def test_an_unknown_player_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown player 'genius'"):
        make("sokoban").player("genius", random.Random(0), 1.0, 0.0)  # type: ignore[attr-defined]


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
        said[style] = env.digest(episode), env.reflect(episode)
    assert said["bare"] == said["plain"]
    assert "up, up | up, up" in said["bare"][0]


UP_UP = "<action>up, up</action>"


def test_the_compact_view_remembers_moves_and_no_boards(tmp_path: Path) -> None:
    env = world_of(tmp_path, "######", "#    #", "# $@ #", "# .  #", "######", view="compact")
    lost = playing(env, ["<action>right</action>", "<action>left, left</action>", "<action>up</action>"])
    assert env.digest(lost) == "right\nleft, left\nup\n0 of 1 boxes on goals"
    assert env.reflect(lost) == "<reflection>left, left: not 2\nright: 1</reflection>"
    assert env.reflect(playing(env, ["<action>up, up</action>"])) == "<reflection>too slow\nup, up: 1</reflection>"
    assert env.reflect(playing(env, ["<action>up, left, down</action>"])) == (
        "<reflection>up, left, down: 1</reflection>"
    )
    with pytest.raises(ParameterError, match="view='wide' is unknown"):
        make("sokoban", view="wide")


def test_reflection_finds_the_move_that_lost(tmp_path: Path) -> None:
    env = world_of(tmp_path, "######", "#    #", "# $@ #", "# .  #", "######")
    # left pushes the box against the left wall, where there is no goal: lost from turn 2 on
    lost = env.reflect(playing(env, ["<action>right</action>", "<action>left, left</action>", "<action>up</action>"]))
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
    late = env.reflect(playing(env, ["<action>up, up</action>"]))
    assert "failed_at: turn 1, up, up" in late
    assert "reasoning: 2 more moves would have solved it" in late
    assert "env_answer: Blocked: move 2 (up)." in late
    assert "error_category: out-of-turns" in late
    unread = env.reflect(playing(env, ["up", "<action>up</action>"]))
    assert "failed_at: turn 1, no move" in unread
    assert "error_category: invalid-reply" in unread
    won = env.reflect(playing(env, ["<action>up, left, down</action>"]))
    for said in ("outcome: won, 1 of 1", "failed_at: nothing", "error_category: none", "plan: play up, left, down"):
        assert said in won
