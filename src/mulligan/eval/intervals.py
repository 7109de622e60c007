"""95 % intervals over seeds and worlds: for shares, means, and differences between two methods on the same tasks.

Values are ``[seed, task]``. All seeds play the same tasks, so that seeds and worlds are crossed, and the variance of
the overall mean has a part of each (docs/maths.md has the formula and how often the interval held the truth):

worlds  the seeds' mean deviation, summed over the tasks of a world: what other tasks would change
seeds   the variance of the seeds' means, shrunk towards 0 where chance alone gives as much: what other seeds change

With one seed there is no part of the seeds: the interval is then about this one agent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mulligan.eval.passk import Z95, Interval, wilson

Values = NDArray[np.float64]
CHANCE = 0.75
"""With v the variance of the seeds' means and c what chance alone gives them, v − (0.75 c)² / v counts as the seeds'.
v − c would be unbiased, but three seeds that agree by luck then give too narrow an interval: it held the truth in 90 %
of the worst case simulated. Form and constant were picked among about forty variants by simulation (docs/maths.md)."""
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and tasks, and what its variance is made of."""

    mean: float
    by_seed: Values
    shared: Values
    """The worlds' parts in the mean's deviation, the mean over seeds. [world]"""
    seed_variance: float
    """Of one seed's mean beyond chance; 0 with one seed."""


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z: float = Z95  # the expansion of Cornish and Fisher: from here on it is right to three decimals
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def spread(values: Values, worlds: Sequence[int] | None = None) -> Spread:
    """The spread of `values` [seed, task]; NaN where nothing was played. `worlds` numbers the tasks' worlds."""
    seeds, tasks = values.shape
    played = ~np.isnan(values)
    counts = np.maximum(1, played.sum(axis=1, keepdims=True))
    by_seed = np.where(played, values, 0.0).sum(axis=1, keepdims=True) / counts
    deviations = np.where(played, values - by_seed, 0.0) / counts
    _, number = np.unique(np.arange(tasks) if worlds is None else np.asarray(worlds), return_inverse=True)
    by_world = np.array([np.bincount(number, weights=deviation) for deviation in deviations])
    shared = by_world.mean(axis=0)
    variance = 0.0
    if seeds > 1:
        chance = float(np.square(by_world - shared).sum()) / (seeds - 1)
        observed = float(by_seed.var(ddof=1))
        variance = max(0.0, observed - (CHANCE * chance) ** 2 / observed) if observed > 0 else 0.0
    return Spread(float(by_seed.mean()), by_seed[:, 0], shared, variance)


def share_interval(solved: Values, worlds: Sequence[int] | None = None, *, effect: float = 1.0) -> Interval:
    """Wilson's interval for the mean of ones and zeros [seed, task], as for so many independent trials as have its
    variance. `effect` is the `design_effect` of related tasks."""
    seeds, tasks = solved.shape
    parts = spread(solved, worlds)
    binomial = parts.mean * (1 - parts.mean) / (seeds * tasks)
    if binomial <= 0 or len(parts.shared) < 2:  # nothing tells how worlds differ: worth one trial a world
        return wilson(parts.mean * tasks, tasks, effect=max(effect, tasks / len(parts.shared)))
    variance = effect * float(np.square(parts.shared).sum())
    if seeds > 1:
        variance += (student(seeds - 1) / Z95) ** 2 * parts.seed_variance / seeds
    return wilson(parts.mean * seeds * tasks, seeds * tasks, effect=max(1.0, variance / binomial))


def interval_of_mean(
    values: Values, worlds: Sequence[int] | None = None, *, effect: float = 1.0
) -> tuple[float, Interval]:
    """The mean of `values` [seed, task] and its interval; both are infinite where one value is all there is."""
    parts = spread(values, worlds)
    half = _half(parts.shared, parts.seed_variance / len(parts.by_seed), len(parts.by_seed) - 1, effect)
    return (parts.mean, (parts.mean - half, parts.mean + half))


def weighted(values: Values, strata: Sequence[int], weights: Sequence[float]) -> Values | None:
    """Values [seed, task] whose mean gives each stratum its weight, and whose spread is that within strata.

    strata: [task] number of its stratum; weights: [stratum], with the sum 1. With c a value's stratum, of n_c values
    with the mean m_c, and M = Σ w_c·m_c, the value x of N becomes M + f·w_c·√(N / n_c)·(x - m_c), where
    f² = (N - 1) / (n_c - 1). The mean of these is M, and the variance of their mean Σ w_c²·s_c² / n_c. None where a
    stratum has fewer than two values.
    """
    number, result = np.asarray(strata), np.full(values.shape, np.nan)
    for row, out in zip(values, result, strict=True):
        played = ~np.isnan(row)
        counts = np.bincount(number[played], minlength=len(weights))
        if counts.min(initial=2) < 2:
            return None
        means = np.bincount(number[played], weights=row[played], minlength=len(weights)) / counts
        total = played.sum()
        factors = np.asarray(weights) * np.sqrt(total * (total - 1) / counts / (counts - 1))
        out[played] = means @ weights + (factors[number] * (row - means[number]))[played]
    return result


def difference(
    first: Values, second: Values, worlds: Sequence[int] | None = None, *, same_seeds: bool = True, effect: float = 1.0
) -> tuple[float, Interval]:
    """Mean of first − second, both [seed, task] on the same tasks, with its interval.

    With `same_seeds`, rows belong together too. Otherwise the variance of a seed's mean is pooled over both sides;
    where each side has but one seed, the interval is about these two agents alone.
    """
    if same_seeds:
        return interval_of_mean(first - second, worlds, effect=effect)
    sides = [spread(first, worlds), spread(second, worlds)]
    counts = [len(side.by_seed) for side in sides]
    freedom = sum(counts) - 2
    pooled = sum((count - 1) * side.seed_variance for count, side in zip(counts, sides, strict=True)) / max(1, freedom)
    half = _half(sides[0].shared - sides[1].shared, pooled * sum(1 / count for count in counts), freedom, effect)
    mean = sides[0].mean - sides[1].mean
    return (mean, (mean - half, mean + half))


def _half(shared: Values, seed_variance: float, freedom: int, effect: float) -> float:
    """Half an interval: the parts of worlds and of seeds, each with the quantile of its degrees of freedom."""
    worlds = len(shared)
    if worlds < 2:
        return math.inf
    of_worlds = effect * float(np.square(shared).sum()) * worlds / (worlds - 1) * student(worlds - 1) ** 2
    of_seeds = seed_variance * student(freedom) ** 2 if freedom > 0 else 0.0
    return math.sqrt(of_worlds + of_seeds)


def solved_within(outcomes: Sequence[Sequence[Any]], k: int) -> Values:
    """Outcomes of a solve-type task -> 1 where one of the first k attempts was won, else 0. [task]"""
    return np.array([float(any(row[:k])) for row in outcomes])


def returns_in(outcomes: Sequence[Sequence[Any]], n: int) -> Values:
    """Outcomes of games -> the return of episode n; NaN where it was not played. [task]"""
    return np.array([math.nan if row[n] is None else float(row[n]) for row in outcomes])


def over_seeds(summaries: Sequence[Mapping[str, Any]], *, versus: bool = False) -> list[Interval] | None:
    """The intervals of p@1 … p@N, or of games' returns, over the seeds whose summaries these are.

    None where there are no outcomes (results of earlier versions) or the seeds have not played the same tasks.
    """
    if not all(each.get("outcomes") for each in summaries) or len({each["tasks_digest"] for each in summaries}) > 1:
        return None
    worlds, trials = summaries[0]["worlds"], summaries[0]["trials"]
    effects = [max(trials / each["effective"][k] for each in summaries) for k in range(len(summaries[0]["p"]))]
    if versus:
        games = [np.array([returns_in(each["outcomes"], n) for each in summaries]) for n in range(len(effects))]
        games = [each[~np.isnan(each).all(axis=1)] for each in games]  # a seed may not have come so far
        return [
            interval_of_mean(each, worlds, effect=effect)[1] if len(each) else (math.nan, math.nan)
            for each, effect in zip(games, effects, strict=True)
        ]
    solved = [np.array([solved_within(each["outcomes"], k) for each in summaries]) for k in range(1, len(effects) + 1)]
    return [share_interval(each, worlds, effect=effect) for each, effect in zip(solved, effects, strict=True)]
