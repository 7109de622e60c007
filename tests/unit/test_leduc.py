"""Leduc poker: what a player sees, the habits, the scripted player."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import mulligan
from mulligan.envs.adapters.leduc_habits import DRAWN, GROUPS, UNSEEN, VALIDATION, Chances, habit
from mulligan.envs.adapters.openspiel import load_game
from mulligan.envs.leduc import GAME, LeducPoker
from mulligan.envs.registry import make, make_task
from mulligan.errors import MulliganError, UnknownName
from mulligan.eval.optimal import OptimalPolicy
from mulligan.eval.rooms import value_against
from mulligan.policy.scripted import ExpertPolicy
from mulligan.trial.settings import TrialSettings

pyspiel = pytest.importorskip("pyspiel")
FOLD, CALL, RAISE = (f"<action>{move}</action>" for move in ("fold", "call", "raise"))
HABITS = ("caller", "maniac", "rock", "bluffer", "random")
POOL = ",".join(HABITS)


def world(seed: int = 0, **params: Any) -> LeducPoker:
    env = make("leduc", seed, **params)
    assert isinstance(env, LeducPoker)
    return env


def play(env: LeducPoker, chance: int, replies: list[str]) -> Any:
    env.reset(chance)
    for reply in itertools.chain(replies, itertools.repeat(CALL)):
        step = env.step(reply)
        assert step.valid
        if step.done:
            break
    return step


def cards(env: LeducPoker) -> str:
    """The player's and the opponent's card, and the open one if it lies there."""
    history = env.state.history()
    deals = [history[env.seat - 1], history[2 - env.seat]]
    state = env.game.new_initial_state()
    for number, action in enumerate(history):
        if state.is_chance_node() and number > 1:
            deals.append(action)
        state.apply_action(action)
    return "".join("JQK"[card] for card in deals)


def hand_of(env: LeducPoker, wanted: str, replies: list[str]) -> Any:
    """The end of a hand with these cards, of which the open one need not be named."""
    for chance in range(500):
        step = play(env, chance, replies)
        if cards(env).startswith(wanted):
            return step
    raise AssertionError("no such deal")


def test_hands_by_hand() -> None:
    """An ante of 1; a raise is 2 in the first round and 4 in the second."""
    env = world(opponent="caller", seat=1)
    pair = hand_of(env, "JKJ", [RAISE, RAISE])  # 1 + 2 + 4, and a pair of Jacks beats a King
    assert (pair.reward, pair.won) == (7.0, True)
    assert pair.observation == (
        "Your card: J\nOpen card: J\nRound 1: you raise, opponent call\nRound 2: you raise, opponent call\n"
        "Showdown: the opponent holds K. You win 7 chips."
    )
    assert hand_of(env, "QKJ", [RAISE]).reward == -3.0
    shared = hand_of(env, "QQ", [CALL, CALL])
    assert (shared.reward, shared.won) == (0.0, False)
    assert shared.observation.endswith("Showdown: the opponent holds Q. The chips are shared.")
    rock = world(opponent="rock", seat=1)
    folded = hand_of(rock, "JQ", [RAISE])  # a weak card is folded to a raise
    assert folded.reward == 1.0
    assert folded.observation.endswith("The opponent folds. The opponent's card stays hidden. You win 1 chip.")
    maniac = world(opponent="maniac", seat=2)
    maniac.reset(0)
    assert "Pot: 1 from you, 3 from the opponent\nYour turn: fold or call or raise." in maniac.reset(0)
    given_up = maniac.step(FOLD)
    assert (given_up.reward, given_up.done) == (-1.0, True)
    assert given_up.observation.endswith("You fold. The opponent's card stays hidden. You lose 1 chip.")


def test_the_compact_view_tells_what_words_tell() -> None:
    """The same hand, seen in words and in letters: what differs in one differs in the other."""
    told: dict[str, str] = {}
    rng = random.Random(0)
    for seed in range(300):
        plain, compact = (world(seed, opponent="random", seat=1 + seed % 2, view=view) for view in ("plain", "compact"))
        seen, pair = (plain.reset(seed), compact.reset(seed)), (plain, compact)
        while True:
            assert told.setdefault(f"{plain.seat} {seen[1]}", seen[0]) == seen[0]
            if plain.over:
                break
            number = rng.randrange(len(plain.legal()))
            steps = [env.step(env.legal()[number]) for env in pair]
            assert steps[0].reward == steps[1].reward
            seen = steps[0].observation, steps[1].observation
    assert len(set(told.values())) == len(told) > 200


def test_the_compact_view_by_hand() -> None:
    env = world(opponent="caller", seat=2, view="compact")
    pair = hand_of(env, "JKJ", ["<action>r</action>", RAISE])  # words are moves, too
    assert (pair.observation, pair.reward) == ("J 2 r 2 J 2 r 2 | K won 7", 7.0)
    assert hand_of(env, "QKJ", ["<action>c</action>"]).observation == "Q 2 c J 2 c | K lost 1"
    assert env.legal() == []
    rock = world(opponent="rock", seat=1, view="compact")
    assert hand_of(rock, "JQ", ["<action>r</action>"]).observation == "J r 1 | won 1"
    other = rock.switched({"view": "plain"})
    assert "Round 1: opponent raise, you fold" in other.observe()


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        # Card, open card or none, whether there is a raise to answer -> the habit's move.
        ("caller", {"K-": "call", "J-r": "call", "JQr": "call"}),
        ("maniac", {"J-": "raise", "J-r": "raise", "KQr": "raise"}),
        ("rock", {"K-": "raise", "J-": "call", "Q-r": "fold", "QQ": "raise", "QKr": "fold", "KQ": "raise"}),
        ("bluffer", {"K-": "call", "J-": "raise", "Q-r": "raise", "QQr": "call", "QK": "raise"}),
    ],
)
def test_habits_do_what_their_names_say(name: str, moves: dict[str, str]) -> None:
    seen = defaultdict(set)
    for seat, chance, replies in itertools.product((1, 2), range(40), itertools.product((CALL, RAISE), repeat=3)):
        env = world(opponent=name, seat=seat)
        env.reset(chance)
        for reply in (*replies, CALL, CALL, CALL):
            if env.over or env.step(reply if reply in env.legal() else CALL).done:
                break
        hidden = cards(env)[1]
        for round_number, moved in enumerate(env.betting()):
            shown = cards(env)[2] if round_number else "-"
            for before, (is_mine, move) in enumerate(moved):
                if not is_mine:
                    raised = "r" if any(each == 2 for _, each in moved[:before]) else ""
                    twice = sum(each == 2 for _, each in moved[:before]) == 2
                    seen[f"{hidden}{shown}{raised}"].add("twice" if twice else ("fold", "call", "raise")[move])
    for situation, move in moves.items():
        assert seen[situation] - {"twice"} == {move}, situation


@pytest.mark.parametrize("seat", [1, 2])
def test_nothing_shown_before_a_showdown_depends_on_the_hidden_card(seat: int) -> None:
    shown = defaultdict(set)
    rng = random.Random(0)
    for chance in range(300):
        env = world(opponent="random", seat=seat)
        observation = env.reset(chance)
        while not env.over:
            shown[env.state.information_state_string(seat - 1)].add(observation)
            step = env.step(rng.choice(list(env.legal())))
            observation = step.observation
        if "Showdown" not in observation:
            assert "stays hidden" in observation
            assert "/" not in step.state_key
    assert all(len(texts) == 1 for texts in shown.values())


def test_poker_words_count_where_there_is_no_raise_to_answer() -> None:
    env = world(opponent="maniac", seat=1)
    for word, move in (("check", 1), ("Bet", 2), ("RAISE", 2), ("call", 1)):
        env.reset(0)
        assert env.step(f"<action>{word}</action>").valid
        assert env.betting()[0][0] == (True, move)
    env.reset(0)
    assert not env.step(FOLD).valid
    env.step(CALL)
    assert not env.step("<action>check</action>").valid


def test_tasks_mix_opponents_and_openspiels_own_game_takes_the_same_ones() -> None:
    assert {make_task("leduc", seed, opponent=POOL).opponent for seed in range(60)} == set(HABITS)
    assert make_task("leduc", 1, opponent="rock").task_class == "leduc/vs-rock"
    env: Any = make("openspiel:leduc_poker", 2, opponent="maniac>caller@2", seat=2)
    assert [(env.reset(chance), env.state.history()[2])[1] for chance in range(3)] == [2, 1, 1]
    with pytest.raises(UnknownName, match=r"'rok'.*'rock'"):
        make_task("leduc", opponent="rok")
    with pytest.raises(MulliganError, match="MCTS would see what is hidden"):
        make_task("leduc", opponent="mcts:10")


@pytest.mark.slow
def test_memory_comes_near_to_knowing_the_opponent() -> None:
    """The exact value of the player's next hand against each opponent, after six hands, and without memory."""
    values: dict[float, list[float]] = {0.0: [], 1.0: []}
    for seed, name, recall in itertools.product(range(4), HABITS, values):
        env = world(seed, opponent=name, seat=1)
        player: Any = env.player("expert", random.Random(seed), 1.0, recall)
        for chance in range(6):
            env.reset(chance)
            while not env.over:
                player.see(env.step(player.act()))
        belief = player.belief if recall else player.prior
        actions = player.tree.best_response(belief)[1]
        values[recall].append(value_against(GAME, {state: {move: 1.0} for state, move in actions.items()}, 1, name))
    assert np.mean(values[0.0]) == pytest.approx(1.688, abs=1e-3)  # what is best without memory
    assert np.mean(values[1.0]) > 1.9  # 2.004 for somebody who knows the opponent


def test_a_change_of_the_opponent_is_noticed() -> None:
    env = world(opponent="maniac>caller@3", seat=2)
    player: Any = env.player("expert", random.Random(0), 1.0, 1.0)
    beliefs = []
    for chance in range(4):
        env.reset(chance)
        while not env.over:
            player.see(env.step(player.act()))
        beliefs.append(dict(zip(player.names, player.belief, strict=True)))
    assert [belief["caller"] for belief in beliefs] == [0, 0, 1, 1]


def test_the_optimal_player_meets_what_the_model_expects() -> None:
    """The mean of each of 300 trials' hands is right within four standard errors."""
    params = {"opponent": "maniac,rock>bluffer", "seat": 2}
    optimum = mulligan.optimum("leduc", params=params, episodes=2)
    tasks = [mulligan.make_task("leduc", seed, params) for seed in range(300)]
    policy = OptimalPolicy(TrialSettings(episodes=2))
    trials = [mulligan.run_trial_sync(task, policy, memory="history", episodes=2) for task in tasks]
    rewards = np.array([[episode.reward for episode in trial.episodes] for trial in trials])
    errors = rewards.std(axis=0) / np.sqrt(len(rewards))
    assert all(abs(rewards.mean(axis=0) - optimum.best.returns) < 4 * errors)


def test_trials_remember_and_reflect_on_what_was_seen() -> None:
    task = mulligan.make_task("leduc", 3, {"opponent": POOL})
    trial = mulligan.run_trial_sync(task, ExpertPolicy(recall=1.0), memory="both", episodes=3)
    assert not trial.failed
    assert len(trial.episodes) == 3
    env = world(3, opponent="caller", seat=1)
    for episode in trial.episodes[:2]:
        assert episode.reflection is not None
        assert f"reward: {episode.reward:g}" in str(episode.reflection)
        assert env.digest(episode).startswith("You acted first. Your card: ")


def test_groups_of_habits_are_for_training_and_for_evaluation() -> None:
    expected = world(1, opponent="seen:5,drawn").expected()
    assert expected.keys() == {*GROUPS["seen"], *GROUPS["drawn"]}
    assert expected["rock"] == pytest.approx(5 * expected["drawn-0"])
    assert set(GROUPS["seen"]) == set(HABITS)
    for one, other in itertools.product({**DRAWN, **VALIDATION}.values(), UNSEEN.values()):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) >= 0.1
    assert not set(DRAWN.values()) & set(VALIDATION.values())


def test_a_habit_that_tosses_coins_plays_by_its_chances() -> None:
    """With J and an open Q: raised into, it folds half of the time, and raises a quarter of the rest."""
    answer = habit(Chances(raises_strong=1.0, raises_weak=0.25, folds_weak=0.5))
    state = load_game("leduc", GAME).new_initial_state()
    for action in (2, 0):  # a King for the first player, a Jack for the second
        state.apply_action(action)
    assert answer(state) == {2: 1.0}
    state.apply_action(2)
    assert answer(state) == {0: 0.5, 1: 0.375, 2: 0.125}
