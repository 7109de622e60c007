"""Opponents in games of OpenSpiel: from a state to the chances of the opponent's actions.

Some games have opponents with habits of their own, by name. Small games can be solved: where nothing is hidden and no
dice are thrown, by looking at every position; otherwise by counterfactual regret minimisation (CFR, Zinkevich et al.
2007), whose average policy is close to an equilibrium.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mulligan.envs import tictactoe
from mulligan.envs.adapters import leduc_habits
from mulligan.envs.base import library
from mulligan.envs.kuhn import habits as kuhn_habits
from mulligan.errors import ParameterError

Habit = Callable[[Any], Mapping[int, float]]
"""From a state in which the opponent is to move to the chances of its actions, which add up to 1."""
_MOST_STATES = 50_000
"""Of a game that is solved: a few seconds."""
_LONGEST = 200
"""Moves of a game that is solved."""
_ITERATIONS = 200
"""Of CFR. In Leduc poker its average policy then loses .03 chips a hand to the best answer."""


def random_habit(state: Any) -> Mapping[int, float]:
    actions = state.legal_actions()
    return dict.fromkeys(actions, 1 / len(actions))


def _kuhn_habit(name: str) -> Habit:
    table = kuhn_habits.opponent_table(name)
    return lambda state: dict(enumerate(table[state.information_state_string()]))


def _tictactoe_habit(name: str) -> Habit:
    cells = tictactoe.HABITS[name].cells
    return lambda state: dict.fromkeys(cells(str(state)), 1.0)


_HABITS: Mapping[str, Mapping[str, Habit]] = {
    "leduc_poker": leduc_habits.HABITS,
    "kuhn_poker": {
        name: _kuhn_habit(name) for name in (*kuhn_habits.HABITS, *kuhn_habits.DRAWN, *kuhn_habits.VALIDATION)
    },
    "tic_tac_toe": {name: _tictactoe_habit(name) for name in tictactoe.PREFERRED},
}


def habits_of(game: str) -> Mapping[str, Habit]:
    """The opponents of a game by name; `game` may have parameters in brackets."""
    return {"random": random_habit, **_HABITS.get(game.partition("(")[0], {})}


def shown_card(state: Any, player: int) -> int | None:
    """In a game that has ended, the card of a player of Kuhn or Leduc poker, if a showdown has shown it."""
    name, history = state.get_game().get_type().short_name, state.history()
    folded = {"kuhn_poker": history[-2:] == [1, 0], "leduc_poker": history[-1] == leduc_habits.FOLD}
    return None if folded.get(name, True) else history[player]


@lru_cache(maxsize=8)
def solved(env: str, game_name: str) -> Habit:
    """An opponent that plays a small game well: minimax where nothing is hidden, else a sample of CFR's average."""
    spiel = library("pyspiel", env, extra="games")
    game = spiel.load_game(game_name)
    kinds, kind = spiel.GameType, game.get_type()
    if kind.utility != kinds.Utility.ZERO_SUM or game.max_game_length() > _LONGEST:
        raise ParameterError(f"{env}: this game cannot be solved; name another opponent")
    if kind.information != kinds.Information.PERFECT_INFORMATION:
        _refuse_large(env, game)
        solver = spiel.CFRSolver(game)
        for _ in range(_ITERATIONS):
            solver.evaluate_and_update_policy()
        # The policy looks into the solver, which must live as long.
        return lambda state: dict(sorted(solver.average_policy().action_probabilities(state).items()))
    if kind.chance_mode != kinds.ChanceMode.DETERMINISTIC:
        raise ParameterError(f"{env}: a game with dice cannot be solved; name another opponent than minimax")
    return _minimax(env, game)


def _minimax(env: str, game: Any) -> Habit:
    """All moves that keep the value of a position have equal chances."""
    values: dict[str, float] = {}

    def value(state: Any) -> float:
        """For the first player."""
        if state.is_terminal():
            return float(state.returns()[0])
        position = f"{state.current_player()} {state}"
        if position not in values:
            best = (max, min)[state.current_player()]
            values[position] = best(value(state.child(action)) for action in state.legal_actions())
            if len(values) > _MOST_STATES:
                raise _too_large(env)
        return values[position]

    def habit(state: Any) -> Mapping[int, float]:
        return dict.fromkeys((a for a in state.legal_actions() if value(state.child(a)) == value(state)), 1.0)

    value(game.new_initial_state())
    return habit


def _refuse_large(env: str, game: Any) -> None:
    waiting, count = [game.new_initial_state()], 0
    while waiting:
        state = waiting.pop()
        count += 1
        if count > _MOST_STATES:
            raise _too_large(env)
        if not state.is_terminal():
            waiting += [state.child(action) for action in state.legal_actions()]


def _too_large(env: str) -> ParameterError:
    return ParameterError(f"{env}: a game of more than {_MOST_STATES:,} states is not solved; name another opponent")
