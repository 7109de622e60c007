"""Kuhn poker's payoffs, tables and values, against OpenSpiel and by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kuhn_hands import DEALS, J, K, Q, best_response_value
from mulligan.envs.kuhn.guesses import Guess, best_value
from mulligan.envs.kuhn.habits import HABITS, opponent_table
from mulligan.envs.kuhn.rules import payoff

pyspiel = pytest.importorskip("pyspiel")

ENDINGS = ("pp", "pbp", "pbb", "bp", "bb")


def dealt(cards: tuple[int, int], betting: str = "") -> Any:
    state = pyspiel.load_game("kuhn_poker").new_initial_state()
    for action in (*cards, *("pb".index(move) for move in betting)):
        state.apply_action(action)
    return state


# The game and its values


@pytest.mark.parametrize(
    ("cards", "betting", "first_wins"),
    [
        ((K, J), "pp", 1),  # two passes: the better card wins the ante
        ((J, K), "pp", -1),
        ((K, J), "bb", 2),  # bet and call: ante and bet
        ((Q, K), "bb", -2),
        ((J, K), "bp", 1),  # the second folds, whatever the cards
        ((K, J), "pbp", -1),  # the first folds to a bet, whatever the cards
        ((Q, J), "pbb", 2),
        ((J, Q), "pbb", -2),
    ],
)
def test_payoffs_by_hand(cards: tuple[int, int], betting: str, first_wins: int) -> None:
    assert payoff(betting, 1, *cards) == first_wins
    assert payoff(betting, 2, *reversed(cards)) == -first_wins
    assert dealt(cards, betting).returns() == [first_wins, -first_wins]


def test_every_ending_pays_as_openspiel_says() -> None:
    for (first, second), betting in itertools.product(DEALS, ENDINGS):
        state = dealt((first, second), betting)
        assert state.is_terminal()
        assert [payoff(betting, 1, first, second), payoff(betting, 2, second, first)] == state.returns()


def decision_states() -> set[str]:
    return {dealt(cards, betting).information_state_string() for cards in DEALS for betting in ("", "p", "b", "pb")}


@pytest.mark.parametrize("name", HABITS)
def test_tables_cover_the_twelve_information_states(name: str) -> None:
    table = opponent_table(name)
    assert set(table) == decision_states()
    assert len(table) == 12  # 3 cards x (2 bettings for each of 2 seats)
    for passing, betting in table.values():
        assert passing + betting == pytest.approx(1.0)
        assert 0.0 <= passing <= 1.0


def test_intermediate_is_half_way_between_conservative_and_aggressive() -> None:
    for betting, chances in HABITS["soft-intermediate"].items():
        ends = zip(HABITS["soft-conservative"][betting], HABITS["soft-aggressive"][betting], strict=True)
        assert chances == pytest.approx([(low + high) / 2 for low, high in ends])


def value_of(first: Any, second: Any) -> float:
    """Chips the first player wins when the two play these tables, by walking OpenSpiel's tree."""

    def walk(state: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[0])
        chances = (first, second)[state.current_player()][state.information_state_string()]
        return sum(chance * walk(state.child(action)) for action, chance in enumerate(chances) if chance > 0)

    return sum(walk(dealt(cards)) for cards in DEALS) / len(DEALS)


def test_the_equilibrium_is_the_average_policy_of_cfr() -> None:
    solver = pyspiel.CFRSolver(pyspiel.load_game("kuhn_poker"))
    for _ in range(1000):
        solver.evaluate_and_update_policy()
    average = solver.tabular_average_policy().policy_table()
    assert opponent_table("cfr") == {
        state: pytest.approx((passing, betting), abs=1e-12) for state, ((_, passing), (_, betting)) in average.items()
    }


def test_equilibrium_is_worth_minus_one_eighteenth_and_is_hardly_exploitable() -> None:
    table = opponent_table("cfr")
    assert value_of(table, table) == pytest.approx(-1 / 18, abs=0.001)
    assert (best_response_value(table, 1) + best_response_value(table, 2)) / 2 <= 0.005
    # Kuhn 1950: with a Jack the first player bets some share a <= 1/3, with a King 3a; the second calls a bet with a
    # Queen, and bluffs with a Jack after a pass, one time in three.
    assert table["2"][1] == pytest.approx(3 * table["0"][1], abs=0.02)
    assert table["1b"][1] == pytest.approx(1 / 3, abs=0.02)
    assert table["0p"][1] == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("name", HABITS)
def test_exploitability_agrees_with_openspiel(name: str) -> None:
    table = opponent_table(name)
    policy = pyspiel.TabularPolicy({state: list(enumerate(chances)) for state, chances in table.items()})
    ours = (best_response_value(table, 1) + best_response_value(table, 2)) / 2
    assert ours == pytest.approx(pyspiel.exploitability(pyspiel.load_game("kuhn_poker"), policy), abs=1e-9)


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("name", HABITS)
def test_best_response_is_the_best_of_all_pure_strategies(name: str, seat: int) -> None:
    table = opponent_table(name)
    own = sorted(state for state in table if len(state[1:]) % 2 == seat - 1)
    assert len(own) == 6
    values = []
    for actions in itertools.product((0, 1), repeat=6):  # all 64
        pure = {state: (1.0 - action, float(action)) for state, action in zip(own, actions, strict=True)}
        values.append(value_of(pure, table) if seat == 1 else -value_of(table, pure))
    assert best_response_value(table, seat) == pytest.approx(max(values))


def test_best_response_to_random_by_hand() -> None:
    # First seat. K: bet, called half the time: (2 + 1) / 2 = 1.5. Q: bet, folded to half the time, and a call is even:
    # 1 / 2 = 0.5. J: bet, folded to half the time: (1 - 2) / 2 = -0.5. Mean over the three cards: 0.5.
    assert best_response_value(opponent_table("random"), 1) == pytest.approx(0.5)


def test_knowing_the_card_is_worth_more_than_not_knowing_it() -> None:
    # First seat with Q against random. Opponent J: bet wins (2 + 1) / 2 = 1.5. Opponent K: bet (1 - 2) / 2 = -0.5;
    # pass, then fold: -1 either way. So -0.5. Second seat with Q, the opponent has bet with K: fold, -1.
    table = opponent_table("random")
    assert best_value(1, Q, "", [Guess(table, J, 1.0)]) == pytest.approx(1.5)
    assert best_value(1, Q, "", [Guess(table, K, 1.0)]) == pytest.approx(-0.5)
    assert best_value(2, Q, "b", [Guess(table, K, 1.0)]) == -1.0
    assert best_value(2, Q, "b", [Guess(table, J, 0.25)]) == 0.5  # calls and wins 2, weighted by a quarter
