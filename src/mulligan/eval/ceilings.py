"""What games against an opponent are measured by: exact returns of four ways to play, and the share between them.

equilibrium  nobody can exploit it, and it exploits nobody on purpose
static       the best of somebody who knows the pool and remembers no earlier episode
optimal      the best over all episodes together with a perfect memory: the Bayes-adaptive optimum
clairvoyant  the best of somebody who knows the opponent

The share of the adaptive room is (value − static) / (optimal − static). Tasks draw opponents by chance, some more often
than the pool says. So the value weighs opponents and seats as the pool does (`intervals.weighted`): only then do value
and ceilings speak of the same opponents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.eval.intervals import interval_of_mean, returns_in, weighted
from mulligan.eval.matches import values_of_matches
from mulligan.eval.optimum import MOST_ASIDE, any_of_pool, optimum_of
from mulligan.eval.passk import Summary
from mulligan.eval.rooms import GAMES, opponents_of_hands, room_of
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task

LEAST_ROOM = 1e-6
"""A smaller room is none but for rounding."""
_EQUILIBRIA = {"rps": 0.0}
"""What random throws win, whoever the opponent is."""


class Returns(NamedTuple):
    """Expected returns by episode."""

    static: list[float]
    optimal: list[float]
    clairvoyant: list[float]
    equilibrium: list[float] | None


@dataclass(frozen=True)
class Ceilings:
    """The exact returns of tasks, and what each task counts."""

    static: list[float]
    optimal: list[float]
    clairvoyant: list[float]
    equilibrium: list[float] | None
    """None where none is known."""
    strata: list[int]
    """[task] number of its opponent and seat."""
    weights: list[float]
    """[stratum] its probability."""

    def beside(self, arms: Mapping[str, tuple[Summary, Sequence[int]]]) -> dict[str, Any]:
        """The ceilings with the value and the share of the room that the arm "main" came to, and the shares of its
        controls, as data. arms: name -> summary, and the indices of its tasks."""
        reached = {}
        for arm, (summary, indices) in arms.items():
            part = {**asdict(self), "strata": [self.strata[index] for index in indices]}
            reached[arm] = {**part, **room_shares(part, [summary.outcomes], summary.worlds)}
        controls = {arm: {k: each[k] for k in ("share", "share_ci")} for arm, each in reached.items() if arm != "main"}
        return {**reached["main"], "controls": controls}


def room_shares(
    ceilings: Mapping[str, Any], outcomes: Sequence[Sequence[Sequence[float | None]]], worlds: Sequence[int] | None
) -> dict[str, Any]:
    """Value and share of the room in each episode, with their intervals; None where there is no room or no value.

    outcomes: [seed][task][episode], as `passk.Summary` has them. There is no value where an opponent of the pool was
    met by fewer than two tasks.
    """
    figures: dict[str, Any] = {name: [] for name in ("value", "value_ci", "share", "share_ci")}
    for episode, (static, optimal) in enumerate(zip(ceilings["static"], ceilings["optimal"], strict=True)):
        returns = np.array([returns_in(each, episode) for each in outcomes])
        values = weighted(returns, ceilings["strata"], ceilings["weights"])
        mean, interval = (None, None) if values is None else interval_of_mean(values, worlds)
        room = optimal - static
        has_share = mean is not None and room > LEAST_ROOM
        figures["value"].append(mean)
        figures["value_ci"].append(interval)
        figures["share"].append((mean - static) / room if mean is not None and has_share else None)
        figures["share_ci"].append([(end - static) / room for end in interval] if interval and has_share else None)
    return figures


def drawn_from(tasks: Sequence[Task], params: Mapping[str, Any]) -> list[Task]:
    """The tasks of these parameters with what their opponents were drawn from as the pool: `params` may have named
    another one, which agents are to expect."""
    defaults = registry.spec(tasks[0].env).defaults
    if not {"opponent", "pool"} <= defaults.keys():
        return list(tasks)
    pool = str(params.get("opponent", defaults["opponent"]))
    return [replace(task, params=tuple(sorted({**dict(task.params), "pool": pool}.items()))) for task in tasks]


def ceilings_of(tasks: Sequence[Task], settings: TrialSettings, most: tuple[int, int] = MOST_ASIDE) -> Ceilings:
    """The ceilings of tasks; raises a `UsageError` that says why, where they cannot be computed."""
    pools = [any_of_pool(task) for task in tasks]
    counts = Counter(pools)
    returns = [_returns_of(pool, settings, most) for pool in counts]
    shares = np.array([*counts.values()]) / len(tasks)
    static, optimal, clairvoyant = ((shares @ np.array(each)).tolist() for each in list(zip(*returns, strict=True))[:3])
    equilibria = [each.equilibrium for each in returns if each.equilibrium is not None]
    equilibrium = (shares @ np.array(equilibria)).tolist() if len(equilibria) == len(counts) else None
    weights = {
        (pool, opponent): share * chance
        for pool, share in zip(counts, shares.tolist(), strict=True)
        for opponent, chance in _expected(pool).items()
        if chance > 0.0
    }
    numbers = {stratum: number for number, stratum in enumerate(weights)}
    strata = [numbers[pool, str(task.opponent)] for pool, task in zip(pools, tasks, strict=True)]
    return Ceilings(static, optimal, clairvoyant, equilibrium, strata, [*weights.values()])


@lru_cache(maxsize=64)
def _returns_of(task: Task, settings: TrialSettings, most: tuple[int, int]) -> Returns:
    """Of tasks that were drawn from one pool."""
    count = settings.episodes
    if (opponents := opponents_of_hands(task, settings)) is not None:
        room = room_of(GAMES[task.env][0], opponents, task.integer("seat"), count)
        static, clairvoyant, equilibrium = (
            [each] * count for each in (room.static, room.clairvoyant, room.equilibrium)
        )
        return Returns(static, room.by_hand, clairvoyant, equilibrium)
    if (values := values_of_matches(task, settings)) is not None:
        return Returns([values.static] * count, values.optimal, [values.clairvoyant] * count, _equilibrium(task, count))
    if not hasattr(registry.spec(task.env).build, "expected"):
        raise UsageError(f"{task.env} has no model, from which ceilings could be computed")
    optimum = optimum_of(task, settings, most=most)
    return Returns(
        static=[optimum.alone_at(episode).returns[0] for episode in range(count)],
        optimal=optimum.best.returns,
        clairvoyant=[optimum.clairvoyant_at(episode).returns[0] for episode in range(count)],
        equilibrium=_equilibrium(task, count),
    )


def _equilibrium(task: Task, count: int) -> list[float] | None:
    return [_EQUILIBRIA[task.env]] * count if task.env in _EQUILIBRIA else None


def _expected(task: Task) -> dict[str, float]:
    """The opponents that a task was drawn from, with their probabilities."""
    opponents: dict[str, float] = cast(Any, registry.build(task)).expected()
    return opponents
