"""Benchmarks, each a module with `run() -> Report`, called by ``mulligan bench NAME``."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = {
    "env": "environment steps per second on one core, random legal play, resets included; memory of a live world",
    "trial": "what the trial loop adds to a turn, with a policy that answers at once",
    "algo": "credit and advantages of 100,000 turns",
    "engine": "the slot engine against transformers.generate in lock-step, over the same trials",
}


@dataclass(frozen=True)
class Report:
    """A table: what was measured, one row each."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
