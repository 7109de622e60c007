"""A continuously batched engine that leaves the GPU no time to wait.

The host queues the next decoding step before it looks at the results of the last: while the GPU decodes, Python plays
the replies that came back, and prompts that gathered meanwhile are read in one go before the next step. Which token
comes next, and whether it was the last, the GPU decides by itself (`mulligan.engine.plain`); the host learns it a step
or two later, and the slot idles for that long.

Every reply draws its numbers from its own seed and position, whoever else is in the batch. The same machine, model and
order of asking give the same tokens; another batch may round a logit differently.

Adapters over one base can share an engine: each joins it with its model, has a `Share`, and all are in one batch.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch

from mulligan.engine.base import Pair, Sampled, Stream, Waiting
from mulligan.engine.device import Array, Device, Flight
from mulligan.engine.llama_forward import LlamaForward, why_not
from mulligan.engine.plain import GREEDY, LAST, LEFT, LENGTH, MOST_STOPS, SCALE, SEED, STATE, STOPS, TOP_P
from mulligan.engine.weigh import reply_chances
from mulligan.errors import DeviceLost, MemoryFull, UsageError, lost_device
from mulligan.models.attention import common_prefix_length
from mulligan.types import Sampling

PATIENCE = 4
"""Decoding steps that a prompt waits for others at most."""
AHEAD = 2
"""Decoding steps that are queued before the results of the first are looked at; fewer than `device.RING`."""
CROWD = 16
"""Prompts are read together once one in so many live streams waits for it."""
LEAST_SHARED = 32
"""Tokens that prompts must have in common for them to be read once; fewer are not worth a copy."""
HANDED_OUT = 32
"""Replies handed out between two steps: however many end at once, the GPU is not left waiting while all are played."""


class GraphEngine:
    """`slots` streams at a time; the others wait for a place. Prompts are read `chunk` tokens at a time at most.

    context: the longest sequence (None: the model's own limit); share: read once what prompts begin with in common;
    adapters: how many models may share the engine, the first one included (0: it is that model's alone).
    """

    def __init__(
        self,
        model: Any,
        *,
        slots: int = 256,
        context: int | None = None,
        chunk: int = 8192,
        share: bool = True,
        adapters: int = 0,
    ) -> None:
        reason = why_not(model)
        if reason is not None:
            raise UsageError(f"the engine for GPUs cannot run this model: {reason}")
        if slots < adapters:
            raise UsageError(f"{adapters} adapters need as many slots (there are {slots}); raise engine.slots")
        self.model, self.slots, self.adapters = model, slots, adapters
        self.context = min(context or model.config.max_position_embeddings, model.config.max_position_embeddings)
        try:
            forward = LlamaForward(model, slots, self.context, adapters)
        except torch.OutOfMemoryError:
            raise MemoryFull(
                f"keys and values of {slots} slots of {self.context} tokens do not fit into the GPU's memory "
                f"({torch.cuda.mem_get_info()[0] / 2**30:.0f} GiB are free); lower engine.slots or engine.context"
            ) from None
        self.device = Device(forward, slots, chunk)
        self.share = share
        self.shared = [SharedPrompt(model)] if share else []
        """Of each model."""
        self.free = list(range(slots))
        self.live: dict[int, Stream] = {}
        self.waiting = Waiting()
        self.asked: list[Stream] = []
        self.patience = 0
        self.flights: deque[tuple[Flight, Array]] = deque()
        self.complete: deque[tuple[Stream, int, Sampled]] = deque()
        """Replies that are complete and not handed out yet, each with its number."""
        self.pump: asyncio.Task[None] | None = None
        self.lost: DeviceLost | None = None
        # What the host knows of each slot; whole arrays, so that a step costs a few operations and not one a stream.
        self.decoding = np.zeros(slots, dtype=bool)
        self.nucleus = np.zeros(slots, dtype=bool)
        self.reply_number = np.zeros(slots, dtype=np.int64)
        """Counts replies, so that what a step says of one that was given up is not taken for the next one's."""
        self.seed = np.zeros(slots, dtype=np.int32)
        self.queued = np.zeros(slots, dtype=np.int32)
        """Decoding steps queued for the reply under way."""
        self.room = np.zeros(slots, dtype=np.int32)
        self.count = np.zeros(slots, dtype=np.int32)
        self.ids = np.zeros((slots, 64), dtype=np.int32)
        self.logprobs = np.zeros((slots, 64), dtype=np.float32)
        self.owner = np.zeros(slots, dtype=np.int32)
        """The number of each slot's model."""
        self.tokens_of = np.zeros(max(1, adapters), dtype=np.int64)
        """Tokens that each model took in since the engine was made."""
        self.shares: list[Share] = []
        if adapters:
            forward.join(model, 0)
            self.shares.append(Share(self, 0, model))

    @property
    def tokens(self) -> int:
        """Tokens that all models took in since the engine was made."""
        return int(self.tokens_of.sum())

    def join(self, model: Any) -> Share:
        """Sample from another adapter over the same base, too."""
        number = len(self.shares)
        if number == self.adapters:
            raise UsageError(f"the engine has room for {self.adapters} adapters")
        self.device.model.join(model, number)
        if self.share:
            self.shared.append(SharedPrompt(model))
        self.shares.append(Share(self, number, model))
        return self.shares[-1]

    async def open(self) -> Stream:
        return await self.waiting.open(self.seat)

    def seat(self, number: int = 0) -> Stream | None:
        """A free slot for a sequence of a model."""
        if not self.free:
            return None
        slot = heapq.heappop(self.free)
        self.live[slot], self.owner[slot] = Stream(self, slot), number
        return self.live[slot]

    def release(self, stream: Stream) -> None:
        """Take a stream out and seat the next that waits."""
        self.forget(stream)
        del self.live[stream.slot]
        heapq.heappush(self.free, stream.slot)
        self.waiting.admit()

    def forget(self, stream: Stream) -> None:
        """Whatever is still being drawn for a stream is nobody's."""
        self.decoding[stream.slot] = False
        self.reply_number[stream.slot] += 1
        if stream in self.asked:
            self.asked.remove(stream)

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        return reply_chances(self.model, pairs, sampling)

    def ask(self, stream: Stream) -> None:
        """A prompt to read, and a reply to draw."""
        if self.lost is not None:
            raise self.lost
        # Weights change while no reply is under way; the pump may still be at what nobody waits for.
        if not (self.asked or self.decoding.any()):
            self.device.model.renew()
        if self.pump is None or self.pump.done():
            self.pump = asyncio.get_running_loop().create_task(self._run())
            self.pump.add_done_callback(lambda task: task.cancelled() or task.exception())  # as in `slots`
        self.seed[stream.slot] = stream.rng.getrandbits(31)
        self.asked.append(stream)

    async def _run(self) -> None:
        try:
            while True:
                # Two rounds of the event loop: whoever just got a reply plays it and asks again before the next step.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                launched = self._launch()
                if self.flights and (len(self.flights) > AHEAD or not (launched or self.complete)):
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
        self._count(rows)
        return True

    def _count(self, slots: Array) -> None:
        """The model takes in a token of each slot."""
        if not self.adapters:
            self.tokens_of[0] += len(slots)
            return
        of_prompt = slots - self.device.model.prompt_slot
        owners = np.where(of_prompt >= 0, of_prompt, self.owner[np.minimum(slots, self.slots - 1)])
        self.tokens_of += np.bincount(owners, minlength=self.adapters)

    def _read(self, streams: Sequence[Stream]) -> None:
        """All but the last token of each prompt go into the cache; the last is what decoding begins with."""
        if self.adapters:
            self.device.own(self.owner)
        if self.share:
            self._begin_alike([stream for stream in streams if not stream.cached])
        self._read_all([(stream.slot, stream.cached, stream.pending[:-1]) for stream in streams])
        self._admit(streams)

    def _begin_alike(self, streams: Sequence[Stream]) -> None:
        """What sequences of a model begin with in common is read once."""
        of_model = [[stream for stream in streams if self.owner[stream.slot] == n] for n in range(len(self.shared))]
        first = self.device.model.prompt_slot
        unread = [
            (first + number, 0, shared.fit([stream.pending for stream in mine]))
            for number, (shared, mine) in enumerate(zip(self.shared, of_model, strict=True))
        ]
        self._read_all(unread)
        for number, (shared, mine) in enumerate(zip(self.shared, of_model, strict=True)):
            alike = [stream for stream in mine if shared.begins(stream.pending)]
            if alike:
                count = len(shared.ids)
                self.device.copy_prompt(np.array([stream.slot for stream in alike]), count, number)
                for stream in alike:
                    stream.cached, stream.pending = count, stream.pending[count:]

    def _read_all(self, prompts: Sequence[tuple[int, int, list[int]]]) -> None:
        """Take in tokens of slots, each from a position on, as many at a time as one reading holds."""
        parts: list[tuple[int, int, list[int]]] = []
        held = tiles = 0
        for slot, begin, ids in prompts:
            while ids:
                part = ids[: self.device.chunk - held]
                more = -(-len(part) // self.device.model.tile)
                if part and tiles + more <= self.device.tiles[self.device.chunk]:
                    parts.append((slot, begin, part))
                    held, tiles = held + len(part), tiles + more
                    begin, ids = begin + len(part), ids[len(part) :]
                else:
                    self._read_parts(parts)
                    parts, held, tiles = [], 0, 0
        if parts:
            self._read_parts(parts)

    def _read_parts(self, parts: Sequence[tuple[int, int, list[int]]]) -> None:
        counts = [len(ids) for _, _, ids in parts]
        tokens = np.fromiter(chain.from_iterable(ids for _, _, ids in parts), np.int32, sum(counts))
        slots = np.repeat([slot for slot, _, _ in parts], counts)
        positions = np.concatenate([np.arange(begin, begin + len(ids)) for _, begin, ids in parts])
        self.device.read(tokens, slots, positions)
        self._count(slots)

    def _admit(self, streams: Sequence[Stream]) -> None:
        """Tell the device what it must know of each stream, and begin their replies."""
        slots = np.array([stream.slot for stream in streams])
        room = np.array([stream.room for stream in streams], dtype=np.int32)
        states = np.zeros((len(streams), 1 + STATE), dtype=np.int32)
        states[:, 0] = slots
        fields = states[:, 1:]
        fields[:, LAST] = [stream.pending[-1] for stream in streams]
        fields[:, LENGTH] = [stream.length - 1 for stream in streams]
        fields[:, LEFT] = room
        fields[:, SEED] = self.seed[slots]
        temperature = np.array([stream.sampling.temperature for stream in streams], dtype=np.float32)
        fields[:, GREEDY] = temperature <= 0
        fields[:, SCALE] = (1.0 / np.where(temperature > 0, temperature, np.float32(1.0))).view(np.int32)
        top_p = np.array([stream.sampling.top_p for stream in streams], dtype=np.float32)
        fields[:, TOP_P] = top_p.view(np.int32)
        fields[:, STOPS:] = [[*stream.stop, *[-1] * (MOST_STOPS - len(stream.stop))] for stream in streams]
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
        tokens, logprobs, outcomes = flight.wait()
        rows = flight.rows
        current = (outcomes > 0) & (self.reply_number[rows] == numbers)
        slots = rows[current]
        counts = self.count[slots]
        self.ids[slots, counts], self.logprobs[slots, counts] = tokens[current], logprobs[current]
        self.count[slots] = counts + 1
        ended = current & (outcomes >= 2)
        for slot, outcome in zip(rows[ended].tolist(), outcomes[ended].tolist(), strict=True):
            self.decoding[slot] = False
            count = int(self.count[slot])
            ids, logps = self.ids[slot, :count].tolist(), self.logprobs[slot, :count].tolist()
            sampled = Sampled(tuple(ids), tuple(logps), "stop" if outcome == 2 else "length")
            self.complete.append((self.live[slot], int(self.reply_number[slot]), sampled))

    def _hand_out(self) -> None:
        for _ in range(min(HANDED_OUT, len(self.complete))):
            stream, number, sampled = self.complete.popleft()
            if self.reply_number[stream.slot] == number:  # otherwise it was given up meanwhile
                # The reply's last token is the sequence's newest: the model has not seen it yet.
                stream.cached, stream.pending = stream.cached + len(sampled.ids), [sampled.ids[-1]]
                stream.finish(sampled)

    def _fail(self, error: Exception) -> None:
        """Tell everybody; after a failure of the device nothing can be asked again."""
        self.lost = lost_device(error, "sampling")
        error = self.lost or error
        self.flights.clear()
        self.complete.clear()
        self.asked = []
        for shared in self.shared:
            shared.ids = []  # it may not have been read to its end
        self.decoding[:] = False
        self.reply_number += 1
        for stream in self.live.values():
            stream.finish(error)


class Share:
    """One model's part of an engine that several share; an engine itself."""

    def __init__(self, engine: GraphEngine, number: int, model: Any) -> None:
        self.engine, self.number, self.model = engine, number, model
        self.context = engine.context
        self.slots = engine.slots // engine.adapters
        """What it can count on; where others leave theirs, it has more."""
        self.ask, self.forget, self.release = engine.ask, engine.forget, engine.release

    @property
    def tokens(self) -> int:
        """Tokens that this model took in."""
        return int(self.engine.tokens_of[self.number])

    async def open(self) -> Stream:
        return await self.engine.waiting.open(partial(self.engine.seat, self.number))

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        return reply_chances(self.model, pairs, sampling)


class SharedPrompt:
    """The tokens `ids` that prompts begin with in common, the rules above all: read once, and copied into other slots.

    Their keys and values lie in a slot of their own, and are forgotten when the weights change.
    """

    def __init__(self, model: Any) -> None:
        self.weights = list(model.parameters())
        self.ids: list[int] = []
        self.version = -1

    def fit(self, prompts: Sequence[list[int]]) -> list[int]:
        """Choose what prompts that begin a sequence share; returns what must be read into its slot, if anything.

        The present choice is kept as long as it serves, and cut where half of it serves everybody.
        """
        version = sum(weight._version for weight in self.weights)  # counts whatever was written into a weight
        if version != self.version:
            self.ids, self.version = [], version
        if not prompts:
            return []
        if self.ids:
            common = min(common_prefix_length([*prompts, self.ids]), _shared(prompts))
            if common >= max(LEAST_SHARED, len(self.ids) // 2):
                self.ids = self.ids[:common]
                return []
            if any(map(self.begins, prompts)):
                return []
        common = _shared(prompts) if len(prompts) > 1 else 0
        self.ids = prompts[0][:common] if common >= LEAST_SHARED else []
        return self.ids

    def begins(self, prompt: list[int]) -> bool:
        """Whether a prompt begins with the shared one, and goes on."""
        return bool(self.ids) and len(prompt) > len(self.ids) and prompt[: len(self.ids)] == self.ids


def _shared(prompts: Sequence[list[int]]) -> int:
    """How many first tokens all prompts have in common; of each, one at least must be left to go on with."""
    return min(common_prefix_length(prompts), min(map(len, prompts)) - 1)
