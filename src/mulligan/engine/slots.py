"""A continuously batched engine over the very model that is trained.

Every step packs the new tokens of all streams that wait for one into one row without padding, and runs the model once.
Live streams always occupy the first places of the cache, so that attention reads it in place: when one closes, the last
moves into the gap. Places are given in the order of asking, never by the clock; every stream draws from its own
generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mulligan.engine.base import Pair, Sampled, Stream, Waiting, cache_heads
from mulligan.engine.weigh import nucleus, reply_chances
from mulligan.errors import DeviceLost, lost_device
from mulligan.models.attention import forward, use_plans
from mulligan.types import Sampling

NARROW = 4
"""Streams with at most this many new tokens share the decoding block; longer prompts get their own."""


class SlotEngine:
    """`slots` streams at a time; the others wait for a place. A step takes at most `chunk` tokens of one stream."""

    def __init__(self, model: Any, *, slots: int = 256, context: int | None = None, chunk: int = 512) -> None:
        use_plans(model)
        self.model, self.slots, self.chunk = model, slots, chunk
        self.context = min(context or model.config.max_position_embeddings, model.config.max_position_embeddings)
        self.cache = _Cache(model, slots, self.context)
        self.live: list[Stream] = []
        self.waiting = Waiting()
        self.pump: asyncio.Task[None] | None = None
        self.lost: DeviceLost | None = None
        self.drawn: dict[Stream, list[tuple[int, float]]] = {}
        """Tokens of the reply under way, with their log-probabilities."""
        self.tokens = 0
        """Tokens that the model took in since the engine was made."""

    async def open(self) -> Stream:
        return await self.waiting.open(self._seat)

    def _seat(self) -> Stream | None:
        if len(self.live) == self.slots:
            return None
        stream = Stream(self, len(self.live))
        self.live.append(stream)
        return stream

    def release(self, stream: Stream) -> None:
        """Take a stream out; the last one moves into its slot."""
        self.forget(stream)
        last = self.live.pop()
        if last is not stream:
            if last.cached and self.lost is None:  # otherwise nothing can be moved, nor need it be
                self.cache.move(last.slot, stream.slot, last.cached)
            last.slot = stream.slot
            self.live[stream.slot] = last
        self.waiting.admit()

    def ask(self, stream: Stream) -> None:
        if self.lost is not None:
            raise self.lost
        self.drawn[stream] = []
        if self.pump is None or self.pump.done():
            self.pump = asyncio.get_running_loop().create_task(self._run())
            # Ctrl-C inside a step ends the event loop itself; nobody awaits the task to take the error from it.
            self.pump.add_done_callback(lambda task: task.cancelled() or task.exception())

    def forget(self, stream: Stream) -> None:
        self.drawn.pop(stream, None)

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        return reply_chances(self.model, pairs, sampling)

    async def _run(self) -> None:
        while True:
            # One round of the event loop: whoever just got a reply plays it and asks again before the next step.
            await asyncio.sleep(0)
            asking = [stream for stream in self.live if stream.reply is not None and not stream.reply.done()]
            if not asking:
                return
            try:
                self.step(asking)
            except Exception as error:
                self.lost = lost_device(error, "sampling")
                for stream in asking:
                    stream.finish(self.lost or error)

    @torch.no_grad()
    def step(self, asking: list[Stream]) -> None:
        """One run of the model over the new tokens of `asking`."""
        counts = [min(len(stream.pending), self.chunk) for stream in asking]
        ids = [token for stream in asking for token in stream.pending[: self.chunk]]
        plan = SlotPlan(self.cache, [(stream.slot, stream.cached) for stream in asking], counts)
        ends = [len(stream.pending) <= self.chunk for stream in asking]
        keep = plan.last[torch.tensor(ends)] if not all(ends) else plan.last
        logits = forward(self.model, torch.tensor(ids, device=self.cache.device), plan.positions, plan, keep)
        self.tokens += len(ids)
        for stream, count in zip(asking, counts, strict=True):
            stream.cached += count
            del stream.pending[:count]
        drawing = [stream for stream in asking if not stream.pending]
        if drawing:
            for stream, token, logprob in zip(drawing, *draw(logits, drawing), strict=True):
                self._take(stream, token, logprob)

    def _take(self, stream: Stream, token: int, logprob: float) -> None:
        """One more token of the reply; it joins the sequence, and the model sees it with what comes next."""
        stream.pending.append(token)
        drawn = self.drawn[stream]
        drawn.append((token, logprob))
        stopped = token in stream.stop
        if stopped or len(drawn) >= stream.room:
            ids, logprobs = zip(*self.drawn.pop(stream), strict=True)
            stream.finish(Sampled(ids, logprobs, "stop" if stopped else "length"))


def draw(logits: Tensor, streams: list[Stream]) -> tuple[list[int], list[float]]:
    """One token for each row of logits [stream, vocabulary], with its log-probability.

    Temperature 0 takes the most likely token, and reports its log-probability at temperature 1.
    """
    temperatures = [stream.sampling.temperature for stream in streams]
    scale = torch.tensor([t if t > 0 else 1.0 for t in temperatures], device=logits.device)
    logp = torch.log_softmax(logits.float() / scale.unsqueeze(1), dim=-1)
    if any(stream.sampling.top_p < 1 for stream in streams):
        logp = nucleus(logp, torch.tensor([stream.sampling.top_p for stream in streams], device=logits.device))
    numbers = torch.tensor([stream.rng.random() for stream in streams], device=logits.device, dtype=torch.float64)
    cumulative = logp.double().exp().cumsum(-1)
    chosen = torch.searchsorted(cumulative, numbers.unsqueeze(1) * cumulative[:, -1:]).squeeze(1)
    chosen = chosen.clamp(max=logp.shape[1] - 1)
    if any(t <= 0 for t in temperatures):
        greedy = torch.tensor([t <= 0 for t in temperatures], device=logits.device)
        chosen = torch.where(greedy, logp.argmax(-1), chosen)
    return chosen.tolist(), logp.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()


class _Cache:
    """Keys and values, one tensor a layer: [slot, kv head, position, size]; grows in both directions as needed."""

    def __init__(self, model: Any, slots: int, context: int) -> None:
        config, weight = model.config, next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        heads, size = cache_heads(config)
        self.slots, self.context = slots, context
        self.keys = [self._new(0, heads, 0, size) for _ in range(config.num_hidden_layers)]
        self.values = [self._new(0, heads, 0, size) for _ in range(config.num_hidden_layers)]

    def _new(self, slots: int, heads: int, positions: int, size: int) -> Tensor:
        return torch.zeros(slots, heads, positions, size, device=self.device, dtype=self.dtype)

    def reserve(self, slots: int, positions: int) -> None:
        """Room for so many slots and positions; grows by at least half, so that growing stays rare."""
        last = self.values[-1]  # to grow: where memory ran out, it is as it was
        have_slots, heads, have_positions, size = last.shape
        if slots <= have_slots and positions <= have_positions:
            return
        if slots > have_slots:
            have_slots = min(self.slots, max(slots, 16, have_slots * 3 // 2))
        if positions > have_positions:
            have_positions = min(self.context, max(positions, 64, have_positions * 3 // 2))
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self._new(max(have_slots, len(old)), heads, max(have_positions, old.shape[2]), size)
                tensors[layer][: old.shape[0], :, : old.shape[2]] = old

    def move(self, source: int, target: int, length: int) -> None:
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]


class SlotPlan:
    """New tokens of some slots, each attending to all of its own past.

    rows: (slot, tokens cached before) of each stream; counts: its new tokens. Streams that read a long prompt have a
    block of their own, so that one prompt does not widen everybody's queries.

    Slots 0, 1 and 2 with 7, 0 and 9 cached tokens and 1, 6 and 1 new ones: the packed tokens are 0 | 1 … 6 | 7, their
    positions 7 | 0 … 5 | 9. The first block has a row for each slot and one column (tokens 0, 0, 7; slot 1's is not
    read), the second holds slot 1's six tokens. Of these 3 + 6 cells `cell_of_token` is 0 | 3 … 8 | 2.
    """

    def __init__(self, cache: _Cache, rows: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
        device = self.device = cache.device
        self.cache = cache
        self.slots, self.cached = (torch.tensor(column) for column in zip(*rows, strict=True))
        self.fresh = torch.tensor(counts)
        self.top = int(self.slots.max()) + 1
        cache.reserve(self.top, int((self.cached + self.fresh).max()))
        ends = self.fresh.cumsum(0)
        self.starts = ends - self.fresh
        self.last = (ends - 1).to(device)
        """[row] each stream's last new token."""
        row = torch.repeat_interleave(torch.arange(len(counts)), self.fresh)
        self.positions = (self.cached[row] + torch.arange(len(row)) - self.starts[row]).to(device)
        """[T] position of each new token in its own sequence."""
        self.slot_of_token = self.slots[row].to(device)
        self.cell_of_token = torch.empty(len(row), dtype=torch.long)
        """[T] the cell of each token among those of all blocks, flattened."""
        self.parts: list[tuple[Tensor | None, Tensor, Tensor]] = []
        """Of each block: its slots [row] (None: all from the first on, read without a copy), the token in each cell
        [row, width] (token 0 where there is none) and which keys each query sees [row, 1, width, position]."""
        wide = self.fresh > NARROW
        if bool(wide.any()) and int(wide.sum()) * 2 < self.top:
            cells = self._add_part(torch.arange(len(counts))[~wide], 0, in_place=True) if not bool(wide.all()) else 0
            self._add_part(torch.arange(len(counts))[wide], cells, in_place=False)
        else:
            self._add_part(torch.arange(len(counts)), 0, in_place=True)
        self.cell_of_token = self.cell_of_token.to(device)

    def _add_part(self, members: Tensor, cells: int, *, in_place: bool) -> int:
        """A block for the streams `members` behind so many cells; returns how many cells there are with it."""
        fresh, cached, slots = self.fresh[members], self.cached[members], self.slots[members]
        width, reach = int(fresh.max()), int((cached + fresh).max())
        height = self.top if in_place else len(members)
        line = slots if in_place else torch.arange(len(members))
        offset = torch.arange(width)
        real = offset < fresh.unsqueeze(1)
        numbers = self.starts[members].unsqueeze(1) + offset
        tokens = torch.zeros(height, width, dtype=torch.long)
        tokens[line] = torch.where(real, numbers, 0)
        seen = torch.ones(height, width, dtype=torch.long)
        seen[line] = torch.where(real, cached.unsqueeze(1) + offset + 1, 1)
        self.cell_of_token[numbers[real]] = (cells + line.unsqueeze(1) * width + offset)[real]
        mask = (torch.arange(reach) < seen.unsqueeze(-1)).unsqueeze(1)
        slots_read = None if in_place else slots.to(self.device)
        self.parts.append((slots_read, tokens.to(self.device), mask.to(self.device)))
        return cells + height * width

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slot_of_token, :, self.positions] = key
        values[self.slot_of_token, :, self.positions] = value
        attended = []
        for slots_read, tokens, mask in self.parts:
            reach = mask.shape[-1]
            slots = slice(self.top) if slots_read is None else slots_read
            mixed = scaled_dot_product_attention(
                query[tokens].transpose(1, 2),
                keys[slots, :, :reach],
                values[slots, :, :reach],
                attn_mask=mask,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
            attended.append(mixed.transpose(1, 2).flatten(0, 1))
        joined = attended[0] if len(attended) == 1 else torch.cat(attended)
        return joined[self.cell_of_token]
