"""Benchmarks, each a module with `run() -> Report`, called by ``mulligan bench NAME``; and what they measure with."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mulligan.envs.base import Env
from mulligan.seeding import generator

NAMES = {
    "env": "environment steps per second on one core, random legal play, resets included; memory of a live world",
    "endpoint": "requests per second to a model behind HTTP that answers after 0.2 s; processor time of a request",
    "proxy": "what the journal's proxy adds to a request, and requests per second through it",
    "ray": "trials a minute of an environment of 50 ms a step, held by 1 and by 8 workers of Ray",
    "engine": "decoding against transformers.generate and the memory's bandwidth; whole rollouts",
    "step": "an update of meta-RL against one of RL; with --shape and --preset, one update of a preset",
    "alfworld": "ALFWorld: steps per second, reset, load, memory of a live game",
    "webshop": "the shop: steps and queries per second, a catalogue of 100,000 products on disk",
    "view": "the viewer on a run of 1,000 updates and 100,000 trials: opening it, paging, filters",
    "update": "a whole update of the weights: packing, forward, backward, optimiser; tokens per second, memory",
}
Cell = str | float


@dataclass(frozen=True)
class Report:
    """A table: what was measured, one row each."""

    title: str
    rows: Sequence[Mapping[str, Cell]]
    """By column. A row may lack columns that others have."""

    @property
    def columns(self) -> list[str]:
        """In the order in which the rows name them."""
        return list(dict.fromkeys(column for row in self.rows for column in row))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def gpu_seconds(work: Callable[[], object]) -> float:
    """How long `work` takes from an idle GPU to an idle GPU; without a GPU, as `seconds`."""
    import torch

    wait: Callable[[], object] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    return seconds(lambda: (work(), wait()))


def free_gpu() -> None:
    """Collect garbage, and begin to count the peak of the GPU's memory anew."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gigabytes() -> float:
    """GB that tensors took at most on the GPU since `free_gpu`; nan without a GPU."""
    import torch

    return torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else float("nan")


def bytes_each(make: Callable[[], Sequence[object]]) -> float:
    """Python memory of each of the objects that `make` makes; what they share with earlier ones is not counted."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(made)
    finally:
        tracemalloc.stop()


def steps_per_second(worlds: Sequence[Env], limit: int) -> float:
    """Random legal play of at least `limit` steps, an episode of each world in turn; resets count."""
    choose = generator(0, "bench").random
    steps = episode = 0
    started = time.perf_counter()
    while steps < limit:
        for world in worlds:
            world.reset(episode)
            for _ in range(world.task.turns):
                legal = world.legal()  # type: ignore[attr-defined]
                steps += 1
                if world.step(legal[int(choose() * len(legal))]).done:
                    break
        episode += 1
    return steps / (time.perf_counter() - started)
