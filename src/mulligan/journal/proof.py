"""Whether the journal helps, class by class: hold-out, uplift, do no harm, and the alarm for drift.

All error rates here hold at any time one looks, for any number of looks, and at any finite number of episodes.
Nothing is asymptotic. The derivations, and how often the intervals held the truth, are in docs/journal-maths.md.

In short. Episode i runs with the journal on with a chance p_i that is fixed before it begins. m₁ and m₀ predict the
outcome with and without the journal, from earlier episodes only, and h_i = min(p_i, 1 − p_i) is the episode's weight.
The *surprise* s_i = h_i (y_i − m₁) / p_i if on, −h_i (y_i − m₀) / (1 − p_i) if off, lies between −1 and 1 and has the
mean h_i (Δ_i − m₁ + m₀) given the past, Δ_i the journal's effect on episode i. As 1 + x ≤ eˣ, for a stake λ ≤ 1

    Π (1 + λ s_i) · exp(−λ Σ h_i (Δ_i − m₁ + m₀))

is a nonnegative supermartingale that starts at 1. So is the average over stakes, and by Ville's inequality it ever
exceeds 1/α with a chance of at most α. It depends on the Δ_i through the weighted mean Σ h_i Δ_i / Σ h_i alone. So that
is what the interval holds, whether effects drift or not and however the shares were changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import ParameterError

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
"""The lowest and the highest reward that a class can give."""

STAKES: Floats = 2.0 ** -np.arange(0, 8.5, 0.5)
"""λ from 1 to 1/256. Large stakes suit few episodes and rare outcomes, small ones many episodes."""
_STAKE_WEIGHTS: Floats = (1 / np.arange(1, len(STAKES) + 1)) / (1 / np.arange(1, len(STAKES) + 1)).sum()
SWITCH_ERROR = 0.1
"""The chance that a class is ever switched wrongly. The k-th switch may use up SWITCH_ERROR / 2ᵏ of it, so that a 95 %
interval below 0 always switches the class off the first time."""


def uniform(*parts: str | int) -> float:
    """A number in [0, 1) that depends on every part: the same on every machine and in every version."""
    text = json.dumps(parts)  # unambiguous: ("a", "bc") and ("ab", "c") differ
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11) / 2**53


def held_out(namespace: str, task_class: str, episode_id: str, share: float) -> bool:
    """Whether this episode belongs to the hold-out, a `share` of all episodes of the class.

    Held-out episodes run with the journal off; in a class that is switched off, they are the ones that run with it on.
    A larger share holds out all episodes that a smaller one does. The id must be given before the outcome is known.
    """
    if not 0 <= share <= 1:
        raise ParameterError(f"the hold-out's share must be between 0 and 1 (got {share})")
    return uniform("hold-out", namespace, task_class, episode_id) < share


def scaled(rewards: Sequence[float], bounds: Bounds) -> Floats:
    """Rewards as numbers between 0 and 1; an error where one lies outside the class's bounds."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"a class's lowest reward must be below its highest (got {low} and {high})")
    values = np.asarray(rewards, dtype=np.float64)
    outside = ~((values >= low) & (values <= high))  # NaN too
    if outside.any():
        wrong = values[outside][0]
        raise ParameterError(f"reward must be between {low:g} and {high:g} (got {wrong:g}); give the class its bounds")
    return (values - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with an interval that is valid at any time one looks."""

    mean: float
    low: float
    high: float
    level: float
    episodes: int
    """Episodes that were randomised; others say nothing."""


@dataclass(frozen=True, slots=True)
class Sums:
    """All that an estimate needs of its episodes."""

    gains: Floats
    """Σ log(1 + λ s) and Σ log(1 − λ s). [side, stake]"""
    surprise: float = 0.0
    prediction: float = 0.0
    weight: float = 0.0
    episodes: int = 0
    """With a weight above 0."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.gains + other.gains,
            self.surprise + other.surprise,
            self.prediction + other.prediction,
            self.weight + other.weight,
            self.episodes + other.episodes,
        )

    def estimate(self, level: float, limits: Bounds) -> Estimate:
        """The weighted mean and its interval within `limits`."""
        if not 0 < level < 1:
            raise ParameterError(f"level must be between 0 and 1 (got {level})")
        if self.weight == 0:
            return Estimate(math.nan, *limits, level, 0)
        low, high = self._bound(level, limits, above=True), self._bound(level, limits, above=False)
        mean = (self.surprise + self.prediction) / self.weight
        return Estimate(min(max(mean, low), high), low, high, level, self.episodes)

    def _bound(self, level: float, limits: Bounds, *, above: bool) -> float:
        """Where the wealth falls to 2 / (1 − level), by bisection: it is monotone in the mean."""
        sign = 1 if above else -1
        logs = np.log(_STAKE_WEIGHTS) + self.gains[0 if above else 1]
        inside, outside = (limits[1], limits[0]) if above else limits
        for _ in range(50):
            middle = (inside + outside) / 2
            wealth = _log_sum(logs + sign * (self.prediction - self.weight * middle) * STAKES)
            inside, outside = (inside, middle) if wealth > math.log(2 / (1 - level)) else (middle, outside)
        return outside


@dataclass(frozen=True, slots=True)
class Evidence:
    """What each episode adds to an estimate. All arrays are [episode], in the order of time."""

    surprises: Floats
    """Weight · (outcome − prediction) / chance, between −1 and 1."""
    predictions: Floats
    """Weight · what was predicted of the effect, from earlier episodes."""
    weights: Floats

    def since(self, start: int) -> Evidence:
        """The evidence without the first `start` episodes."""
        return Evidence(self.surprises[start:], self.predictions[start:], self.weights[start:])

    def sums(self) -> Sums:
        """Over all episodes."""
        gains = [np.log1p(sign * self.surprises[:, None] * STAKES).sum(axis=0) for sign in (1, -1)]
        surprise, prediction, weight = (float(each.sum()) for each in (self.surprises, self.predictions, self.weights))
        return Sums(np.array(gains), surprise, prediction, weight, int((self.weights > 0).sum()))

    def log_wealth(self, mean: float, *, above: bool) -> Floats:
        """The logarithm of each stake's supermartingale after each episode, if the truth were `mean`. [episode, stake]

        It grows if the truth lies above `mean`, or with `above=False` below.
        """
        sign = 1 if above else -1
        drift = np.cumsum(self.predictions - self.weights * mean)
        return np.cumsum(np.log1p(sign * self.surprises[:, None] * STAKES), axis=0) + sign * drift[:, None] * STAKES

    def excludes(self, mean: float, level: float) -> NDArray[np.bool_]:
        """Whether the interval after each episode excludes `mean`. [episode]"""
        sides = [_log_sum(np.log(_STAKE_WEIGHTS) + self.log_wealth(mean, above=above)) for above in (True, False)]
        excluded: NDArray[np.bool_] = np.maximum(*sides) > math.log(2 / (1 - level))
        return excluded


def _log_sum(logs: Floats) -> Any:
    """log Σ exp over the last axis."""
    return np.logaddexp.reduce(logs, axis=-1)


def _before(values: Floats) -> Floats:
    """Sums over the episodes before each. [episode]"""
    return np.cumsum(values) - values


def evidence(on: Floats, outcomes: Floats, chances: Floats, earlier: Floats) -> Evidence:
    """The evidence on the journal's effect; see the module's docstring.

    on: 1 or 0; outcomes: scaled to 0 … 1; chances: of on. earlier: the number and the sum of earlier outcomes, with the
    journal on and off, [arm, 2].
    """
    weights = np.minimum(chances, 1 - chances)
    randomised = np.where(weights > 0, 1.0, 0.0)  # what was not randomised must not colour the predictions either
    counts, totals = earlier.sum(axis=0)
    pooled = (totals + _before(outcomes * randomised) + 0.5) / (counts + _before(randomised) + 1)
    first, second = (
        (total + _before(outcomes * arm * randomised) + pooled) / (count + _before(arm * randomised) + 1)
        for arm, (count, total) in zip((on, 1 - on), earlier, strict=True)
    )
    taken = np.where(on == 1, chances, 1 - chances)
    surprises = weights / taken * np.where(on == 1, outcomes - first, second - outcomes)
    return Evidence(surprises, weights * (first - second), weights)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a class uses its journal, and since when."""

    on: bool
    switches: tuple[int, ...]
    """The number of episodes after which each switch happened; the first one is off."""
    words: str


class Proof:
    """Uplift and do-no-harm of one class, kept as sums: an episode costs the same however many came before.

    The sums hold no episode, so that episodes can be deleted and the proof kept.
    """

    def __init__(self, bounds: Bounds = (0.0, 1.0)) -> None:
        self.bounds = bounds
        self.episodes = 0
        self.switches: list[int] = []
        self._sums = Sums(np.zeros((2, len(STAKES))))
        self._arms = np.zeros((2, 2))
        """Number and sum of randomised outcomes, with the journal on and off."""
        self._begin_period()

    def _begin_period(self) -> None:
        self._period = 0
        """Episodes since the last switch."""
        self._wealth, self._since = np.zeros(len(STAKES)), np.full(len(STAKES), -1e9)
        """Logarithms by stake, since the last switch: the wealth at effect 0, and Σ_k v_k / wealth before k."""

    def observe(self, on: Sequence[bool], rewards: Sequence[float], chances: Sequence[float]) -> None:
        """Take in the next episodes, in the order in which they began; arguments as of `uplift`.

        In the order of their ends nothing is promised: which ends first may depend on arm and outcome together
        (results/journal/order.md: intervals then exclude the truth in every stream).
        """
        lengths = len(on), len(rewards), len(chances)
        if len(set(lengths)) > 1:
            raise ParameterError(
                "proof needs one entry an episode (got {} on, {} rewards, {} chances)".format(*lengths)
            )
        outcomes, chance = scaled(rewards, self.bounds), np.asarray(chances, dtype=np.float64)
        is_on = np.asarray(on, dtype=np.float64)
        taken = np.where(is_on == 1, chance, 1 - chance)
        if not ((taken > 0) & (taken <= 1)).all():
            wrong = chance[~((taken > 0) & (taken <= 1))][0]
            raise ParameterError(f"the chance of what was done must be above 0 and at most 1 (got {wrong:g} for on)")
        batch = evidence(is_on, outcomes, chance, self._arms)
        for arm, members in enumerate((is_on, 1 - is_on)):
            counted = members * (batch.weights > 0)
            self._arms[arm] += counted.sum(), (counted * outcomes).sum()
        self._sums += batch.sums()
        self._switch(batch)
        self.episodes += len(outcomes)

    def _switch(self, batch: Evidence) -> None:
        """Find the switches within a batch."""
        start = 0
        while start < len(batch.weights):
            rest = batch.since(start)
            # An even number of switches: the journal is on, and the question is whether the effect lies below 0.
            wealth = self._wealth + rest.log_wealth(0.0, above=len(self.switches) % 2 == 1)
            number = self._period + np.arange(1, len(wealth) + 1)
            staked = 0.5 / np.log2(number + 1) - 0.5 / np.log2(number + 2) + 0.5 * (number == 1)
            fresh = np.log(staked)[:, None] - np.vstack([self._wealth, wealth[:-1]])
            since = np.logaddexp.accumulate(np.vstack([self._since, fresh]), axis=0)[1:]
            kept = np.log(0.5 / np.log2(number + 2))
            total = np.logaddexp(_log_sum(np.log(_STAKE_WEIGHTS) + wealth + since), kept)
            crossed = np.flatnonzero(total >= math.log(2 ** (len(self.switches) + 1) / SWITCH_ERROR))
            if not len(crossed):
                self._wealth, self._since, self._period = wealth[-1], since[-1], int(number[-1])
                return
            start += int(crossed[0]) + 1
            self.switches.append(self.episodes + start)
            self._begin_period()

    def uplift(self, level: float = 0.95) -> Estimate:
        """As `uplift`, of all episodes so far."""
        width = self.bounds[1] - self.bounds[0]
        scaled_to_1 = self._sums.estimate(level, (-1.0, 1.0))
        mean, low, high = (value * width for value in (scaled_to_1.mean, scaled_to_1.low, scaled_to_1.high))
        return Estimate(mean, low, high, level, scaled_to_1.episodes)

    def verdict(self) -> Verdict:
        """As `harms`, of all episodes so far."""
        return Verdict(len(self.switches) % 2 == 0, tuple(self.switches), _words(self.switches, self.episodes))

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        sums = self._sums
        return {
            "episodes": self.episodes,
            "switches": list(self.switches),
            "gains": sums.gains.tolist(),
            "sums": [sums.surprise, sums.prediction, sums.weight, sums.episodes],
            "arms": self._arms.tolist(),
            "period": [self._period, self._wealth.tolist(), self._since.tolist()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; the bounds stay as they are here."""
        self.episodes, self.switches = state["episodes"], list(state["switches"])
        self._sums, self._arms = Sums(np.array(state["gains"]), *state["sums"]), np.array(state["arms"])
        self._period, wealth, since = state["period"]
        self._wealth, self._since = np.array(wealth), np.array(since)


def uplift(
    on: Sequence[bool],
    rewards: Sequence[float],
    chances: Sequence[float],
    *,
    bounds: Bounds = (0.0, 1.0),
    level: float = 0.95,
) -> Estimate:
    """Mean outcome with the journal minus without it, in one class, with an interval valid at any time.

    on: whether the journal was on; rewards: the outcomes; chances: of the journal being on, decided before the episode
    began. All [episode], in the order in which the episodes began. Where effects drift, this is their mean over the
    episodes, each weighted by min(chance, 1 − chance): the plain mean as long as the share was not changed.

    Leaving out episodes that never ended is harmless only if the journal does not change how often that happens;
    otherwise give them the lowest reward.
    """
    proof = Proof(bounds)
    proof.observe(on, rewards, chances)
    return proof.uplift(level)


def harms(
    on: Sequence[bool], rewards: Sequence[float], chances: Sequence[float], *, bounds: Bounds = (0.0, 1.0)
) -> Verdict:
    """Do no harm: whether the journal of a class must be off now.

    Arguments as of `uplift`. The journal is switched off when it is shown to hurt: over all episodes since the last
    switch, or over the latest of them, from whichever episode on. While it is off the hold-out goes on in reverse, and
    the journal is switched on again when it is shown to help. The chance that a class in which it never hurts is ever
    switched off, or one in which it never helps ever on again, is at most `SWITCH_ERROR` over all time.

    Half of the stake is on harm from the first episode on, the other half on harm from episode k on, for all k, in
    parts of 1/log₂(k+1) − 1/log₂(k+2), which sum to 1. What is not yet staked is kept.
    """
    proof = Proof(bounds)
    proof.observe(on, rewards, chances)
    return proof.verdict()


def _words(switches: Sequence[int], episodes: int) -> str:
    if not switches:
        return "the journal is on: nothing shows that it hurts"
    ago, is_off = episodes - switches[-1], len(switches) % 2
    what = "off" if is_off else "on again"
    since = f"is {what} from now on" if not ago else f"has been {what} for {ago} episode{'s' * (ago > 1)}"
    if is_off:
        return f"the journal {since}: outcomes with it were worse; it is still tried in the hold-out"
    return f"the journal {since}: outcomes with it were better in the hold-out"


@dataclass(frozen=True, slots=True)
class Drift:
    """An alarm: outcomes of a class are no longer what they were."""

    episode: int
    """Counted from the last alarm, or from the beginning."""
    drop: bool
    """False if outcomes have become better."""
    words: str


class DriftAlarm:
    """Tells when the outcomes of a class change, with a false alarm at most every `average_run` episodes on average.

    Each outcome's rank among all outcomes since the last alarm, ties broken at random, is uniform as long as outcomes
    are exchangeable, and independent of earlier ranks (conformal prediction). Bets that ranks are low (or high) from
    some episode on form a Shiryaev–Roberts statistic R with E[R after t] = t. With an alarm at R ≥ c the mean time to a
    false alarm is therefore at least c, and the chance of one within T episodes at most T / c. Nothing need be known of
    the outcomes' distribution. After an alarm it begins anew with the next outcome.

    It promises nothing where outcomes depend on each other. Outcomes that are compared should be of one kind: those
    with the journal on.
    """

    def __init__(self, name: str, *, average_run: float = 5000, bounds: Bounds = (0.0, 1.0)) -> None:
        """`name` is what ties are broken by: the same outcomes under the same name give the same alarms."""
        if not average_run >= 1:
            raise ParameterError(f"average_run must be >= 1 (got {average_run})")
        self.name, self.average_run, self.bounds = name, average_run, bounds
        self.alarms = 0
        self._restart()

    def _restart(self) -> None:
        self._counts = np.zeros(_LEVELS + 1, dtype=np.int64)
        """How often each outcome came, rounded to a thousandth of the bounds."""
        self._bets = np.zeros((2, len(_LOW_RANKS)))
        """The statistic of each bet, on low and on high ranks."""

    def observe(self, reward: float) -> Drift | None:
        """Take in one outcome; the alarm, if this raises one."""
        outcome = round(float(scaled([reward], self.bounds)[0]) * _LEVELS)
        self._counts[outcome] += 1
        episode, lower, ties = (
            int(each) for each in (self._counts.sum(), self._counts[:outcome].sum(), self._counts[outcome])
        )
        rank = (lower + uniform("drift", self.name, self.alarms, episode) * ties) / episode
        for row, value in enumerate((rank, 1 - rank)):
            self._bets[row] = (1 + self._bets[row]) * (1 - _BOLDNESS + _BOLDNESS / _LOW_RANKS * (value < _LOW_RANKS))
        if self._bets.mean() < self.average_run:
            return None
        drop = bool(self._bets[0].sum() > self._bets[1].sum())
        words = (
            f"outcomes have become {'worse' if drop else 'better'} (noticed at episode {episode}); "
            f"without a change this happens once in {self.average_run:g} episodes or less"
        )
        self.alarms += 1
        self._restart()
        return Drift(episode, drop, words)

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON can carry."""
        seen = np.flatnonzero(self._counts).tolist()
        counts = {str(outcome): int(self._counts[outcome]) for outcome in seen}
        return {"alarms": self.alarms, "counts": counts, "bets": self._bets.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._restart()
        self.alarms, self._bets = int(state["alarms"]), np.array(state["bets"], dtype=np.float64)
        for outcome, count in state["counts"].items():
            self._counts[int(outcome)] = count


_LEVELS = 1000
_LOW_RANKS: Floats = np.repeat([0.1, 0.25, 0.5, 0.75, 0.9], 3)
_BOLDNESS: Floats = np.tile([0.15, 0.4, 0.8], 5)
"""Bet (b, a): a share a of the stake is on a rank in the lowest b. For binary outcomes that drop from μ to μ − d the
best such bet is b = 1 − μ, a = d / μ."""
