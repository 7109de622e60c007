"""What every engine has: streams, what they give back, and who waits for one.

A `Stream` is one append-only sequence whose past stays cached: extend it with new prompt tokens, and the engine samples
a reply that becomes part of it. Streams are independent of each other and of the clock.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from mulligan.errors import ContextFull
from mulligan.types import Sampling


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was drawn."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the sampling distribution, after temperature."""
    finish: Literal["stop", "length"]
    """"stop": the last token is one of the stop tokens; "length": the limit came first."""


class Pair(NamedTuple):
    """A reply and what comes before it, as tokens."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


class StreamEngine(Protocol):
    """Samples from one model for many streams at once."""

    context: int
    """The longest sequence."""

    async def open(self) -> Stream:
        """A stream, at once or when one is free."""

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        """How likely each reply is after its prompt."""

    def ask(self, stream: Stream) -> None:
        """Read the stream's pending tokens and draw its reply, from the next round of the event loop on."""

    def forget(self, stream: Stream) -> None:
        """Give up the reply that is being drawn, if any."""

    def release(self, stream: Stream) -> None:
        """Free the stream's slot at once."""


class Stream:
    """One sequence in one slot."""

    def __init__(self, engine: StreamEngine, slot: int) -> None:
        self.engine, self.slot = engine, slot
        self.cached = 0
        """Tokens whose keys and values are in the cache, or will be when what is queued is done."""
        self.pending: list[int] = []
        """Tokens of the sequence that come after them."""
        self.reply: asyncio.Future[Sampled] | None = None
        self.sampling = Sampling()
        self.stop: Collection[int] = ()
        self.rng = random.Random(0)
        self.room = 0
        """Tokens that the reply may have."""
        self.closed = False

    @property
    def length(self) -> int:
        """Tokens in the sequence so far, replies included."""
        return self.cached + len(self.pending)

    async def extend(
        self, ids: Sequence[int], sampling: Sampling, stop: Collection[int], rng: random.Random
    ) -> Sampled:
        """Append `ids`, then sample until a stop token or the limit."""
        length = self.length + len(ids)
        room = min(sampling.max_tokens, self.engine.context - length)
        if room < 1:
            raise ContextFull(f"the prompt of {length} tokens leaves no room in a context of {self.engine.context}")
        self.room, self.sampling, self.stop, self.rng = room, sampling, stop, rng
        self.reply = asyncio.get_running_loop().create_future()
        try:
            self.engine.ask(self)  # where it refuses, the sequence stays as it was
            self.pending += ids
            return await self.reply
        except asyncio.CancelledError:
            if not self.closed:  # otherwise the slot may be another's by now
                self.engine.forget(self)
            raise
        finally:
            self.reply = None

    def finish(self, outcome: Sampled | Exception) -> None:
        """Hand the reply, or why there is none, to whoever waits for it."""
        if self.reply is None or self.reply.done():
            return
        if isinstance(outcome, Exception):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)

    def restart(self) -> None:
        """Forget the sequence and begin an empty one in the same slot."""
        self.engine.forget(self)
        self.cached, self.pending = 0, []

    def close(self) -> None:
        """Free the slot at once."""
        if not self.closed:
            self.closed = True
            if self.reply is not None:
                self.reply.cancel()
            self.engine.release(self)


class Waiting:
    """Those who wait for a place, in the order of asking."""

    def __init__(self) -> None:
        self.queue: deque[tuple[asyncio.Future[Stream], Callable[[], Stream | None]]] = deque()

    async def open(self, seat: Callable[[], Stream | None]) -> Stream:
        """A place, at once or when it is one's turn. `seat` gives one, or None where all are taken."""
        seated: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self.queue.append((seated, seat))
        self.admit()
        try:
            return await seated
        except asyncio.CancelledError:
            if seated.done() and not seated.cancelled():
                seated.result().close()
            raise

    def admit(self) -> None:
        """Seat as many as there are places for."""
        while self.queue:
            seated, seat = self.queue[0]
            if seated.done():  # given up
                self.queue.popleft()
                continue
            stream = seat()
            if stream is None:
                return
            self.queue.popleft()
            seated.set_result(stream)


def cache_heads(config: Any) -> tuple[int, int]:
    """Heads of keys of a model's configuration, and the size of one."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
