"""How often 95 % intervals over seeds and tasks hold the truth, by simulation, in percent (docs/maths.md).

First model: task and seed make an attempt harder or easier on the log-odds scale, each by a normal deviate,
logit p = μ + a_seed + b_task. Compared: Wilson's interval over all trials as if they were independent, the bootstrap
over seeds and tasks, and the interval that results are given with (`mulligan.eval.intervals`), of which the mean half
width stands beside. Last, paired differences between two methods that share the tasks' difficulty.

Another model, which the constants of `mulligan.eval.intervals` were not and must not be tuned on: tasks' chances are
Beta-distributed, seeds shift them evenly up or down, and each seed finds other tasks easy. Lists are of 128 and 512
tasks, worlds of one and two tasks.

    python results/intervals/coverage.py > results/intervals/coverage.txt
"""

from __future__ import annotations

import math
import sys
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from mulligan.eval.intervals import Values, difference, share_interval
from mulligan.eval.passk import Interval, wilson

Rows = list[dict[str, Any]]
SHARES = (0.05, 0.2, 0.5, 0.8, 0.95)
SEED_DEVIATIONS = (0.0, 0.1, 0.3)
"""On the log-odds scale: at p = 0.5, up to about 4 points between seeds."""
TASK_DEVIATION = 2.0
TASKS = 512
_SAMPLES = 300


def on_first_model(simulations: int = 500) -> Rows:
    """A row for each number of seeds, seed deviation and share."""
    rng = np.random.default_rng(0)
    rows: Rows = []
    for seeds in (1, 3, 5):
        for deviation in SEED_DEVIATIONS[: 1 if seeds == 1 else None]:  # one seed: the interval is about this agent
            for share in SHARES:
                held = _held(rng, share, seeds, deviation, simulations)
                rows.append({"seeds": seeds, "deviation": f"{deviation}", "p": f"{share}", **held})
    return rows


def _held(rng: np.random.Generator, share: float, seeds: int, deviation: float, simulations: int) -> dict[str, Any]:
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


INTERACTION = 0.3
"""The largest shift of a single task by a seed."""


def on_another_model(simulations: int = 400) -> Rows:
    """A row for each number of seeds, over all cells of the model."""
    rng = np.random.default_rng(20261117)
    rows: Rows = []
    for seeds in (1, 2, 3, 5):
        shifts = (0.0,) if seeds == 1 else (0.0, 0.1, 0.3)
        cells = product((128, 512), (0.08, 0.35, 0.9), (0.5, 3.0), shifts, (1, 2))
        held = np.array([_cell(rng, seeds, simulations, cell) for cell in cells])
        for name, shares in zip(("shares", "differences"), held.T, strict=True):
            inside = float(100 * ((shares >= 93) & (shares <= 97)).mean())
            spread = {"lowest": float(shares.min()), "mean": float(shares.mean()), "highest": float(shares.max())}
            rows.append({"seeds": seeds, "of": name, "cells": len(shares), **spread, "% of cells in 93–97": inside})
    return rows


def _cell(
    rng: np.random.Generator, seeds: int, simulations: int, cell: tuple[int, float, float, float, int]
) -> list[float]:
    """How often the intervals of a share and of a difference between equals hold the truth, in percent."""
    tasks, share, evenness, shift, size = cell
    worlds = np.repeat(np.arange(tasks // size), size)
    held = np.zeros(2)
    for _ in range(simulations):
        chances = np.repeat(rng.beta(share * evenness, (1 - share) * evenness, size=tasks // size), size)
        first, second = (_simulate_shifted(rng, seeds, chances, shift) for _ in range(2))
        low, high = share_interval(first, worlds.tolist())
        lower, upper = difference(first, second, worlds.tolist())[1]
        held += [low <= share <= high, lower <= 0 <= upper]
    percent: list[float] = (100 * held / simulations).tolist()
    return percent


def _simulate_shifted(rng: np.random.Generator, seeds: int, chances: Values, shift: float) -> Values:
    """Outcomes [seed, task]; shifts are largest where a task is solved half of the time, and cancel over seeds."""
    shifts = rng.uniform(-shift, shift, size=(seeds, 1))
    shifts = shifts + rng.uniform(-INTERACTION, INTERACTION, size=(seeds, len(chances)))
    shifted = np.clip(chances + 2 * shifts * chances * (1 - chances), 0, 1)
    return (rng.random((seeds, len(chances))) < shifted).astype(float)


def main() -> None:
    for title, rows in (("first model", on_first_model()), ("another model", on_another_model())):
        lines = [[title], list(rows[0])]
        for row in rows:
            lines.append([f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row.values()])
        sys.stdout.write("".join("\t".join(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
