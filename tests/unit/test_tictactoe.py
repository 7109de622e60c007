"""Tic-Tac-Toe: the solved game by known facts, the opponents, the replies, and what players do."""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.adapters import openspiel
from mulligan.envs.registry import build, make, make_task, spec
from mulligan.envs.tictactoe import PREFERRED, TicTacToe, after, hope, mover, moves, optimal_moves, value
from mulligan.errors import MissingExtra, ParameterError, StopReason, UnknownName
from mulligan.types import Completion, Episode, Step, Turn
from reflections import FIELDS, fields_of

pytest.importorskip("pyspiel")

EMPTY = "...\n...\n..."
OPPONENTS = ("random", "minimax", "mcts:20")


def world(seed: int = 0, **params: Any) -> TicTacToe:
    env = make("tictactoe", seed, **params)
    assert isinstance(env, TicTacToe)
    return env


def cell(row: int, column: int) -> str:
    return f"<action>({row}, {column})</action>"


def play(env: TicTacToe, chance: int, player: Any) -> Episode:
    """One game, as the trial runner would record it; `player` is a list of replies or has act() and see()."""
    seen, turns, step = env.reset(chance), [], Step("")
    replies = iter(player) if isinstance(player, list) else None
    while not step.done and len(turns) < env.turns:
        reply = player.act() if replies is None else next(replies, "?")
        step = env.step(reply)
        if replies is None:
            player.see(step)
        turns.append(Turn(seen, Completion(reply), step.reward, step.valid, step.state_key))
        seen = step.observation
    stop = StopReason.WON if step.won else StopReason.LOST if step.done else StopReason.TURN_LIMIT
    return Episode(0, tuple(turns), seen, stop)


def expert(env: TicTacToe, seed: int = 0, *, kind: str = "expert", skill: float = 1.0, recall: float = 0.0) -> Any:
    return env.player(kind, random.Random(seed), skill, recall)


def reflection(env: TicTacToe, episode: Episode) -> str:
    """What a scripted player writes after the episode that has just been played."""
    return expert(env).reflect(episode)  # type: ignore[no-any-return]


# The solved game


def all_boards() -> list[str]:
    """Every board that can come up."""
    boards, frontier = {EMPTY}, [EMPTY]
    for board in frontier:  # grows while it is walked
        fresh = {after(board, move) for move in moves(board)} - boards
        boards |= fresh
        frontier += fresh
    return frontier


def test_the_solution_has_the_known_counts_and_value() -> None:
    boards = all_boards()
    assert len(boards) == 5478  # positions that can come up, known from the literature
    over = [board for board in boards if not moves(board)]
    assert len(over) == 958  # of which x has won 626, o 316, and 16 are drawn
    assert [sum(value(board) == result for board in over) for result in (1, -1, 0)] == [626, 316, 16]
    assert value(EMPTY) == 0
    assert optimal_moves(EMPTY) == list(range(9))  # every first move holds the draw


def test_the_rules_are_openspiels() -> None:
    game = openspiel.load_game("tictactoe", "tic_tac_toe")
    rng = random.Random(0)
    for _ in range(100):
        state, board = game.new_initial_state(), EMPTY
        while not state.is_terminal():
            assert (str(state), state.legal_actions(), state.current_player()) == (board, [*moves(board)], mover(board))
            move = rng.choice(moves(board))
            state.apply_action(move)
            board = after(board, move)
        assert (str(state), moves(board), value(board)) == (board, (), state.returns()[0])


@pytest.mark.parametrize(
    ("board", "best"),
    [
        ("xx.\noo.\n...", [2]),  # x to move wins at once; o would win next
        ("x.o\n.o.\n..x", [6]),  # x must stop the diagonal, and makes two threats of its own by it
        ("x..\n.o.\n..x", [1, 3, 5, 7]),  # o between two corners: a corner loses to a fork, an edge draws
        ("x..\n...\n...", [4]),  # against a corner only the centre draws
    ],
)
def test_known_positions(board: str, best: list[int]) -> None:
    assert optimal_moves(board) == best


def test_values_follow_from_the_next_move() -> None:
    for board in all_boards():
        if moves(board):
            next_values = [value(after(board, move)) for move in moves(board)]
            assert value(board) == (max if board.count("x") == board.count("o") else min)(next_values)


def test_hopes_against_blind_play() -> None:
    # o to move, cells 7 and 8 empty. On 8 it stops the diagonal and the column, and x's last mark draws; on 7 it leaves
    # x the diagonal. Blind play does each half of the time: x expects (0 + 1) / 2.
    assert hope("xox\noxx\no..", 0, True) == 0.5
    assert hope("xox\noxx\no..", 1, True) == 0.0  # it is o's own move now, and o takes 8
    for board in all_boards():
        for side, sign in ((0, 1), (1, -1)):
            assert hope(board, side, False) >= hope(board, side, True) - 1e-12
            assert hope(board, side, True) >= sign * value(board) - 1e-12  # nobody does better than perfect play


# Opponents and luck


@pytest.mark.parametrize("seat", [1, 2])
def test_minimax_opponent_never_loses(seat: int) -> None:
    results = []
    for seed in range(150):
        env = world(seed, opponent="minimax", seat=seat)
        results.append(play(env, 0, expert(env, seed, skill=0.0)).reward)  # against blind play
    assert set(results) == {0.0, -1.0}
    for seed in range(40):
        env = world(seed, opponent="minimax", seat=seat)
        assert play(env, 0, expert(env, seed)).reward == 0.0  # two perfect players draw


def test_minimax_opponent_varies_among_its_best_moves() -> None:
    env = world(opponent="minimax", seat=2)
    assert len({env.reset(chance) for chance in range(100)}) == 9  # every first move is optimal


def test_random_opponent_is_uniform() -> None:
    env = world(opponent="random", seat=2)
    openings = [env.reset(chance) for chance in range(1800)]
    counts = [openings.count(opening) for opening in set(openings)]
    assert len(counts) == 9
    # 200 of each expected, with a spread of sqrt(1800 * 1/9 * 8/9) = 13.3
    assert all(abs(count - 200) < 4.5 * 13.3 for count in counts)


def test_more_simulations_make_a_stronger_opponent() -> None:
    def lost(opponent: str) -> int:
        """Games that the opponent loses to the expert, of 60."""
        worlds = [world(seed, opponent=opponent, seat=1) for seed in range(60)]
        return sum(play(env, 0, expert(env, seed)).won for seed, env in enumerate(worlds))

    assert lost("mcts:5") > lost("mcts:60") > lost("mcts:1000")


def transcript(env: TicTacToe, chance: int, order: tuple[int, ...]) -> list[Any]:
    """The game in which the player tries the cells in this order."""
    return [env.reset(chance), *(env.step(cell(place // 3 + 1, place % 3 + 1)) for place in order)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", OPPONENTS)
def test_a_chance_repeats_exactly_and_another_redraws(name: str, seed: int) -> None:
    env, again = world(seed, opponent=name), world(seed, opponent=name)
    orders = [tuple(range(9)), (4, 0, 8, 2, 6, 1, 3, 5, 7), (8, 7, 6, 5, 4, 3, 2, 1, 0)]
    first = {(chance, order): transcript(env, chance, order) for chance in range(6) for order in orders}
    for (chance, order), seen in reversed(first.items()):  # in another order, in another world of the same task
        assert transcript(again, chance, order) == seen
    assert any(len({str(first[chance, order]) for chance in range(6)}) > 1 for order in orders)
    other = world(seed + 2, opponent=name)
    assert any(transcript(other, chance, order) != seen for (chance, order), seen in first.items())


# What is shown and what counts


@pytest.mark.parametrize("name", OPPONENTS)
@pytest.mark.parametrize("seat", [1, 2])
def test_games_are_legal_and_paid_by_their_result(name: str, seat: int) -> None:
    for seed in range(25):
        env = world(seed, opponent=name, seat=seat)
        episode = play(env, 1, expert(env, seed, skill=0.5))
        assert all(turn.valid for turn in episode.turns)
        board = env.board
        assert not moves(board)
        assert episode.reward == (1, -1)[seat - 1] * value(board)
        assert [turn.reward for turn in episode.turns[:-1]] == [0.0] * (len(episode.turns) - 1)
        assert episode.won == (episode.reward > 0)
        ending = {1.0: "You won.", 0.0: "A draw.", -1.0: "You lost."}[episode.reward]
        assert episode.final.splitlines()[-1] == ending


def test_observation_shows_the_board_and_the_last_move() -> None:
    env = world(opponent="random", seat=1)
    assert env.reset(0) == ". . .\n. . .\n. . .\nYou are X, to move."
    step = env.step(cell(1, 2))
    rows = step.observation.splitlines()
    assert rows[0][2] == "X"
    assert "".join(rows[:3]).count("O") == 1
    assert step.state_key == "\n".join(row.replace(" ", "").lower() for row in rows[:3])
    row = next(index for index in range(3) if "O" in rows[index])
    column = rows[row].split().index("O")
    assert rows[3] == f"The opponent played ({row + 1}, {column + 1}). You are X, to move."


@pytest.mark.parametrize("seat", [1, 2])
def test_rules_tell_the_side_and_not_the_opponent(seat: int) -> None:
    texts = {world(opponent=name, seat=seat).rules() for name in OPPONENTS}
    assert len(texts) == 1
    assert ("You are X and move first" in texts.pop()) == (seat == 1)


@pytest.mark.parametrize("text", ["(1, 3)", "1,3", "( 1 ,3 )", "1 3", "(1 3)"])
def test_a_cell_may_be_written_in_these_ways(text: str) -> None:
    env = world(opponent="random", seat=1)
    step = env.step(f"I take the corner. <action>{text}</action>")
    assert step.valid
    assert step.observation.splitlines()[0].endswith("X")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "names no single cell"),
        ("(1, 1)", "names no single cell"),
        ("<action>13</action>", "names no single cell"),
        ("<action>(1, 1, 1)</action>", "names no single cell"),
        ("<action>(1, 1)</action> <action>(1, 2)</action>", "names no single cell"),
        ("<action>1" + " " * 90_000 + "x</action>", "names no single cell"),
        ("<action>(٣, ٣)</action>", "names no single cell"),
        ("<action>(0, 1)</action>", "no cell (0, 1)"),
        ("<action>(1, 4)</action>", "no cell (1, 4)"),
        ("<action>(99999999999999999999, 1)</action>", "rows and columns go from 1 to 3"),
        ("<action>(2, 2)</action>", "(2, 2) is taken"),
    ],
)
def test_replies_that_are_no_move(reply: str, why: str) -> None:
    env = world(opponent="random", seat=1)
    env.reset(3)
    before = env.step(cell(2, 2))
    step = env.step(reply)
    assert why in step.feedback
    assert step == Step(before.observation, valid=False, state_key=before.state_key, feedback=step.feedback)


@settings(deadline=None, max_examples=80)
@given(
    reply=st.one_of(st.text(max_size=40), st.text("()0123 ,-", max_size=9).map(lambda text: f"<action>{text}</action>"))
)
def test_garbage_changes_nothing(reply: str) -> None:
    env = world(opponent="random", seat=2)
    before, board = env.reset(3), env.board
    step = env.step(reply)
    if not step.valid:
        assert (step.observation, env.board, step.done, step.reward) == (before, board, False, 0.0)
        assert step.feedback


def test_nothing_can_be_played_after_the_end() -> None:
    env = world(opponent="random", seat=1)
    episode = play(env, 0, expert(env))
    assert list(env.legal()) == []
    step = env.step(cell(1, 1))
    assert (step.valid, step.done, step.reward, step.observation) == (False, False, 0.0, episode.final)


def test_legal_replies_are_the_empty_cells() -> None:
    env = world(opponent="random", seat=2)
    env.reset(0)
    assert len(env.legal()) == 8
    for reply in list(env.legal()):
        env.reset(0)
        assert env.step(reply).valid


# The task


def test_task_settles_opponent_and_seat() -> None:
    assert [make_task("tictactoe", seed).seat for seed in (0, 1, 6, 7)] == [1, 2, 1, 2]
    task = make_task("tictactoe", 0, opponent="mcts:0100", seat=2)
    assert (task.opponent, task.seat, task.task_class) == ("mcts:100", 2, "tictactoe/vs-mcts:100")
    about = spec("tictactoe")
    assert (about.kind, about.stop, about.restart, about.timeout_reward) == ("versus", "never", "fresh", -1.0)


def test_a_preferred_order_is_kept_to() -> None:
    """As second player against edges first: corners are taken in their order, whatever the player does."""
    env = world(opponent="prefers-corners", seat=1)
    for chance in range(3):
        env.reset(chance)
        for move in ((1, 2), (2, 1), (3, 2)):
            env.step(cell(*move))
        assert env.history == [1, 0, 3, 2, 7, 6]
    for name in PREFERRED:
        firsts = {world(seed, opponent=name, seat=2).board for seed in range(5)}
        assert len(firsts) == 1


def test_tasks_draw_from_a_pool_and_say_so() -> None:
    spec = "preferred,random:2,mcts:100"
    drawn = [make_task("tictactoe", seed, opponent=spec) for seed in range(200)]
    assert {task.opponent for task in drawn} == {*PREFERRED, "random", "mcts:100"}
    assert {task["pool"] for task in drawn} == {spec}
    assert [world(opponent="random>prefers-edges@2", seat=2).reset(1) for _ in range(2)] == [
        ". X .\n. . .\n. . .\nThe opponent played (1, 2). You are O, to move."
    ] * 2
    with pytest.raises(UnknownName, match="prefers-corner"):
        make_task("tictactoe", 0, opponent="random", pool="prefers-corner")


def test_who_knows_the_order_wins_every_game() -> None:
    for seed, seat, name in itertools.product(range(3), (1, 2), PREFERRED):
        env = world(seed, opponent=name, seat=seat)
        assert play(env, seed, expert(env, seed, kind="omniscient")).won


@pytest.mark.parametrize(
    "name", ["mcts", "mcts:", "mcts:0", "mcts:x", "mcts:-3", "mcts:1.5", "mcts:1000000000", "mcts:٣"]
)
def test_an_impossible_number_of_simulations_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="mcts:100"):
        make_task("tictactoe", 0, opponent=name)


def test_unknown_opponents_and_seats_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"'minmax'.*'minimax'"):
        make_task("tictactoe", 0, opponent="minmax")
    with pytest.raises(ParameterError, match=r"seat must be .* -1"):
        make_task("tictactoe", 0, seat=-1)


def test_openspiel_is_needed_for_mcts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {opponent: make_task("tictactoe", 0, opponent=opponent) for opponent in OPPONENTS}
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    openspiel.load_game.cache_clear()
    with pytest.raises(MissingExtra, match="tictactoe needs the extra 'games'"):
        build(tasks["mcts:20"])
    for opponent in ("random", "minimax"):
        assert build(tasks[opponent]).step(cell(2, 2)).valid


# Players


@pytest.mark.parametrize("name", OPPONENTS)
@pytest.mark.parametrize("kind", ["expert", "omniscient"])
def test_expert_never_loses_and_beats_the_weak(name: str, kind: str) -> None:
    wins = losses = 0
    for seed in range(120):
        env = world(seed, opponent=name)
        reward = play(env, 0, expert(env, seed, kind=kind)).reward
        wins, losses = wins + (reward > 0), losses + (reward < 0)
    # Against blind play the omniscient player may take a risk that pays on average: see the next test.
    assert losses == 0 or (kind, name) == ("omniscient", "random")
    assert wins == 0 if name == "minimax" else wins > (105 if name == "random" else 30)


def test_omniscient_earns_what_the_best_play_against_blind_moves_is_worth() -> None:
    # The exact worth of the empty board, by expectation over blind replies: 191/192 for x, and 0.92487 for o, where
    # playing safe is worth 0.91640.
    assert hope(EMPTY, 0, False) == pytest.approx(191 / 192)
    assert hope(EMPTY, 1, False) > hope(EMPTY, 1, True) + 0.005
    for seat in (1, 2):
        rewards = []
        for seed in range(500):
            env = world(seed, opponent="random", seat=seat)
            rewards.append(play(env, 0, expert(env, seed, kind="omniscient")).reward)
        # one game spreads by at most 0.4: 4.5 * 0.4 / sqrt(500) = 0.08
        assert sum(rewards) / 500 == pytest.approx(hope(EMPTY, seat - 1, False), abs=0.08)


def test_memory_repeats_a_line_that_won() -> None:
    def wins(recall: float) -> list[int]:
        """Wins in each of four games against an opponent whose luck repeats, over 60 trials."""
        count = [0] * 4
        for seed in range(60):
            env = world(seed, opponent="mcts:100", seat=1)
            player = expert(env, seed, recall=recall)
            for game in range(4):
                count[game] += play(env, 0, player).won
        return count

    with_memory, without = wins(1.0), wins(0.0)
    assert with_memory[0] == without[0]
    assert with_memory[3] > without[3] + 10
    assert with_memory == sorted(with_memory)  # what has won once wins again


def test_unskilled_player_is_random() -> None:
    env = world(opponent="random", seat=1)
    env.reset(0)
    player = expert(env, skill=0.0)
    assert {player.act() for _ in range(200)} == set(env.legal())


# Memory texts


def test_digest_tells_the_game_from_the_episode_alone() -> None:
    for seed, seat in itertools.product(range(12), (1, 2)):
        env = world(seed, opponent="random", seat=seat)
        episode = play(env, 0, expert(env, seed, skill=0.0))
        history = list(env.history)
        env.reset(5)
        played = ", ".join(f"{'XO'[turn % 2]} ({move // 3 + 1}, {move % 3 + 1})" for turn, move in enumerate(history))
        ending = {1.0: "You won.", 0.0: "A draw.", -1.0: "You lost."}[episode.reward]
        assert env.digest(episode) == f"You were {'XO'[seat - 1]}. Moves: {played}. {ending}"


def test_digest_of_a_game_that_was_not_finished() -> None:
    env = world(opponent="random", seat=1)
    episode = play(env, 0, ["?"] * 9)
    assert episode.stop is StopReason.TURN_LIMIT
    assert env.digest(episode) == "You were X. Moves: none. The game was not finished."


def test_reflections_name_the_move_that_gave_the_game_away() -> None:
    met = set()
    for seed, seat in itertools.product(range(60), (1, 2)):
        env = world(seed, opponent="mcts:20", seat=seat)
        episode = play(env, 0, expert(env, seed, skill=0.4))
        fields = fields_of(reflection(env, episode))
        assert list(fields) == FIELDS
        assert float(fields["reward"]) == episode.reward
        assert fields["outcome"] == {1.0: "won", 0.0: "drawn", -1.0: "lost"}[episode.reward]
        met.add((fields["outcome"], fields["error_category"]))
        if fields["error_category"] == "wrong-move":
            better = fields["plan"].removeprefix("in that position play ")
            slipped = int(fields["failed_at"].split()[1].rstrip(",")) - 1
            env.reset(0)
            for turn in episode.turns[:slipped]:
                env.step(turn.reply.text)
            assert f"<action>{better}</action>" in [
                f"<action>({move // 3 + 1}, {move % 3 + 1})</action>" for move in optimal_moves(env.board)
            ]
            assert episode.turns[slipped].reply.text == f"<action>{fields['failed_at'].split(', ', 1)[1]}</action>"
    # A lost game always has a mistake of one's own; a won one has none to report.
    assert met == {("won", "none"), ("drawn", "none"), ("drawn", "wrong-move"), ("lost", "wrong-move")}


def test_reflection_on_a_game_that_was_not_finished() -> None:
    env = world(opponent="random", seat=1)
    fields = fields_of(reflection(env, play(env, 0, [cell(2, 2)])))
    assert (fields["outcome"], fields["error_category"]) == ("not finished", "out-of-turns")
    assert fields["reasoning"] == "6 of 7 replies were not valid moves"
