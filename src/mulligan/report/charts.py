"""What the report draws: line charts and boards, as inline SVG that is well-formed XML too.

Colours are classes (``c0`` … ``c6``, ``grid``, ``axis`` …) that the page's style sheet gives values, so that light and
dark differ there alone. The series colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAIN = ("RL", "meta-RL")
"""The methods that every chart sets off against each other; all others are drawn thinly."""
_OTHER_COLOURS = (0, 3, 4, 5, 6)
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

WIDTH, HEIGHT = 480, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 124, 14, 44
_NEARLY, _LETTER = 48, 8.2
_CELL, _MARGIN = 34, 20

Data = Mapping[str, Any]
Pixel = tuple[float, float]
Board = tuple[tuple[str, ...], ...]
Cell = tuple[int, int]


def escape(text: object) -> str:
    """Text as HTML and XML take it; what no browser may show becomes the replacement character."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)))


def number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def share_at(row: Data, place: int) -> float | None:
    """p@(place + 1) of a row; a negative place counts from the end."""
    shares = row.get("p") or ()
    return number(shares[place]) if -len(shares) <= place < len(shares) else None


def interval_at(row: Data, place: int) -> tuple[float, float] | None:
    spans = row.get("ci") or ()
    span = spans[place] if place < len(spans) else None
    low, high = (number(span[0]), number(span[1])) if span else (None, None)
    return None if low is None or high is None else (low, high)


def attempt_count(data: Data) -> int:
    return max((len(row.get("p") or ()) for row in (data.get("rows") or ())), default=0)


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a method is drawn, the same in every chart."""

    colour: int
    dash: str
    main: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One method in one chart."""

    name: str
    points: tuple[Pixel, ...]
    """(x, share between 0 and 1)"""
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    """(low, high) of each point; None, or nothing at all, where it is not known."""


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes of a chart say, and where its data lie in the picture."""

    title: str
    x_label: str
    y_label: str
    ticks: tuple[tuple[float, str], ...]
    """Of the x axis: (x, what stands there)."""
    x_range: tuple[float, float]
    y_top: float
    """Share at the upper end; the lower end is 0."""

    def at(self, x: float, share: float) -> Pixel:
        low, high = self.x_range
        across = (x - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)
        return _LEFT + across, HEIGHT - _BOTTOM - share / self.y_top * (HEIGHT - _TOP - _BOTTOM)


def strokes(names: Iterable[str]) -> dict[str, Stroke]:
    """A stroke for each method: ``RL, twice the updates`` has the colour of ``RL``, and is dashed."""
    known = list(dict.fromkeys(names))
    others = itertools.cycle(_OTHER_COLOURS)
    colours = {main: place for place, main in enumerate(MAIN, 1)}
    variants: dict[str, int] = {}
    found = {}
    for name in known:
        base = name.split(", ")[0]
        if base not in colours:
            colours[base] = next(others)
        variants.setdefault(base, 1)
        if name == base:
            dash = _DASHES[0]
        else:
            dash = _DASHES[min(variants[base], len(_DASHES) - 1)]
            variants[base] += 1
        found[name] = Stroke(colours[base], dash, name in MAIN)
    return found


def top_of(shares: Iterable[float]) -> float:
    """The upper end of a share axis: the next fifth above everything that is drawn."""
    highest = max(shares, default=1.0)
    return next((fifth / 5 for fifth in range(1, 5) if highest <= fifth / 5 - 0.02), 1.0)


def whole_ticks(last: float) -> tuple[tuple[float, str], ...]:
    """Round whole numbers from 0 to `last`, seven at the most."""
    steps = (base * 10**power for power in range(12) for base in (1, 2, 5))
    step = next((step for step in steps if last / step <= 6), 10**12)
    return tuple((float(tick), str(tick)) for tick in range(0, int(last) + 1, step))


def line_chart(axes: Axes, lines: Sequence[Line], how: Mapping[str, Stroke], ceiling: float | None = None) -> str:
    """The chart as one ``<svg>``; the main methods lie on top, and are the first to get a label at their end."""
    ordered = sorted(lines, key=lambda line: how[line.name].main)
    drawn = [piece for line in ordered for piece in _line(axes, line, how[line.name])]
    paths = {line.name: [axes.at(*point) for point in line.points] for line in lines if line.points}
    body = "".join([*_frame(axes), *_ceiling(axes, ceiling), *drawn, *_labels(paths, how)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(axes.title)}" class="chart">{body}</svg>'
    )


def _frame(axes: Axes) -> Iterator[str]:
    left, right, floor = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    for fifth in range(round(axes.y_top * 5) + 1):
        y = axes.at(axes.x_range[0], fifth / 5)[1]
        yield f'<path d="M{left} {y:.1f}H{right}" class="{"grid" if fifth else "axis"}"/>'
        yield _text(left - 7, y + 4, f"{20 * fifth}", "tick", "end")
    for tick, label in axes.ticks:
        x = axes.at(tick, 0)[0]
        yield f'<path d="M{x:.1f} {floor}v5" class="axis"/>' + _text(x, floor + 18, label, "tick", "middle")
    yield _text((left + right) / 2, HEIGHT - 8, axes.x_label, "name", "middle")
    middle = (_TOP + floor) / 2
    yield (
        f'<text x="12" y="{middle}" class="name" text-anchor="middle" transform="rotate(-90 12 {middle})">'
        f"{escape(axes.y_label)}</text>"
    )


def _ceiling(axes: Axes, ceiling: float | None) -> Iterator[str]:
    if ceiling is not None and ceiling <= axes.y_top:
        y = axes.at(axes.x_range[0], ceiling)[1]
        yield f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" class="ceiling"/>'
        yield _text(WIDTH - _RIGHT + 6, y + 4, f"ceiling {100 * ceiling:.1f}", "tick", "start")


def _line(axes: Axes, line: Line, stroke: Stroke) -> Iterator[str]:
    weight = "main" if stroke.main else "thin"
    places = [axes.at(*point) for point in line.points]
    for (x, _), span in zip(places, line.whiskers, strict=False):
        if span is not None:
            low, high = (axes.at(0, min(max(share, 0.0), axes.y_top))[1] for share in span)
            shape = f"M{x:.1f} {low:.1f}V{high:.1f}m-3 0h6M{x - 3:.1f} {low:.1f}h6"
            yield f'<path d="{shape}" class="whisker {weight} c{stroke.colour}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = f' stroke-dasharray="{stroke.dash}"' if stroke.dash else ""
    yield f'<polyline points="{path}" class="line {weight} c{stroke.colour}"{dash}><title>{escape(line.name)}</title>'
    yield "</polyline>"
    if stroke.main or line.whiskers:
        radius = 3.5 if line.whiskers and stroke.main else 2.2
        for (x, y), (_, share) in zip(places, line.points, strict=True):
            said = escape(f"{line.name}: {100 * share:.1f} %")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="dot c{stroke.colour}">'
            yield f"<title>{said}</title></circle>"


def _labels(paths: Mapping[str, Sequence[Pixel]], how: Mapping[str, Stroke]) -> Iterator[str]:
    """Names beside the ends of the lines, wherever one lies free; the legend has them all."""
    drawn = [point for path in paths.values() for point in _along(path)]
    labels: list[tuple[float, float, float]] = []
    for name in sorted(paths, key=lambda name: not how[name].main):
        end, y = paths[name][-1]
        rivals = [path[-1][1] for other, path in paths.items() if other != name and abs(path[-1][0] - end) < _NEARLY]
        if WIDTH - _RIGHT - end < _NEARLY:
            end = WIDTH - _RIGHT  # beside the plot nothing is in the way
        start, stop = end + 8, end + 8 + _LETTER * len(name)
        if ", " in name or stop > WIDTH:
            continue
        for shift in (0, -6, 6, -11, 11):
            at = y + shift
            covers = any(start - 2 < px < stop and abs(py - at) < 8 for px, py in drawn)
            collides = any(left < stop and start < right and abs(there - at) < 13 for left, right, there in labels)
            misleads = any(abs(rival - at) < abs(shift) for rival in rivals)
            if not (covers or collides or misleads):
                labels.append((start, stop, at))
                kind = f"label {'main' if how[name].main else 'thin'} c{how[name].colour}"
                yield _text(start, at + 4, name, kind, "start")
                break


def _along(path: Sequence[Pixel]) -> Iterator[Pixel]:
    """Points on a line, close enough to see what a label would cover."""
    yield from path
    for (x, y), (to_x, to_y) in itertools.pairwise(path):
        yield from ((x + (to_x - x) * part / 16, y + (to_y - y) * part / 16) for part in range(1, 16))


def _text(x: float, y: float, said: str, kind: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(said)}</text>'


def legend(names: Iterable[str], how: Mapping[str, Stroke]) -> str:
    """Every method with a piece of its line, as a list that wraps where the screen is narrow."""
    items = []
    for name in names:
        stroke = how[name]
        dash = f' stroke-dasharray="{stroke.dash}"' if stroke.dash else ""
        sample = f'<path d="M1 6H29" class="line {"main" if stroke.main else "thin"} c{stroke.colour}"{dash}/>'
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 12" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{svg}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def attempts(data: Data, how: Mapping[str, Stroke]) -> str:
    """The picture of the whole matter: who rises from attempt to attempt."""
    rows, count = data.get("rows") or (), attempt_count(data)
    lines, ends = [], [0.0]
    for place, row in enumerate(rows):
        # Whiskers of equal shares would hide each other: each method stands a little beside the next.
        aside = 0.26 * (place / (len(rows) - 1) - 0.5) if len(rows) > 1 else 0.0
        found = [(k, share) for k in range(count) if (share := share_at(row, k)) is not None]
        spans = tuple(interval_at(row, k) for k, _ in found)
        lines.append(Line(row["method"], tuple((k + 1 + aside, share) for k, share in found), spans))
        ends += [share for _, share in found] + [span[1] for span in spans if span]
    if not count or not any(line.points for line in lines):
        return ""
    ceiling = number(data.get("ceiling"))
    ticks = tuple((float(k), str(k)) for k in range(1, count + 1))
    top = top_of([*ends, ceiling or 0.0])
    axes = Axes("p@k by attempt", "attempts k", "tasks solved, %", ticks, (0.8, count + 0.2), top)
    chart = line_chart(axes, lines, how, ceiling)
    return (
        f'<section><h2>p@k by attempt</h2><figure class="wide">{chart}<figcaption>'
        f"{legend([line.name for line in lines], how)}"
        '<p class="muted">Whiskers are 95\u00a0% intervals; the methods stand side by side only to keep them apart. '
        "A line that rises shows what further attempts at the same task are worth to that agent.</p>"
        "</figcaption></figure></section>"
    )


def curves(data: Data, how: Mapping[str, Stroke]) -> str:
    """Learning curves at the first and at the last attempt."""
    found = {name: points for name, points in (data.get("curves") or {}).items() if points}
    count = max((len(point.get("p") or ()) for points in found.values() for point in points), default=0)
    if not count:
        return ""
    panels = {
        place: [Line(name, tuple(_learned(points, place))) for name, points in found.items()]
        for place in dict.fromkeys((0, count - 1))
    }
    drawn = [point for lines in panels.values() for line in lines for point in line.points]
    last, top = max((x for x, _ in drawn), default=0.0), top_of(share for _, share in drawn)
    charted = []
    for place, lines in panels.items():
        label = f"validation p@{place + 1}, %"
        axes = Axes(label, "updates", label, whole_ticks(last), (0.0, last or 1.0), top)
        charted.append(f"<figure><h3>p@{place + 1}</h3>{line_chart(axes, lines, how)}</figure>")
    size = number(data.get("validation_tasks"))
    return (
        f'<section><h2>Learning curves</h2><div class="pair">{"".join(charted)}</div>{legend(found, how)}'
        f'<p class="muted">On {"" if size is None else f"{size:.0f} "}validation tasks, which are not those of the '
        "table. There are few of them, so that single points are noisy; nothing is smoothed.</p></section>"
    )


def _learned(points: Iterable[Data], place: int) -> Iterator[tuple[float, float]]:
    for point in points:
        update, share = number(point.get("update")), share_at(point, place)
        if update is not None and share is not None:
            yield update, share


def read_board(text: str) -> Board | None:
    """The board that a text begins with: single characters in equal rows, with or without numbered edges."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    numbered = len(rows) > 1 and all(row[0] == str(place) for place, row in enumerate(rows[1:], 1))
    if numbered and rows[0] == [str(place) for place in range(1, len(rows[1]))]:
        rows = [row[1:] for row in rows[1:]]
    elif len(rows) > 1 and all(len(row) == 1 for row in rows) and set("?*#._") & set("".join(row[0] for row in rows)):
        rows = [list(row[0]) for row in rows]
    else:
        rows = list(itertools.takewhile(lambda row: all(len(sign) == 1 for sign in row), rows))
        if len(rows) < 2:
            return None
    regular = rows and len({len(row) for row in rows}) == 1 and all(len(sign) == 1 for row in rows for sign in row)
    return tuple(map(tuple, rows)) if regular and len(rows) * len(rows[0]) > 1 and len(rows[0]) > 1 else None


def has_mines(board: Board) -> bool:
    """Whether the signs are MineSweeper's, where a star is a mine (elsewhere it may be a box on its goal)."""
    return {sign for row in board for sign in row} <= set("?*012345678")


def draw_board(board: Board, order: Mapping[Cell, int], rings: Iterable[Cell], *, letters: bool, title: str) -> str:
    """A board; `order` numbers the cells the agent chose, `rings` are mines known before, `letters` name columns."""
    ringed, mines = set(rings), has_mines(board)
    parts = []
    for col in range(len(board[0])):
        name = chr(ord("a") + col) if letters and col < 26 else str(col + 1)
        parts.append(_text(_MARGIN + (col + 0.5) * _CELL, 14, name, "tick", "middle"))
    for row, signs in enumerate(board):
        parts.append(_text(_MARGIN - 7, _MARGIN + (row + 0.5) * _CELL + 4, str(row + 1), "tick", "end"))
        for col, sign in enumerate(signs):
            parts += _cell(row, col, sign, order.get((row, col)), ring=(row, col) in ringed, mines=mines)
    width, height = _MARGIN + len(board[0]) * _CELL + 2, _MARGIN + len(board) * _CELL + 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" class="board" '
        f'aria-label="{escape(title)}" style="width:{width}px">{"".join(parts)}</svg>'
    )


def _cell(row: int, col: int, sign: str, turn: int | None, *, ring: bool, mines: bool) -> Iterator[str]:
    x, y = _MARGIN + col * _CELL, _MARGIN + row * _CELL
    hit = mines and sign == "*"
    kind = "hit" if hit else "closed" if sign in "?#" else "open"
    chosen = " chosen" if turn is not None and not hit else ""
    size = _CELL - 2
    yield f'<rect x="{x + 1}" y="{y + 1}" width="{size}" height="{size}" rx="4" class="cell {kind}{chosen}"/>'
    middle_x, middle_y = x + _CELL / 2, y + _CELL / 2
    if hit:
        spikes = "M-9 0H9M0 -9V9M-6 -6L6 6M-6 6L6 -6"
        yield f'<g transform="translate({middle_x} {middle_y + 2})" class="mine">'
        yield f'<circle r="6"/><path d="{spikes}"/></g>'
    elif not (mines and sign == "?"):
        faint = "faint" if sign in "0._" else "sign"
        yield _text(middle_x, middle_y + 6, sign, faint, "middle")
    if ring and not hit:
        yield f'<circle cx="{middle_x}" cy="{middle_y}" r="10" class="ring"/>'
    if turn is not None:
        yield _text(x + 4, y + 11, str(turn), "turn onhit" if hit else "turn", "start")
