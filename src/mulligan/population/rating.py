"""Ratings with uncertainty: Glicko-2, of agents, their snapshots and scripted opponents, from all games.

Glickman's own description has the steps and an example that the tests repeat (glicko.net/glicko/glicko2.pdf). A rating
period is a round, whose games count by their number and the share of points. Ours and not a library's, because it is a
page, and because ratings are then a pure function of the log of games: a resumed run has the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SCALE, CENTRE = 173.7178, 1500.0
TAU = 0.5
"""How fast a volatility may change; Glickman advises 0.3 to 1.2."""
_CLOSE = 1e-6


class Rating(NamedTuple):
    """What is known of a player's strength."""

    value: float = CENTRE
    deviation: float = 350.0
    """About two of them to both sides hold the true strength 95 times in 100."""
    volatility: float = 0.06


class Result(NamedTuple):
    """Games of a player with an opponent in one period."""

    opponent: Rating
    games: float
    score: float
    """Share of points, a draw being half of one."""


def rated(rating: Rating, results: Sequence[Result]) -> Rating:
    """The rating after a period; without games the deviation grows."""
    mu, phi = (rating.value - CENTRE) / SCALE, rating.deviation / SCALE
    if not results:
        return rating._replace(deviation=min(350.0, SCALE * math.hypot(phi, rating.volatility)))
    information = gained = 0.0
    for opponent, games, score in results:
        weight = 1.0 / math.sqrt(1.0 + 3.0 * (opponent.deviation / SCALE) ** 2 / math.pi**2)
        expected = 1.0 / (1.0 + math.exp(-weight * (mu - (opponent.value - CENTRE) / SCALE)))
        information += games * weight**2 * expected * (1.0 - expected)
        gained += games * weight * (score - expected)
    variance = 1.0 / max(information, _CLOSE)
    volatility = _volatility(rating.volatility, phi, variance, variance * gained)
    phi = 1.0 / math.sqrt(1.0 / (phi**2 + volatility**2) + 1.0 / variance)
    return Rating(CENTRE + SCALE * (mu + phi**2 * gained), SCALE * phi, volatility)


def _volatility(sigma: float, phi: float, variance: float, delta: float) -> float:
    """The root of Glickman's f, by regula falsi in the Illinois form."""
    start = math.log(sigma**2)

    def f(x: float) -> float:
        total = phi**2 + variance + math.exp(x)
        return math.exp(x) * (delta**2 - total) / (2.0 * total**2) - (x - start) / TAU**2

    low, high = start, start - TAU
    if delta**2 > phi**2 + variance:
        high = math.log(delta**2 - phi**2 - variance)
    else:
        while f(high) < 0.0:
            high -= TAU
    f_low, f_high = f(low), f(high)
    while abs(high - low) > _CLOSE:
        middle = low + (low - high) * f_low / (f_high - f_low)
        f_middle = f(middle)
        if f_middle * f_high <= 0.0:
            low, f_low = high, f_high
        else:
            f_low /= 2.0
        high, f_high = middle, f_middle
    return math.exp(low / 2.0)


def after(ratings: Mapping[str, Rating], games: Iterable[tuple[str, str, int, float]]) -> dict[str, Rating]:
    """Everybody's rating after a period; games: (player, opponent, how many, the player's share of points)."""
    results: dict[str, list[Result]] = defaultdict(list)
    for player, opponent, count, score in games:
        results[player].append(Result(ratings.get(opponent, Rating()), count, score))
        results[opponent].append(Result(ratings.get(player, Rating()), count, 1.0 - score))
    return {name: rated(ratings.get(name, Rating()), results.get(name, [])) for name in sorted({*ratings, *results})}
