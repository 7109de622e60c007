"""REINFORCE++ with a baseline: each turn's own return, one scale for the whole batch.

    A_t = (G_t - baseline) / σ

The baseline is that of G_0 at the key (task, opponent, seat, n, phase); σ is the standard deviation of the numerator
over all turns of the batch, and reflections are divided by the same σ. It is not centred again: what is above its
baseline stays positive.

Paper: Hu, arXiv 2501.03262.
When it fits: many tasks with few trials each, where a group's own spread says little.
How it departs: the paper also subtracts the batch's mean, and takes both over tokens; here over turns, so that long
replies do not weigh more and σ does not depend on whether agents write reflections. Turns without a baseline are left
out of σ.
"""

from __future__ import annotations

import numpy as np

from mulligan.algo.advantage.base import EPSILON, Advantages, Options, baselines, divisors, group_metrics
from mulligan.algo.batch import PLAY, StepBatch, samples_of
from mulligan.algo.normalise import History


def estimate(batch: StepBatch, options: Options, history: History) -> Advantages:
    samples = samples_of(batch)
    compared = baselines(batch, samples, options, history)
    centred = batch.value - compared.value[samples.of_step]
    if options.scale == "std":
        turns = centred[(batch.phase == PLAY) & ~np.isnan(centred)]
        spread = float(turns.std(ddof=1)) if len(turns) > 1 else 0.0
        centred = centred / (spread + EPSILON if spread > EPSILON else 1.0)
    else:
        centred = centred / divisors(samples, options.scale, history)[samples.of_step]
    return Advantages(np.nan_to_num(centred, nan=0.0), group_metrics(samples, compared))
