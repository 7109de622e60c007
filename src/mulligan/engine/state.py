"""What the GPU must know of a slot to go on by itself: one row of int32 numbers a slot.

The host writes a slot's row when a reply is asked for; from then on sampling moves it, step by step, without the host.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

LAST = 0
"""The newest token of the sequence: the model has not seen it yet."""
LENGTH = 1
"""Tokens whose keys and values are in the cache: the position that the newest one goes to."""
LEFT = 2
"""Tokens that may still be drawn for this reply."""
DONE = 3
"""1: nothing is to be drawn."""
SEED = 4
"""Of this reply's random numbers; the position counts them."""
SCALE = 5
"""What logits are multiplied by: the bits of a float32."""
GREEDY = 6
"""1: the most likely token is taken."""
TOP_P = 7
"""Tokens are drawn from the fewest whose probability reaches this: the bits of a float32."""
STOPS = 8
"""From here on: tokens that end a reply; -1 where there are fewer."""
MOST_STOPS = 8
STATE = STOPS + MOST_STOPS
"""Numbers a slot."""

Tiles = tuple[Tensor, Tensor]
"""First token and number of tokens of each tile: [tile], [tile]."""


class SlotPositions(NamedTuple):
    """Where tokens belong. [T] each."""

    slots: Tensor
    positions: Tensor


class KeyValues(NamedTuple):
    """The cache of one layer: [slot, kv head, position, size] each."""

    keys: Tensor
    values: Tensor
