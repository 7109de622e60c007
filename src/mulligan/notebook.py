"""How results show themselves in a notebook: as a small HTML table, and as a pandas frame."""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.errors import MissingExtra

Row = Mapping[str, object]


def to_frame(rows: Sequence[Row]) -> Any:
    """The rows as a `pandas.DataFrame`."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise MissingExtra("to_frame()", "notebook") from None
    return pandas.DataFrame(list(rows))


def to_html(title: str, rows: Sequence[Row]) -> str:
    """The rows as a table under a title; a column stands where the first row that has it puts it."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(row.get(name, '')))}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
