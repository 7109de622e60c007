"""MineSweeper: rules against an independent implementation, the expert against brute force, known counts."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mulligan
from mulligan.envs.minesweeper import player
from mulligan.envs.minesweeper.env import count_neighbours, grid
from mulligan.envs.minesweeper.player import UNKNOWN, fewest_clicks, mine_risks
from mulligan.errors import UnknownName, UsageError
from mulligan.policy.scripted import ExpertPolicy
from scripted_play import ScriptedPolicy


class SimpleMines:
    """The rules written another way: sets of coordinates, recursion, no shared code."""

    def __init__(self, rows: int, cols: int, mines: set[tuple[int, int]]) -> None:
        self.rows, self.cols, self.mines = rows, cols, mines
        self.open: dict[tuple[int, int], int] = {}
        self.dead = False

    def around(self, cell: tuple[int, int]) -> list[tuple[int, int]]:
        row, col = cell
        square = itertools.product((row - 1, row, row + 1), (col - 1, col, col + 1))
        return [(r, c) for r, c in square if (r, c) != cell and 1 <= r <= self.rows and 1 <= c <= self.cols]

    def click(self, cell: tuple[int, int]) -> None:
        if cell in self.mines:
            self.dead = True
            return
        if cell in self.open:
            return
        self.open[cell] = sum(other in self.mines for other in self.around(cell))
        if self.open[cell] == 0:
            for other in self.around(cell):
                self.click(other)

    @property
    def won(self) -> bool:
        return not self.dead and len(self.open) == self.rows * self.cols - len(self.mines)

    def cell_text(self, cell: tuple[int, int], hit: tuple[int, int] | None) -> str:
        return "*" if cell == hit else str(self.open.get(cell, "?"))


boards = st.tuples(st.integers(1, 7), st.integers(1, 7)).filter(lambda size: size[0] * size[1] >= 2)


@settings(max_examples=60, deadline=None)
@given(size=boards, share=st.floats(0.02, 0.6), seed=st.integers(0, 10_000), clicks=st.randoms(use_true_random=False))
def test_agrees_with_an_independent_implementation(size, share, seed, clicks):
    rows, cols = size
    mines = max(1, min(rows * cols - 1, int(share * rows * cols)))
    env = mulligan.make("minesweeper", seed, params={"rows": rows, "cols": cols, "mines": mines})
    other = SimpleMines(rows, cols, {(cell // cols + 1, cell % cols + 1) for cell in env.mines})
    assert len(other.mines) == mines
    cells = [(row, col) for row in range(1, rows + 1) for col in range(1, cols + 1)]
    clicks.shuffle(cells)
    for cell in cells:
        if cell in other.open:
            assert not env.step(f"<action>{cell}</action>").valid
            continue
        step = env.step(f"<action>{cell}</action>")
        other.click(cell)
        shown = [line.split()[1:] for line in step.observation.splitlines()[1:]]
        hit = cell if other.dead else None
        expected = [[other.cell_text((r, c), hit) for c in range(1, cols + 1)] for r in range(1, rows + 1)]
        assert shown == expected
        assert (step.done, step.won, step.reward) == (other.dead or other.won, other.won, float(other.won))
        if step.done:
            return


def _fixed(rows: int, cols: int, mines: list[int], **params: object):
    """A world whose mines are laid by hand, through a seed that is then overwritten."""
    env = mulligan.make("minesweeper", 0, params={"rows": rows, "cols": cols, "mines": len(mines), **params})
    env.mines = tuple(mines)
    env.counts = count_neighbours(env.board, mines)
    env.reset()
    return env


def test_cascade_opens_zeros_and_their_border():
    # 3x4, one mine at (3, 4). Opening (1, 1) opens all but the mine: only its three neighbours show 1.
    env = _fixed(3, 4, [11])
    step = env.step("<action>(1, 1)</action>")
    assert step.observation == "  1 2 3 4\n1 0 0 0 0\n2 0 0 1 1\n3 0 0 1 ?"
    assert step.won
    assert step.reward == 1.0
    assert step.shaping == 1.0  # 11 of 11 safe cells


def test_numbers_of_a_known_board():
    # Mines at (1, 1), (2, 2), (1, 3): the cell (1, 2) touches all three, (2, 1) two, (3, 3) one, (2, 3) two.
    env = _fixed(3, 3, [0, 4, 2])
    seen = [env.step(f"<action>{cell}</action>").observation.splitlines() for cell in [(1, 2), (2, 1), (3, 3), (2, 3)]]
    assert seen[-1] == ["  1 2 3", "1 ? 3 ?", "2 2 ? 2", "3 ? ? 1"]


def test_the_first_click_may_be_a_mine_and_ends_the_game():
    env = _fixed(2, 2, [0])
    step = env.step("<action>(1, 1)</action>")
    assert (step.done, step.won, step.reward) == (True, False, 0.0)
    assert step.observation == "  1 2\n1 * ?\n2 ? ?"


@pytest.mark.parametrize("view", ["board", "compact"])
def test_a_mine_costs_its_price_and_ending_costs_nothing(view):
    env = _fixed(2, 2, [0], view=view, price=0.5)
    assert "Stepping on a mine costs 0.5; <action>end</action> ends the game at no cost." in env.rules()
    assert env.step("<action>(1, 1)</action>").reward == -0.5
    env.reset()
    env.step("<action>(1, 2)</action>")
    assert "<action>end</action>" in env.legal()
    end = env.step("<action>end</action>")
    assert (end.done, end.won, end.reward, end.valid) == (True, False, 0.0, True)
    assert not env.step("<action>(2, 1)</action>").valid
    assert not env.step("<action>end</action>").valid


def test_without_a_price_nobody_ends_a_game():
    env = _fixed(2, 2, [0])
    assert "costs" not in env.rules()
    assert "<action>end</action>" not in env.legal()
    assert not env.step("<action>end</action>").valid
    assert str(env.step("<action>(1, 1)</action>").reward) == "0.0"  # not -0.0, which tables would show


def test_the_expert_ends_a_game_that_is_not_worth_its_risk():
    """3 mines on 2 x 2: a cell is safe in 1 of 4 boards, worth 1/4 - 3/4 of the price. With memory, three lost games
    show where it is."""
    lost, ended = (
        mulligan.run_trial_sync(_fixed(2, 2, [0, 1, 2], price=price), ExpertPolicy(1.0, 1.0), episodes=1).episodes[0]
        for price in (0.3, 0.4)
    )
    assert lost.reward in (-0.3, 1.0)
    assert (ended.reward, ended.final) == (0.0, "  1 2\n1 ? ?\n2 ? ?")
    env = _fixed(2, 2, [0, 1, 2], price=0.4)
    player = env.player("expert", random.Random(0), 1.0, 0.0)
    player.see(env.step(player.act()))
    assert "outcome: ended the game" in player.reflect(ended)
    assert "error_category: other" in player.reflect(ended)


def test_the_mixed_player_ends_half_of_its_games_at_once():
    env = mulligan.make("minesweeper", 3, params={"price": 0.1})
    trial = mulligan.run_trial_sync(env, ExpertPolicy(kind="mixed"), episodes=60, stop="never")
    ended = [episode for episode in trial.episodes if "end" in episode.turns[0].reply.text]
    assert 15 < len(ended) < 45
    assert all(episode.reward == 0.0 and len(episode.turns) == 1 for episode in ended)
    free = mulligan.run_trial_sync(
        mulligan.make("minesweeper", 3), ExpertPolicy(kind="mixed"), episodes=20, stop="never"
    )
    assert all(turn.valid for episode in free.episodes for turn in episode.turns)


def test_compact_view_names_only_what_is_new():
    env = _fixed(3, 4, [11], view="compact")
    assert env.reset() == "all closed"
    # (2, 3) is c2 and touches the mine; then a1 opens the zeros.
    assert env.step("c2").observation == "c2=1"
    news = env.step("<action>a1</action>").observation.split()
    assert news[0] == "a1=0"
    assert sorted(news) == sorted(["a1=0", "b1=0", "c1=0", "d1=0", "a2=0", "b2=0", "a3=0", "b3=0", "d2=1", "c3=1"])
    assert env.step("d3").observation == "nothing new" or env.ended


def test_compact_mine_word():
    env = _fixed(2, 2, [3], view="compact")
    assert env.step("b2").observation == "b2=*"


@pytest.mark.parametrize(
    "reply",
    [
        "<action>(1, 2)</action>",
        "<action>1,2</action>",
        "<action> ( 1 , 2 ) </action>",
        "I think the corner is safe.\n<action>(1, 2)</action>",
        "<think>maybe <action>(3, 3)</action>?</think><action>(1, 2)</action>",
        "<ACTION>(1, 2)</ACTION>",
        "<action>(1, 2)</action> and again <action>(1, 2)</action>",
    ],
)
def test_replies_that_name_a_cell(reply):
    env = _fixed(3, 3, [8])
    assert env.step(reply).valid


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "(1, 2)",
        "<action>(0, 1)</action>",
        "<action>(4, 1)</action>",
        "<action>(-1, 1)</action>",
        "<action>(1, 2), (2, 1)</action>",
        "<action>(1, 2)</action><action>(2, 1)</action>",
        "<action><action>(1, 2)</action></action>",
        "<action>(1, 2)",
        "<action>(1, 99999999999999999999)</action>",
        "<action>b1</action>",
        "x" * 1_000_000,
        "<action>1" + " " * 90_000 + "2</action>",
        "<action>(1, 2)</action>" * 10_000,
    ],
)
def test_replies_that_do_not_change_the_world(reply):
    env = _fixed(3, 3, [8])
    before = env.text.decode()
    step = env.step(reply)
    assert not step.valid
    assert step.feedback
    assert env.text.decode() == before == step.state_key


@settings(max_examples=60, deadline=None)
@given(size=st.sampled_from([(2, 3), (3, 3), (3, 4), (4, 4)]), mines=st.integers(1, 4), seed=st.integers(0, 999))
def test_risks_are_those_of_counting_every_board(size, mines, seed):
    """The expert's chances against the obvious count: every way to lay the mines that fits what is open."""
    rows, cols = size
    env = mulligan.make("minesweeper", seed, params={"rows": rows, "cols": cols, "mines": mines})
    rng = random.Random(seed)
    safe = [cell for cell in range(rows * cols) if cell not in env.mines]
    for cell in rng.sample(safe, min(2, len(safe))):
        env.step(env.replies[cell])
    known = bytes(env.counts[cell] if env.opened[cell] else UNKNOWN for cell in range(rows * cols))
    fitting = [
        laid
        for laid in itertools.combinations(range(rows * cols), mines)
        if all(known[c] == UNKNOWN or count_neighbours(env.board, laid)[c] == known[c] for c in range(rows * cols))
    ]
    expected = [sum(cell in laid for laid in fitting) / len(fitting) for cell in range(rows * cols)]
    assert mine_risks(rows, cols, known, mines) == pytest.approx(expected)


def test_risks_with_remembered_mines_count_every_board():
    # 1x4 with 2 mines; remembered: cell 0 shows 1 and cell 1 is the mine, so one mine is left for cells 2 and 3.
    assert mine_risks(1, 4, bytes([1, 9, UNKNOWN, UNKNOWN]), 2) == pytest.approx([0, 1, 0.5, 0.5])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 5_000))
def test_fewest_clicks_is_the_minimum(seed):
    """Against a search over all sets of cells, on boards small enough to search."""
    env = mulligan.make("minesweeper", seed, params={"rows": 3, "cols": 4, "mines": 3})
    least = len(fewest_clicks(env.board, env.counts, bytearray(12)))
    safe = [cell for cell in range(12) if cell not in env.mines]

    def clears(cells):
        env.reset()
        return any(env.step(env.replies[cell]).won for cell in cells if not env.opened[cell])

    assert any(clears(cells) for cells in itertools.combinations(safe, least))
    assert not any(clears(cells) for cells in itertools.combinations(safe, least - 1))


def test_ceiling_of_the_papers_board():
    """6x6 with 3 mines in 7 turns: about 88 % of boards can be cleared at all; with 4, 5, 6 mines 65, 38, 21 %."""
    shares = []
    for mines in (3, 4, 5, 6):
        worlds = [mulligan.make("minesweeper", seed, params={"mines": mines}) for seed in range(600)]
        clicks = [len(fewest_clicks(world.board, world.counts, bytearray(36))) for world in worlds]
        shares.append(sum(count <= 7 for count in clicks) / len(worlds))
    assert shares == pytest.approx([0.88, 0.65, 0.38, 0.21], abs=0.05)


def test_experts_differ_as_they_should():
    """More skill wins more; memory lifts the second attempt; without memory recall changes nothing."""

    def share(policy, memory):
        result = mulligan.evaluate("minesweeper", policy, tasks=200, memory=memory, controls=(), room=False, episodes=2)
        return result.p

    weak, strong = share(ExpertPolicy(0.3), "none"), share(ExpertPolicy(1.0), "none")
    assert strong[0] > weak[0] + 0.2
    assert share(ExpertPolicy(1.0, recall=1.0), "history")[1] > strong[1] + 0.01
    assert share(ExpertPolicy(1.0, recall=1.0), "none") == strong


def test_the_world_depends_on_the_seed_alone():
    first = [mulligan.make("minesweeper", seed).mines for seed in range(50)]
    assert first == [
        mulligan.make("minesweeper", seed, params={"view": "compact", "turns": 3}).mines for seed in range(50)
    ]
    assert len(set(first)) > 45
    # Frozen: a change here changes every published number.
    assert first[:3] == [(1, 8, 23), (17, 29, 30), (0, 10, 22)]


def test_digest_tells_what_the_agent_saw():
    env = _fixed(3, 3, [4])
    trial = mulligan.run_trial_sync(
        env, ScriptedPolicy(["<action>(1, 1)</action>", "<action>(2, 2)</action>"]), episodes=1
    )
    assert env.digest(trial.episodes[0]) == "safe (1, 1)\nmine (2, 2)"
    compact = _fixed(3, 3, [4], view="compact")
    trial = mulligan.run_trial_sync(compact, ScriptedPolicy(["a1", "b2"]), episodes=1)
    assert compact.digest(trial.episodes[0]) == "a1=ok b2=*"
    sweeper = compact.player("expert", random.Random(0), 1.0, 0.0)
    assert sweeper.reflect(trial.episodes[0]) == "<reflection>b2=* a1=ok</reflection>"


@pytest.mark.parametrize(
    "params",
    [
        {"mines": 36},
        {"mines": 0},
        {"rows": 0},
        {"rows": 1, "cols": 1},
        {"view": "fog"},
        {"cols": 27, "view": "compact"},
        {"price": -0.5},
        {"price": "nan"},
        {"price": "inf"},
    ],
)
def test_impossible_boards_are_refused_in_one_line(params):
    with pytest.raises(UsageError) as caught:
        mulligan.make_task("minesweeper", 0, params=params)
    assert "\n" not in str(caught.value)


def test_unknown_parameter_names_the_nearest():
    with pytest.raises(UnknownName, match=r"'mimes'.*'mines'"):
        mulligan.make_task("minesweeper", 0, params={"mimes": 3})


def test_large_boards_render_in_columns():
    env = mulligan.make("minesweeper", 0, params={"rows": 12, "cols": 12, "mines": 10})
    lines = env.reset().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert grid(12, 12).blank[grid(12, 12).offsets[143]] == ord("?")


def test_what_the_expert_keeps_of_large_boards_does_not_fill_the_memory():
    """A board of 99 x 99 has 9,801 risks, a new list at every move: thousands of tasks would take gigabytes."""
    before = player._kept_risks.cache_info().currsize
    for seen in range(9):
        known = bytes([seen]) + bytes([UNKNOWN]) * (99 * 99 - 1)
        assert len(mine_risks(99, 99, known, 50)) == 99 * 99
    assert player._kept_risks.cache_info().currsize == before
    for _ in range(2):
        mine_risks(4, 5, bytes([1]) + bytes([UNKNOWN]) * 19, 3)
    assert player._kept_risks.cache_info().hits > 0


def test_the_expert_plays_on_where_thousands_of_cells_hang_together():
    """Every other row is open: one group of 861 cells, deeper than the search may go."""
    row, gap = bytes([1]) * 41, bytes([UNKNOWN]) * 41
    risks = mine_risks(41, 41, (gap + row) * 20 + gap, 400)
    assert len(risks) == 41 * 41
    assert all(0 <= risk <= 1 for risk in risks)
