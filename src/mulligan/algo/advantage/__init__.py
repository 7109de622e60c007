"""Advantage estimators, by name; after this, nothing knows which one it was."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.algo.advantage import gigpo, grpo, ppo, reinforce_pp, rloo
from mulligan.algo.advantage.base import Advantages, Estimator, Options

__all__ = ["ESTIMATORS", "Advantages", "Estimator", "Options"]

ESTIMATORS: Mapping[str, Estimator] = {
    "gigpo": gigpo.estimate,
    "grpo": grpo.estimate,
    "ppo": ppo.estimate,
    "reinforce_pp": reinforce_pp.estimate,
    "rloo": rloo.estimate,
}
