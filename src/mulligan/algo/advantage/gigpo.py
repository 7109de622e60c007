"""GiGPO: the episode against the group's, and each turn against other trials that stood in the same state.

    A = A_episode + w · A_step
    A_episode = (G_0 - baseline) / σ                                       as in grpo.py; no σ with scale="none"
    A_step    = G_t - mean over the *other trials* at the turn's anchor    0 where no other trial was there

The anchor is (task, opponent, seat, n, state_key), with `state_key` the full visible world or the player's information
state, never the observation's text. A trial that came by an anchor several times is averaged to one value first. Turn 0
(the same state for all: A_episode already compares it) and reflections get no step term.

Paper: Feng et al., arXiv 2505.10978.
When it fits: the default; worlds of several turns whose states recur, such as boards, rooms and pages.
How it departs: a trial is compared with others only, and counts once at an anchor, where the paper's mean is over all
visits; A_step is not divided by a deviation, which few visits would make noise. Contexts at an anchor differ in what
memory shows, so that it is a heuristic: `anchor/share` is the share of turns that had a usable one.
"""

from __future__ import annotations

import numpy as np

from mulligan.algo.advantage.base import Advantages, Options, baselines, divisors, group_metrics
from mulligan.algo.arrays import BoolArray, FloatArray, dense_ids, mean_by
from mulligan.algo.batch import PLAY, StepBatch, samples_of
from mulligan.algo.normalise import History


def estimate(batch: StepBatch, options: Options, history: History) -> Advantages:
    samples = samples_of(batch)
    compared = baselines(batch, samples, options, history)
    divisor = divisors(samples, options.scale, history)
    episode_term = np.nan_to_num(samples.value - compared.value, nan=0.0) / divisor
    step_term, usable = step_advantages(batch)
    if options.scale == "agent":  # an agent's own scale concerns all it is paid, so both terms
        step_term = step_term / divisor[samples.of_step]
    metrics = group_metrics(samples, compared)
    metrics["anchor/share"] = float(usable.sum()) / max(int((batch.phase == PLAY).sum()), 1)
    return Advantages(episode_term[samples.of_step] + options.step_weight * step_term, metrics)


def step_advantages(batch: StepBatch) -> tuple[FloatArray, BoolArray]:
    """A_step of every step, and whether another trial was at its anchor. -> [step], [step]."""
    advantage, usable = np.zeros(len(batch)), np.zeros(len(batch), dtype=np.bool_)
    rows = np.flatnonzero(batch.state >= 0)  # not turn 0, not a reflection
    value, trial = batch.value[rows], batch.trial[rows]
    anchor, _ = dense_ids(batch.group[rows], batch.episode[rows], batch.state[rows])
    visit, visit_first = dense_ids(anchor, trial)  # one number for all times a trial was at an anchor
    trial_mean = mean_by(visit, visit_first, value)  # [visit]
    anchor_of_visit = anchor[visit_first]
    trials_there = np.bincount(anchor_of_visit)  # [anchor]
    sum_there = np.bincount(anchor_of_visit, weights=trial_mean)  # [anchor]
    others = trials_there[anchor] - 1
    mean_of_others = (sum_there[anchor] - trial_mean[visit]) / np.maximum(others, 1)
    usable[rows] = others > 0
    advantage[rows] = np.where(others > 0, value - mean_of_others, 0.0)
    return advantage, usable
