"""A continuously batched engine that leaves the GPU no time to wait.

The host queues the next decoding step before it looks at the results of the last: while the GPU decodes, Python plays
the replies that came back, and prompts that gathered meanwhile are read in one go before the next step. Which token
comes next, and whether it was the last, the GPU decides by itself (`mulligan.engine.state`); the host learns it a step
or two later. A reply's end is known late, so that its slot idles for that long; it costs a row of a matrix product, and
no memory traffic.

Every reply draws its numbers from its own seed and position, whoever else is in the batch. The same machine, model and
order of asking give the same tokens; another batch may round a logit differently.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from mulligan.engine.base import Sampled
from mulligan.engine.compact import CompactModel, why_not
from mulligan.engine.device import RING, Array, Device, Flight
from mulligan.engine.opening import Opening
from mulligan.engine.places import Waiting, need_open, room_after
from mulligan.engine.state import GREEDY, LAST, LEFT, LENGTH, MOST_STOPS, SCALE, SEED, STATE, STOPS, TOP_P
from mulligan.errors import DeviceLost, MemoryFull, ParameterError, UsageError, lost_device
from mulligan.types import Sampling

PATIENCE = 4
"""Decoding steps that a prompt waits for others at most."""
CROWD = 16
"""Prompts are read together once one in so many live streams waits for it."""
HANDED_OUT = 32
"""Replies handed out between two steps: however many end at once, the GPU is not left waiting while all are played."""


class GraphEngine:
    """`slots` streams at a time; the others wait for a place. Prompts are read `chunk` tokens at a time at most.

    context: the longest sequence; None: the model's own limit.
    ahead: decoding steps that are queued before the results of the first are looked at.
    share: read once what prompts begin with in common.
    """

    def __init__(
        self,
        model: Any,
        *,
        slots: int = 256,
        context: int | None = None,
        chunk: int = 8192,
        ahead: int = 2,
        share: bool = True,
    ) -> None:
        if slots < 1 or chunk < 1 or not 0 <= ahead < RING - 1:
            raise ParameterError(f"slots={slots}, chunk={chunk}, ahead={ahead} cannot be")
        reason = why_not(model)
        if reason is not None:
            raise UsageError(f"the engine for GPUs cannot run this model: {reason}")
        longest = model.config.max_position_embeddings
        self.model, self.slots, self.ahead = model, slots, ahead
        self.context = min(context or longest, longest)
        self.device = Device(compact(model, slots, self.context), slots, chunk)
        self.opening = Opening(model) if share else None
        self.free = list(range(slots))
        self.live: dict[int, _Stream] = {}
        self.waiting = Waiting(self._seat)
        self.asked: list[_Stream] = []
        self.patience = 0
        self.flights: deque[tuple[Flight, Array]] = deque()
        self.complete: deque[tuple[_Stream, int, Sampled]] = deque()
        """Replies that are complete and not handed out yet, each with its number."""
        self.pump: asyncio.Task[None] | None = None
        self.lost: DeviceLost | None = None
        # What the host knows of each slot; whole arrays, so that a step costs a few operations and not one a stream.
        self.decoding = np.zeros(slots, dtype=bool)
        self.nucleus = np.zeros(slots, dtype=bool)
        self.reply_number = np.zeros(slots, dtype=np.int64)
        """Counts replies, so that what a step says of one that was given up is not taken for the next one's."""
        self.queued = np.zeros(slots, dtype=np.int32)
        """Decoding steps queued for the reply under way."""
        self.room = np.zeros(slots, dtype=np.int32)
        self.count = np.zeros(slots, dtype=np.int32)
        self.ids = np.zeros((slots, 64), dtype=np.int32)
        self.logprobs = np.zeros((slots, 64), dtype=np.float32)
        self.steps = self.tokens = 0
        """Decoding steps, and tokens that the model took in, since the engine was made."""
        self.waited = 0.0
        """Seconds that the host waited for the device: about 0 where Python is what takes the time."""

    def warm_up(self) -> None:
        """Do now what would otherwise be done when it is first needed: compile, capture."""
        self.device.warm_up()

    async def open(self) -> _Stream:
        return await self.waiting.open()

    def _seat(self) -> _Stream | None:
        if not self.free:
            return None
        slot = heapq.heappop(self.free)
        self.live[slot] = _Stream(self, slot)
        return self.live[slot]

    def release(self, stream: _Stream) -> None:
        """Take a stream out and seat the next that waits."""
        self.forget(stream)
        del self.live[stream.slot]
        heapq.heappush(self.free, stream.slot)
        self.waiting.admit()

    def forget(self, stream: _Stream) -> None:
        """Whatever is still being drawn for a stream is nobody's."""
        self.decoding[stream.slot] = False
        self.reply_number[stream.slot] += 1
        if stream in self.asked:
            self.asked.remove(stream)

    def ask(self, stream: _Stream) -> None:
        """A prompt to read, and a reply to draw."""
        if self.lost is not None:
            raise self.lost
        loop = asyncio.get_running_loop()
        if self.pump is None or self.pump.done():
            self.device.model.check_weights()
            self.pump = loop.create_task(self._run())
        elif self.pump.get_loop() is not loop:
            raise UsageError("the engine is in use in another event loop")
        self.asked.append(stream)

    async def _run(self) -> None:
        try:
            while True:
                # Two rounds of the event loop: whoever just got a reply plays it and asks again before the next step.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                launched = self._launch()
                if self.flights and (len(self.flights) > self.ahead or not (launched or self.complete)):
                    self._land(*self.flights.popleft())
                elif not (launched or self.asked or self.complete):
                    return
                self._hand_out()
        except Exception as error:
            self._fail(error)

    def _launch(self) -> bool:
        """Queue what there is to do; False where it is nothing."""
        self.patience += 1
        busy = bool(self.decoding.any())
        if self.asked and (not busy or self.patience >= PATIENCE or CROWD * len(self.asked) >= len(self.live)):
            self._read(self.asked)
            self.asked, self.patience = [], 0
        rows = np.flatnonzero(self.decoding & (self.queued < self.room))
        if not len(rows):
            return False
        flight = self.device.decode(rows, nucleus=bool(self.nucleus[rows].any()))
        self.queued[rows] += 1
        self.flights.append((flight, self.reply_number[rows]))
        self.steps += 1
        self.tokens += len(rows)
        return True

    def _read(self, streams: Sequence[_Stream]) -> None:
        """All but the last token of each prompt go into the cache; the last is what decoding begins with."""
        if self.opening is not None:
            self._open_alike(self.opening, [stream for stream in streams if not stream.cached])
        self._read_all([(stream.slot, stream.cached, stream.pending[:-1]) for stream in streams])
        self._admit(streams)

    def _open_alike(self, opening: Opening, streams: Sequence[_Stream]) -> None:
        """What sequences begin with in common is read once."""
        unread = opening.fit([stream.pending for stream in streams])
        self._read_all([(self.device.model.opening_slot, 0, unread)])
        alike = [stream for stream in streams if opening.begins(stream.pending)]
        if alike:
            count = len(opening.ids)
            self.device.copy_opening(np.array([stream.slot for stream in alike]), count)
            for stream in alike:
                stream.cached, stream.pending = count, stream.pending[count:]

    def _read_all(self, prompts: Sequence[tuple[int, int, list[int]]]) -> None:
        """Take in tokens of slots, each from a position on, as many at a time as one reading holds."""
        parts: list[tuple[int, int, list[int]]] = []
        held = tiles = 0
        for slot, begin, ids in prompts:
            while ids:
                here = ids[: self.device.chunk - held]
                more = -(-len(here) // self.device.model.tile)
                if here and self.device.fits(held + len(here), tiles + more):
                    parts.append((slot, begin, here))
                    held, tiles = held + len(here), tiles + more
                    begin, ids = begin + len(here), ids[len(here) :]
                else:
                    self._read_parts(parts)
                    parts, held, tiles = [], 0, 0
        self._read_parts(parts)

    def _read_parts(self, parts: Sequence[tuple[int, int, list[int]]]) -> None:
        if not parts:
            return
        counts = [len(ids) for _, _, ids in parts]
        tokens = np.fromiter(chain.from_iterable(ids for _, _, ids in parts), np.int32, sum(counts))
        slots = np.repeat([slot for slot, _, _ in parts], counts)
        positions = np.concatenate([np.arange(begin, begin + len(ids)) for _, begin, ids in parts])
        self.device.read(tokens, slots, positions)
        self.tokens += len(tokens)

    def _admit(self, streams: Sequence[_Stream]) -> None:
        """Tell the device what it must know of each stream, and begin their replies."""
        slots = np.array([stream.slot for stream in streams])
        room = np.array([stream.room for stream in streams], dtype=np.int32)
        states = np.zeros((len(streams), 1 + STATE), dtype=np.int32)
        states[:, 0] = slots
        own = states[:, 1:]
        own[:, LAST] = [stream.pending[-1] for stream in streams]
        own[:, LENGTH] = [stream.length - 1 for stream in streams]
        own[:, LEFT] = room
        own[:, SEED] = [stream.seed for stream in streams]
        temperature = np.array([stream.sampling.temperature for stream in streams], dtype=np.float32)
        own[:, GREEDY] = temperature <= 0
        own[:, SCALE] = (1.0 / np.where(temperature > 0, temperature, np.float32(1.0))).view(np.int32)
        top_p = np.array([stream.sampling.top_p for stream in streams], dtype=np.float32)
        own[:, TOP_P] = top_p.view(np.int32)
        own[:, STOPS:] = [[*stream.stop, *[-1] * (MOST_STOPS - len(stream.stop))] for stream in streams]
        for stream in streams:
            stream.cached, stream.pending = stream.length - 1, stream.pending[-1:]
        if room.max() > self.ids.shape[1]:
            wider = ((0, 0), (0, int(room.max()) - self.ids.shape[1]))
            self.ids, self.logprobs = np.pad(self.ids, wider), np.pad(self.logprobs, wider)
        self.decoding[slots], self.nucleus[slots], self.room[slots] = True, top_p < 1, room
        self.queued[slots] = self.count[slots] = 0
        self.device.admit(states)

    def _land(self, flight: Flight, numbers: Array) -> None:
        """Take in a step's results; those whose reply is complete get it."""
        began = time.perf_counter()
        tokens, logprobs, said = flight.wait()
        self.waited += time.perf_counter() - began
        rows = flight.rows
        mine = (said > 0) & (self.reply_number[rows] == numbers)
        slots = rows[mine]
        places = self.count[slots]
        self.ids[slots, places], self.logprobs[slots, places] = tokens[mine], logprobs[mine]
        self.count[slots] = places + 1
        ended = mine & (said >= 2)
        for slot, how in zip(rows[ended].tolist(), said[ended].tolist(), strict=True):
            self.decoding[slot] = False
            count = int(self.count[slot])
            ids, chances = self.ids[slot, :count].tolist(), self.logprobs[slot, :count].tolist()
            sampled = Sampled(tuple(ids), tuple(chances), "stop" if how == 2 else "length")
            self.complete.append((self.live[slot], int(self.reply_number[slot]), sampled))

    def _hand_out(self) -> None:
        for _ in range(min(HANDED_OUT, len(self.complete))):
            stream, number, sampled = self.complete.popleft()
            if self.reply_number[stream.slot] == number:  # otherwise it was given up meanwhile
                stream.take(sampled)

    def _fail(self, error: Exception) -> None:
        """Tell everybody; after a failure of the device nothing can be asked again."""
        self.lost = lost_device(error, "sampling")
        error = self.lost or error
        self.flights.clear()
        self.complete.clear()
        self.asked = []
        if self.opening is not None:
            self.opening.ids = []  # it may not have been read to its end
        self.decoding[:] = False
        self.reply_number += 1
        for stream in self.live.values():
            stream.fail(error)


class _Stream:
    """One sequence in one slot."""

    def __init__(self, engine: GraphEngine, slot: int) -> None:
        self.engine, self.slot = engine, slot
        self.cached = 0
        """Tokens whose keys and values are in the cache, or will be when what is queued is done."""
        self.pending: list[int] = []
        """Tokens of the sequence that come after them."""
        self.reply: asyncio.Future[Sampled] | None = None
        self.sampling = Sampling()
        self.stop: Collection[int] = ()
        self.seed = self.room = 0
        self.closed = False

    @property
    def length(self) -> int:
        return self.cached + len(self.pending)

    async def extend(
        self, ids: Sequence[int], sampling: Sampling, stop: Collection[int], rng: random.Random
    ) -> Sampled:
        need_open(self.closed)
        if len(stop) > MOST_STOPS:
            raise ParameterError(f"{len(stop)} stop tokens; at most {MOST_STOPS} are possible")
        room = room_after(self.length + len(ids), sampling.max_tokens, self.engine.context)
        self.pending += ids
        if not self.pending:
            raise ParameterError("a reply needs at least one token before it")
        self.room, self.sampling, self.stop, self.seed = room, sampling, stop, rng.getrandbits(31)
        self.reply = asyncio.get_running_loop().create_future()
        self.engine.ask(self)
        try:
            return await self.reply
        except asyncio.CancelledError:
            if not self.closed:  # otherwise the place may be another's by now
                self.engine.forget(self)
            raise
        finally:
            self.reply = None

    def take(self, sampled: Sampled) -> None:
        """The reply is complete. Its last token is the sequence's newest: the model has not seen it yet."""
        self.cached += len(sampled.ids)
        self.pending = [sampled.ids[-1]]
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(sampled)

    def fail(self, error: Exception) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(error)

    def restart(self) -> None:
        self.engine.forget(self)
        self.cached, self.pending = 0, []

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.reply is not None:
                self.reply.cancel()
            self.engine.release(self)


def compact(model: Any, slots: int, context: int) -> CompactModel:
    """The model over its cache; `MemoryFull` where that does not fit."""
    if next(model.parameters()).device.type != "cuda":
        from mulligan.engine import plain

        return CompactModel(model, slots, context, plain)
    from mulligan.engine import kernels

    try:
        return CompactModel(model, slots, context, kernels)
    except torch.OutOfMemoryError:
        free, _ = torch.cuda.mem_get_info()
        raise MemoryFull(
            f"keys and values of {slots} slots of {context} tokens do not fit into the GPU's memory "
            f"({free / 2**30:.0f} GiB are free); lower engine.slots or engine.context"
        ) from None
