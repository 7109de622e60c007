"""How often 95 % intervals over seeds and tasks hold the truth, by simulation.

Task and seed make an attempt harder or easier on the log-odds scale, each by a normal deviate: logit p = μ + a_seed +
b_task. Compared: Wilson's interval over all trials as if they were independent, the bootstrap over seeds and tasks, and
the interval that results are given with (`mulligan.eval.intervals`), of which the mean half-width stands beside. Last,
differences between two methods that share the tasks' difficulty: paired, in the same interval.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from mulligan.app.bench import Cell, Report
from mulligan.eval.intervals import Values, difference, share_interval
from mulligan.eval.passk import Interval, wilson

SHARES = (0.05, 0.2, 0.5, 0.8, 0.95)
SEED_DEVIATIONS = (0.0, 0.1, 0.3)
"""On the log-odds scale: at p = 0.5, up to about 4 points between seeds."""
TASK_DEVIATION = 2.0
TASKS = 512
_SAMPLES = 300


def run(simulations: int = 500) -> Report:
    """A row for each number of seeds, seed deviation and share."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Cell]] = []
    for seeds in (1, 3, 5):
        for deviation in SEED_DEVIATIONS[: 1 if seeds == 1 else None]:  # one seed: the interval is about this agent
            for share in SHARES:
                held = _held(rng, share, seeds, deviation, simulations)
                rows.append({"seeds": seeds, "deviation": f"{deviation}", "p": f"{share}", **held})
    title = f"95 % intervals that held the truth, in percent: {simulations} simulations each, {TASKS} tasks"
    return Report(title, rows)


def _held(rng: np.random.Generator, share: float, seeds: int, deviation: float, simulations: int) -> dict[str, Cell]:
    """How often each kind of interval held the truth, in percent, and the mean half-width of ours."""
    sums, weights = np.zeros(5), _weights(rng, seeds)
    for _ in range(simulations):
        difficulty = TASK_DEVIATION * rng.standard_normal(TASKS)
        first, second = (simulate(rng, share, seeds, deviation, difficulty) for _ in range(2))
        interval = share_interval(first)
        gap = difference(first, second)[1]
        pooled = wilson(float(first.sum()), first.size)
        sums += [
            *(low <= share <= high for low, high in (pooled, _bootstrap(first, *weights), interval)),
            (interval[1] - interval[0]) / 2,
            gap[0] <= 0 <= gap[1],
        ]
    columns = ("pooled Wilson", "bootstrap", "ours", "± points", "difference")
    return dict(zip(columns, (100 * sums / simulations).tolist(), strict=True))


def simulate(rng: np.random.Generator, share: float, seeds: int, deviation: float, difficulty: Values) -> Values:
    """Outcomes [seed, task] of a method that solves `share` of all tasks in the mean over tasks and seeds."""
    odds = (
        _centre(share, math.hypot(deviation, TASK_DEVIATION)) + deviation * rng.standard_normal((seeds, 1)) + difficulty
    )
    return (rng.random((seeds, len(difficulty))) < 1 / (1 + np.exp(-odds))).astype(float)


@cache
def _centre(share: float, deviation: float) -> float:
    """The μ at which logit p = μ + deviation · normal has this mean, by bisection."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        mean = float((weights / (1 + np.exp(-middle - deviation * nodes))).sum() / weights.sum())
        low, high = (middle, high) if mean < share else (low, middle)
    return low


def _weights(rng: np.random.Generator, seeds: int) -> tuple[Values, Values]:
    """How often each seed and each task is drawn, as shares. [sample, seed], [sample, task]"""
    by_seed, by_task = (rng.multinomial(each, [1 / each] * each, size=_SAMPLES) / each for each in (seeds, TASKS))
    return by_seed, by_task


def _bootstrap(values: Values, by_seed: Values, by_task: Values) -> Interval:
    """The percentile interval where seeds and tasks are both drawn with replacement."""
    low, high = np.quantile((by_seed * (by_task @ values.T)).sum(axis=1), [0.025, 0.975])
    return (float(low), float(high))
