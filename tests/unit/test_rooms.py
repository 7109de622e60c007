"""What hands are worth against unknown opponents: by two ways of computing it, against OpenSpiel, and by hand."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import mulligan
from mulligan.envs.adapters.spiel_hand import hand_tree
from mulligan.envs.kuhn.habits import HABITS, opponent_table
from mulligan.envs.leduc import GAME
from mulligan.eval.rooms import (
    Room,
    best_response_value,
    equilibrium,
    exploitability,
    room_of,
    table,
    value_against,
    values_by_hand,
)

pyspiel = pytest.importorskip("pyspiel")
LEDUC = ("caller", "maniac", "rock", "bluffer", "random")


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize(
    "opponents",
    [
        {"conservative": 1.0, "intermediate": 1.0, "aggressive": 1.0},
        {"random": 2.0, "soft-aggressive": 1.0, "cfr": 0.5},
    ],
)
def test_kuhn_is_worth_what_its_model_says(opponents: dict[str, float], seat: int) -> None:
    """Beliefs over opponents alone, on OpenSpiel's game, against beliefs over all that is hidden, on our own."""
    spec = ",".join(f"{name}:{weight:g}" for name, weight in opponents.items())
    optimum = mulligan.optimum("kuhn", params={"opponent": spec, "seat": seat}, episodes=3)
    room = room_of("kuhn_poker", opponents, seat, hands=3)
    assert room.by_hand == pytest.approx(optimum.best.returns)
    assert room.static == pytest.approx(optimum.alone.value())
    assert room.clairvoyant == pytest.approx(optimum.clairvoyant.value())


def test_the_room_of_leduc() -> None:
    room = room_of(GAME, dict.fromkeys(LEDUC, 1.0), seat=1, hands=3)
    assert room.static == pytest.approx(1.6883, abs=1e-4)
    assert room.by_hand == pytest.approx([1.6879, 1.8572, 1.9432], abs=1e-4)
    assert room.clairvoyant == pytest.approx(2.0042, abs=1e-4)
    assert room.equilibrium == pytest.approx(0.34, abs=0.02)  # not all equilibria exploit others alike


def test_leduc_is_worth_what_its_model_says() -> None:
    opponents = {"caller": 1.0, "maniac": 2.0, "rock": 1.0, "random": 1.0}
    spec = ",".join(f"{name}:{weight:g}" for name, weight in opponents.items())
    optimum = mulligan.optimum("leduc", params={"opponent": spec, "seat": 2}, episodes=2)
    room = room_of(GAME, opponents, seat=2, hands=2)
    assert optimum.best.returns == pytest.approx(room.by_hand)
    assert optimum.alone.value() == pytest.approx(room.static)
    assert optimum.clairvoyant.value() == pytest.approx(room.clairvoyant)


def test_shares_of_the_room() -> None:
    """What memory can add to the best play without it; there is none at the first hand."""
    room = Room(equilibrium=0.0, static=0.1, by_hand=[0.1, 0.2, 0.3], clairvoyant=0.4)
    assert room.share([0.0, 0.15, 0.3]) == [None, pytest.approx(0.5), pytest.approx(1.0)]


def played_hand(tree: Any, names: tuple[str, ...], name: str, rng: random.Random, actions: dict[str, int]) -> str:
    """The ending of a hand that is played in OpenSpiel's game."""
    from mulligan.envs.adapters.spiel_hand import ending_key

    state = pyspiel.load_game(GAME).new_initial_state()
    while not state.is_terminal():
        if state.is_chance_node():
            chances = dict(state.chance_outcomes())
        elif state.current_player() == tree.player:
            chances = {actions[state.information_state_string()]: 1.0}
        else:
            chances = dict(tree.habits[names.index(name)](state))
        state.apply_action(rng.choices([*chances], [*chances.values()])[0])
    return ending_key(state, tree.player)


@pytest.mark.slow
def test_leduc_played_by_somebody_who_updates_earns_the_same() -> None:
    """Trials with sampled hands, each valued exactly: the mean of 300 myopic ones within four standard errors."""
    tree, rng = hand_tree(GAME, 1, LEDUC), random.Random(0)
    responses: dict[bytes, dict[str, int]] = {}
    values: list[list[float]] = []
    against = {}
    for number in range(300):
        name, belief = LEDUC[number % 5], np.full(5, 0.2)
        values.append([])
        for _ in range(3):
            key = belief.round(9).tobytes()
            if key not in responses:
                responses[key] = tree.best_response(belief)[1]
                against[key] = tree.value({state: {move: 1.0} for state, move in responses[key].items()})
            values[-1].append(against[key][LEDUC.index(name)])
            ending = played_hand(tree, LEDUC, name, rng, responses[key])
            belief = belief * tree.reach[tree.ending_numbers[ending]]
            belief /= belief.sum()
    expected = values_by_hand(tree, np.full(5, 0.2), 3, gamma_traj=0.0)
    means, errors = np.mean(values, axis=0), np.std(values, axis=0) / np.sqrt(len(values))
    assert means[0] == pytest.approx(expected[0])
    # Ties of the myopic player may be broken otherwise than in the exact figure, and tell more or less.
    assert all(abs(means - expected) < 4 * errors + 0.01)


# Exploitability


def openspiels(game: str, policy: Any) -> float:
    tables = {state: list(chances.items()) for state, chances in policy.items()}
    return float(pyspiel.exploitability(pyspiel.load_game(game), pyspiel.TabularPolicy(tables)))


@pytest.mark.parametrize("name", HABITS)
def test_exploitability_in_kuhn_is_openspiels(name: str) -> None:
    policy = {state: dict(enumerate(chances)) for state, chances in opponent_table(name).items()}
    assert exploitability("kuhn_poker", policy) == pytest.approx(openspiels("kuhn_poker", policy), abs=1e-9)


def drawn_policy(game: str, seed: int) -> dict[str, dict[int, float]]:
    """Chances drawn at random, for both seats."""
    rng, policy = random.Random(seed), {}
    for state in equilibrium(game):
        actions = [*equilibrium(game)[state]]
        weights = [rng.random() ** 3 for _ in actions]
        policy[state] = {action: weight / sum(weights) for action, weight in zip(actions, weights, strict=True)}
    return policy


@pytest.mark.parametrize("game", ["kuhn_poker", GAME, pytest.param("leduc_poker", marks=pytest.mark.slow)])
def test_exploitability_of_known_policies_is_openspiels(game: str) -> None:
    uniform = {state: dict.fromkeys(chances, 1 / len(chances)) for state, chances in equilibrium(game).items()}
    for policy in (uniform, drawn_policy(game, 0), equilibrium(game)):
        assert exploitability(game, policy) == pytest.approx(openspiels(game, policy), abs=1e-9)
    assert exploitability(game, equilibrium(game)) < 0.006


def test_exploitability_of_one_seat() -> None:
    """Kuhn: who always bets in the first seat pays 2 chips to a King, and folds nobody but a Jack: the second wins
    (2 + 2) / 6 with K, loses and wins 2 with Q, and loses the ante with J: (4 + 0 - 2) / 6 = 1/3. In equilibrium the
    second seat wins 1/18."""
    bets = {state: {0: 0.0, 1: 1.0} for state in equilibrium("kuhn_poker")}
    assert best_response_value("kuhn_poker", bets, 2) == pytest.approx(1 / 3)
    assert exploitability("kuhn_poker", bets, seat=1) == pytest.approx(1 / 3 - 1 / 18, abs=0.001)


def test_a_policy_is_worth_against_an_opponent_what_a_walk_through_the_game_says() -> None:
    from mulligan.envs.adapters.spiel_opponents import habits_of

    policy = drawn_policy(GAME, 1)

    def walk(state: Any, seat: int, opponent: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[seat - 1])
        if state.is_chance_node():
            chances = dict(state.chance_outcomes())
        else:
            is_agent = state.current_player() == seat - 1
            chances = policy[state.information_state_string()] if is_agent else opponent(state)
        return sum(chance * walk(state.child(action), seat, opponent) for action, chance in chances.items() if chance)

    for seat, name in itertools.product((1, 2), LEDUC):
        expected = walk(pyspiel.load_game(GAME).new_initial_state(), seat, habits_of(GAME)[name])
        assert value_against(GAME, policy, seat, name) == pytest.approx(expected)


def test_the_table_has_the_rooms_of_both_games() -> None:
    rows = [row.split(" | ") for row in table(hands=3).splitlines()]
    assert rows[0][2:] == ["equilibrium", "static", "hand 1", "hand 2", "hand 3", "clairvoyant |"]
    assert rows[2][:2] == ["| kuhn, MAGE's habits", "1"]
    assert rows[2][3:] == ["0.056", "0.056", "0.185", "0.235", "0.278 |"]
    assert rows[6][3:] == ["1.688", "1.688", "1.857", "1.943", "2.004 |"]
