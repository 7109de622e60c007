"""The tables of docs/exploration.md, from the rows of table.json, and the theory that stands beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

import mulligan
from mulligan.eval.intervals import difference, interval_of_mean, share_interval, solved_within, student
from mulligan.eval.optimum import Optimum
from mulligan.text import markdown_row

Row = dict[str, Any]
LAW = {"signpost": "reads the sign", "lookout": "climbs the tower", "toolbox": "tries an unknown tool"}
"""World -> what a first attempt does that finds out."""
AWAY = (0.0, 0.05, 0.1)
"""Agreement with theory is counted among the runs whose γ_traj is at least so far from γ*."""
SHOWN = (None, 0.0, 0.6, 1.0)
"""γ_traj of the law's arms that the table of shares shows; None: RL."""
WITH_OPTIMUM = (*LAW, "camp", "bandit, 4 arms", "bandit, 8 arms")
"""Worlds whose optimum is computed, in the order of the tables; others follow by name."""
FORMS = ("paper", "chained", "difference", "final")

# Theory.


@cache
def optimum(world: str, gamma_traj: float = 1.0, sure: float | None = None) -> Optimum:
    if world.startswith("bandit"):
        return mulligan.optimum("bandit", params={"arms": int(world.split()[1])}, gamma_traj=gamma_traj)
    params = {"world": world.partition(",")[0]} | ({} if sure is None else {"sure": sure})
    return mulligan.optimum("expedition", params=params, gamma_traj=gamma_traj)


@cache
def border(world: str, sure: float | None = None) -> float:
    """γ*: above it the best first attempt finds out, below it not; infinite where it always or never does."""
    for shift in (0.0, -1e-6, 1e-6):  # at a sure reward of exactly .25 or .5 the border is 0 or 1, and ends
        threshold = optimum(world, sure=None if sure is None else sure + shift).threshold
        if threshold is not None:
            return float(threshold)
    return -math.inf if sure is not None and optimum(world, sure=sure).alone.returns[0] > sure else math.inf


def agreement(rows: Sequence[Row], away: float) -> tuple[list[Row], list[Row]]:
    """The runs whose γ_traj is at least `away` from γ*, and those of them that disagree with theory.

    A run agrees if more than half of its first attempts find out and γ_traj > γ*, or neither.
    """
    counted = [row for row in rows if abs(row["gamma_traj"] - border(row["world"], row["sure"])) >= away]
    wrong = [
        row for row in counted if (row["informative"] > 0.5) != (row["gamma_traj"] > border(row["world"], row["sure"]))
    ]
    return counted, wrong


def theory_share(world: str, gamma_traj: float | None) -> str:
    """The share of the optimum for γ_traj = 1 that theory expects at this γ_traj, in percent.

    At 0 it is the myopic player's; RL has from what one that forgets everything reaches up to that.
    """
    if world not in WITH_OPTIMUM:
        return ""
    best = optimum(world, gamma_traj or 0.0)
    value, myopic = best.undiscounted.value(), best.myopic.value()
    if gamma_traj:
        return percent(best.best.value() / value)
    if gamma_traj == 0:
        return percent(myopic / value)
    lost = 1 - best.alone.won[0]
    attempts = 3.0 if best.graph.rules.stop == "never" else 1 + lost + lost**2
    ends = [percent(each / value) for each in (best.alone.returns[0] * attempts, myopic)]
    return " to ".join(dict.fromkeys(ends))


# Tables.


NOTES = """- ±: half of the 95 % interval over seeds and worlds; with one seed, over worlds alone.
- Shares of the optimum may exceed 100 by the luck of the tasks.
"""


def text(rows: Sequence[Row]) -> str:
    """table.md, from the rows alone."""
    makers = (law_table, phase_table, shares_table, forms_table, nothing_table, games_table, attempts_table)
    return "\n\n".join([*(table for make in makers if (table := make(rows))), NOTES])


def markdown(title: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = [f"**{title}**", "", markdown_row(columns), "|" + "---|" * len(columns)]
    return "\n".join([*head, *map(markdown_row, lines)])


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def of_study(rows: Sequence[Row], study: str) -> list[Row]:
    return [row for row in rows if row["study"] == study]


def groups(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that agree in these columns, the seeds of an arm."""
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        together.setdefault(tuple(row[name] for name in names), []).append(row)
    return together


def full_name(arm: str, gamma_traj: float | None) -> str:
    """As arms are called in sweeps; "meta-RL, gamma_traj 0" is already."""
    return f"{arm}, gamma_traj {gamma_traj:g}" if gamma_traj else arm


def returns(rows: Sequence[Row]) -> str:
    """Mean returns by attempt."""
    return " / ".join(f"{value:.2f}" for value in np.mean([row["returns"] for row in rows], axis=0))


def mean(rows: Sequence[Row], name: str) -> str:
    """The mean over seeds in percent; empty where there is none."""
    values = [row[name] for row in rows]
    return percent(float(np.mean(values))) if values and None not in values else ""


def over_seeds(rows: Sequence[Row], name: str) -> str:
    """The mean over seeds in percent, ± half of its 95 % interval over seeds; empty where there is none."""
    values = [row[name] for row in rows]
    if len(values) < 2:
        return mean(rows, name)
    half = student(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean(rows, name)} ± {percent(half)}"


def share(rows: Sequence[Row]) -> str:
    """The share of the optimum over the seeds of an arm, ± half of its 95 % interval over seeds and worlds."""
    if any(row["optimum"] is None for row in rows):
        return ""
    totals = np.array([row["totals"] for row in rows])
    centre, (low, _) = interval_of_mean(totals / rows[0]["optimum"], rows[0].get("worlds"))
    return f"{percent(centre)} ± {percent(centre - low)}"


def solved(rows: Sequence[Row], k: int) -> str:
    """p@k over the seeds of an arm, ± half of its 95 % interval over seeds and worlds."""
    values = np.array([solved_within(row["outcomes"], k) for row in rows])
    low, high = share_interval(values, rows[0].get("worlds"))
    return f"{percent(float(values.mean()))} ± {percent((high - low) / 2)}"


def counts(rows: Sequence[Row]) -> list[str]:
    """How many runs agree with theory, and which do not."""
    lines = ["", "A run agrees with theory if γ_traj > γ\\* and most of its first attempts find out, or neither:", ""]
    for away in AWAY:
        counted, wrong = agreement(rows, away)
        which = f"with γ_traj at least {away:g} from γ\\*" if away else "in all"
        lines.append(f"- {which}, {len(counted) - len(wrong)} of {len(counted)} runs agree")
    for row in agreement(rows, 0.0)[1]:
        found = f"{percent(row['informative'])} % find out"
        lines.append(f"- not: {row['world']}, γ_traj {row['gamma_traj']:g}, seed {row['seed']}: {found}")
    return lines


def law_rows(rows: Sequence[Row]) -> list[Row]:
    return [row for row in of_study(rows, "law") if row["world"] in LAW and row["gamma_traj"] is not None]


def law_table(rows: Sequence[Row]) -> str:
    chosen = law_rows(rows)
    without = groups([row for row in of_study(rows, "law") if row["gamma_traj"] is None], "world")
    lines = {
        world: [f"`{world}`", f"{border(world):.3f}", over_seeds(without.get((world,), []), "informative")]
        for (world,) in groups(chosen, "world")
    }
    title = "The law: first attempts that find out (%), by γ_traj; ±: over seeds alone"
    return by_gamma_traj(title, ["world", "γ*", "RL"], chosen, "world", lines) if chosen else ""


def phase_table(rows: Sequence[Row]) -> str:
    chosen = of_study(rows, "phase")
    lines = {}
    for (sure,) in groups(chosen, "sure"):
        edge = border("toolbox", sure)
        lines[sure] = [f"{sure:g}", f"{edge:.3f}" if math.isfinite(edge) else "always" if edge < 0 else "never"]
    title = "The phase diagram: first attempts in `toolbox` that try an unknown tool (%); ±: over seeds alone"
    return by_gamma_traj(title, ["sure", "γ*"], chosen, "sure", lines) if chosen else ""


def by_gamma_traj(
    title: str, columns: Sequence[str], rows: Sequence[Row], name: str, lines: dict[Any, list[str]]
) -> str:
    """First attempts that find out, over seeds: a line for each value of column `name`, a column for each γ_traj.

    `lines` are the lines' beginnings.
    """
    gammas, cells = sorted({row["gamma_traj"] for row in rows}), groups(rows, name, "gamma_traj")
    shares = {key: [over_seeds(cells.get((key, gamma), []), "informative") for gamma in gammas] for key in lines}
    grid = markdown(title, [*columns, *(f"{gamma:g}" for gamma in gammas)], [lines[key] + shares[key] for key in lines])
    return "\n".join([grid, *counts(rows)])


def shares_table(rows: Sequence[Row]) -> str:
    chosen = of_study(rows, "shares")
    worlds = {row["world"] for row in chosen}
    law = [row for row in of_study(rows, "law") if row["world"] not in worlds and row["gamma_traj"] in SHOWN]
    lines = []
    for (world, arm, gamma), seeds in groups([*law, *chosen], "world", "arm", "gamma_traj").items():
        if seeds[0]["optimum"] is None:
            continue
        by_seed = " / ".join(percent(row["share_of_optimum"]) for row in seeds)
        shares = [mean(seeds, "informative"), share(seeds), by_seed, theory_share(world, gamma)]
        lines.append([f"`{world}`", full_name(arm, gamma), returns(seeds), *shares])
    columns = ["world", "arm", "returns by attempt", "finds out first", "share of the optimum", "by seed", "theory"]
    return markdown("Shares of the Bayes-optimal return for γ_traj = 1 (%)", columns, lines) if lines else ""


def forms_table(rows: Sequence[Row]) -> str:
    parts = []
    for (world, gamma), chosen in groups(of_study(rows, "forms"), "world", "gamma_traj").items():
        cells = groups(chosen, "estimator", "form")
        forms = [form for form in FORMS if any(row["form"] == form for row in chosen)]
        lines = []
        for (estimator,) in groups(chosen, "estimator"):
            seeds = [cells.get((estimator, form), []) for form in forms]
            lines.append(
                [estimator, *(f"{mean(each, 'informative')}, {share(each)}" if each else "" for each in seeds)]
            )
        title = f"Estimators and forms in `{world}` with γ_traj {gamma:g}: finds out first, share of the optimum (%)"
        parts.append(markdown(title, ["estimator", *forms], lines))
    return "\n\n".join(parts)


def nothing_table(rows: Sequence[Row]) -> str:
    lines = []
    for (world, arm), seeds in groups(of_study(rows, "from nothing"), "world", "arm").items():
        has_optimum = seeds[0]["optimum"] is not None
        by_seed = [row["share_of_optimum"] if has_optimum else row["p"][-1] for row in seeds]
        shares = [mean(seeds, "informative"), solved(seeds, len(seeds[0]["p"])), share(seeds)]
        lines.append([f"`{world}`", arm, *shares, " / ".join(map(percent, by_seed))])
    columns = ["world", "arm", "finds out first", "p@N", "share of the optimum", "by seed"]
    title = "From nothing, without a warm start (%); by seed: the share of the optimum, or p@N where there is none"
    return markdown(title, columns, lines) if lines else ""


def games_table(rows: Sequence[Row]) -> str:
    chosen = of_study(rows, "papers' games")
    attempts = range(1, max((len(row["p"]) for row in chosen), default=0) + 1)
    lines = []
    for (world, arm, gamma), seeds in groups(chosen, "world", "arm", "gamma_traj").items():
        shares = [solved(seeds, k) for k in attempts]
        lines.append([f"`{world}`", full_name(arm, gamma), *shares, returns(seeds), share(seeds)])
    columns = ["world", "arm", *(f"p@{k}" for k in attempts), "returns by attempt", "share of the optimum"]
    differences = [
        f"{arm}: p@3 {100 * mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}] (paired by seed and task)"
        for arm, (mean, (low, high)) in costs_of_random_moves(chosen)
    ]
    return "\n".join([markdown("The papers' games (%)", columns, lines), "", *differences]) if lines else ""


def costs_of_random_moves(rows: Sequence[Row]) -> list[tuple[str, tuple[float, tuple[float, float]]]]:
    """Arms with random moves in the demonstration's MineSweeper, each less the arm without."""
    arms = groups([row for row in rows if row["world"] == "minesweeper"], "arm")
    values = {arm: np.array([solved_within(row["outcomes"], 3) for row in seeds]) for (arm,), seeds in arms.items()}
    return [
        (arm, difference(each, values["meta-RL"], arms[arm,][0].get("worlds")))
        for arm, each in values.items()
        if arm != "meta-RL" and "meta-RL" in values
    ]


def attempts_table(rows: Sequence[Row]) -> str:
    """Further evaluations, with other numbers of attempts than in training."""
    chosen = [row for row in rows if "also" in row]
    names = list(dict.fromkeys(name for row in chosen for name in row["also"]))
    lines = []
    for (world, arm, gamma), seeds in groups(chosen, "world", "arm", "gamma_traj").items():
        shares = [
            mean([row["also"][name] for row in seeds if name in row["also"]], "share_of_optimum") for name in names
        ]
        lines.append([f"`{world}`", full_name(arm, gamma), *shares])
    title = "Other evaluations of the same agents: share of the optimum (%)"
    return markdown(title, ["world", "arm", *names], lines) if lines else ""
