"""What games against an opponent share: seats, and draws that are the same in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from mulligan.errors import ParameterError
from mulligan.types import ParamValue

Choice = TypeVar("Choice")
ORDER = ("", "first", "second")
"""Seat -> when it moves."""


def settle_seat(env: str, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
    """`params` with a concrete seat: 0 becomes 1 for an even seed and 2 for an odd one."""
    seat = int(params["seat"])
    if seat not in (0, 1, 2):
        raise ParameterError(f"{env}: seat must be 1 or 2, or 0 to let the seed decide (got {seat})")
    return {**params, "seat": seat or 1 + seed % 2}


def draw(rng: random.Random, chances: Sequence[float]) -> int:
    """An index, drawn with these chances.

    `draw` and `pick` use `random()` alone: Python promises not to change that stream.
    """
    remaining = rng.random() * sum(chances)
    for index, chance in enumerate(chances):
        remaining -= chance
        if remaining < 0.0:
            return index
    return max(index for index, chance in enumerate(chances) if chance > 0.0)  # rounding ate the last sliver


def pick(rng: random.Random, options: Sequence[Choice]) -> Choice:
    """One of the options, all with equal chances."""
    return options[int(rng.random() * len(options))]
