"""The device's side of an engine: state of the slots, and steps over it as CUDA graphs.

Nothing here waits for the device: work is queued in order, inputs travel through pinned memory that is used again only
when its copy is through, and results come back with an event to wait for. Without a GPU the same steps run at once.
A graph is captured for each bucket of rows.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mulligan.engine import plain
from mulligan.engine.llama_forward import LlamaForward
from mulligan.engine.plain import DONE, STATE, SlotPositions

Array = np.ndarray[Any, np.dtype[Any]]
RING = 32
"""Copies under way to or from the host, of each kind."""
_SMALL_ROWS = (8, 32, 64, 128)
_SMALL_PROMPTS = (64, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144)


@dataclass(frozen=True, slots=True)
class Flight:
    """A decoding step under way."""

    rows: Array
    """[row] the slots that it decodes."""
    out: Tensor
    """[3, bucket] int32 on the host, once the event is through: tokens, log-probabilities (bits), outcomes."""
    landed: torch.cuda.Event | None

    def wait(self) -> tuple[Array, Array, Array]:
        """Tokens, log-probabilities, and 0 nothing drawn, 1 a token, 2 the last (a stop token), 3 the last (limit)."""
        if self.landed is not None:
            self.landed.synchronize()
        tokens, logprobs, outcomes = self.out.numpy()[:, : len(self.rows)]
        return tokens, logprobs.view(np.float32), outcomes


class _Ring:
    """Host memory for copies to and from the device, used in turn."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.gpu = device.type == "cuda"
        self.parts = [torch.zeros(size, dtype=torch.int32, pin_memory=self.gpu) for _ in range(RING if self.gpu else 1)]
        self.events: list[torch.cuda.Event | None] = [None] * len(self.parts)
        self.turn = 0

    def take(self) -> Tensor:
        self.turn = (self.turn + 1) % len(self.parts)
        event = self.events[self.turn]
        if event is not None:
            event.synchronize()
        return self.parts[self.turn] if self.gpu else torch.zeros_like(self.parts[0])

    def used(self) -> torch.cuda.Event | None:
        """To be called when the copy of the part taken last is queued."""
        if not self.gpu:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.events[self.turn] = event
        return event


class Device:
    """Steps over the slots of a `LlamaForward`."""

    def __init__(self, model: LlamaForward, rows: int, chunk: int) -> None:
        self.model, self.rows, self.chunk = model, rows, chunk
        device = self.device = model.device
        self.gpu = device.type == "cuda"
        if self.gpu:
            torch.cuda.set_device(device)  # streams, events, graphs and kernels all go to the current one
        self.state = torch.zeros(model.slots + 1, STATE, dtype=torch.int32, device=device)
        self.state[:, DONE] = 1
        self.row_buckets = [n for n in _SMALL_ROWS if n < rows] + [*range(256, rows, 256), rows]
        self.prompt_buckets = [n for n in _SMALL_PROMPTS if n < chunk] + [chunk]
        self.tiles = {size: max(16, size // min(4, model.tile)) for size in self.prompt_buckets}
        most_feed = max(3 * size + 2 * self.tiles[size] for size in self.prompt_buckets)
        self.row_slots = torch.full((rows,), model.slots, dtype=torch.int32, device=device)
        self.tokens, self.slots, self.positions = (
            torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(3)
        )
        self.outs = {size: torch.zeros(3, size, dtype=torch.int32, device=device) for size in self.row_buckets}
        self.feed = torch.zeros(most_feed, dtype=torch.int32, device=device)
        self.to_rows = _Ring(rows, device)
        self.to_feed = _Ring(most_feed, device)
        self.to_state = _Ring(rows * (STATE + 1), device)
        self.back = _Ring(3 * rows, device)
        self.graphs: dict[tuple[str, int], Any] = {}
        self.pool: Any = None

    def admit(self, values: Array) -> None:
        """Set slots' states. values: [count, 1 + STATE], the slot first."""
        count = len(values)
        part = self.to_state.take()[: count * (STATE + 1)].view(count, STATE + 1)
        part.numpy()[:] = values
        copied = part.to(self.device, non_blocking=True)
        self.to_state.used()
        self.state.index_copy_(0, copied[:, 0].long(), copied[:, 1:])

    def decode(self, rows: Array, *, nucleus: bool = False) -> Flight:
        """One token more for each of these slots."""
        bucket = next(size for size in self.row_buckets if size >= len(rows))
        part = self.to_rows.take()[:bucket]
        host = part.numpy()
        host[: len(rows)], host[len(rows) :] = rows, self.model.slots
        self.row_slots[:bucket].copy_(part, non_blocking=True)
        self.to_rows.used()
        self._play(("nucleus" if nucleus else "decode", bucket), lambda: self._decode(bucket, nucleus))
        back = self.back.take()[: 3 * bucket].view(3, bucket)
        back.copy_(self.outs[bucket], non_blocking=True)
        return Flight(rows, back, self.back.used())

    def _decode(self, bucket: int, nucleus: bool) -> None:
        ops, rows, out = self.model.ops, self.row_slots[:bucket], self.outs[bucket]
        tokens, slots, positions = self.tokens[:bucket], self.slots[:bucket], self.positions[:bucket]
        ops.begin(self.state, rows, slots, positions, tokens)
        logits = self.model.forward(tokens, SlotPositions(slots, positions), bucket)
        assert logits is not None, "decoding gives logits"
        if nucleus:
            logits = plain.keep_nucleus(logits, self.state, rows)
        ops.draw(logits, self.state, rows, out[0], out[1].view(torch.float32), out[2])

    def read(self, tokens: Array, slots: Array, positions: Array) -> None:
        """Take in tokens of prompts, at most `chunk`; tokens of one slot stand together, in order."""
        starts, counts = self._cut(slots)
        bucket = next(size for size in self.prompt_buckets if size >= len(tokens) and self.tiles[size] >= len(starts))
        room = self.tiles[bucket]
        part = self.to_feed.take()[: 3 * bucket + 2 * room]
        host = part.numpy()
        host[: 3 * bucket].reshape(3, bucket)[:, : len(tokens)] = tokens, slots, positions
        host[: 3 * bucket].reshape(3, bucket)[:, len(tokens) :] = [[0], [self.model.slots], [0]]
        tiles = host[3 * bucket :].reshape(2, room)
        tiles[:] = 0
        tiles[:, : len(starts)] = starts, counts
        self.feed[: len(part)].copy_(part, non_blocking=True)
        self.to_feed.used()
        self._play(("read", bucket), lambda: self._read(bucket))

    def own(self, owners: Array) -> None:
        """Say whose adapter each slot has."""
        assert self.model.owners is not None, "there are adapters"
        part = self.to_rows.take()[: len(owners)]
        part.numpy()[:] = owners
        self.model.owners[: len(owners)].copy_(part, non_blocking=True)
        self.to_rows.used()

    def copy_prompt(self, slots: Array, tokens: int, number: int) -> None:
        """Begin the sequences of these slots with what prompts of a model share."""
        part = self.to_rows.take()[: len(slots)]
        part.numpy()[:] = slots
        copied = part.to(self.device, non_blocking=True)
        self.to_rows.used()
        self.model.copy_prompt(copied.long(), tokens, number)

    def _cut(self, slots: Array) -> tuple[Array, Array]:
        """Tiles: the first token and the number of tokens of each.

        Tiles of 4, slots 7 7 7 7 7 7 2 2: slot 7 has the tokens 0 to 5, slot 2 the tokens 6 and 7, so that the tiles
        start at 0, 4 and 6 and hold 4, 2 and 2 tokens.
        """
        edges = np.flatnonzero(np.diff(slots)) + 1
        begins, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(slots)]))
        pieces = -(-(ends - begins) // self.model.tile)
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = np.repeat(begins, pieces) + number * self.model.tile
        return starts, np.minimum(np.repeat(ends, pieces) - starts, self.model.tile)

    def _read(self, bucket: int) -> None:
        tokens, slots, positions = self.feed[: 3 * bucket].view(3, bucket).unbind()
        starts, counts = self.feed[3 * bucket : 3 * bucket + 2 * self.tiles[bucket]].view(2, -1).unbind()
        self.model.forward(tokens, SlotPositions(slots, positions), 0, (starts, counts))

    @torch.no_grad()
    def _play(self, key: tuple[str, int], step: Callable[[], None]) -> None:
        if not self.gpu:
            step()
            return
        if key not in self.graphs:
            self._capture(key, step)
        self.graphs[key].replay()

    def _capture(self, key: tuple[str, int], step: Callable[[], None]) -> None:
        """Record a step. What it runs on meanwhile is the idle slot: nobody's keys and values are written over."""
        rows, feed = self.row_slots.clone(), self.feed.clone()
        self.row_slots.fill_(self.model.slots)
        kind, bucket = key
        if kind == "read":
            self.feed.zero_()
            self.feed[bucket : 2 * bucket] = self.model.slots
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()  # compiles kernels and lets the libraries allocate
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        gc.disable()  # freeing what an earlier engine held would spoil the capture
        try:
            with torch.cuda.graph(graph, pool=self.pool):
                step()
        finally:
            gc.enable()
        self.pool = self.pool or graph.pool()
        graph.replay()  # the first launch loads it; rows and feed still name the idle slot
        self.row_slots.copy_(rows)
        self.feed.copy_(feed)
        self.graphs[key] = graph

    def try_out(self) -> None:
        """A small decoding step and a large reading, on the idle slot: raises where the kernels cannot be compiled."""
        self.warm_up(self.row_buckets[:1], [self.chunk])

    @torch.no_grad()
    def warm_up(self, row_buckets: Sequence[int] = (), prompt_buckets: Sequence[int] = ()) -> None:
        """Capture what common work needs, or these buckets alone, so that no reply waits for it."""
        if not self.gpu:
            return
        for bucket in row_buckets or self.row_buckets:
            if ("decode", bucket) not in self.graphs:
                self._capture(("decode", bucket), lambda bucket=bucket: self._decode(bucket, False))  # type: ignore[misc]
        for bucket in prompt_buckets or self.prompt_buckets:
            if ("read", bucket) not in self.graphs:
                self._capture(("read", bucket), lambda bucket=bucket: self._read(bucket))  # type: ignore[misc]
        torch.cuda.synchronize()
