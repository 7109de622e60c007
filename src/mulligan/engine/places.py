"""What the slots of every engine have in common: who waits for one, and how much memory they take."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from mulligan.engine.base import Stream
from mulligan.errors import MemoryFull, ParameterError

SHARE_OF_MEMORY = 0.35
"""Of what is free, for keys and values."""
SPARE_SLOTS = 2
"""Slots that nobody plays in: one holds the shared prompt, one takes what idle rows write."""


class Waiting:
    """Those who wait for a place, in the order of asking. `seat` gives one, or None where all are taken."""

    def __init__(self, seat: Callable[[], Stream | None]) -> None:
        self.seat = seat
        self.queue: deque[asyncio.Future[Stream]] = deque()

    async def open(self) -> Stream:
        """A place, at once or when it is one's turn."""
        stream = self.seat() if not self.queue else None
        if stream is not None:
            return stream
        seated: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self.queue.append(seated)
        try:
            return await seated
        except asyncio.CancelledError:
            if seated.done() and not seated.cancelled():
                seated.result().close()
            raise

    def admit(self) -> None:
        """Seat as many as there are places for."""
        while self.queue:
            if self.queue[0].done():  # given up
                self.queue.popleft()
                continue
            stream = self.seat()
            if stream is None:
                return
            self.queue.popleft().set_result(stream)


def check_sizes(slots: int, chunk: int) -> None:
    """Refuse an engine that could hold or read nothing."""
    for name, value in (("slots", slots), ("chunk", chunk)):
        if value < 1:
            raise ParameterError(f"{name} must be >= 1 (got {value})")


def cache_heads(config: Any) -> tuple[int, int]:
    """Heads of keys of a model's configuration, and the size of one."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def token_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes that the keys and values of one token take."""
    heads, size = cache_heads(config)
    return int(2 * config.num_hidden_layers * heads * size * dtype.itemsize)


def slots_that_fit(slots: int, context: int, token: int, free: int, reserved: int = 0) -> int:
    """How many of `slots` sequences of `context` tokens the memory holds; `MemoryFull` where it holds none.

    token     bytes of keys and values of one token (`token_bytes`)
    free      bytes that are free now
    reserved  of them, bytes that something else will need later
    """
    room = min(SHARE_OF_MEMORY * free, free - reserved)
    fits = int(room // (token * context)) - SPARE_SLOTS
    if fits < 1:
        raise MemoryFull(
            f"no sequence of {context:,} tokens fits the GPU's memory: keys and values of {1 + SPARE_SLOTS} slots x "
            f"{context:,} tokens x {token:,} bytes = {(1 + SPARE_SLOTS) * context * token / 2**30:.1f} GiB, and "
            f"{max(0.0, room) / 2**30:.1f} GiB are left for them ({free / 2**30:.1f} GiB are free, of which training "
            f"will take {reserved / 2**30:.1f}); lower trial.max_tokens or engine.context, or train an adapter "
            "(model.lora_rank)"
        )
    return min(slots, fits)
