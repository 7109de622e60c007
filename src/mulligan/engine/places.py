"""What the places of every engine have in common: who waits for one, what fits into it, and how large it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch

from mulligan.errors import ContextFull, MemoryFull, UsageError

SHARE_OF_MEMORY = 0.35
"""Of what is free, for keys and values."""
SPARE_SLOTS = 2
"""Slots that nobody plays in: one holds the common opening, one takes what idle rows write."""


class Closable(Protocol):
    def close(self) -> None: ...


Stream = TypeVar("Stream", bound=Closable)


class Waiting(Generic[Stream]):
    """Those who wait for a place, in the order of asking. `seat` gives one, or None where all are taken."""

    def __init__(self, seat: Callable[[], Stream | None]) -> None:
        self.seat = seat
        self.queue: deque[asyncio.Future[Stream]] = deque()

    def __len__(self) -> int:
        return len(self.queue)

    async def open(self) -> Stream:
        """A place, at once or when it is one's turn."""
        stream = self.seat() if not self.queue else None
        if stream is not None:
            return stream
        place: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self.queue.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                place.result().close()
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


def need_open(closed: bool) -> None:
    """Refuse to extend a stream that is closed."""
    if closed:
        raise UsageError("the stream is closed, and its place may be another's by now; open another one")


def room_after(length: int, wanted: int, context: int) -> int:
    """How many of `wanted` tokens a sequence of `length` has room for; `ContextFull` where it has none."""
    room = min(wanted, context - length)
    if room < 1:
        raise ContextFull(f"the prompt of {length} tokens leaves no room in a context of {context}")
    return room


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
