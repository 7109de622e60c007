"""Rewards that are not the task's: progress, invalid replies, length. All of them stay inside their episode.

They are added up per step and given to `credit.flat_shaped_returns`, which keeps them from crossing an episode border.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mulligan.algo.arrays import FloatArray
from mulligan.errors import ParameterError


def for_validity(valid: npt.ArrayLike, penalty: float) -> FloatArray:
    """``-penalty`` where a reply was not valid, else 0. valid: [step] -> [step]."""
    return np.where(np.asarray(valid, dtype=bool), 0.0, -penalty)


def for_length(tokens: npt.ArrayLike, limit: int, penalty: float) -> FloatArray:
    """0 up to half the limit, from there linearly down to ``-penalty`` at the limit. tokens: [step] -> [step]."""
    if limit < 1:
        raise ParameterError(f"length limit {limit} leaves no room for a reply; give the most tokens a reply may have")
    half = limit / 2
    return 0.0 - penalty * np.clip((np.asarray(tokens, dtype=np.float64) - half) / half, 0.0, 1.0)
