"""Other people's environments, by name: ``gymnasium:ID``, ``textarena:ID``, ``openspiel:GAME``.

Each module has `adapt(ident)`, which gives the class of that environment, and `catalogue()`, which lists what can be
played. The library behind it is imported only then.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from mulligan.envs.base import action_text

_ARROW, _ANGLE = re.compile(r"([-=])>"), "\ue000"


class Listed(NamedTuple):
    """One line of a catalogue."""

    name: str
    players: int
    summary: str


def action_with_arrows(reply: str) -> str | None:
    """As `action_text`, where an action may hold arrows (``3->14``)."""
    action = action_text(_ARROW.sub(rf"\1{_ANGLE}", reply))
    return None if action is None else action.replace(_ANGLE, ">")


def nearest(name: str, choices: Iterable[str]) -> list[str]:
    """Of many choices those that are nearest to `name`; a few of them where none is near."""
    choices = list(choices)
    return difflib.get_close_matches(name, choices, n=3) or [*choices[:8], "..."]
