"""The pictures of docs/opponents.md, from the rows of table.json: a game each, with a panel for seen and unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot

ORANGE, BLUE, GREEN, PINK, GREY, INK = "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#777777", "#1d2126"
METHODS = {
    "meta-RL, history": ORANGE,
    "meta-RL, history, memory of another opponent": PINK,
    "RL, history": BLUE,
    "imitation alone": GREEN,
}
"""The methods that are drawn (Okabe and Ito's colours)."""
EXACT = {
    "clairvoyant": ("opponent known", (0, (1, 2))),
    "optimal": ("Bayes-optimal", "-"),
    "static": ("best without memory", (0, (5, 3))),
}
UNITS = {
    "kuhn": ("chips of a hand", "hand"),
    "leduc": ("chips of a hand", "hand"),
    "rps": ("value of a throw", "match"),
}
TITLES = {"kuhn": "Kuhn poker", "leduc": "Leduc poker", "rps": "Rock-paper-scissors, matches of 6 throws"}
Row = Mapping[str, Any]
Axis = Any


def draw(rows: Sequence[Row], folder: Path) -> None:
    for game in dict.fromkeys(row["game"] for row in rows if row["game"] in UNITS):
        _game([row for row in rows if row["game"] == game], folder / f"{game}.png")


def _game(rows: Sequence[Row], path: Path) -> None:
    game = rows[0]["game"]
    panels = [each for each in ("seen", "unseen") if any(row["opponents"] == each for row in rows)]
    figure, ((*axes,),) = pyplot.subplots(
        1, len(panels), figsize=(4.4 * len(panels) + 1.2, 4.0), layout="constrained", sharey=True, squeeze=False
    )
    value, episode = UNITS[game]
    for axis, opponents in zip(axes, panels, strict=True):
        of_panel = [row for row in rows if row["opponents"] == opponents]
        _exact(axis, of_panel)
        for method, colour in METHODS.items():
            _method(axis, [row for row in of_panel if row["method"] == method], method, colour)
        hands = sorted({row["hand"] for row in of_panel if row["method"] in METHODS})
        axis.set(title=f"{opponents} opponents", xlabel=episode, xticks=hands)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color=GREY, alpha=0.15)
    axes[0].set_ylabel(value)
    handles = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=9)
    figure.suptitle(f"{TITLES[game]}: what is won of an opponent that is met again", x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


def _exact(axis: Axis, rows: Sequence[Row]) -> None:
    """The exact curves, the same for all methods."""
    for name, (label, style) in EXACT.items():
        by_hand = {row["hand"]: row[name] for row in rows if row[name] is not None and row["method"] in METHODS}
        if by_hand:
            hands = sorted(by_hand)
            axis.plot(hands, [by_hand[hand] for hand in hands], color=INK, lw=1.3, ls=style, label=label)


def _method(axis: Axis, rows: Sequence[Row], method: str, colour: str) -> None:
    """Each seed a faint line, the mean a strong one."""
    seeds: dict[int, dict[int, float]] = {}
    for row in rows:
        seeds.setdefault(row["seed"], {})[row["hand"]] = row["value"]
    if not seeds:
        return
    hands = sorted(set.intersection(*(set(values) for values in seeds.values())))
    lines = np.array([[values[hand] for hand in hands] for values in seeds.values()])
    for line in lines:
        axis.plot(hands, line, color=colour, lw=0.8, alpha=0.4)
    axis.plot(hands, lines.mean(axis=0), "-o", color=colour, lw=2, ms=4, label=method)
