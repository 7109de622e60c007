"""What agents gain from attempt to attempt in games that they never trained on, with intervals over seeds and tasks.

    python results/transfer/gains.py results/transfer/nano.json

reads a sweep's table, writes nano-gains.md and nano-gains.png beside it, and prints the former. For each agent and each
game that was in no task of its training, warm start included:

p@1, p@3   share of tasks won within the first attempt, and within three
gain       p@3 − p@1
by memory  p@3 − p@3 of the same agent that remembers nothing (independent retries): what three tries are worth by luck
           alone is taken off
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mulligan.app.sweep.rows import RETRIES, Row, read_rows
from mulligan.eval.intervals import Values, difference, share_interval, solved_within
from mulligan.rollout.groups import Mixture
from mulligan.text import markdown_row
from mulligan.trusted import trust

METHODS = ("warm start", "RL", "meta-RL")
COLOURS = {"warm start": "#999999", "RL": "#d98c3f", "meta-RL": "#3b6fb5"}
FIRST, LAST = 1, 3


class Gain(NamedTuple):
    """One method in one game that it never trained on; values are [seed, task]."""

    game: str
    method: str
    first: Values
    last: Values
    retries: Values
    worlds: Sequence[int]


def short(game: str) -> str:
    """``lookout`` of ``expedition(world=lookout,turns=2)``."""
    world = re.search(r"world=(\w+)", game)
    return world[1] if world else game


def games_of(row: Row) -> dict[str, Row]:
    """Game -> the row's evaluation on it."""
    return {row["env"]: row, **{part["env"]: part for part in row["also"].values()}}


def gains(rows: Sequence[Row]) -> list[Gain]:
    parts: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        trained_on = [game for game, _ in Mixture.parse(row["settings"]["task.env"], {}).weights]
        for game, part in games_of(row).items():
            if game not in trained_on:
                parts[game, row["method"]].append(part)

    def within(evaluations: Sequence[Row], k: int) -> Values:
        return np.array([solved_within(each["outcomes"], k) for each in evaluations])

    def of_retries(evaluations: Sequence[Row]) -> Values:
        return np.array([solved_within(each["control_outcomes"][RETRIES], LAST) for each in evaluations])

    return [
        Gain(
            short(game), method, within(each, FIRST), within(each, LAST), of_retries(each),
            each[0].get("worlds", range(each[0]["tasks"])),
        )
        for (game, method), each in sorted(parts.items(), key=lambda item: (item[0][0], METHODS.index(item[0][1])))
    ]  # fmt: skip


def points(mean: float, interval: Sequence[float]) -> str:
    return f"{100 * mean:+.1f} [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"


def table(found: Sequence[Gain]) -> str:
    lines = [
        "| unseen game | agent | seeds | p@1 | p@3 | gain | by memory | p@3 less RL's | p@3 less the warm start's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for gain in found:
        others = {each.method: each.last for each in found if each.game == gain.game}
        less = [
            points(*difference(gain.last, others[other], gain.worlds)) if gain.method == "meta-RL" else ""
            for other in ("RL", "warm start")
        ]
        cells = [
            f"`{gain.game}`",
            gain.method,
            str(len(gain.last)),
            f"{100 * gain.first.mean():.1f}",
            f"{100 * gain.last.mean():.1f}",
            points(*difference(gain.last, gain.first, gain.worlds)),
            points(*difference(gain.last, gain.retries, gain.worlds)),
            *less,
        ]
        lines.append(markdown_row(cells))
    return "\n".join(lines) + "\n"


def draw(found: Sequence[Gain], path: Path) -> None:
    """p@1, p@3 without memory and p@3 with it, of each agent in each unseen game."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(gain.game for gain in found))
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.1 * len(names), 3.2), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for place, gain in enumerate(each for each in found if each.game == name):
            for step, (values, alpha) in enumerate(((gain.first, 0.35), (gain.retries, 0.6), (gain.last, 1.0))):
                low, high = share_interval(values, gain.worlds)
                x, mean = 4 * place + step, values.mean()
                axis.bar(x, mean, color=COLOURS[gain.method], alpha=alpha, width=0.9)
                axis.errorbar(x, mean, [[max(0, mean - low)], [max(0, high - mean)]], color="black", capsize=2, lw=0.8)
        axis.set_title(name, fontsize=10)
        axis.set_xticks([4 * place + 1 for place in range(len(METHODS))], METHODS, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("won, share of tasks")
    axes[0][0].set_ylim(0, 1.02)
    figure.suptitle("Never trained on: p@1, p@3 without memory, p@3 with it", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(path: str) -> None:
    source = Path(path)
    trust(source.read_text(encoding="utf-8"))  # it names the files of games, whose parameters are read
    rows: list[dict[str, Any]] = read_rows([source])
    found = gains(rows)
    text = table(found)
    source.with_name(f"{source.stem}-gains.md").write_text(text, encoding="utf-8")
    draw(found, source.with_name(f"{source.stem}-gains.png"))
    sys.stdout.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
