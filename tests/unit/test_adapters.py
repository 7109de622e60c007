"""Other people's environments in, our tasks out: the contract holds, the seed decides, wrong names are explained."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import mulligan
from mulligan.app.cli import main
from mulligan.envs.adapters import textarena as textarena_games
from mulligan.envs.adapters.gymnasium import narrow_seed
from mulligan.envs.check import check_env
from mulligan.envs.registry import make, make_task
from mulligan.errors import MissingExtra, MulliganError, ParameterError, StopReason, UnknownName, UsageError
from mulligan.policy.scripted import RandomPolicy
from mulligan.rollout.groups import SEEDS
from mulligan.rollout.tasksets import FIRST_SEED
from mulligan.trial.runner import run_trial_sync
from scripted_play import ScriptedPolicy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium


@pytest.fixture(autouse=True, scope="module")
def textarena_loaded():
    """TextArena takes a second to load: only where these tests are run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import textarena  # noqa: F401


# OpenSpiel ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "game", ["connect_four", "leduc_poker", "hex(board_size=4)", "phantom_ttt", "nim(pile_sizes=3;0)"]
)
def test_games_of_openspiel_keep_the_contract(game):
    check_env(f"openspiel:{game}")


def test_a_game_of_openspiel_in_five_lines():
    env = make("openspiel:connect_four", opponent="mcts:50", seat=1)
    shown = env.reset()
    assert shown.endswith("Legal moves: x0, x1, x2, x3, x4, x5, x6")
    step = env.step("<action>X3</action>")
    assert step.valid
    assert step.observation.count("x") - step.observation.count("Legal moves: x") > step.observation.count("o.")


def test_a_move_of_openspiel_is_the_one_that_was_named():
    """In chess a pawn's bxc5 and a bishop's Bxc5 may both be legal; bd5 names neither."""
    env = make("openspiel:chess", seat=1)
    env.reset()
    env._moves = lambda: {0: "bxc5", 1: "Bxc5", 2: "Nf3"}
    named = {said: env._named(said) for said in ("bxc5", "Bxc5", "BXC5", "nf3", "N f3", "bd5")}
    assert named == {"bxc5": 0, "Bxc5": 1, "BXC5": None, "nf3": 2, "N f3": 2, "bd5": None}


def played(name: str, seed: int, **params: object) -> mulligan.Episode:
    return mulligan.run_trial_sync(make_task(name, seed, **params), RandomPolicy(), episodes=1).episodes[0]


def test_who_scores_moves_again_and_is_not_out_of_turns():
    """In Dots and Boxes who closes a box moves again: half the game's moves would not be enough for a good player."""
    ended = {played("openspiel:dots_and_boxes(num_rows=2,num_cols=2)", seed).stop for seed in range(60)}
    assert ended == {StopReason.WON, StopReason.LOST, StopReason.DRAWN}
    assert make_task("openspiel:connect_four").turns == 21  # of 42 cells, in turn


def test_a_game_that_the_opponent_ends_before_the_first_move_pays_what_it_paid():
    """Nim: who takes the last one loses, and here the opponent may take all at once. That is a win, not a failure."""
    name = "openspiel:nim(pile_sizes=3;0)"
    gifts = [seed for seed in range(40) if make(name, seed, seat=2).over]
    assert gifts
    for seed in gifts:
        episode = played(name, seed, seat=2)
        assert (episode.stop, episode.reward, len(episode.turns)) == (StopReason.WON, 1.0, 1)


@pytest.mark.parametrize("seed", [0, 2])
def test_what_a_game_pays_while_it_lasts_is_counted_once(seed):
    env = make("openspiel:repeated_leduc_poker", seed)
    episode = mulligan.run_trial_sync(env, RandomPolicy(), episodes=1).episodes[0]
    assert sum(turn.reward != 0 for turn in episode.turns) > 1
    assert episode.reward == pytest.approx(env.total)


def test_moves_with_arrows_can_be_made():
    env = make("openspiel:chinese_checkers", seat=1)
    assert env.legal()[0] == "<action>3=>14</action>"
    assert env.step("From 3 I jump -> 14: <action>3 => 14</action>").valid


def test_hidden_cards_stay_hidden():
    """What seat 1 sees of Leduc poker does not depend on the other one's card."""
    shown = {}
    for chance in range(60):
        env = make("openspiel:leduc_poker", seat=1)
        opening = env.reset(chance)
        state = env.state
        shown.setdefault(state.history()[0], set()).add((state.history()[1], opening))
    for seen in shown.values():
        assert len({other for other, _ in seen}) > 1
        assert len({opening for _, opening in seen}) == 1
    with pytest.raises(ParameterError, match="MCTS"):
        make_task("openspiel:leduc_poker", opponent="mcts:10")


def test_small_games_of_openspiel_have_opponents_that_never_go_wrong():
    """In Nim with 3 and 0, who moves first can take two of three and wins: minimax always does, at random 1 in 3."""
    name = "openspiel:nim(pile_sizes=3;0)"
    assert {played(name, seed, seat=2, opponent="minimax").stop for seed in range(8)} == {StopReason.LOST}
    rewards = {played("openspiel:tic_tac_toe", seed, opponent="minimax").reward for seed in range(20)}
    assert rewards == {0.0, -1.0}
    preferring = make("openspiel:tic_tac_toe", opponent="prefers-edges", seat=2)
    assert preferring.reset().startswith(".x.\n...\n...")


def test_the_equilibrium_of_a_small_game_with_hidden_dice_tosses_coins():
    """One die with two faces each: who opens has a mixed strategy, and the same task plays the same again."""
    name = "openspiel:liars_dice(dice_sides=2)"
    openings = {make(name, seed, seat=2, opponent="cfr,random:0").reset() for seed in range(1, 40, 2)}
    assert len(openings) > 2
    check_env(name, opponent="cfr")


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("openspiel:connect_four", {"opponent": "minimax"}, "more than 50,000 states is not solved"),
        ("openspiel:liars_dice", {"opponent": "cfr"}, "more than 50,000 states is not solved"),
        ("openspiel:connect_four", {"opponent": "cfr"}, "unknown opponent of openspiel:connect_four 'cfr'"),
        ("openspiel:leduc_poker", {"opponent": "minimax"}, "unknown opponent of openspiel:leduc_poker 'minimax'"),
        ("openspiel:backgammon", {"opponent": "minimax"}, "cannot be solved"),
        ("openspiel:connect_four", {"opponent": "random:0,mcts:5:0"}, "weight above 0"),
        ("openspiel:conect_four", {}, "did you mean 'connect_four'"),
        ("openspiel:goofspiel", {}, "goofspiel"),
        ("openspiel:connect_four", {"opponent": "mcts:many"}, "mcts:many"),
        ("openspiel:connect_four", {"opponent": "stockfish"}, "stockfish"),
        ("openspiel:hex(board=4)", {}, "board=4"),
        ("gymnasium:FrozenLike-v1", {}, "FrozenLake"),
        ("gymnasium:CartPole-v1", {}, "show\\(\\)"),
        ("gymnasium:Pendulum-v1", {}, "Box"),
        ("gymnasium:FrozenLake-v1", {"options": "is_slippery"}, "NAME=VALUE"),
        ("gymnasium:FrozenLake-v1", {"options": "ice=3"}, "ice"),
        ("textarena:Sokoban-v9", {}, "Sokoban-v0"),
        ("textarena:SecretMafia-v0", {}, "SecretMafia-v0"),
        ("textarena:ScorableGames-v0", {}, "ScorableGames-v0"),
        ("textarena:KuhnPoker-v0", {"opponent": "shark"}, "path/to/file.py:function"),
        ("textarena:KuhnPoker-v0", {"seat": 3}, "seat must be .* 3"),
    ],
)
def test_what_cannot_be_played_is_explained_in_one_line(name, params, said):
    with pytest.raises(MulliganError, match=said) as caught:
        make(name, **params)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("library", "name", "players"), [("openspiel", "connect_four", 2), ("gymnasium", "FrozenLake-v1", 1)]
)
def test_a_catalogue_lists_what_can_be_played(library, name, players, capsys):
    with pytest.raises(SystemExit):
        main(["envs", library, "--json"])
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed[f"{library}:{name}"]["players"] == players
    assert not {"openspiel:goofspiel", "gymnasium:Pendulum-v1"} & set(listed)


@pytest.mark.parametrize(("library", "module"), [("openspiel", "pyspiel"), ("gymnasium",) * 2, ("textarena",) * 2])
def test_a_library_that_is_missing_names_its_extra(library, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as missing:
        list(importlib.import_module(f"mulligan.envs.adapters.{library}").catalogue())
    assert missing.value.extra == {"openspiel": "games"}.get(library, library)


def test_the_catalogue_of_textarena_names_variants_beside_their_game(monkeypatch):
    from textarena.envs.registration import ENV_REGISTRY

    games = {name: entry for name, entry in ENV_REGISTRY.items() if "KuhnPoker" in name}
    monkeypatch.setattr(textarena_games, "_registered", lambda env: games)
    (listed,) = textarena_games.catalogue()
    assert (listed.name, listed.players) == ("KuhnPoker-v0", 2)
    assert "KuhnPoker-v0-long" in listed.summary


# Gymnasium ------------------------------------------------------------------------------------------------------------

CART = """
from mulligan.envs.adapters.gymnasium import Wrapped
class Cart(Wrapped):
    ident = "CartPole-v1"
    action_names = ("left", "right")
    def show(self, observation, info):
        return f"The pole leans by {observation[2]:.2f}."
"""


def test_environments_of_gymnasium_that_draw_themselves_keep_the_contract():
    check_env("gymnasium:FrozenLake-v1")


def test_a_class_of_ones_own_may_list_some_of_the_moves(tmp_path):
    lines = ["def legal(self):", "    return [move for move in super().legal() if 'left' in move]"]
    (tmp_path / "cart.py").write_text(CART + "\n".join(f"    {line}" for line in lines) + "\n")
    mulligan.trust(tmp_path / "cart.py")
    assert make(f"{tmp_path / 'cart.py'}:Cart").legal() == ["<action>left</action>"]


def test_words_for_numbers_in_five_lines(tmp_path):
    (tmp_path / "cart.py").write_text(CART)
    name = f"{tmp_path / 'cart.py'}:Cart"
    mulligan.trust(name)
    check_env(name)
    env = make(name, 3)
    assert "one of: left, right" in env.rules()
    assert env.step("<action>LEFT</action>").observation.startswith("The pole leans by")


def test_a_simulator_that_is_not_installed_is_said_before_anything_is_played():
    gymnasium.register("Nowhere-v0", entry_point="nowhere_at_all:Nowhere")
    try:
        with pytest.raises(UsageError, match="cannot make Nowhere-v0: No module named 'nowhere_at_all'"):
            mulligan.evaluate("gymnasium:Nowhere-v0", "random", tasks=2)
    finally:
        del gymnasium.registry["Nowhere-v0"]


def test_a_frozen_lake_is_crossed():
    """The 4x4 map without slipping: down, down, right, right, down, right."""
    env = make("gymnasium:FrozenLake-v1", options="is_slippery=False")
    assert env.reset().startswith("[S]FFF")
    moves = [f"<action>{move}</action>" for move in (1, 1, 2, 2, 1, 2)]
    steps = [env.step(move) for move in moves]
    assert [step.done for step in steps] == [False] * 5 + [True]
    assert (steps[-1].won, steps[-1].reward) == (True, 1.0)
    assert not env.step(moves[0]).valid


def test_a_goal_that_pays_nothing_is_won_where_won_says_so(tmp_path):
    """Along the cliff: up, eleven times right, down. Every step pays -1, the last one too."""
    lines = (
        "from mulligan.envs.adapters.gymnasium import Wrapped\nclass Cliff(Wrapped):\n    ident = 'CliffWalking-v1'\n"
    )
    (tmp_path / "cliff.py").write_text(
        f"{lines}    def won(self, reward, terminated, info):\n        return terminated\n"
    )
    mulligan.trust(tmp_path / "cliff.py")
    for name, won in (("gymnasium:CliffWalking-v1", False), (f"{tmp_path / 'cliff.py'}:Cliff", True)):
        env = make(name)
        step = [env.step(f"<action>{move}</action>") for move in (0, *[1] * 11, 2)][-1]
        assert (step.done, step.won, step.reward) == (True, won, -1.0)


class Echo(gymnasium.Env):
    """Say the word."""

    observation_space = action_space = gymnasium.spaces.Text(max_length=20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = ("red", "blue", "green")[int(self.np_random.integers(3))]
        return f"Say {self.word}.", {}

    def step(self, action):
        return "ok", float(action == self.word), True, False, {}


@pytest.mark.parametrize("number", [0, 7, 2**29, SEEDS - 1])
def test_seeds_of_training_and_evaluation_stay_apart_in_31_bits(number):
    narrow = {name: narrow_seed(first + number) for name, first in FIRST_SEED.items()}
    assert len({seed // 2**29 for seed in narrow.values()}) == len(FIRST_SEED)
    assert max(narrow.values()) < 2**31


def test_text_is_shown_as_it_is_and_the_seed_decides():
    gymnasium.register("Echo-v0", entry_point=f"{__name__}:Echo", max_episode_steps=3)
    try:
        words = {make("gymnasium:Echo-v0", seed).reset() for seed in range(12)}
        assert words == {"Say red.", "Say blue.", "Say green."}
        check_env("gymnasium:Echo-v0")
        with pytest.raises(UsageError, match=r"offers no legal\(\), which the random player needs"):
            mulligan.evaluate("gymnasium:Echo-v0", "random", tasks=1, room=False)
        result = mulligan.evaluate(
            "gymnasium:Echo-v0",
            lambda messages: f"<action>{messages[-1]['content'].split()[-1].rstrip('.')}</action>",
            tasks=6,
            room=False,
            controls=(),
            memory="none",
        )
        assert result.main.p[0] == 1.0
    finally:
        del gymnasium.registry["Echo-v0"]


# TextArena ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ident", ["KuhnPoker-v0", "TowerOfHanoi-v0"])
def test_games_of_textarena_keep_the_contract(ident):
    check_env(f"textarena:{ident}")


def test_moves_of_textarena_are_remembered_with_tags_and_without():
    for style, replies in (("plain", ["<action>[A C]</action>"]), ("bare", ["[A C]"])):
        task = make_task("textarena:TowerOfHanoi-v0")
        trial = mulligan.run_trial_sync(task, ScriptedPolicy(replies), episodes=1, style=style)
        assert make("textarena:TowerOfHanoi-v0").digest(trial.episodes[0]).startswith("moves [A C]")


@pytest.mark.parametrize("ident", ["Sokoban-v0", "Minesweeper-v0", "KuhnPoker-v0"])
def test_a_seed_of_textarena_is_the_same_task_again(ident):
    state = random.getstate()
    first, second, other = (make(f"textarena:{ident}", seed, **_seat(ident)) for seed in (4, 4, 5))
    assert (first.rules(), first.reset()) == (second.rules(), second.reset())
    if ident == "Sokoban-v0":
        assert first.reset() != other.reset()
    assert random.getstate() == state  # nobody else's luck was used


def _seat(ident: str) -> dict[str, int]:
    return {"seat": 1} if ident == "KuhnPoker-v0" else {}


def test_games_of_textarena_do_not_share_their_luck():
    """Two games played in turns go as each would alone: mines are laid at the first move."""
    moves = ["<action>[2 2]</action>", "<action>[0 4]</action>", "<action>[4 0]</action>"]
    alone = [make("textarena:Minesweeper-v0-small", seed) for seed in (1, 2)]
    expected = [[env.step(move) for move in moves] for env in alone]
    first, second = (make("textarena:Minesweeper-v0-small", seed) for seed in (1, 2))
    turns = [(first.step(move), second.step(move)) for move in moves]
    assert [list(steps) for steps in zip(*turns, strict=True)] == expected


OPPONENTS = """
def fold(heard, rng):
    return "[fold]" if "[fold]" in heard.splitlines()[-1] else "[check]"
def stall(heard, rng):
    return "hm"
def promise(heard, rng):
    return "I shall cooperate. [cooperate]"
def crash(heard, rng):
    raise RuntimeError("no idea")
"""


def test_games_of_textarena_do_not_share_their_luck_in_threads():
    """With a time limit worlds are asked in threads of their own: the seed decides there too."""

    async def rewards(limit: float | None) -> list[list[str]]:
        tasks = [make_task("textarena:KuhnPoker-v0", seed) for seed in range(4)]
        trials = await asyncio.gather(
            *(mulligan.run_trial(task, lambda _: "<action>[check]</action>", env_timeout=limit) for task in tasks)
        )
        return [[turn.observation for episode in trial.episodes for turn in episode.turns] for trial in trials]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert asyncio.run(rewards(60.0)) == asyncio.run(rewards(None))
    finally:
        sys.setswitchinterval(before)


def test_what_luck_deals_is_told_anew_in_every_game():
    """In a negotiation the prompt says what the player has: rules that were said once would tell of another game."""
    name = "textarena:SimpleNegotiation-v0"
    heard: list[tuple[str, str]] = []

    def pass_on(messages: list[mulligan.Message]) -> str:
        heard.append((messages[0]["content"], messages[-1]["content"]))
        return "<action>[Deny]</action>"

    task = make_task(name, 3, turns=1)
    mulligan.run_trial_sync(task, pass_on, episodes=2, memory="none")
    env = make(name, 3)
    for chance, (rules, shown) in enumerate(heard):
        env.reset(chance)
        mine = env.game.env.state.game_state["player_resources"][env.seat_index]
        told = dict(re.findall(r"\[(\w+)\]\s+Qty: (\d+)", shown))
        assert told == {kind: str(count) for kind, count in mine.items()}
        assert "Qty" not in rules
    assert heard[0][1] != heard[1][1]


def test_an_offer_with_an_arrow_is_an_offer():
    env = make("textarena:SimpleNegotiation-v0", 3)
    env.reset()
    step = env.step("I give -> I get: <action>[Offer: 1 Wheat -> 1 Ore]</action>")
    assert "Offered items: 1 Wheat -> Requested items: 1 Ore" in step.observation


@pytest.mark.parametrize(
    ("ident", "speaker"), [("IteratedPrisonersDilemma-v0", "Player 1"), ("TruthAndDeception-v0", "Guesser")]
)
def test_what_the_opponent_says_is_heard_and_not_ones_own_words(tmp_path, ident, speaker):
    (tmp_path / "mine.py").write_text(OPPONENTS)
    mulligan.trust(tmp_path / "mine.py")
    env = make(f"textarena:{ident}", 3, opponent=f"{tmp_path / 'mine.py'}:promise", seat=1)
    step = env.step("<action>[good morning]</action>")
    assert f"[{speaker}] I shall cooperate. [cooperate]" in step.observation
    assert "good morning" not in step.observation


@pytest.mark.parametrize(("ident", "move"), [("Countdown-v0", "[0 1 +]"), ("Slitherlink-v0", "[h 1 1]")])
def test_games_that_hand_over_moves_in_the_wrong_order_can_be_played(ident, move):
    step = make(f"textarena:{ident}", 1).step(f"<action>{move}</action>")
    assert step.valid
    assert move not in step.observation


def test_what_a_game_prints_is_not_in_the_way(capsys):
    """``mulligan eval textarena:RushHour-v0 --json`` prints JSON alone."""
    mulligan.run_trial_sync(make_task("textarena:RushHour-v0", 3), lambda _: "<action>[A+]</action>", episodes=1)
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_word_lists_that_cannot_be_downloaded_are_not_in_the_way_either():
    """``mulligan envs textarena`` shows its list alone. In another process: nltk keeps the stream it began with."""
    code = "from mulligan.envs.adapters.textarena import catalogue; list(catalogue())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


def test_a_game_that_hangs_takes_neither_the_others_nor_the_output_with_it(monkeypatch, capsys):
    """The others end with an error that says why, and what the program prints is printed."""
    from textarena.envs.TowerOfHanoi.env import TowerOfHanoiEnv

    go_on = threading.Event()
    monkeypatch.setattr(TowerOfHanoiEnv, "step", lambda self, action: go_on.wait())
    monkeypatch.setattr(textarena_games, "_LONGEST_WAIT", 0.3)
    try:
        tasks = [make_task("textarena:TowerOfHanoi-v0", seed) for seed in range(2)]
        hung, other = (run_trial_sync(task, lambda _: "[A C]", env_timeout=1.0, style="bare") for task in tasks)
        sys.stdout.write("the result\n")
    finally:
        go_on.set()
        with textarena_games._LUCK:  # until the generators are back
            pass
    assert (hung.episodes[0].stop, other.episodes[0].stop) == (StopReason.ENV_HUNG, StopReason.ENV_RAISED)
    assert "another game of TextArena has not answered" in other.episodes[0].error
    assert capsys.readouterr().out == "the result\n"


def test_games_that_refuse_a_number_of_players_in_another_way_can_be_played():
    assert make("textarena:GermanWhist-v0", 1).reset()


def test_who_never_moves_forfeits_even_before_the_first_move_of_the_other(tmp_path):
    (tmp_path / "mine.py").write_text(OPPONENTS)
    mulligan.trust(tmp_path / "mine.py")
    for seed in range(6):
        env = make("textarena:KuhnPoker-v0", seed, opponent=f"{tmp_path / 'mine.py'}:stall", seat=1)
        first, second = (env.step("<action>check</action>") for _ in range(2))
        assert (first.done, first.won, first.reward) == (True, True, 1.0)
        assert not second.valid


def test_an_opponent_of_ones_own_that_raises_forfeits(tmp_path):
    (tmp_path / "mine.py").write_text(OPPONENTS)
    mulligan.trust(tmp_path / "mine.py")
    task = make_task("textarena:KuhnPoker-v0", 0, opponent=f"{tmp_path / 'mine.py'}:crash", seat=1)
    trial = run_trial_sync(task, lambda messages: "<action>[check]</action>")
    assert trial.episodes[0].stop is StopReason.OPPONENT_FAILED
    assert "mine.py:crash raised RuntimeError: no idea" in trial.episodes[0].error


def test_an_opponent_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(OPPONENTS)
    mulligan.trust(tmp_path / "mine.py")
    opponent = f"{tmp_path / 'mine.py'}:fold"
    env = make("textarena:KuhnPoker-v0", opponent=opponent, seat=1)
    while not (step := env.step("<action>bet</action>")).done:  # whoever always bets wins every pot
        assert step.valid
    assert (step.won, step.reward) == (True, 1.0)
    assert env.task.task_class == f"textarena/KuhnPoker-v0/vs-{opponent}"
    with pytest.raises(UnknownName):
        make("textarena:KuhnPoker-v0", opponent=f"{tmp_path / 'mine.py'}:raise_")
    with pytest.raises(UsageError, match="no file"):
        make("textarena:KuhnPoker-v0", opponent=str(Path("nowhere.py:fold")))


# Our tasks, elsewhere -------------------------------------------------------------------------------------------------


def test_a_task_of_ours_is_an_environment_of_gymnasium():
    env = mulligan.as_gymnasium(make_task("minesweeper", 7, turns=3))
    shown, info = env.reset(seed=1)
    assert "MineSweeper on a board" in info["rules"]
    assert env.observation_space.contains(shown)
    seen, reward, terminated, truncated, info = env.step("<action>(9, 9)</action>")
    assert (seen, reward, terminated, truncated, info["valid"]) == (shown, 0.0, False, False, False)
    env.step("nonsense")
    assert env.step("nonsense")[3]  # the turns are over
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("nonsense")
    assert env.reset()[0] == shown


def test_gymnasiums_own_checker_accepts_it():
    from gymnasium.utils.env_checker import check_env as check

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(mulligan.as_gymnasium(make_task("minesweeper", 1)), skip_render_check=True)


def test_who_stalls_against_somebody_loses():
    env = mulligan.as_gymnasium(make_task("tictactoe", 0, turns=1))
    env.reset()
    assert env.step("nonsense")[1:4] == (-1.0, False, True)
