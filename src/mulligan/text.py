"""Text of models, servers and worlds, which nobody vouches for: made fit to be stored, and to be shown."""

from __future__ import annotations

import html
import re

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, marks that turn the direction of writing, halves of surrogate pairs."""


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escape(text: object) -> str:
    """Text for HTML and XML; characters that XML does not allow become the replacement character."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)))


def storable(text: str) -> str:
    """`text` with "?" for half a surrogate pair, which a cut-off reply may hold and nobody can show or send."""
    return text.encode("utf-8", "replace").decode()


def visible(text: str) -> str:
    r"""`text` as a terminal may have it: an escape sequence, which could clear it, becomes ``\x1b[2J``."""
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))
