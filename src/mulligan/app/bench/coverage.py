"""How often 95 % intervals hold the truth on a model that they were not chosen on: a check beside ``bench intervals``.

Tasks' chances are Beta-distributed, seeds shift them evenly up or down, and each seed finds other tasks easy. Lists are
of 128 and 512 tasks, worlds of one and two tasks. The constants of `mulligan.eval.intervals` must not be tuned on this.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from mulligan.app.bench import Cell, Report
from mulligan.eval.intervals import Values, difference, share_interval

INTERACTION = 0.3
"""The largest shift of a single task by a seed."""


def run(simulations: int = 400) -> Report:
    """A row for each number of seeds, over all cells of the model."""
    rng = np.random.default_rng(20261117)
    rows: list[dict[str, Cell]] = []
    for seeds in (1, 2, 3, 5):
        shifts = (0.0,) if seeds == 1 else (0.0, 0.1, 0.3)
        cells = product((128, 512), (0.08, 0.35, 0.9), (0.5, 3.0), shifts, (1, 2))
        held = np.array([_cell(rng, seeds, simulations, cell) for cell in cells])
        for name, shares in zip(("shares", "differences"), held.T, strict=True):
            inside = float(100 * ((shares >= 93) & (shares <= 97)).mean())
            spread = {"lowest": float(shares.min()), "mean": float(shares.mean()), "highest": float(shares.max())}
            rows.append({"seeds": seeds, "of": name, "cells": len(shares), **spread, "% of cells in 93–97": inside})
    return Report("95 % intervals that held the truth, in percent, on another model", rows)


def _cell(
    rng: np.random.Generator, seeds: int, simulations: int, cell: tuple[int, float, float, float, int]
) -> list[float]:
    """How often the intervals of a share and of a difference between equals hold the truth, in percent."""
    tasks, share, evenness, shift, size = cell
    worlds = np.repeat(np.arange(tasks // size), size)
    held = np.zeros(2)
    for _ in range(simulations):
        chances = np.repeat(rng.beta(share * evenness, (1 - share) * evenness, size=tasks // size), size)
        first, second = (_simulate(rng, seeds, chances, shift) for _ in range(2))
        low, high = share_interval(first, worlds.tolist())
        lower, upper = difference(first, second, worlds.tolist())[1]
        held += [low <= share <= high, lower <= 0 <= upper]
    percent: list[float] = (100 * held / simulations).tolist()
    return percent


def _simulate(rng: np.random.Generator, seeds: int, chances: Values, shift: float) -> Values:
    """Outcomes [seed, task]; shifts are largest where a task is solved half of the time, and cancel over seeds."""
    shifts = rng.uniform(-shift, shift, size=(seeds, 1))
    shifts = shifts + rng.uniform(-INTERACTION, INTERACTION, size=(seeds, len(chances)))
    shifted = np.clip(chances + 2 * shifts * chances * (1 - chances), 0, 1)
    return (rng.random((seeds, len(chances))) < shifted).astype(float)
