"""The pictures of docs/exploration.md, from the rows of table.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from tables import LAW, Row, agreement, border, groups, law_rows, of_study

mpl.use("Agg")
from matplotlib import pyplot

ABLATIONS = Path(__file__).parents[1] / "ablations" / "table.json"
AWAY = 0.1
"""Titles count the agents whose γ_traj is at least so far from γ*."""
SOLVED = 0.9
"""Share of the optimum that each seed must reach in each world for the title to say that it is solved."""
AGREE = 0.95
"""Share of them that must do what theory says for the title to say that it holds."""
ORANGE, BLUE, GREY, INK = "#d55e00", "#0072b2", "#777777", "#1d2126"
COLOURS = (ORANGE, BLUE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's
Axis = Any


def law(rows: Sequence[Row], path: Path) -> None:
    """A panel for each world, and MineSweeper beside them."""
    chosen = law_rows(rows)
    worlds = [world for world in LAW if any(row["world"] == world for row in chosen)]
    count = len(worlds) + 1
    figure, ((*axes,),) = pyplot.subplots(1, count, figsize=(3.4 * count, 3.7), layout="constrained", squeeze=False)
    for axis, world in zip(axes, worlds, strict=False):
        of_world = [row for row in chosen if row["world"] == world]
        edge = border(world)
        axis.axvspan(edge, 1.04, color=ORANGE, alpha=0.07, lw=0)
        axis.plot([-0.04, edge, edge, 1.04], [0, 0, 100, 100], color=GREY, lw=1, zorder=1)
        axis.axvline(edge, color=INK, lw=1.2, ls=(0, (4, 3)))
        axis.annotate(f"γ* = {edge:.3f}", (edge, 15), xytext=(16, 0), textcoords="offset points", va="center")
        _seeds_and_mean(axis, of_world, lambda row: row["informative"])
        axis.set_title(f"{world}: {LAW[world]}", fontsize=10.5, loc="left")
    axes[0].set_ylabel("first attempts that find out, %")
    free = minesweeper_rows(rows)
    _seeds_and_mean(axes[-1], free, lambda row: row["p"][-1])
    axes[-1].set_title("MineSweeper: finding out is free", fontsize=10.5, loc="left")
    axes[-1].set_ylabel(f"solved within {len(free[0]['p'])} attempts, %")
    for axis in axes:
        axis.set(xlim=(-0.04, 1.04), ylim=(-4, 104), xlabel="γ_traj")
        _plain(axis)
    agreeing, counts = agreement_in_words(chosen)
    claim = "Agents explore as soon as later attempts count enough: where theory puts it"
    title = claim if agreeing else "Which agents explore, and where theory puts it"
    figure.suptitle(f"{title}\n", x=0.008, ha="left", fontsize=13, fontweight="bold")
    about = f"grey: theory; dots: trained agents, line: their mean; {counts}"
    figure.text(0.008, 0.925, about, va="top", fontsize=9.5, color=GREY)
    _save(figure, path)


def agreement_in_words(rows: Sequence[Row]) -> tuple[bool, str]:
    """Whether agents away from γ* do what theory says, and how many of them do, in words."""
    counted, wrong = agreement(rows, AWAY)
    right = len(counted) - len(wrong)
    return right >= AGREE * len(
        counted
    ), f"{right} of {len(counted)} agents at least {AWAY:g} from γ* do what theory says"


def _seeds_and_mean(axis: Axis, rows: Sequence[Row], value: Any) -> None:
    """Each seed a faint dot, the mean a line."""
    by_gamma = {gamma: [100 * value(row) for row in seeds] for (gamma,), seeds in groups(rows, "gamma_traj").items()}
    for gamma, values in by_gamma.items():
        axis.plot([gamma] * len(values), values, "o", color=ORANGE, alpha=0.35, ms=5, mew=0, zorder=3)
    gammas = sorted(by_gamma)
    means = [np.mean(by_gamma[gamma]) for gamma in gammas]
    axis.plot(gammas, means, "-o", color=ORANGE, lw=2.2, ms=4, zorder=4)


def minesweeper_rows(rows: Sequence[Row]) -> list[Row]:
    """MineSweeper by γ_traj: of the law's own sweep, or else of the ablations."""
    swept = [row for row in of_study(rows, "law") if row["world"] == "minesweeper" and row["gamma_traj"] is not None]
    if swept:
        return swept
    ablations = json.loads(ABLATIONS.read_text(encoding="utf-8"))
    return [row for row in ablations if row["name"] == "meta-RL" or row["name"].startswith("γ_traj")]


def phase(rows: Sequence[Row], path: Path) -> None:
    """γ_traj against the sure reward: theory as areas, each trained cell as a disc."""
    chosen = of_study(rows, "phase")
    cells = groups(chosen, "gamma_traj", "sure")
    figure, axis = pyplot.subplots(figsize=(6.6, 5.2), layout="constrained")
    sures = np.linspace(*_around([sure for _, sure in cells]), 81)
    edges = np.clip([border("toolbox", round(float(sure), 4)) for sure in sures], -0.06, 1.06)
    axis.fill_betweenx(sures, edges, 1.06, color=ORANGE, alpha=0.13, lw=0)
    axis.fill_betweenx(sures, -0.06, edges, color=BLUE, alpha=0.13, lw=0)
    axis.plot(edges, sures, color=INK, lw=1.8)
    scale = LinearSegmentedColormap.from_list("tries", [BLUE, "#f2f2f2", ORANGE])
    shares = [100 * float(np.mean([row["informative"] for row in seeds])) for seeds in cells.values()]
    gammas, heights = zip(*cells, strict=True)
    discs = axis.scatter(
        gammas, heights, c=shares, cmap=scale, vmin=0, vmax=100, s=190, edgecolors=INK, linewidths=0.8, zorder=3
    )
    bar = figure.colorbar(discs, ax=axis, shrink=0.8, aspect=25)
    bar.set_label("first attempts that try an unknown tool, %")
    bar.outline.set_visible(False)
    axis.set(xlim=(-0.06, 1.06), ylim=(sures[0], sures[-1]), xlabel="γ_traj: what the next attempt counts")
    axis.set_ylabel("what the known tool pays for sure")
    agreeing, counts = agreement_in_words(chosen)
    verb = "explore where theory says" if agreeing else "and theory"
    title = f"Trained agents (discs) {verb} (areas)"
    axis.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=22)
    axis.text(0, 1.02, counts, transform=axis.transAxes, fontsize=9.5, color=GREY)
    words: dict[str, Any] = {"transform": axis.transAxes, "fontsize": 12, "fontweight": "bold"}
    axis.text(0.98, 0.03, "try an unknown tool", ha="right", color=ORANGE, **words)
    axis.text(0.02, 0.96, "take the sure thing", va="top", color=BLUE, **words)
    _plain(axis)
    axis.grid(visible=False)
    _save(figure, path)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis that leaves room for discs and words."""
    room = 0.16 * (max(values) - min(values)) or 0.05
    return max(0.0, min(values) - room), min(0.99, max(values) + room)


def nothing(rows: Sequence[Row], path: Path) -> None:
    """A panel for each world: the share of the optimum (or p@N) over the updates, the seeds as a band."""
    chosen = [row for row in rows if "curve" in row]
    by_world = groups(chosen, "world")
    columns = min(len(by_world), 3)
    lines = math.ceil(len(by_world) / columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(max(6.5, 3.6 * columns + 0.4), 3.3 * lines + 0.9), layout="constrained", squeeze=False
    )
    arms = list(dict.fromkeys(row["arm"] for row in chosen))
    colours = {arm: COLOURS[number % len(COLOURS)] for number, arm in enumerate(arms)}
    for axis, ((world,), of_world) in zip(grid.flat, by_world.items(), strict=False):
        for (arm,), seeds in groups(of_world, "arm").items():
            updates, low, centre, high = _band(seeds)
            axis.fill_between(updates, low, high, color=colours[arm], alpha=0.18, lw=0)
            axis.plot(updates, centre, color=colours[arm], lw=2.2, label=arm)
        has_optimum = of_world[0]["optimum"] is not None
        axis.axhline(100, color=GREY, lw=1, ls=(0, (4, 3)))
        axis.set_title(world, fontsize=10.5, loc="left")
        axis.set(
            ylim=(-4, 108),
            xlim=(0, None),
            xlabel="update",
            ylabel="share of the optimum, %" if has_optimum else f"p@{len(of_world[0]['p'])}, %",
        )
        _plain(axis)
    for axis in grid.flat[len(by_world) :]:
        axis.set_visible(False)
    with_random = [row for row in chosen if row["arm"] == "meta-RL, from nothing"]
    shares = [row["p"][-1] if row["share_of_optimum"] is None else row["share_of_optimum"] for row in with_random]
    solved = "From nothing: with random moves in half of the trials every agent comes near the optimum"
    title = solved if min(shares) >= SOLVED else "From nothing: learning without a warm start"
    figure.suptitle(title, x=0.008, ha="left", fontsize=13, fontweight="bold")
    handles = {
        label: handle for axis in grid.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    is_full = len(by_world) == lines * columns
    place = {"loc": "outside lower left", "ncols": 2} if is_full else {"loc": "lower right"}
    figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=9.5, **place)
    _save(figure, path)


def _band(seeds: Sequence[Row]) -> tuple[Any, Any, Any, Any]:
    """Updates, and the least, mean and highest of the seeds, in percent."""
    length = min(len(row["curve"]) for row in seeds)
    curves = np.array([row["curve"][:length] for row in seeds])  # [seed, point, (update, return, p@N)]
    optimum = seeds[0]["optimum"]
    values = 100 * (curves[:, :, 2] if optimum is None else curves[:, :, 1] / optimum)
    return curves[0, :, 0], values.min(axis=0), values.mean(axis=0), values.max(axis=0)


def _plain(axis: Axis) -> None:
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    path.unlink(missing_ok=True)  # a link would be followed
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
