"""Regret of choosing strategies by the journal's exploration budget, on streams of tasks that stay or drift.

Three classes with three strategies each. Chances of success are drawn anew for each seed and class, between 0.1 and
0.9, so that nothing could be tuned on them; the budget's defaults were picked on four other classes. In the drifting
stream, at a time in the middle half, each class's chances move on by one strategy: what was best no longer is.
Regret is the sum of the best strategy's chance minus the chosen one's, over all classes; an oracle has 0.

    PYTHONPATH=src python results/journal/regret.py

takes one to two minutes on one core and writes regret.json and regret.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from journal_tables import Rows, write

from mulligan.eval.intervals import student
from mulligan.journal.budget import Budget, Tally, choose
from mulligan.journal.proof import DriftAlarm, Floats

SEEDS, EPISODES = 20, 400
CLASSES, STRATEGIES = ("refund", "search", "report"), 3
Run = tuple[float, int]
"""Regret, and the number of drift alarms."""


def stream(seed: int, task_class: str, drifts: bool) -> Floats:
    """Chances of success. [episode, strategy]"""
    rng = np.random.default_rng([seed, CLASSES.index(task_class)])
    chances, change = rng.uniform(0.1, 0.9, size=STRATEGIES), int(rng.integers(EPISODES // 4, 3 * EPISODES // 4))
    means = np.tile(chances, (EPISODES, 1))
    if drifts:
        means[change:] = np.roll(chances, 1)
    return means


def uniform(means: Floats, rng: np.random.Generator, name: str) -> Run:
    """Each strategy with the same chance."""
    chosen = rng.integers(means.shape[1], size=len(means))
    return float((means.max(axis=1) - means[np.arange(len(means)), chosen]).sum()), 0


def greedy(means: Floats, rng: np.random.Generator, name: str) -> Run:
    """Each strategy once, then always the best so far."""
    return _play(means, rng, lambda tallies, episode: min(tallies, key=lambda each: _greedy_key(tallies[each])))


def _greedy_key(record: Tally) -> tuple[bool, float]:
    return (record.count > 0, -record.mean)


def thompson(budget: Budget, *, alarmed: bool = False) -> Callable[[Floats, np.random.Generator, str], Run]:
    """The journal's choice; with `alarmed`, a drift alarm begins the class anew."""

    def run(means: Floats, rng: np.random.Generator, name: str) -> Run:
        def pick(tallies: dict[str, Tally], episode: int) -> str:
            return choose(tallies, budget, episodes=episode, luck=rng.random()).strategy

        return _play(means, rng, pick, DriftAlarm(name) if alarmed else None, budget.remembers)

    return run


def _play(
    means: Floats,
    rng: np.random.Generator,
    pick: Callable[[dict[str, Tally], int], str],
    alarm: DriftAlarm | None = None,
    remembers: float | None = None,
) -> Run:
    """One class; tallies are kept as the episodes come, as `budget.tally` computes them from all of them."""
    fading = 1 - 1 / (remembers or math.inf)
    fresh = {str(strategy): Tally() for strategy in range(means.shape[1])}
    tallies, episode, regret = dict(fresh), 0, 0.0
    for row in means:
        name = pick(tallies, episode)
        reward = float(rng.random() < row[int(name)])
        regret += float(row.max() - row[int(name)])
        tallies = {each: Tally(fading * old.count, fading * old.total) for each, old in tallies.items()}
        tallies[name] = Tally(tallies[name].count + 1, tallies[name].total + reward)
        episode += 1
        if alarm and alarm.observe(reward):
            tallies, episode = dict(fresh), 0
    return regret, alarm.alarms if alarm else 0


METHODS = {
    "uniform": uniform,
    "greedy": greedy,
    "Thompson, no budget": thompson(Budget(start=1.0, floor=1.0)),
    "budget": thompson(Budget()),
    "budget, outcomes fade over 100 episodes": thompson(Budget(remembers=100)),
    "budget, begun anew at a drift alarm": thompson(Budget(), alarmed=True),
}


def interval(values: Floats) -> list[float]:
    """Mean over seeds with its 95 % interval (Student's t)."""
    half = student(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return [float(values.mean()), float(values.mean() - half), float(values.mean() + half)]


def main() -> None:
    rows: dict[str, dict[str, Any]] = {method: {"method": method} for method in ["oracle", *METHODS]}
    for stream_name, drifts in (("stays", False), ("drifts", True)):
        regrets = {"oracle": np.zeros(SEEDS)}
        for method, run in METHODS.items():
            runs = [
                [
                    run(stream(seed, name, drifts), np.random.default_rng([seed, number, 1]), f"{name}/{seed}")
                    for number, name in enumerate(CLASSES)
                ]
                for seed in range(SEEDS)
            ]
            regret, alarms = np.moveaxis(np.array(runs), 2, 0)  # [seed, class] each
            regrets[method] = regret.sum(axis=1)
            rows[method][f"alarms a class, {stream_name}"] = float(alarms.mean())
        for method, values in regrets.items():
            rows[method][f"regret, {stream_name}"] = interval(values)
            rows[method][f"less than greedy, {stream_name}"] = interval(regrets["greedy"] - values)
    columns = [
        f"{each}, {name}" for name in ("stays", "drifts") for each in ("regret", "less than greedy", "alarms a class")
    ]
    table: Rows = [{"method": name, **{each: row.get(each, 0.0) for each in columns}} for name, row in rows.items()]
    title = f"Regret over {len(CLASSES)} classes × {EPISODES} episodes, mean and 95 % interval over {SEEDS} seeds"
    write(__file__, "PYTHONPATH=src python results/journal/regret.py", {title: table})


if __name__ == "__main__":
    main()
