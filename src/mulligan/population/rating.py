"""Ratings with uncertainty: Glicko-2, of agents, their snapshots and scripted opponents, from all games.

Glickman's own description has the method and an example, which the tests hold it against
(glicko.net/glicko/glicko2.pdf). A rating period is a round, whose games count by their number and the share of points.
Ours and not a library's, because it is a page, and because ratings are then a pure function of the log of games: a
resumed run has the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SCALE, CENTRE = 173.7178, 1500.0
TAU = 0.5
"""How fast a volatility may change; Glickman advises 0.3 to 1.2."""
_MOST_VOLATILE = 0.5
"""About 90 points a round. Where two that learn change by more between rounds of many games, it would grow for ever."""
_CLOSE = 1e-6
_STEPS = 100
"""Of Newton's method and, where it goes too far, of bisection: more than are ever needed."""


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
    """The rating after a period; without games the deviation grows.

    Glickman takes one step from the rating towards the likeliest one. With the hundreds of games of a round that step
    goes too far, and the next one further back: here it is the likeliest rating itself.
    """
    mu, phi = (rating.value - CENTRE) / SCALE, rating.deviation / SCALE
    if not results:
        return rating._replace(deviation=min(350.0, SCALE * math.hypot(phi, rating.volatility)))
    mode, information = _likeliest(mu, phi, results)
    variance = 1.0 / max(information, _CLOSE)
    volatility = _volatility(rating.volatility, phi, variance, (mode - mu) * (1.0 + variance / phi**2))
    volatility = min(volatility, _MOST_VOLATILE)
    phi = math.hypot(phi, volatility)
    mode, information = _likeliest(mu, phi, results)
    return Rating(CENTRE + SCALE * mode, SCALE / math.sqrt(1.0 / phi**2 + information), volatility)


def _likeliest(mu: float, phi: float, results: Sequence[Result]) -> tuple[float, float]:
    """Where games and the rating before them balance, and how much the games tell there (Fisher's information)."""

    def slope_and_information(at: float) -> tuple[float, float]:
        """The slope of the log-likelihood, and its information."""
        slope = information = 0.0
        for opponent, games, score in results:
            weight = 1.0 / math.sqrt(1.0 + 3.0 * (opponent.deviation / SCALE) ** 2 / math.pi**2)
            expected = 0.5 + 0.5 * math.tanh(0.5 * weight * (at - (opponent.value - CENTRE) / SCALE))
            slope += games * weight * (score - expected)
            information += games * weight**2 * expected * (1.0 - expected)
        return slope, information

    reach = phi**2 * sum(games for _, games, _ in results)
    low, high, at = mu - reach, mu + reach, mu  # the balance falls from low to high
    for _ in range(_STEPS):
        slope, information = slope_and_information(at)
        balance = slope - (at - mu) / phi**2
        low, high = (at, high) if balance > 0.0 else (low, at)
        before, at = at, at + balance / (information + 1.0 / phi**2)
        if not low <= at <= high:  # Newton's step leaves what is known to hold the balance
            at = (low + high) / 2.0
        if abs(at - before) < _CLOSE:
            break
    return at, slope_and_information(at)[1]


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
