"""OpenSpiel's 43 bots for rock-paper-scissors, from the tournaments of 1999 and 2000, as opponents."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from mulligan.envs.base import library
from mulligan.envs.repeated.env import LONGEST
from mulligan.seeding import derive

BOTS = "bot:"


def _spiel() -> Any:
    return library("pyspiel", "an opponent bot:NAME", extra="games")


@cache
def bot_names() -> list[str]:
    """The bots of OpenSpiel."""
    return sorted(_spiel().roshambo_bot_names())


class Bot:
    """A bot of OpenSpiel, made anew for each match.

    The bots draw from C's ``random()``, one stream for the process: it is seeded before each throw, so that a match
    does not depend on others that are played at the same time. They are made for matches of 1,000 throws, as in the
    tournament, whatever the length of this one: made for fewer, ``greenberg`` writes beyond its memory.
    """

    _LOCK = threading.Lock()

    def __init__(self, name: str, seed: int) -> None:
        spiel, self.seed, self.throws = _spiel(), seed, 0
        self.state = _long_match().new_initial_state()
        self._seeded(lambda: self._make(spiel, name))

    def _make(self, spiel: Any, name: str) -> None:
        self.bot = spiel.make_roshambo_bot(1, name, LONGEST)

    def move(self) -> int:
        return int(self._seeded(lambda: self.bot.step(self.state)))

    def see(self, own: int, agents: int) -> None:
        self.state.apply_actions([agents, own])
        self.throws += 1

    def _seeded(self, function: Callable[[], Any]) -> Any:
        with self._LOCK:
            ctypes.CDLL(None).srandom(ctypes.c_uint(derive(self.seed, self.throws) % 2**32))
            return function()


@cache
def _long_match() -> Any:
    return _spiel().load_game(f"repeated_game(stage_game=matrix_rps(),num_repetitions={LONGEST},recall=1)")
