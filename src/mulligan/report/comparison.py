"""A comparison of results (the data of `sweep.compare`) as tables: terminal, Markdown, LaTeX, CSV; and its curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mulligan.errors import MissingExtra
from mulligan.report.tables import difference_cells, empty_table
from mulligan.text import in_one_line, markdown_row, visible

if TYPE_CHECKING:
    from rich.table import Table

Data = Mapping[str, Any]
_POINTS = 6
"""Updates that a table of curves shows at the most."""
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")  # Okabe and Ito's
_COST = {"updates": ",.0f", "minutes": ",.1f", "episodes": ",.0f", "tokens": ",.0f", "valid": ".1%", "score": ".1%"}


class Grid(NamedTuple):
    """A table before it has a format: texts, the first column names the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def grids(data: Data) -> list[Grid]:
    """The tables of a comparison: figures of every section, cost, curves."""
    tables = [_figures(section) for section in data["sections"]]
    tables += [cost for section in data["sections"] if (cost := _cost(section))]
    for env in dict.fromkeys(curve["env"] for curve in data["curves"]):
        tables.append(_curves(env, [curve for curve in data["curves"] if curve["env"] == env]))
    return tables


def notes(data: Data) -> list[str]:
    """What the marks mean, and the settings in which the rows differ."""
    rows = [row for section in data["sections"] for row in section["rows"]]
    gaps = [row["difference"] for row in rows if row["difference"]]
    lines = ["±: half of the 95 % interval over seeds and worlds; with one seed, over worlds alone."]
    if any(row["retry"] is not None for row in rows):
        lines.append("retries: the last p@k of the same agent without memory.")
    if any(row.get("share") is not None for row in rows):
        lines.append("share of the room: in the last episode, % of what memory can add (mulligan.eval.ceilings).")
    if any(row.get("of_optimum") for row in rows):
        lines.append("share of the optimum: % of the Bayes-optimal return (mulligan.eval.optimum), mean and by seed.")
    if any(not row["has_outcomes"] for row in rows):
        lines.append("*: without outcomes; the interval is that of one seed's tasks, and differences have none.")
    if any(not gap["same_seeds"] for gap in gaps):
        lines.append("†: the two have different seeds; paired by task alone.")
    return [*lines, *(_setting(name, values) for name, values in data["settings"].items())]


def _setting(name: str, values: Mapping[str, Sequence[str]]) -> str:
    """Which rows have which value; those with the most frequent value are not named."""
    usual = max(values, key=lambda value: len(values[value]))
    others = [f"{value or 'unset'} ({'; '.join(rows)})" for value, rows in values.items() if value != usual]
    return f"{name}: {usual or 'unset'}, but {', '.join(others)}"


def _figures(section: Data) -> Grid:
    versus, count = section["kind"] == "versus", section["episodes"]
    named = "episode " if versus else "p@"
    rows = section["rows"]
    has_retries = any(row["retry"] is not None for row in rows) and not versus
    has_seeds = any(len(row["seeds"]) > 1 for row in rows)
    columns = ["", *(f"{named}{k}" for k in range(1, count + 1))]
    columns += ["seeds", f"{named}{count} by seed"] if has_seeds else []
    columns += ["retries"] if has_retries else []
    has_shares = any(row.get("share") is not None for row in rows)
    columns += ["share of the room"] if has_shares else []
    has_optimum = any(row.get("of_optimum") for row in rows)
    columns += ["share of the optimum"] if has_optimum else []
    columns += [f"{named}{count} − {section['against']}"] if section["against"] else []
    cells = []
    for row in rows:
        line = [row["name"] + ("" if row["has_outcomes"] else "*")]
        for p, (low, high) in zip(row["p"], row["ci"], strict=True):
            line.append(f"{_number(p, versus)} ± {_number((high - low) / 2, versus).removeprefix('+')}")
        line += [str(len(row["seeds"])), " / ".join(_number(p, versus) for p in row["by_seed"])] if has_seeds else []
        line += ["" if row["retry"] is None else _number(row["retry"], versus)] if has_retries else []
        line += [_share(row)] if has_shares else []
        line += [_of_optimum(row.get("of_optimum"))] if has_optimum else []
        line += [_gap(row["difference"], versus)] if section["against"] else []
        cells.append(line)
    worlds = f" in {section['worlds']} worlds" if section["worlds"] < section["tasks"] else ""
    ceiling = "" if section["ceiling"] is None else f", ceiling {100 * section['ceiling']:.1f}"
    return Grid(f"{section['title']}: {section['tasks']} tasks{worlds}, {count} episodes{ceiling}", columns, cells)


def _cost(section: Data) -> Grid | None:
    """What training cost, without empty columns; None where nothing was trained."""
    rows = [row for row in section["rows"] if not row["is_further"]]
    columns = [name for name in _COST if any(row.get(name) for row in rows)]
    if "updates" not in columns:
        return None
    lines = [
        [row["name"], *("" if row[name] is None else f"{row[name]:{_COST[name]}}" for name in columns)] for row in rows
    ]
    return Grid(f"{section['title']}: training, mean over seeds", ["", *columns], lines)


def _curves(env: str, curves: Sequence[Data]) -> Grid:
    """Means over seeds of p@N on validation tasks, at a few of the updates that all curves have."""
    points = {curve["name"]: _mean_curve(curve) for curve in curves}
    updates = sorted(set().union(*points.values()))
    step = max(1, -(-(len(updates) - 1) // (_POINTS - 1)))
    chosen = [*updates[:-1:step], updates[-1]]
    rows = [
        [name, *(_number(curve[update], False) if update in curve else "" for update in chosen)]
        for name, curve in points.items()
    ]
    within = curves[0]["attempts"]
    title = (
        f"{env}: success on validation tasks within {within} attempt{'s' if within > 1 else ''}, after so many updates"
    )
    return Grid(title, ["", *map(str, chosen)], rows)


def _mean_curve(curve: Data) -> dict[int, float]:
    """Update -> the mean over the seeds that have it."""
    by_update: dict[int, list[float]] = {}
    for points in curve["seeds"].values():
        for update, share in points:
            by_update.setdefault(update, []).append(share)
    return {update: sum(shares) / len(shares) for update, shares in by_update.items()}


def _number(value: float, versus: bool) -> str:
    return f"{value:+.2f}" if versus else f"{100 * value:.1f}"


def _share(row: Data) -> str:
    if row.get("share") is None:
        return ""
    low, high = row["share_ci"]
    return f"{100 * row['share']:.0f} ± {50 * (high - low):.0f}"


def _of_optimum(shares: Sequence[float] | None) -> str:
    """The mean over seeds, and each of them."""
    if not shares:
        return ""
    by_seed = f" ({' / '.join(f'{100 * share:.0f}' for share in shares)})" if len(shares) > 1 else ""
    return f"{100 * sum(shares) / len(shares):.1f}{by_seed}"


def _gap(gap: Data | None, versus: bool) -> str:
    if gap is None:
        return ""
    mean, *interval = difference_cells([gap["mean"], *(gap["ci"] or ())], versus=versus)
    if not interval:
        return mean
    return f"{mean} [{', '.join(interval)}]" + ("" if gap["same_seeds"] else " †")


def rich_table(grid: Grid) -> Table:
    from rich.text import Text

    table = empty_table(grid.title)
    for number, column in enumerate(grid.columns):
        table.add_column(Text(visible(column)), justify="right" if number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


def markdown(data: Data) -> str:
    parts = []
    for grid in grids(data):
        lines = [f"**{in_one_line(grid.title)}**", "", markdown_row(grid.columns), "|" + "---|" * len(grid.columns)]
        parts.append("\n".join([*lines, *map(markdown_row, grid.rows)]))
    return "\n\n".join([*parts, "\n".join(f"- {in_one_line(note)}" for note in notes(data))]) + "\n"


def latex(data: Data) -> str:
    parts = []
    for grid in grids(data):
        lines = [f"% {in_one_line(grid.title)}", rf"\begin{{tabular}}{{l{'r' * (len(grid.columns) - 1)}}}", r"\toprule"]
        lines += [_latex_row(grid.columns), r"\midrule", *map(_latex_row, grid.rows), r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    signs = {"\\": r"\textbackslash{}", "±": r"$\pm$", "−": "$-$", "†": r"$\dagger$", "γ": r"$\gamma$", "%": r"\%"}
    signs |= {sign: f"\\{sign}" for sign in "_&#${}"} | {"^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return " & ".join("".join(signs.get(letter, letter) for letter in cell) for cell in cells) + r" \\"


def as_csv(data: Data) -> str:
    """One line a row, with bounds in columns of their own; shares as they are, not in percent."""
    most = max((section["episodes"] for section in data["sections"]), default=0)
    columns = ["tasks", "row", "seeds", *(f"{part}@{k}" for k in range(1, most + 1) for part in ("p", "low", "high"))]
    columns += ["retries", "against", "difference", "difference low", "difference high", *_COST]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for section in data["sections"]:
        for row in section["rows"]:
            shares = [value for p, ci in zip(row["p"], row["ci"], strict=True) for value in (p, *ci)]
            gap = row["difference"] or {"mean": None, "ci": None}
            line = [section["title"], row["name"], len(row["seeds"]), *shares, *[None] * (3 * most - len(shares))]
            line += [row["retry"], section["against"], gap["mean"], *(gap["ci"] or (None, None))]
            writer.writerow([*line, *(row.get(name) for name in _COST)])
    return text.getvalue()


def draw(data: Data, path: Path) -> None:
    """Above p@k of the main rows with their intervals, below p@N on validation tasks over the updates, every seed a
    line; a column for each environment."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("drawing curves", "plots") from error
    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot

    firsts: dict[str, Data] = {}
    for section in data["sections"]:
        firsts.setdefault(section["env"], section)
    figure, axes = pyplot.subplots(2, len(firsts), figsize=(5.5 * len(firsts), 7.5), squeeze=False)
    for column, (env, section) in enumerate(firsts.items()):
        top, below = axes[0][column], axes[1][column]
        shown = [row for row in section["rows"] if row["main"] and not row["is_further"]]
        colours = {row["name"]: _COLOURS[number % len(_COLOURS)] for number, row in enumerate(shown)}
        attempts = range(1, section["episodes"] + 1)
        for row in shown:
            shares, (low, high) = 100 * np.array(row["p"]), 100 * np.array(row["ci"]).T
            bars = np.maximum(0, [shares - low, high - shares])
            top.errorbar(attempts, shares, bars, marker="o", capsize=3, color=colours[row["name"]], label=row["name"])
        for curve in data["curves"]:
            for points in curve["seeds"].values() if curve["env"] == env and curve["name"] in colours else ():
                updates, shares = np.array(points).T
                below.plot(updates, 100 * shares, color=colours[curve["name"]], alpha=0.8)
        top.set(title=section["title"], xlabel="attempt k", ylabel="p@k (%)", xticks=list(attempts), ylim=(0, 102))
        attempts_of = [curve["attempts"] for curve in data["curves"] if curve["env"] == env] or [section["episodes"]]
        below.set(xlabel="update", ylabel=f"p@{attempts_of[0]} (%) on validation tasks", ylim=(0, 102))
        below.legend(*top.get_legend_handles_labels(), fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.15))
        for axis in (top, below):
            axis.grid(alpha=0.25)
    figure.tight_layout()
    path.unlink(missing_ok=True)  # a link would be followed
    figure.savefig(path, dpi=110, bbox_inches="tight")  # which makes room for the legends below the axes
    pyplot.close(figure)
