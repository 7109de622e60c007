"""What changes in the course of a run: learning rate and entropy weight.

All of it is a function of the update and of the length that the run was planned with. A run that is resumed with
another `run.updates` keeps its plan: the rate never jumps, whenever the run was interrupted. Planned are 81 updates in
which the rate falls from 1 to 0.2, 0.01 an update; the run is interrupted at update 40, with rate 0.6:

    resumed with 160 updates   from update 80 on the rate stays at 0.2
    resumed with 61 updates    the run ends early, at update 60 with rate 0.4
"""

from __future__ import annotations

from dataclasses import dataclass

from mulligan.training.config import AlgoConfig, OptimConfig


@dataclass(frozen=True, slots=True)
class Schedule:
    """The plan of a run."""

    updates: int
    """`run.updates` at the first update. Checkpoints hold it."""

    def progress(self, update: int) -> float:
        """From 0 at the first update to 1 at the last planned one; 1 after that."""
        return min(1.0, update / max(1, self.updates - 1))

    def rate(self, update: int, optim: OptimConfig) -> float:
        """Share of the learning rate: rises over `warmup` updates and falls linearly to `lr_end`."""
        rise = min(1.0, (update + 1) / max(1, optim.warmup))
        return rise * (1.0 - (1.0 - optim.lr_end) * self.progress(update))

    def entropy_weight(self, update: int, algo: AlgoConfig) -> float:
        """From `entropy_weight` to `entropy_end`, linearly."""
        end = algo.entropy_weight if algo.entropy_end is None else algo.entropy_end
        return algo.entropy_weight + (end - algo.entropy_weight) * self.progress(update)
