"""Advantage estimators, by name; after this, nothing knows which one it was."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.algo.advantage import gigpo, grpo, ppo, reinforce_pp, rloo
from mulligan.algo.advantage.base import Advantages, Estimator, Options
from mulligan.errors import UnknownName

__all__ = ["DEFAULT", "ESTIMATORS", "Advantages", "Estimator", "Options", "estimator"]

ESTIMATORS: Mapping[str, Estimator] = {
    "gigpo": gigpo.estimate,
    "grpo": grpo.estimate,
    "ppo": ppo.estimate,
    "reinforce_pp": reinforce_pp.estimate,
    "rloo": rloo.estimate,
}
DEFAULT = "gigpo"


def estimator(name: str = DEFAULT) -> Estimator:
    """The estimator called `name`: ``estimator("rloo")(batch, options, history)``."""
    if name not in ESTIMATORS:
        raise UnknownName("advantage estimator", name, ESTIMATORS)
    return ESTIMATORS[name]
