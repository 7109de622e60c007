"""What a shopper knows of names before shopping: those that mean the same kind of product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.envs.webshop.generate import other_names
from mulligan.envs.webshop.tiny import names_of

if TYPE_CHECKING:
    from mulligan.envs.webshop.env import WebShop


def kind_names(world: WebShop) -> tuple[str, ...]:
    """The names of the kind that is asked for; of a catalogue that is not made up, only the one it is filed under."""
    kind = world.goal.kind
    return names_of(kind) if world.tiny else other_names(kind) if world.made_up else (kind,)
