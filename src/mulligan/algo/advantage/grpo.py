"""GRPO: an episode is as good as it is better than the same episode of the group's other trials.

    A = (G_0 - baseline) / σ        for every turn of the episode, and for a reflection with its own value and key

G_0 is the return at turn 0 of the episode, the baseline the mean over the other members of S_n, σ the standard
deviation of S_n (of the batch for that (n, phase), where |S_n| < 4).

Paper: DeepSeekMath, arXiv 2402.03300; without σ it is Dr. GRPO, arXiv 2503.20783 (`scale="none"`).
When it fits: tasks that end in one verdict, with groups of at least 4.
How it departs: the paper's mean includes the sample itself (`baseline="group"`), its σ is the group's whatever its
size, and it knows neither episodes nor reflections.
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
    advantage = centred / divisors(samples, options.scale, history)
    return Advantages(advantage[samples.of_step], group_metrics(samples, compared))
