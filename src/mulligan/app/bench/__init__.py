"""Benchmarks, each a module with `run() -> Report`, called by ``mulligan bench NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = {
    "env": "environment steps per second on one core, random legal play, resets included; memory of a live world",
    "engine": "decoding against transformers.generate and the memory's bandwidth; whole rollouts",
    "step": "an update of meta-RL against one of RL; with --shape and --preset, one update of a preset",
    "alfworld": "ALFWorld: steps per second, reset, load, memory of a live game",
    "webshop": "the shop: steps and queries per second, a catalogue of 100,000 products on disk",
    "intervals": "how often the 95 % intervals over seeds and tasks hold the truth, by simulation",
    "update": "a whole update of the weights: packing, forward, backward, optimiser; tokens per second, memory",
}
Cell = str | float


@dataclass(frozen=True)
class Report:
    """A table: what was measured, one row each."""

    title: str
    rows: Sequence[dict[str, Cell]]
    """By column. A row may lack columns that others have."""

    @property
    def columns(self) -> list[str]:
        """In the order in which the rows name them."""
        return list(dict.fromkeys(column for row in self.rows for column in row))
