"""Other people's environments, by name: ``gymnasium:ID``, ``textarena:ID``, ``openspiel:GAME``.

Each module has `adapt(ident)`, which gives the class of that environment; what it wraps is imported only then.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from typing import Any

from mulligan.envs.base import action_text
from mulligan.errors import MissingExtra

_ARROW, _ANGLE = re.compile(r"([-=])>"), "\ue000"


def action_with_arrows(reply: str) -> str | None:
    """What a reply's action says, where moves may have arrows (``3->14``): elsewhere an angle is no part of one."""
    said = action_text(_ARROW.sub(rf"\1{_ANGLE}", reply))
    return None if said is None else said.replace(_ANGLE, ">")


def library(name: str, who: str) -> Any:
    """The library `name`, imported only now; `who` needs it, and the extra of the same name brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(who, name) from None


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Of many known names those that are nearest to `name`; a few of them where none is near."""
    names = list(known)
    return difflib.get_close_matches(name, names, n=3) or [*names[:8], "..."]
