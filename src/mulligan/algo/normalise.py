"""What is remembered from earlier updates: running baselines, and the spread of each agent's own returns.

Two uses (MAGE, arXiv 2603.03680, for the second):

baselines  where a group is too small to be its own baseline, the running mean of (task class, opponent, seat, n, phase)
           stands in
agents     σ_a, the spread of agent a's own returns per (agent, n, phase), scales its advantages, so that an agent paid
           in hundreds does not drown one paid in units; the population's spread is never used. Optionally its own mean
           μ_a centres them too

Estimators only read a `History`; the training loop calls `observe` once the update's advantages have been computed, so
that what an update is compared with never contains the update itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mulligan.algo.arrays import FloatArray, IntArray, dense_ids, deviation_by, mean_by
from mulligan.algo.batch import PHASES, Samples, StepBatch, samples_of
from mulligan.errors import ParameterError


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of some samples; in exponential averages the number is a faded one."""

    weight: float
    mean: float
    squares: float

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets of samples together (Chan, Golub and LeVeque 1983)."""
        weight = self.weight + other.weight
        apart = other.mean - self.mean
        between = apart * apart * self.weight * other.weight / weight
        return Moments(weight, self.mean + apart * other.weight / weight, self.squares + other.squares + between)


class RunningStatistics:
    """Mean and spread of some quantity per key, over earlier updates.

    An exponential average by default: at each update in which a key is seen, what was known of it weighs `decay` times
    as much. With `window`, the last so many updates in which it was seen count equally, and older ones not at all.
    """

    def __init__(self, *, decay: float = 0.9, window: int | None = None) -> None:
        if not 0.0 <= decay <= 1.0:
            raise ParameterError(f"decay={decay!r} is no weight; give a number from 0 (forget at once) to 1 (never)")
        if window is not None and window < 1:
            raise ParameterError(f"window={window!r} holds nothing; give at least 1 update, or None")
        self.decay, self.window = decay, window
        self._updates: dict[str, list[Moments]] = {}

    def observe(self, keys: Sequence[str], ids: IntArray, first: IntArray, values: FloatArray) -> None:
        """Take in one update. keys: [key]; ids, values: [sample]; first: [key], a sample of each key."""
        counts = np.bincount(ids, minlength=len(keys))
        squares = deviation_by(ids, first, values) ** 2 * np.maximum(counts - 1, 1)
        for key, *moments in zip(
            keys, counts.tolist(), mean_by(ids, first, values).tolist(), squares.tolist(), strict=True
        ):
            new, known = Moments(*moments), self._updates.get(key, [])
            if self.window is not None:
                self._updates[key] = [*known, new][-self.window :]
            else:
                old = self._of(key)
                faded = old and Moments(old.weight * self.decay, old.mean, old.squares * self.decay)
                self._updates[key] = [faded.merged(new) if faded else new]

    def mean(self, keys: Sequence[str]) -> FloatArray:
        """Mean of each key; nan where nothing is known of it. -> [key]."""
        known = map(self._of, keys)
        return np.array([moments.mean if moments else np.nan for moments in known], dtype=np.float64)

    def spread(self, keys: Sequence[str]) -> FloatArray:
        """Standard deviation of each key (ddof 0); nan where it is unknown or nothing ever differed. -> [key]."""
        known = map(self._of, keys)
        spread = [(moments.squares / moments.weight) ** 0.5 if moments else 0.0 for moments in known]
        return np.array([value if value > 0 else np.nan for value in spread], dtype=np.float64)

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        return {key: [list(moments) for moments in updates] for key, updates in self._updates.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; `decay` and `window` stay as they are here."""
        self._updates = {key: [Moments(*map(float, moments)) for moments in updates] for key, updates in state.items()}

    def _of(self, key: str) -> Moments | None:
        total: Moments | None = None
        for moments in self._updates.get(key, ()):
            total = total.merged(moments) if total else moments
        return total


@dataclass(frozen=True, slots=True)
class History:
    """All that advantages take from earlier updates."""

    baselines: RunningStatistics = field(default_factory=RunningStatistics)
    """Per (task class, opponent, seat, agent, n, phase)."""
    agents: RunningStatistics = field(default_factory=RunningStatistics)
    """Per (agent, n, phase)."""

    def observe(self, batch: StepBatch) -> None:
        """Take in the returns of an update, each trial one sample, after its advantages have been computed."""
        samples = samples_of(batch)
        for statistics, column, labels in (
            (self.baselines, samples.task_class, batch.class_labels),
            (self.agents, samples.agent, batch.agent_labels),
        ):
            ids, first = dense_ids(column, samples.episode, samples.phase)
            statistics.observe(_keys(samples, column, labels, first), ids, first, samples.value)

    def baseline(self, batch: StepBatch, samples: Samples) -> FloatArray:
        """Running mean of each sample's (task class, opponent, seat, n, phase); nan where there is none. [sample]."""
        ids, first = dense_ids(samples.task_class, samples.episode, samples.phase)
        return self.baselines.mean(_keys(samples, samples.task_class, batch.class_labels, first))[ids]

    def agent_mean(self, batch: StepBatch, samples: Samples) -> FloatArray:
        """μ_a of each sample's (agent, n, phase); nan where there is none. -> [sample]."""
        ids, first = dense_ids(samples.agent, samples.episode, samples.phase)
        return self.agents.mean(_keys(samples, samples.agent, batch.agent_labels, first))[ids]

    def agent_spread(self, batch: StepBatch, samples: Samples) -> FloatArray:
        """σ_a of each sample's (agent, n, phase); nan where there is none, or none above 0. -> [sample]."""
        ids, first = dense_ids(samples.agent, samples.episode, samples.phase)
        return self.agents.spread(_keys(samples, samples.agent, batch.agent_labels, first))[ids]

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        return {"baselines": self.baselines.state_dict(), "agents": self.agents.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.baselines.load_state_dict(state["baselines"])
        self.agents.load_state_dict(state["agents"])


def _keys(samples: Samples, column: IntArray, labels: Sequence[str], first: IntArray) -> list[str]:
    """A name for each (label, n, phase), read off the first sample that has it. first: [key] -> [key]."""
    rows = zip(column[first].tolist(), samples.episode[first].tolist(), samples.phase[first].tolist(), strict=True)
    return [f"{labels[label]}/episode {episode}/{PHASES[phase]}" for label, episode, phase in rows]
