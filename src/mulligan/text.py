"""Text of models, servers and worlds, which nobody vouches for: made fit to be stored, and to be shown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, marks that turn the direction of writing, halves of surrogate pairs."""


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_IN_CELL = re.compile(r"([\\|<])")


def escape(text: object) -> str:
    """Text for HTML and XML; characters that XML does not allow become the replacement character."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)))


def in_one_line(text: str) -> str:
    """`text` with a space for each run of white space."""
    return " ".join(text.split())


def markdown_row(cells: Iterable[str]) -> str:
    r"""A line of a Markdown table. What would end a cell or begin HTML in it is escaped: ``a|b`` becomes ``a\|b``."""
    return "| " + " | ".join(_IN_CELL.sub(r"\\\1", in_one_line(cell)) for cell in cells) + " |"


def storable(text: str) -> str:
    """`text` with "?" for half a surrogate pair, which a cut-off reply may hold and nobody can show or send."""
    return text.encode("utf-8", "replace").decode()


def visible(text: str) -> str:
    r"""`text` as a terminal may have it: an escape sequence, which could clear it, becomes ``\x1b[2J``."""
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))
