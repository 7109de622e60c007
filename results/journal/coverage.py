"""How often the journal's intervals held the truth at all times, how wide they are, and how fast its alarms are.

uplift     streams of 2,000 episodes; an interval fails if it excludes the truth after *any* episode. Beside ours:
           empirical Bernstein on the same surprises; two betting intervals, one for each arm, joined (Waudby-Smith and
           Ramdas, arXiv 2010.09686), looked at 20 times; and the usual interval for one look, looked at 20 times
harm       lives of 4,000 episodes, the hold-out of 10 % (5 %) reversed at each switch
alarm      false alarms of streams without a change, and delays after a drop
values     three strategies with chances of success 0.7, 0.5, 0.3 (drift: moved on by one strategy after half of the
           episodes), chosen by Thompson sampling with the default budget

    PYTHONPATH=src python results/journal/coverage.py

takes about three minutes on one core and writes coverage.json and coverage.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from journal_tables import Rows, write

from mulligan.journal.budget import Budget, Tally, _evidence, choose, values
from mulligan.journal.proof import (
    STAKES,
    DriftAlarm,
    Evidence,
    Floats,
    evidence,
    harms,
    uplift,
)

EPISODES = 2000
LOOKS = np.unique(np.geomspace(200, EPISODES, 20).astype(int))
"""Of the intervals ours is compared with. Before 200 episodes the one for a single look also fails for want of data."""
WIDTHS_AT = (100, 200, 500, EPISODES)
TIME = np.arange(EPISODES)
WAVE, JUMP = 0.5 + 0.45 * np.sin(TIME / 200), np.where(TIME < 1000, 0.2, 0.8)
CASES: dict[str, tuple[Any, Any, Any]] = {
    "0.6 against 0.5, 10 % off": (0.6, 0.5, 0.9),
    "0.9 against 0.9, 10 % off": (0.9, 0.9, 0.9),
    "rare: 0.02 against 0.02, 5 % off": (0.02, 0.02, 0.95),
    "rare: 0 against 0.01, 5 % off": (0.0, 0.01, 0.95),
    "0.97 against 0.99, 5 % off": (0.97, 0.99, 0.95),
    "half off": (0.5, 0.5, 0.5),
    "both drift (wave)": (WAVE, WAVE, 0.9),
    "the effect drifts (wave against 0.5)": (WAVE, 0.5, 0.9),
    "0.2 to 0.8, share turned from 90 % on to 10 %": (JUMP, JUMP, np.where(TIME < 1000, 0.9, 0.1)),
    "alternately 0 and 1, 5 % off": ((TIME % 2) * 1.0, (TIME % 2) * 1.0, 0.95),
}


def of_uplift(streams: int = 300, compared: int = 40) -> Rows:
    """Coverage at all times and widths, in each case."""
    rows: Rows = []
    for number, (name, case) in enumerate(CASES.items()):
        rng = np.random.default_rng([1, number])
        first, second, chances = (np.broadcast_to(each, EPISODES).astype(float) for each in case)
        held, widths, others = [], [], []
        for stream in range(streams):
            on = rng.random(EPISODES) < chances
            rewards = (rng.random(EPISODES) < np.where(on, first, second)).astype(float)
            proof = evidence(on.astype(float), rewards, chances, np.zeros((2, 2)))
            held.append(not _ever_excluded(proof, first - second))
            if stream < compared:
                widths.append([_width(on[:n], rewards[:n], chances[:n]) for n in WIDTHS_AT])
                truth = np.cumsum(proof.weights * (first - second)) / np.cumsum(proof.weights)
                others.append(_others(proof, on, rewards, truth))
        wide, other = np.mean(widths, axis=0), np.mean(others, axis=0)
        row = {"case": name, "held, %": 100 * float(np.mean(held))}
        row |= {f"width at {n}": float(width) for n, width in zip(WIDTHS_AT, wide, strict=True)}
        names = (
            "Bernstein width",
            "two betting: held, %",
            "two betting: width at 200",
            "two betting: width",
            "one look: held, %",
            "one look: width",
        )
        rows.append(row | {title: float(value) for title, value in zip(names, other, strict=True)})
    return rows


def _ever_excluded(proof: Evidence, effects: Floats) -> bool:
    """Whether any interval excluded the weighted mean of the effects up to then."""
    centred = Evidence(proof.surprises, proof.predictions - proof.weights * effects, proof.weights)
    return bool(centred.excludes(0.0, 0.95).any())


def _width(on: Any, rewards: Floats, chances: Floats) -> float:
    found = uplift(on, rewards, chances)
    return found.high - found.low


def _others(proof: Evidence, on: Any, rewards: Floats, truth: Floats) -> list[float]:
    """What other intervals do on the same stream: whether they hold in percent, and their widths."""
    betting = [_two_betting(rewards[:n][on[:n]], rewards[:n][~on[:n]]) for n in LOOKS]
    usual = [_one_look(rewards[:n][on[:n]], rewards[:n][~on[:n]]) for n in LOOKS]
    held = [
        100.0 * all(low <= truth[n - 1] <= high for n, (low, high) in zip(LOOKS, intervals, strict=True))
        for intervals in (betting, usual)
    ]
    first, last, single = (high - low for low, high in (betting[0], betting[-1], usual[-1]))
    return [_bernstein_width(proof), held[0], first, last, held[1], single]


def _bernstein_width(proof: Evidence) -> float:
    """log(1 + λs) replaced by λs − (−log(1 − λ) − λ) s² (Howard et al., arXiv 1810.08240)."""
    stakes, total, bounds = 0.999 * STAKES, proof.weights.sum(), []
    weights = np.log(1 / np.arange(1, len(STAKES) + 1) / (1 / np.arange(1, len(STAKES) + 1)).sum())
    for sign in (1, -1):
        sums = sign * (proof.surprises.sum() + proof.predictions.sum())
        logs = weights + stakes * sums - (-np.log1p(-stakes) - stakes) * np.square(proof.surprises).sum()
        low, high = -1.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            above = np.logaddexp.reduce(logs - stakes * total * middle) > math.log(40)
            low, high = (middle, high) if above else (low, middle)
        bounds.append(low)
    return float(-bounds[1] - bounds[0])


_EDGES = 1 / (1 + np.exp(-np.linspace(-9, 9, 302)))  # finer near 0 and 1
GRID = (_EDGES[1:] + _EDGES[:-1]) / 2
_SHARES = 0.98 * 2.0 ** -np.arange(0, 8, 0.75)


def _betting(outcomes: Floats) -> Floats:
    """The logarithm of the hedged betting wealth for each mean of the grid; outcomes are 0 and 1. [mean]"""
    wins, losses, means = outcomes.sum(), (1 - outcomes).sum(), GRID[:, None]
    up = wins * np.log1p(_SHARES * (1 - means) / means) + losses * np.log1p(-_SHARES)
    down = wins * np.log1p(-_SHARES) + losses * np.log1p(_SHARES * means / (1 - means))
    both: Floats = np.logaddexp.reduce(np.hstack([up, down]), axis=1) - math.log(2 * len(_SHARES))
    return both


def _two_betting(on: Floats, off: Floats) -> tuple[float, float]:
    """All differences of two means whose joint wealth is below 20, up to the edges of the grid's cells."""
    possible = _betting(on)[:, None] + _betting(off)[None] < math.log(20)
    lowest, highest = _EDGES[:-1, None] - _EDGES[None, 1:], _EDGES[1:, None] - _EDGES[None, :-1]
    return (float(lowest[possible].min()), float(highest[possible].max())) if possible.any() else (0.0, 0.0)


def _one_look(on: Floats, off: Floats) -> tuple[float, float]:
    """Difference of means ± 1.96 standard errors."""
    if min(len(on), len(off)) < 2:
        return -1.0, 1.0
    gap, half = on.mean() - off.mean(), 1.96 * math.sqrt(on.var() / len(on) + off.var() / len(off))
    return float(gap - half), float(gap + half)


def of_harm(lives: int = 100, episodes: int = 4000) -> Rows:
    """How often a class is switched, and after how many episodes."""
    time = np.arange(episodes)
    cases: dict[str, tuple[Any, Any, float]] = {
        "no effect, 0.5": (0.5, 0.5, 0.1),
        "no effect, 0.9": (0.9, 0.9, 0.1),
        "no effect, 0.05, 5 % off": (0.05, 0.05, 0.05),
        "hurts by 0.1": (0.5, 0.6, 0.1),
        "hurts by 0.2": (0.5, 0.7, 0.1),
        "hurts by 0.4": (0.3, 0.7, 0.1),
        "hurts by 0.2, 5 % off": (0.5, 0.7, 0.05),
        "helps by 0.2, hurts by 0.2 from episode 2,000": (np.where(time < 2000, 0.7, 0.3), 0.5, 0.1),
        "helps by 0.4, hurts by 0.4 from episode 2,000": (np.where(time < 2000, 0.9, 0.1), 0.5, 0.1),
        "hurts by 0.4, helps by 0.4 from episode 1,000": (np.where(time < 1000, 0.1, 0.9), 0.5, 0.1),
    }
    rows: Rows = []
    for number, (name, case) in enumerate(cases.items()):
        rng = np.random.default_rng([2, number])
        switches = [_life(rng, *case, episodes) for _ in range(lives)]
        row: dict[str, Any] = {"case": name}
        for place, title in enumerate(("off", "on again")):
            times = [each[place] for each in switches if len(each) > place]
            row[f"{title}, % of classes"] = 100 * len(times) / lives
            row[f"{title}, median episode"] = float(np.median(times)) if times else "–"
        rows.append(row)
    return rows


def _life(rng: np.random.Generator, with_journal: Any, without: Any, share: float, episodes: int) -> tuple[int, ...]:
    """The switches of one class. Its luck is drawn once; each switch reverses the hold-out of what follows."""
    luck, chances = rng.random((2, episodes)), np.full(episodes, 1 - share)
    switches: tuple[int, ...] = ()
    while True:
        on = luck[0] < chances
        rewards = (luck[1] < np.where(on, with_journal, without)).astype(float)
        latest = harms(on.tolist(), rewards.tolist(), chances.tolist()).switches
        if len(latest) == len(switches):
            return switches
        switches = latest[: len(switches) + 1]
        chances[switches[-1] :] = 1 - chances[switches[-1] - 1]


def of_false_alarms(streams: int = 12, episodes: int = 4000) -> Rows:
    """False alarms in streams without a change."""
    rows: Rows = []
    for average_run in (500, 5000):
        for name in ("0.5", "0.9", "0.05", "graded"):
            rng = np.random.default_rng([3, average_run, len(rows)])
            alarms = 0
            for stream in range(streams):
                alarm = DriftAlarm(f"{name}/{stream}", average_run=average_run)
                drawn = rng.random(episodes)
                for outcome in drawn if name == "graded" else (drawn < float(name)).astype(float):
                    alarms += alarm.observe(float(outcome)) is not None
            rate = 1000 * alarms / (streams * episodes)
            row = {"average_run": average_run, "outcomes": name, "promised, at most": 1000 / average_run}
            rows.append(row | {"false alarms per 1,000 episodes": rate})
    return rows


def of_delays(streams: int = 25) -> Rows:
    """Delays of the alarm with its default rate."""
    rows: Rows = []
    for before in (200, 1000):
        for level, drop in ((0.8, 0.1), (0.8, 0.2), (0.8, 0.4), (0.5, 0.2), (0.5, 0.4)):
            rng = np.random.default_rng([4, before, len(rows)])
            delays = [_delay(rng, before, level, drop, f"{stream}") for stream in range(streams)]
            noticed = [each for each in delays if each is not None]
            row: dict[str, Any] = {"episodes before": before, "from": level, "to": round(level - drop, 2)}
            row["noticed within 1,000, %"] = 100 * len(noticed) / streams
            middle = float(np.median([math.inf if each is None else each for each in delays]))
            rows.append(row | {"median delay": middle if math.isfinite(middle) else "> 1000"})
    return rows


def _delay(rng: np.random.Generator, before: int, level: float, drop: float, name: str) -> int | None:
    alarm = DriftAlarm(name)
    for outcome in rng.random(before) < level:
        alarm.observe(float(outcome))
    for episode, outcome in enumerate(rng.random(1000) < level - drop, 1):
        drift = alarm.observe(float(outcome))
        if drift and drift.drop:
            return episode
    return None


def of_values() -> Rows:
    """Coverage at all times of off-policy estimates, for three strategies chosen by Thompson sampling."""
    rows: Rows = []
    for world, episodes, streams in (("stay", 400, 60), ("drift", 400, 60), ("stay", 3000, 8), ("drift", 3000, 8)):
        means = np.tile([0.7, 0.5, 0.3], (episodes, 1))
        if world == "drift":
            means[episodes // 2 :] = np.roll(means[0], 1)
        rng = np.random.default_rng([5, len(rows)])
        held, usual, widths = [], [], []
        for _ in range(streams):
            chosen, rewards, chances = _collect(rng, means, Budget(), NAMES)
            widths.append([each.high - each.low for each in values(chosen, rewards, chances).values()])
            for index, name in enumerate(NAMES):
                proof = _evidence(name, chosen, np.array(rewards), chances)
                held.append(not _ever_excluded(proof, means[:, index]))
                truth = np.cumsum(proof.weights * means[:, index]) / np.cumsum(proof.weights)
                usual.append(_usual_holds(np.array(chosen) == name, np.array(rewards), truth))
        row: dict[str, Any] = {"chances": world, "episodes": episodes, "held, %": 100 * float(np.mean(held))}
        wide = np.mean(widths, axis=0).tolist()
        row |= {f"width, {mean:g}": width for mean, width in zip(means[0], wide, strict=True)}
        rows.append(row | {"plain mean, one look: held, %": 100 * float(np.mean(usual))})
    return rows


NAMES = ("a", "b", "c")


def _collect(
    rng: np.random.Generator, means: Floats, budget: Budget, names: tuple[str, ...]
) -> tuple[list[str], list[float], list[dict[str, float]]]:
    tallies = {name: Tally() for name in names}
    chosen, rewards, chances = [], [], []
    for episode, row in enumerate(means):
        choice = choose(tallies, budget, episodes=episode, luck=rng.random())
        reward = float(rng.random() < row[names.index(choice.strategy)])
        old = tallies[choice.strategy]
        tallies[choice.strategy] = Tally(old.count + 1, old.total + reward)
        chosen.append(choice.strategy)
        rewards.append(reward)
        chances.append(choice.chances)
    return chosen, rewards, chances


def _usual_holds(taken: Any, rewards: Floats, truth: Floats) -> bool:
    """Whether the strategy's plain mean ± 1.96 standard errors holds at each of 20 looks with 10 outcomes or more."""
    for look in np.unique(np.geomspace(20, len(rewards), 20).astype(int)):
        outcomes = rewards[:look][taken[:look]]
        if len(outcomes) < 10:  # it fails here for want of data
            continue
        if abs(outcomes.mean() - truth[look - 1]) > 1.96 * math.sqrt(outcomes.var() / len(outcomes)):
            return False
    return True


def main() -> None:
    tables = {
        "Uplift: intervals at 95 %, valid at any time, and others on the same streams": of_uplift(),
        "Do no harm: switches within 4,000 episodes": of_harm(),
        "Drift alarm: false alarms": of_false_alarms(),
        "Drift alarm: delay after a drop, at most one false alarm in 5,000 episodes": of_delays(),
        "Off-policy estimates under Thompson sampling": of_values(),
    }
    write(__file__, "PYTHONPATH=src python results/journal/coverage.py", tables)


if __name__ == "__main__":
    main()
