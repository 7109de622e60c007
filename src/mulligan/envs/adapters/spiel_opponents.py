"""Opponents in games of OpenSpiel that have habits: from a state to the chances of the opponent's actions, by game."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mulligan.envs import kuhn

Habit = Callable[[Any], Mapping[int, float]]
"""From a state in which the opponent is to move to the chances of its actions, which add up to 1."""
FOLD, CALL, RAISE = range(3)
"""Leduc poker's actions."""
JACK, QUEEN, KING = range(3)


def random_habit(state: Any) -> Mapping[int, float]:
    actions = state.legal_actions()
    return dict.fromkeys(actions, 1 / len(actions))


def leduc_ranks(state: Any, player: int) -> tuple[int, int | None]:
    """The rank of a player's card, and of the open one, if there is one yet; 0 to 2 for J, Q and K."""
    suits = 1 if state.get_game().get_parameters().get("suit_isomorphism") else 2
    cards = re.findall(r"\[(?:Private|Public): (\d+)\]", state.information_state_string(player))
    ranks = [int(card) // suits for card in cards]
    return ranks[0], ranks[1] if len(ranks) > 1 else None


def _leduc_habit(strong: tuple[int, ...], weak: tuple[int, ...]) -> Habit:
    """Does the first of these that is legal, with a King or a pair and with any other card."""

    def habit(state: Any) -> Mapping[int, float]:
        mine, public = leduc_ranks(state, state.current_player())
        legal = state.legal_actions()
        wanted = strong if mine in (KING, public) else weak
        return {next(action for action in wanted if action in legal): 1.0}

    return habit


def _kuhn_habit(name: str) -> Habit:
    table = kuhn.opponent_table(name)
    return lambda state: dict(enumerate(table[state.information_state_string()]))


_HABITS: Mapping[str, Mapping[str, Habit]] = {
    "leduc_poker": {
        "caller": _leduc_habit((CALL,), (CALL,)),
        "maniac": _leduc_habit((RAISE, CALL), (RAISE, CALL)),
        "rock": _leduc_habit((RAISE, CALL), (FOLD, CALL)),
        "bluffer": _leduc_habit((CALL,), (RAISE, CALL)),
    },
    "kuhn_poker": {name: _kuhn_habit(name) for name in kuhn.HABITS},
}


def habits_of(game: str) -> Mapping[str, Habit]:
    """The opponents of a game by name; `game` may have parameters in brackets."""
    return {"random": random_habit, **_HABITS.get(game.partition("(")[0], {})}


def shown_card(state: Any, player: int) -> int | None:
    """In a game that has ended, the card of a player of Kuhn or Leduc poker, if a showdown has shown it."""
    name, history = state.get_game().get_type().short_name, state.history()
    folded = {"kuhn_poker": history[-2:] == [1, 0], "leduc_poker": history[-1] == FOLD}
    return None if folded.get(name, True) else history[player]
