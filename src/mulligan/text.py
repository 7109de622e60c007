"""Text of models, servers and worlds, which nobody vouches for: made fit to be stored, and to be shown."""

from __future__ import annotations

import re

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, marks that turn the direction of writing, halves of surrogate pairs."""


def storable(text: str) -> str:
    """`text` with "?" for half a surrogate pair, which a cut-off reply may hold and nobody can show or send."""
    return text.encode("utf-8", "replace").decode()


def visible(text: str) -> str:
    r"""`text` as a terminal may have it: an escape sequence, which could clear it, becomes ``\x1b[2J``."""
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))
