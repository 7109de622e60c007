"""What the games on OpenSpiel share: the optional import, seats, and a match whose other side moves by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from mulligan.errors import MissingExtra, ParameterError
from mulligan.types import ParamValue

State = Any
"""A ``pyspiel.State``; the library carries no types."""
Move = Callable[[State], int]
"""Who moves for the other side: a state in, an action out."""
Choice = TypeVar("Choice")


def spiel(env: str) -> Any:
    """The module ``pyspiel``, imported only now; `env` names who needs it where it is not installed."""
    try:
        import pyspiel
    except ImportError:
        raise MissingExtra(env, "games") from None
    return pyspiel


@lru_cache(maxsize=8)
def load_game(env: str, name: str) -> Any:
    """OpenSpiel's game `name`, one object for the whole process."""
    return spiel(env).load_game(name)


def settle_seat(env: str, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
    """`params` with a concrete seat: 0 becomes 1 for an even seed and 2 for an odd one."""
    seat = int(params["seat"])
    if seat not in (0, 1, 2):
        raise ParameterError(f"{env}: seat={seat} does not exist; give 1 or 2, or 0 to let the seed decide")
    return {**params, "seat": seat or 1 + seed % 2}


def draw(rng: random.Random, chances: Sequence[float]) -> int:
    """An index, drawn with these chances.

    Only `random()` is used here and in `pick`: it is the one stream that Python promises not to change.
    """
    left = rng.random() * sum(chances)
    for index, chance in enumerate(chances):
        left -= chance
        if left < 0.0:
            return index
    return max(index for index, chance in enumerate(chances) if chance > 0.0)  # rounding ate the last sliver


def pick(rng: random.Random, options: Sequence[Choice]) -> Choice:
    """One of the options, all with equal chances."""
    return options[int(rng.random() * len(options))]


class Match:
    """One game in progress, seen from `seat` (1 or 2): after every move the state waits for that seat, or is over."""

    def __init__(self, game: Any, seat: int, opponent: Move, rng: random.Random) -> None:
        self.seat, self.opponent, self.rng = seat, opponent, rng
        self.state: State = game.new_initial_state()
        self._advance()

    @property
    def over(self) -> bool:
        return bool(self.state.is_terminal())

    @property
    def reward(self) -> float:
        """What the game has paid the seat so far; in most, 0 while it lasts."""
        return float(self.state.player_return(self.seat - 1))

    def play(self, action: int) -> None:
        """Make the seat's own move, then whatever chance and the opponent answer."""
        self.state.apply_action(action)
        self._advance()

    def _advance(self) -> None:
        state = self.state
        while not state.is_terminal() and state.current_player() != self.seat - 1:
            if state.is_chance_node():
                actions, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(actions[draw(self.rng, chances)])
            else:
                state.apply_action(self.opponent(state))
