"""What every estimator takes and gives, and the baselines and scales they share.

A sample is one trial's return at an episode's turn 0, or at a reflection. Its key is (task, opponent, seat, n, phase),
and S_n are the samples of its key: the trials of the group that played episode n. Trials that stopped before n are
absent, never counted as 0 or 1. Who is in S_n was fixed before n's actions, so that a mean over the others in S_n is a
valid baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from mulligan.algo.arrays import BoolArray, FloatArray, dense_ids, deviation_by, mean_by
from mulligan.algo.batch import PLAY, Samples, StepBatch
from mulligan.algo.normalise import History

BaselineName = Literal["leave_one_out", "group", "agent"]
ScaleName = Literal["std", "none", "agent", "population"]

SMALLEST_OWN_BASELINE = 3
"""Below so many survivors the group is not its own baseline."""
SMALLEST_OWN_SPREAD = 4
"""Below so many survivors the group's standard deviation is not used."""
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Options:
    """What an estimator may be told; each reads what concerns it."""

    baseline: BaselineName = "leave_one_out"
    """leave_one_out: mean over the *other* members of S_n. group: the papers' mean over all of S_n, which shrinks the
    signal by 1 - 1/|S_n|. agent: the agent's own mean μ_a over earlier updates."""
    scale: ScaleName = "std"
    """std: standard deviation of the group, or of the batch where the group is small. none: leave it out (Dr. GRPO).
    agent: σ_a, the spread of the agent's own returns over earlier updates (MAGE). population: the spread of the
    returns of all agents of a population together, which is what σ_a is compared with."""
    step_weight: float = 1.0
    """w, what gigpo's step term weighs."""
    gae_lambda: float = 0.95
    """λ of ppo's generalised advantage estimation."""


@dataclass(frozen=True, slots=True, eq=False)
class Advantages:
    """What an estimator gives back."""

    values: FloatArray
    """[step] One advantage for each step, shared by all its tokens."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    targets: FloatArray | None = None
    """[step, head] What the critic should have said; `ppo` alone has them."""


Estimator = Callable[[StepBatch, Options, History], Advantages]


class Baselines(NamedTuple):
    """What each sample is compared with."""

    value: FloatArray
    """[sample] The baseline; nan where there is none yet, and the advantage is 0."""
    running: BoolArray
    """[sample] Whether it was taken from earlier updates."""


def baselines(batch: StepBatch, samples: Samples, options: Options, history: History) -> Baselines:
    """The baseline of every sample, as `options.baseline` says.

    leave_one_out with |S_n| < 3 takes the running mean of (task class, opponent, seat, n, phase) of earlier updates.
    """
    count = len(samples.value)
    if options.baseline == "agent":
        return Baselines(history.agent_mean(samples), np.full(count, True))
    mean = mean_by(samples.key, samples.key_first, samples.value)[samples.key]
    if options.baseline == "group":
        return Baselines(mean, np.full(count, False))
    # Mean over the others: (|S|·mean - x) / (|S| - 1) = mean - (x - mean) / (|S| - 1)
    others = mean - (samples.value - mean) / np.maximum(samples.survivors - 1, 1)
    running = samples.survivors < SMALLEST_OWN_BASELINE
    return Baselines(np.where(running, history.baseline(batch, samples), others), running)


def divisors(samples: Samples, scale: ScaleName, history: History) -> FloatArray:
    """What the advantage of every sample is divided by; 1 where nothing differs, since no spread is no scale. [sample].

    std: of S_n if |S_n| ≥ 4, else of all samples of the batch with the same (n, phase). agent: σ_a from earlier
    updates, population: that of all agents; or the spread in this batch as long as there are none.
    """
    if scale == "none":
        return np.ones(len(samples.value))
    ids, first = dense_ids(samples.episode, samples.phase)
    of_batch = deviation_by(ids, first, samples.value)[ids]
    if scale in ("agent", "population"):
        earlier = history.agent_spread(samples, together=scale == "population")
        spread = np.where(np.isnan(earlier), of_batch, earlier)
    else:
        group = deviation_by(samples.key, samples.key_first, samples.value)[samples.key]
        spread = np.where(samples.survivors >= SMALLEST_OWN_SPREAD, group, of_batch)
    return np.where(spread > EPSILON, spread + EPSILON, 1.0)


def group_metrics(samples: Samples, compared: Baselines | None = None) -> dict[str, float]:
    """Counts that show how much the comparison had to go by.

    groups/total; groups/no_signal: groups whose members have the same return at every (n, phase), and that are their
    own baseline; survivors/n: mean |S_n| over all groups; baseline/running and baseline/none: samples whose baseline
    came from earlier updates, and those without any.
    """
    running = samples.survivors < SMALLEST_OWN_BASELINE if compared is None else compared.running
    differs = ~np.isclose(samples.value, samples.value[samples.key_first][samples.key], rtol=1e-9, atol=1e-12)
    differing, own = (np.bincount(samples.group, weights=flag) for flag in (differs, ~running))
    total = len(np.unique(samples.group))
    metrics = {"groups/total": float(total), "groups/no_signal": float(((differing == 0) & (own > 0)).sum())}
    played = np.bincount(samples.episode[samples.phase == PLAY])
    metrics.update({f"survivors/{n}": float(number) / total for n, number in enumerate(played)})
    if compared is not None:
        missing = np.isnan(compared.value)
        metrics["baseline/none"] = float(missing.sum())
        metrics["baseline/running"] = float((compared.running & ~missing).sum())
    return metrics
