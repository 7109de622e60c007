"""A continuously batched engine over the very model that is trained.

Every step takes the new tokens of all streams that wait for one (a decoded token, the next observation, the start of a
prompt), packs them into one row without padding, and runs the model once. Streams join and leave at any step; nobody
waits for a batch to fill or to finish. Live streams always occupy the first places of the cache, so that attention
reads it in place: when one closes, the last moves into the gap.

Reproducible: places are given in the order of asking, never by the clock; every stream draws from its own generator.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mulligan.engine.base import Sampled
from mulligan.errors import ContextFull, ParameterError
from mulligan.models.attention import forward, use_plans
from mulligan.types import Sampling


class SlotEngine:
    """`slots` streams at a time; the others wait for a place. A step takes at most `chunk` tokens of one stream."""

    def __init__(self, model: Any, *, slots: int = 256, context: int | None = None, chunk: int = 512) -> None:
        if slots < 1 or chunk < 1:
            raise ParameterError(f"slots={slots}, chunk={chunk} cannot be; give at least 1")
        use_plans(model)
        self.model, self.slots, self.chunk = model, slots, chunk
        self.context = min(context or model.config.max_position_embeddings, model.config.max_position_embeddings)
        self.cache = _Cache(model, slots, self.context)
        self.live: list[_Stream] = []
        self.waiting: deque[asyncio.Future[_Stream]] = deque()
        self.pump: asyncio.Task[None] | None = None
        self.steps = self.tokens = 0
        """Model runs, and tokens they took in, since the engine was made."""

    async def open(self) -> _Stream:
        if len(self.live) < self.slots and not self.waiting:
            return self._seat()
        place: asyncio.Future[_Stream] = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                place.result().close()
            raise

    def _seat(self) -> _Stream:
        stream = _Stream(self, len(self.live))
        self.live.append(stream)
        return stream

    def release(self, stream: _Stream) -> None:
        """Take a stream out; the last one moves into its place."""
        last = self.live.pop()
        if last is not stream:
            self.cache.move(last.slot, stream.slot, last.cached)
            last.slot = stream.slot
            self.live[stream.slot] = last
        self._admit()

    def _admit(self) -> None:
        """Seat those who wait, in the order in which they came."""
        while self.waiting and len(self.live) < self.slots:
            place = self.waiting.popleft()
            if not place.done():
                place.set_result(self._seat())

    def wake(self) -> None:
        """Make sure somebody runs the steps."""
        if self.pump is None or self.pump.done():
            self.pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            # One round of the event loop: whoever just got a reply plays it and asks again before the next step.
            await asyncio.sleep(0)
            asking = [stream for stream in self.live if stream.reply is not None]
            if not asking:
                return
            try:
                self.step(asking)
            except Exception as error:
                for stream in asking:
                    stream.fail(error)

    @torch.no_grad()
    def step(self, asking: list[_Stream]) -> None:
        """One run of the model over the new tokens of `asking`."""
        ids: list[int] = []
        counts: list[int] = []
        for stream in asking:
            fresh = stream.pending[: self.chunk]
            counts.append(len(fresh))
            ids += fresh
        plan = SlotPlan(self.cache, [(stream.slot, stream.cached) for stream in asking], counts)
        ends = [len(stream.pending) <= self.chunk for stream in asking]
        keep = plan.last[torch.tensor(ends)] if not all(ends) else plan.last
        device = self.cache.device
        logits = forward(self.model, torch.tensor(ids, device=device), plan.positions, plan, keep)
        self.steps += 1
        self.tokens += len(ids)
        drawing = []
        for stream, count, end in zip(asking, counts, ends, strict=True):
            stream.cached += count
            del stream.pending[:count]
            if end:
                drawing.append(stream)
        if drawing:
            for stream, token, logprob in zip(drawing, *draw(logits, drawing), strict=True):
                stream.take(token, logprob)


class _Stream:
    """One sequence in one place of the cache."""

    def __init__(self, engine: SlotEngine, slot: int) -> None:
        self.engine, self.slot = engine, slot
        self.cached = 0
        """Tokens whose keys and values are in the cache."""
        self.pending: list[int] = []
        """Tokens of the sequence that the model has not seen yet."""
        self.reply: asyncio.Future[Sampled] | None = None
        self.sampling = Sampling()
        self.stop: Collection[int] = ()
        self.rng = random.Random(0)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.room = 0
        self.closed = False

    @property
    def length(self) -> int:
        return self.cached + len(self.pending)

    async def extend(
        self, ids: Sequence[int], sampling: Sampling, stop: Collection[int], rng: random.Random
    ) -> Sampled:
        self.room = min(sampling.max_tokens, self.engine.context - self.length - len(ids))
        if self.room < 1:
            raise ContextFull(
                f"the prompt of {self.length + len(ids)} tokens leaves no room in a context of {self.engine.context}"
            )
        self.pending += ids
        self.sampling, self.stop, self.rng = sampling, stop, rng
        self.ids, self.logprobs = [], []
        self.reply = asyncio.get_running_loop().create_future()
        self.engine.wake()
        try:
            return await self.reply
        finally:
            self.reply = None

    def take(self, token: int, logprob: float) -> None:
        """One more token of the reply; it joins the sequence, and the model sees it with what comes next."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.pending.append(token)
        stopped = token in self.stop
        if (stopped or len(self.ids) >= self.room) and self.reply is not None:
            if not self.reply.done():
                self.reply.set_result(Sampled(tuple(self.ids), tuple(self.logprobs), "stop" if stopped else "length"))
            self.reply = None

    def fail(self, error: Exception) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(error)
        self.reply = None

    def restart(self) -> None:
        self.cached, self.pending = 0, []

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.reply = None
            self.engine.release(self)


def draw(logits: Tensor, streams: list[_Stream]) -> tuple[list[int], list[float]]:
    """One token for each row of logits [stream, vocabulary], with its log-probability.

    A number from the stream's own generator is looked up in the cumulative distribution; temperature 0 takes the most
    likely token, and reports its log-probability at temperature 1.
    """
    temperatures = [stream.sampling.temperature for stream in streams]
    scale = torch.tensor([t if t > 0 else 1.0 for t in temperatures], device=logits.device)
    logp = torch.log_softmax(logits.float() / scale.unsqueeze(1), dim=-1)
    if any(stream.sampling.top_p < 1 for stream in streams):
        logp = _nucleus(logp, torch.tensor([stream.sampling.top_p for stream in streams], device=logits.device))
    numbers = torch.tensor([stream.rng.random() for stream in streams], device=logits.device, dtype=torch.float64)
    cumulative = logp.double().exp().cumsum(-1)
    chosen = torch.searchsorted(cumulative, numbers.unsqueeze(1) * cumulative[:, -1:]).squeeze(1)
    chosen = chosen.clamp(max=logp.shape[1] - 1)
    if any(t <= 0 for t in temperatures):
        greedy = torch.tensor([t <= 0 for t in temperatures], device=logits.device)
        chosen = torch.where(greedy, logp.argmax(-1), chosen)
    return chosen.tolist(), logp.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()


def _nucleus(logp: Tensor, top_p: Tensor) -> Tensor:
    """The smallest set of tokens whose probability reaches top_p, renormalised. logp: [row, vocabulary]."""
    ordered, order = logp.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered = ordered.masked_fill(before >= top_p.unsqueeze(1), -torch.inf)
    return torch.log_softmax(torch.empty_like(logp).scatter_(1, order, ordered), dim=-1)


class _Cache:
    """Keys and values, one tensor a layer: [slot, position, kv head, size]; grows in both directions as needed."""

    def __init__(self, model: Any, slots: int, context: int) -> None:
        config, weight = model.config, next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.slots, self.context = slots, context
        self.keys = [self._new(0, 0, heads, size) for _ in range(config.num_hidden_layers)]
        self.values = [self._new(0, 0, heads, size) for _ in range(config.num_hidden_layers)]

    def _new(self, slots: int, positions: int, heads: int, size: int) -> Tensor:
        return torch.zeros(slots, positions, heads, size, device=self.device, dtype=self.dtype)

    def reserve(self, slots: int, positions: int) -> None:
        """Room for so many slots and positions; grows by at least half, so that growing stays rare."""
        have_slots, have_positions, heads, size = self.keys[0].shape
        if slots <= have_slots and positions <= have_positions:
            return
        if slots > have_slots:
            have_slots = min(self.slots, max(slots, 16, have_slots * 3 // 2))
        if positions > have_positions:
            have_positions = min(self.context, max(positions, 64, have_positions * 3 // 2))
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self._new(have_slots, have_positions, heads, size)
                tensors[layer][: old.shape[0], : old.shape[1]] = old

    def move(self, source: int, target: int, length: int) -> None:
        if length == 0:
            return
        for tensors in (self.keys, self.values):
            for tensor in tensors:
                tensor[target, :length] = tensor[source, :length]


class SlotPlan:
    """New tokens of some slots, each attending to all of its own past.

    rows: (slot, tokens cached before) of each stream, slots ascending; counts: its new tokens.
    """

    def __init__(self, cache: _Cache, rows: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
        device = cache.device
        slots, cached = (torch.tensor(column) for column in zip(*rows, strict=True))
        fresh = torch.tensor(counts)
        whole = cached + fresh
        self.top, self.reach, self.width = int(slots[-1]) + 1, int(whole.max()), int(fresh.max())
        cache.reserve(self.top, self.reach)
        self.cache = cache
        ends = fresh.cumsum(0)
        starts = ends - fresh
        self.last = (ends - 1).to(device)
        """[row] place of each stream's last new token."""
        row = torch.repeat_interleave(torch.arange(len(fresh)), fresh)
        offset = torch.arange(int(ends[-1])) - starts[row]
        self.positions = (cached[row] + offset).to(device)
        """[T] position of each new token in its own sequence."""
        self.slot_of = slots[row].to(device)
        # Queries stand in a block [slot, width]; slots without new tokens keep a row that nobody reads.
        self.block = torch.zeros(self.top, self.width, dtype=torch.long)
        self.block[slots[row], offset] = torch.arange(len(row))
        self.block = self.block.to(device)
        self.place = (slots[row] * self.width + offset).to(device)
        seen = torch.ones(self.top, self.width, dtype=torch.long)
        seen[slots[row], offset] = cached[row] + offset + 1
        self.mask = (torch.arange(self.reach) < seen.unsqueeze(-1)).unsqueeze(1).to(device)
        """[slot, 1, width, position] which keys each query sees."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slot_of, self.positions] = key
        values[self.slot_of, self.positions] = value
        mixed = scaled_dot_product_attention(
            query[self.block].transpose(1, 2),
            keys[: self.top, : self.reach].transpose(1, 2),
            values[: self.top, : self.reach].transpose(1, 2),
            attn_mask=self.mask,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return mixed.transpose(1, 2).flatten(0, 1)[self.place]
