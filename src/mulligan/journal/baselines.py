"""What an agent usually achieves in a class: mean, spread, trend; and how much better an episode was than that.

Outcomes fade, so that an episode is compared with the agent's recent history (`algo.normalise` keeps it, as for the
advantages in training). Means, spreads and trends are descriptions; what has an error rate is in `proof`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mulligan.algo.normalise import RunningStatistics
from mulligan.errors import ParameterError

ENOUGH = 20
"""Outcomes from which on an advantage means something: their mean is then within about 0.45 spreads of the truth."""
_LONG, _SHORT = 0.98, 0.9
"""Decay by episode: the history is about the last 50 episodes, the trend about the last 10 against it."""
_TREND_ERROR = math.sqrt(
    (1 - _LONG) / (1 + _LONG)
    + (1 - _SHORT) / (1 + _SHORT)
    - 2 * (1 - _LONG) * (1 - _SHORT) / (1 - _LONG * _SHORT)  # both averages are of the same outcomes
)
"""The standard deviation of the trend, in spreads, if nothing changes."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The history of one agent in one class."""

    episodes: int
    mean: float
    """NaN without outcomes."""
    spread: float
    """The standard deviation; NaN while all outcomes were equal."""
    trend: float
    """The mean of about the last 10 episodes minus that of about the last 50."""
    enough: bool
    """Whether there are enough outcomes, and different ones, to compare with."""

    @property
    def direction(self) -> str:
        """The trend in a word: "up" or "down" where it is more than two of its standard deviations, else "level"."""
        if not self.enough or abs(self.trend) <= 2 * _TREND_ERROR * self.spread:
            return "level"
        return "up" if self.trend > 0 else "down"

    def advantage(self, reward: float) -> float | None:
        """How many spreads `reward` lies above the mean; None without enough data."""
        return (reward - self.mean) / self.spread if self.enough else None


class Baselines:
    """The baselines of all classes and agents."""

    def __init__(self) -> None:
        self._long, self._short = RunningStatistics(decay=_LONG), RunningStatistics(decay=_SHORT)
        self._episodes: dict[str, int] = {}

    def of(self, task_class: str, agent: str) -> Baseline:
        """The history of an agent in a class up to now."""
        key = json.dumps([task_class, agent])
        episodes = self._episodes.get(key, 0)
        mean, spread = float(self._long.mean([key])[0]), float(self._long.spread([key])[0])
        trend = float(self._short.mean([key])[0]) - mean
        return Baseline(episodes, mean, spread, trend, episodes >= ENOUGH and not math.isnan(spread))

    def observe(self, task_class: str, agent: str, reward: float) -> Baseline:
        """Take in an outcome -> the history before it, which its advantage is measured against."""
        if not math.isfinite(reward):
            raise ParameterError(f"reward must be a finite number (got {reward})")
        before, key = self.of(task_class, agent), json.dumps([task_class, agent])
        only = np.zeros(1, dtype=np.int64)
        for statistics in (self._long, self._short):
            statistics.observe([key], only, only, np.array([reward], dtype=np.float64))
        self._episodes[key] = before.episodes + 1
        return before

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        return {
            "episodes": dict(self._episodes),
            "long": self._long.state_dict(),
            "short": self._short.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._episodes = {key: int(count) for key, count in state["episodes"].items()}
        self._long.load_state_dict(state["long"])
        self._short.load_state_dict(state["short"])
