"""The line charts of the report, as inline SVG that is well-formed XML too.

Colours are classes (``c0`` … ``c6``, ``grid``, ``axis``) of the page's style sheet, so that charts follow its light and
dark colours. The series colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import html
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MAIN = ("RL", "meta-RL")
"""All other methods are drawn thinly."""
_OTHER_COLOURS = (0, 3, 4, 5, 6)
_DASHES = ("7 4", "2 3", "9 3 2 3")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_WIDTH, _HEIGHT = 480, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 14, 44

Data = Mapping[str, Any]
Point = tuple[float, float]


def escape(text: object) -> str:
    """Text for HTML and XML; characters that XML does not allow become the replacement character."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)))


class Stroke(NamedTuple):
    """How a method is drawn, the same in every chart: colour class, `stroke-dasharray`, whether it is in `MAIN`."""

    colour: int
    dash: str
    main: bool

    def attributes(self, kind: str) -> str:
        return f'class="{kind} {"main" if self.main else "thin"} c{self.colour}"'

    @property
    def line(self) -> str:
        return self.attributes("line") + (f' stroke-dasharray="{self.dash}"' if self.dash else "")


class Line(NamedTuple):
    """One method in one chart: points (x, share) and, where the chart has them, the (low, high) of each."""

    name: str
    points: Sequence[Point]
    intervals: Sequence[Point] = ()


class Axes(NamedTuple):
    """The axes of a chart; the y axis has shares from 0 to `y_top`."""

    x_label: str
    y_label: str
    ticks: Sequence[float]
    x_range: Point
    y_top: float

    def at(self, x: float, share: float) -> Point:
        low, high = self.x_range
        x_pixel = _LEFT + (x - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)
        return x_pixel, _HEIGHT - _BOTTOM - share / self.y_top * (_HEIGHT - _TOP - _BOTTOM)


def strokes(names: Iterable[str]) -> dict[str, Stroke]:
    """A stroke for each method: ``RL, twice the updates`` has the colour of ``RL``, and is dashed."""
    others = itertools.cycle(_OTHER_COLOURS)
    colours = {method: number for number, method in enumerate(MAIN, 1)}
    variants: Counter[str] = Counter()
    by_name = {}
    for name in dict.fromkeys(names):
        base = name.split(", ")[0]
        if base not in colours:
            colours[base] = next(others)
        variants[base] += name != base
        dash = "" if name == base else _DASHES[min(variants[base], len(_DASHES)) - 1]
        by_name[name] = Stroke(colours[base], dash, name in MAIN)
    return by_name


def _chart(axes: Axes, lines: Sequence[Line], how: Mapping[str, Stroke], ceiling: float | None = None) -> str:
    """The chart as one ``<svg>``; the main methods lie on top."""
    ordered = sorted(lines, key=lambda line: how[line.name].main)
    parts = [*_frame(axes), *(part for line in ordered for part in _line(axes, line, how[line.name]))]
    if ceiling is not None:
        y = axes.at(0, ceiling)[1]
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" class="ceiling"/>')
        parts.append(_text(_WIDTH - _RIGHT, y - 5, f"ceiling {100 * ceiling:.1f}", "tick", "end"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(axes.y_label)}" class="chart">{"".join(parts)}</svg>'
    )


def _frame(axes: Axes) -> Iterator[str]:
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for fifth in range(round(axes.y_top * 5) + 1):
        y = axes.at(0, fifth / 5)[1]
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" class="{"grid" if fifth else "axis"}"/>'
        yield _text(_LEFT - 7, y + 4, f"{20 * fifth}", "tick", "end")
    for tick in axes.ticks:
        x = axes.at(tick, 0)[0]
        yield f'<path d="M{x:.1f} {floor}v5" class="axis"/>' + _text(x, floor + 18, f"{tick:g}", "tick", "middle")
    yield _text((_LEFT + right) / 2, _HEIGHT - 8, axes.x_label, "name", "middle")
    yield f'<g transform="rotate(-90 12 {floor / 2})">{_text(12, floor / 2, axes.y_label, "name", "middle")}</g>'


def _line(axes: Axes, line: Line, stroke: Stroke) -> Iterator[str]:
    pixels = [axes.at(*point) for point in line.points]
    for (x, _), interval in zip(pixels, line.intervals, strict=False):
        low, high = (axes.at(0, share)[1] for share in interval)
        shape = f"M{x:.1f} {low:.1f}V{high:.1f}m-3 0h6M{x - 3:.1f} {low:.1f}h6"
        yield f'<path d="{shape}" {stroke.attributes("whisker")}/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    yield f'<polyline points="{path}" {stroke.line}><title>{escape(line.name)}</title></polyline>'
    for (x, y), (_, share) in zip(pixels, line.points, strict=True):
        title = escape(f"{line.name}: {100 * share:.1f} %")
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" class="dot c{stroke.colour}"><title>{title}</title></circle>'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def legend(names: Iterable[str], how: Mapping[str, Stroke]) -> str:
    """Every method with a piece of its line, as a list that wraps where the screen is narrow."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 12" aria-hidden="true"><path d="M1 6H29" {}/></svg>'
    items = [f"<li>{svg.format(how[name].line)}{escape(name)}</li>" for name in names]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _top(shares: Iterable[float]) -> float:
    """The upper end of a share axis: the next fifth above everything that is drawn."""
    highest = max(shares)
    return next((fifth / 5 for fifth in range(1, 5) if highest <= fifth / 5 - 0.02), 1.0)


def whole_ticks(last: int) -> list[int]:
    """Round whole numbers from 0 to `last`, seven at the most."""
    steps = (base * 10**power for power in itertools.count() for base in (1, 2, 5))
    step = next(step for step in steps if last / step <= 6)
    return list(range(0, last + 1, step))


def attempts(data: Data, how: Mapping[str, Stroke]) -> str:
    rows, count, ceiling = data["rows"], data["episodes"], data["ceiling"]
    lines = []
    for number, row in enumerate(rows):
        # Whiskers of equal shares would hide each other: each method stands a little beside the next.
        shift = 0.26 * (number / max(1, len(rows) - 1) - 0.5)
        points = [(k + shift, share) for k, share in enumerate(row["p"], 1)]
        lines.append(Line(row["method"], points, row["ci"]))
    top = _top([ceiling, *(high for line in lines for _, high in line.intervals)])
    axes = Axes("attempts k", "tasks solved, %", range(1, count + 1), (0.8, count + 0.2), top)
    return (
        f'<section><h2>p@k by attempt</h2><figure class="wide">{_chart(axes, lines, how, ceiling)}<figcaption>'
        f"{legend([line.name for line in lines], how)}"
        '<p class="muted">Whiskers are 95\u00a0% intervals; the methods stand side by side only to keep them apart. '
        "A line that rises shows what further attempts at the same task are worth to that agent.</p>"
        "</figcaption></figure></section>"
    )


def curves(data: Data, how: Mapping[str, Stroke]) -> str:
    by_method = data["curves"]
    points = [point for curve in by_method.values() for point in curve]
    last, top = max(point["update"] for point in points), _top(max(point["p"]) for point in points)
    figures = []
    for k in dict.fromkeys((1, data["episodes"])):
        label = f"validation p@{k}, %"
        axes = Axes("updates", label, whole_ticks(last), (0, last or 1), top)
        lines = [
            Line(name, [(point["update"], point["p"][k - 1]) for point in curve]) for name, curve in by_method.items()
        ]
        figures.append(f"<figure><h3>p@{k}</h3>{_chart(axes, lines, how)}</figure>")
    return (
        f'<section><h2>Learning curves</h2><div class="pair">{"".join(figures)}</div>{legend(by_method, how)}'
        f'<p class="muted">On {data["validation_tasks"]} validation tasks, which are not those of the '
        "table. There are few of them, so that single points are noisy; nothing is smoothed.</p></section>"
    )
