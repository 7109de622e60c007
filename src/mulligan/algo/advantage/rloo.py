"""RLOO: reward against the mean of the others, and nothing else.

    A = G_0 - baseline              for every turn of the episode, and for a reflection with its own value and key

Paper: Ahmadian et al., arXiv 2402.14740 (after Kool et al. 2019).
When it fits: an unbiased gradient matters more than an even step size; rewards of one known scale.
How it departs: S_n instead of the whole group, the running mean where |S_n| < 3. `scale="agent"` (for agents with
different reward scales) is obeyed; `scale="std"` is not, since without it there would be nothing to tell it from GRPO.
"""

from __future__ import annotations

import numpy as np

from mulligan.algo.advantage.base import Advantages, Options, baselines, divisors, group_metrics
from mulligan.algo.batch import StepBatch, samples_of
from mulligan.algo.normalise import History


def estimate(batch: StepBatch, options: Options, history: History) -> Advantages:
    samples = samples_of(batch)
    compared = baselines(batch, samples, options, history)
    centred = np.nan_to_num(samples.value - compared.value, nan=0.0)
    advantage = centred / divisors(samples, "agent" if options.scale == "agent" else "none", history)
    return Advantages(advantage[samples.of_step], group_metrics(samples, compared))
