"""How results show themselves in a notebook: as a small HTML table, and as a pandas frame."""

from __future__ import annotations

import html
import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.errors import MissingExtra

# tqdm, which transformers imports, gives this warning in a notebook without ipywidgets, and writes text there.
warnings.filterwarnings("ignore", "IProgress not found")


class Shown:
    """A result that shows its rows."""

    __slots__ = ()

    def rows(self) -> Sequence[Mapping[str, object]]:
        raise NotImplementedError

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError:
            raise MissingExtra("to_frame()", "notebook") from None
        return pandas.DataFrame(list(self.rows()))

    def _repr_html_(self) -> str:
        return to_html(repr(self).strip("<>"), self.rows())


def to_html(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """The rows as a table under a title; a column stands where the first row that has it puts it."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[f"<td>{html.escape(_cell(row.get(name)))}</td>" for name in columns] for row in rows]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
