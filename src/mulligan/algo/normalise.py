"""What is remembered from earlier updates: running baselines, and the spread of the agent's own returns.

Two uses (MAGE, arXiv 2603.03680, for the second):

baselines  where a group is too small to be its own baseline, the running mean of (task class, opponent, seat, n, phase)
           stands in
agents     σ_a, the spread of the agent's own returns per (n, phase), scales its advantages. Optionally its own mean
           μ_a centres them too. Each agent of a population has a history of its own, so that σ_a is never the
           population's; the histories of the others are known to it (`peers`) for the comparison with that

Estimators only read a `History`; the training loop calls `observe` once the update's advantages have been computed, so
that what an update is compared with never contains the update itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mulligan.algo.arrays import FloatArray, IntArray, dense_ids, deviation_by, mean_by
from mulligan.algo.batch import PHASES, Samples, StepBatch, samples_of

_Moments = tuple[float, float, float]
_NEVER_SEEN = (1.0, math.nan, 0.0)


def _together(one: _Moments, other: _Moments) -> _Moments:
    """Number, mean and squared deviations of both sets of samples together (Chan, Golub and LeVeque 1983)."""
    (weight, mean, squares), (other_weight, other_mean, other_squares) = one, other
    total, gap = weight + other_weight, other_mean - mean
    between = gap * gap * weight * other_weight / total
    return total, mean + gap * other_weight / total, squares + other_squares + between


class RunningStatistics:
    """Mean and spread of some quantity per key: an exponential average over earlier updates.

    At each update in which a key is seen, its earlier samples weigh `decay` times as much as before.
    """

    def __init__(self, *, decay: float = 0.9) -> None:
        self.decay = decay
        self._moments: dict[str, _Moments] = {}
        """Of each key: the number of samples, faded; their mean; the sum of their squared deviations."""

    def observe(self, keys: Sequence[str], ids: IntArray, first: IntArray, values: FloatArray) -> None:
        """Take in one update. keys: [key]; ids, values: [sample]; first: [key], a sample of each key."""
        counts = np.bincount(ids, minlength=len(keys))
        sums = deviation_by(ids, first, values) ** 2 * np.maximum(counts - 1, 1)
        columns = counts.tolist(), mean_by(ids, first, values).tolist(), sums.tolist()
        for key, weight, mean, squares in zip(keys, *columns, strict=True):
            new: _Moments = weight, mean, squares
            if key in self._moments:
                old_weight, old_mean, old_squares = self._moments[key]
                new = _together((old_weight * self.decay, old_mean, old_squares * self.decay), new)
            self._moments[key] = new

    def mean(self, keys: Sequence[str]) -> FloatArray:
        """Mean of each key; nan where it was never seen. -> [key]."""
        return np.array([self._moments.get(key, _NEVER_SEEN)[1] for key in keys], dtype=np.float64)

    def spread(self, keys: Sequence[str]) -> FloatArray:
        """Standard deviation of each key (ddof 0); nan where it was never seen or nothing ever differed. -> [key]."""
        moments = [self._moments.get(key, _NEVER_SEEN) for key in keys]
        spread = [(squares / weight) ** 0.5 for weight, _, squares in moments]
        return np.array([value if value > 0 else np.nan for value in spread], dtype=np.float64)

    def joined(self, others: Sequence[RunningStatistics]) -> RunningStatistics:
        """What all of them have seen, as if it were one's."""
        joined = RunningStatistics(decay=self.decay)
        for each in (self, *others):
            for key, moments in each._moments.items():
                before = joined._moments.get(key)
                joined._moments[key] = moments if before is None else _together(before, moments)
        return joined

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        return {key: [list(moments)] for key, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; `decay` stays as it is here."""
        self._moments = {key: (float(w), float(mean), float(squares)) for key, ((w, mean, squares),) in state.items()}


@dataclass(frozen=True, slots=True)
class History:
    """All that advantages take from earlier updates."""

    baselines: RunningStatistics = field(default_factory=RunningStatistics)
    """Per (task class, opponent, seat, n, phase)."""
    agents: RunningStatistics = field(default_factory=RunningStatistics)
    """Per (n, phase)."""
    peers: list[History] = field(default_factory=list)
    """Those of the other agents of a population."""

    def observe(self, batch: StepBatch) -> None:
        """Take in the returns of an update, each trial one sample, after its advantages have been computed."""
        samples = samples_of(batch)
        self.baselines.observe(*_class_keys(batch, samples), samples.value)
        self.agents.observe(*_agent_keys(samples), samples.value)

    def baseline(self, batch: StepBatch, samples: Samples) -> FloatArray:
        """Running mean of each sample's (task class, opponent, seat, n, phase); nan where there is none. [sample]."""
        keys, ids, _ = _class_keys(batch, samples)
        return self.baselines.mean(keys)[ids]

    def agent_mean(self, samples: Samples) -> FloatArray:
        """μ_a of each sample's (n, phase); nan where there is none. -> [sample]."""
        keys, ids, _ = _agent_keys(samples)
        return self.agents.mean(keys)[ids]

    def agent_spread(self, samples: Samples, *, together: bool = False) -> FloatArray:
        """σ_a of each sample's (n, phase), or `together` with all peers; nan where there is none, or none above 0.
        -> [sample]."""
        keys, ids, _ = _agent_keys(samples)
        statistics = self.agents.joined([peer.agents for peer in self.peers]) if together else self.agents
        return statistics.spread(keys)[ids]

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": self.baselines.state_dict(), "agents": self.agents.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.baselines.load_state_dict(state["baselines"])
        self.agents.load_state_dict(state["agents"])


def _class_keys(batch: StepBatch, samples: Samples) -> tuple[list[str], IntArray, IntArray]:
    return _keys(samples, samples.task_class, batch.class_labels)


def _agent_keys(samples: Samples) -> tuple[list[str], IntArray, IntArray]:
    return _keys(samples, np.zeros_like(samples.episode), ["agent"])


def _keys(samples: Samples, column: IntArray, labels: Sequence[str]) -> tuple[list[str], IntArray, IntArray]:
    """A name for each (label, n, phase), the number of each sample's, and the first sample of each."""
    ids, first = dense_ids(column, samples.episode, samples.phase)
    rows = zip(column[first].tolist(), samples.episode[first].tolist(), samples.phase[first].tolist(), strict=True)
    return [f"{labels[label]}/episode {episode}/{PHASES[phase]}" for label, episode, phase in rows], ids, first
