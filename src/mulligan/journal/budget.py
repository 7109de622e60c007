"""Which strategy to try next, how much of that may be exploration, and what the strategies not chosen would have given.

With a share ε of exploration, the best strategy so far is chosen with 1 − ε, one by Thompson sampling with 0.9 ε, and
any with 0.1 ε, so that every strategy keeps a chance as long as anything is explored. Thompson's chances, those of each
strategy being the best given the outcomes of its class, are integrated numerically, and the strategy is drawn from the
resulting numbers themselves: the chances that are stored are exactly those it was drawn with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mulligan.errors import ParameterError, UnknownName
from mulligan.journal.proof import Bounds, Estimate, Evidence, Floats, scaled

_UNIFORM = 0.1
"""The part of exploration that is spread evenly over all strategies. It is what off-policy estimates live on."""
_POINTS = 1024
"""Of the numerical integration: exact to 1e-4 with up to 1,000 outcomes a strategy, to 4e-4 with 10,000."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of its episodes a class may spend on exploration: much at first, less and less, never below a floor."""

    start: float = 1.0
    """The share of episodes that explore at first."""
    floor: float = 0.1
    """The share that is kept for ever, because the best strategy may change."""
    halved_after: float = 100.0
    """After so many episodes half of what lies above the floor is left, after three times as many a quarter."""
    per_day: int | None = None
    """At most so many episodes a day try something else than the best strategy so far; None for no such cap."""
    remembers: float | None = None
    """Outcomes fade over about so many episodes of the class, for worlds that change; None if they never fade."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.start <= 1:
            raise ParameterError(
                f"a budget needs 0 <= floor <= start <= 1 (got floor {self.floor:g}, start {self.start:g})"
            )
        if not self.halved_after > 0:
            raise ParameterError(f"halved_after must be > 0 (got {self.halved_after:g})")
        if self.per_day is not None and self.per_day < 0:
            raise ParameterError(f"per_day must be >= 0 (got {self.per_day})")
        if self.remembers is not None and not self.remembers > 1:
            raise ParameterError(f"remembers must be > 1 (got {self.remembers:g})")

    def share(self, episodes: int, explored_today: int = 0) -> float:
        """The share of exploration after so many finished episodes of the class; 0 where the day's cap is reached."""
        if self.per_day is not None and explored_today >= self.per_day:
            return 0.0
        return self.floor + (self.start - self.floor) * self.halved_after / (self.halved_after + episodes)


NEVER = Budget(start=0.0, floor=0.0)
"""The budget of a class in which nothing may be tried: always the best strategy so far."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcomes of one strategy: their number and their sum, both faded; rewards are scaled to 0 … 1."""

    count: float = 0.0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Of the posterior, which begins as uniform: 1/2 without outcomes."""
        return (self.total + 1) / (self.count + 2)


def tally(
    strategies: Sequence[str],
    chosen: Sequence[str],
    rewards: Sequence[float],
    *,
    budget: Budget,
    bounds: Bounds = (0.0, 1.0),
) -> dict[str, Tally]:
    """The tallies of `strategies` from a class's outcomes; chosen, rewards: [episode], in the order of time.

    Outcomes of strategies that are no longer offered are left out, but outcomes fade over them too.
    """
    outcomes = scaled(rewards, bounds)
    fading = 1.0 if budget.remembers is None else 1 - 1 / budget.remembers
    weights = fading ** np.arange(len(outcomes) - 1, -1, -1)
    names = np.asarray(chosen, dtype=object)
    tallies = {}
    for strategy in strategies:
        mine = names == strategy
        tallies[strategy] = Tally(float(weights[mine].sum()), float((weights[mine] * outcomes[mine]).sum()))
    return tallies


def thompson_chances(tallies: Sequence[Tally]) -> Floats:
    """The chance of each strategy to be the best, under independent Beta posteriors. [strategy]

    Rewards between 0 and 1 count as so much of a success; that makes posteriors of graded rewards too wide, never too
    narrow.
    """
    wins = np.array([each.total + 1 for each in tallies])[:, None]
    losses = np.array([each.count - each.total + 1 for each in tallies])[:, None]
    means, sizes = wins / (wins + losses), wins + losses
    reach = 10 * np.sqrt(means * (1 - means) / (sizes + 1))
    low, high = max(0.0, float((means - reach).min())), min(1.0, float((means + reach).max()))
    points = low + (high - low) * (np.arange(_POINTS) + 0.5) / _POINTS
    logs = (wins - 1) * np.log(points) + (losses - 1) * np.log1p(-points)
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    below = np.cumsum(density, axis=1) - density / 2
    others = np.array([below[np.arange(len(below)) != index].prod(axis=0) for index in range(len(below))])
    shares = (density * others).sum(axis=1)
    chances: Floats = shares / shares.sum()
    return chances


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and the chances it was drawn with."""

    strategy: str
    best: str
    """The best so far."""
    chances: dict[str, float]
    """Of every strategy that was offered. They sum to 1 and are what the strategy was drawn with, exactly."""
    share: float
    """Of exploration."""
    words: str

    @property
    def explored(self) -> bool:
        """Whether this counts against the day's cap."""
        return self.strategy != self.best


def choose(
    tallies: Mapping[str, Tally], budget: Budget, *, episodes: int, luck: float, explored_today: int = 0
) -> Choice:
    """Choose among the strategies that have a tally.

    episodes: finished in this class, or since its last drift alarm, which refills the budget. luck: a number in [0, 1)
    drawn for this episode alone, such as `uniform("strategy", namespace, task_class, episode_id)`.
    """
    if not tallies:
        raise ParameterError("choose needs at least one strategy (got none)")
    if not 0 <= luck < 1:
        raise ParameterError(f"luck must be at least 0 and below 1 (got {luck})")
    names = list(tallies)
    best = max(names, key=lambda name: tallies[name].mean)
    share = budget.share(episodes, explored_today)
    chances = np.array([1 - share if name == best else 0.0 for name in names])
    if share > 0:
        chances += share * ((1 - _UNIFORM) * thompson_chances(list(tallies.values())) + _UNIFORM / len(names))
    chances /= chances.sum()
    drawn = int(np.searchsorted(np.cumsum(chances), luck, side="right"))
    possible = np.flatnonzero(chances)
    strategy = names[min(drawn, int(possible[-1]))]  # rounding may leave the last sum below 1
    stored = dict(zip(names, chances.tolist(), strict=True))
    capped = budget.per_day is not None and explored_today >= budget.per_day
    words = _words(strategy, best, tallies, stored[strategy], share, explored_today if capped else None)
    return Choice(strategy, best, stored, share, words)


def _words(
    strategy: str, best: str, tallies: Mapping[str, Tally], chance: float, share: float, capped_at: int | None
) -> str:
    """Why this strategy, for `ep.why()`."""
    records = "; ".join(_record(name, tallies[name]) for name in dict.fromkeys((strategy, best)))
    if capped_at is not None:
        reason = f"the best so far; today's cap of {capped_at} explorations is reached"
    elif share == 0:
        reason = "the best so far; this class never explores"
    elif strategy == best:
        reason = f"the best so far; {share:.0%} of episodes explore now"
    else:
        reason = f"to explore; {share:.0%} of episodes explore now, and {best!r} is the best so far"
    return f"{strategy!r} with chance {chance:.3g}: {reason} ({records})"


def _record(name: str, record: Tally) -> str:
    if record.count == 0:
        return f"{name!r}: not tried yet"
    return f"{name!r}: mean {record.total / record.count:.2f} of {record.count:.3g} outcomes"


def values(
    chosen: Sequence[str],
    rewards: Sequence[float],
    chances: Sequence[Mapping[str, float]],
    *,
    bounds: Bounds = (0.0, 1.0),
    level: float = 0.95,
) -> dict[str, Estimate]:
    """What each strategy gives, chosen or not, with an interval that is valid at any time one looks.

    chosen, rewards, chances (of every strategy, as stored): [episode], in the order of time. The chances may depend on
    all earlier outcomes in any way. The estimate is doubly robust: a prediction from earlier episodes, corrected by the
    outcomes over their chances. Each episode is weighted by the strategy's chance in it, which matters only where
    outcomes drift; with equal weights one outcome at a small chance would outweigh all others.
    """
    lengths = len(chosen), len(rewards), len(chances)
    if len(set(lengths)) > 1:
        raise ParameterError(
            "values needs one entry an episode (got {} chosen, {} rewards, {} chances)".format(*lengths)
        )
    for name, of_episode in zip(chosen, chances, strict=True):
        if name not in of_episode:
            raise UnknownName("strategy", name, of_episode)
    outcomes, names = scaled(rewards, bounds), dict.fromkeys(name for each in chances for name in each)
    width = bounds[1] - bounds[0]
    estimates = {}
    for name in names:
        proof = _evidence(name, chosen, outcomes, chances)
        share = proof.sums().estimate(level, (0.0, 1.0))
        mean, low, high = (bounds[0] + width * value for value in (share.mean, share.low, share.high))
        estimates[name] = Estimate(mean, low, high, level, share.episodes)
    return estimates


def _evidence(name: str, chosen: Sequence[str], outcomes: Floats, chances: Sequence[Mapping[str, float]]) -> Evidence:
    """The evidence on one strategy's outcomes, as `proof` has it for the journal's effect."""
    chance = np.array([each.get(name, 0.0) for each in chances])
    taken = np.array([each == name for each in chosen], dtype=np.float64)
    if not ((chance >= 0) & (chance <= 1) & ((taken == 0) | (chance > 0))).all():
        raise ParameterError(f"the chance of what was done must be above 0 and at most 1 (strategy {name!r})")
    predicted = (np.cumsum(taken * outcomes) - taken * outcomes + 0.5) / (np.cumsum(taken) - taken + 1)
    # Weight · (outcome − prediction) / chance, with the chance as the weight.
    return Evidence(taken * (outcomes - predicted), chance * predicted, chance)
