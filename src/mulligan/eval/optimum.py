"""The best that any agent can do: exact values of a trial, for agents that do not know the task and forget nothing.

best         the highest Σ γ_traj^n · return of attempt n that can be expected: the Bayes-adaptive optimum
myopic       every attempt has the highest return of its own, given what earlier ones showed; ties at random
alone        the best attempt of somebody who remembers nothing
clairvoyant  the best attempt of somebody who sees which world it is

It is for games with a model (`mulligan.envs.model`). Rewards inside an attempt are not discounted (γ_step = 1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, cast

import numpy as np

from mulligan import notebook
from mulligan.envs import registry
from mulligan.envs.model import Model
from mulligan.errors import ParameterError, UsageError
from mulligan.eval import passk
from mulligan.eval.beliefs import (
    MOST_OUTCOMES,
    RETURN,
    UNSOLVED,
    WON,
    BeliefGraph,
    Figures,
    Plan,
    TooLarge,
    TrialRules,
    Worlds,
)
from mulligan.trial.settings import TrialSettings
from mulligan.types import Stop, Task, Trial

MOST = (1_000, MOST_OUTCOMES)
"""Most worlds of a game, and most outcomes of its beliefs."""
MOST_ASIDE = (100, 1_500_000)
"""The same for evaluations that were not asked for the optimum: half a minute at the most."""
_LEAST = 1e-9
"""A value below it is 0 but for rounding."""
_STEPS = 50
"""The threshold is sought between so many γ_traj from 0 to 1."""
_EXACT = 11
"""Decimals of figures: what comes behind them is rounding."""


@dataclass(frozen=True)
class Play:
    """What a way of playing leads to; an entry for each attempt."""

    returns: list[float]
    """Expected return of the attempt; 0 where the trial has ended before it."""
    won: list[float]
    """Chance that the attempt is played and won; empty where only returns were computed."""
    p: list[float]
    """p@1 … p@N; or empty."""

    def value(self, gamma_traj: float = 1.0) -> float:
        """Σ γ_traj^n · return of attempt n."""
        return _discounted(self.returns, gamma_traj)

    def share_reached(self, returns: Sequence[float], gamma_traj: float = 1.0) -> float | None:
        """The share of this play's value that these mean returns of attempts come to; None where it is 0."""
        value = self.value(gamma_traj)
        return _discounted(returns, gamma_traj) / value if value > _LEAST else None

    def beside(self, trials: Sequence[Trial], gamma_traj: float = 1.0) -> dict[str, Any]:
        """This play, and the share of it that trials reached, as data for tables."""
        rewards = np.zeros((len(trials), len(self.returns)))  # 0 where a trial had ended before
        for row, trial in zip(rewards, trials, strict=True):
            row[: len(trial.episodes)] = [episode.value for episode in trial.episodes]
        means: list[float] = rewards.mean(axis=0).tolist()
        value, totals = self.value(gamma_traj), rewards @ gamma_traj ** np.arange(len(self.returns))
        half = passk.Z95 * float(totals.std(ddof=1)) / math.sqrt(len(totals)) if len(totals) > 1 else None
        by_attempt = zip(means, self.returns, strict=True)
        return {
            "gamma_traj": gamma_traj,
            "value": value,
            **asdict(self),
            "share_of_optimum": self.share_reached(means, gamma_traj),
            "share_half_width": half / value if half is not None and value > _LEAST else None,
            "share_by_attempt": [mean / best if best > _LEAST else None for mean, best in by_attempt],
        }


@dataclass(frozen=True, repr=False)
class Optimum(notebook.Shown):
    """The optimum of a trial, and what it is compared with, each computed when it is asked for."""

    env: str
    gamma_traj: float
    graph: BeliefGraph = field(repr=False)

    @cached_property
    def plan(self) -> Plan:
        """What to do in every belief; of equally good actions, that with the higher return of the present attempt."""
        return Plan(self.graph, self.gamma_traj)

    @cached_property
    def best(self) -> Play:
        """The optimum for `gamma_traj`."""
        return _play(self.plan.starts[0])

    @cached_property
    def undiscounted(self) -> Play:
        """The optimum for γ_traj = 1."""
        return _play(Plan(self.graph, 1.0).starts[0])

    @cached_property
    def myopic(self) -> Play:
        return _play(Plan(self.graph, 0.0, ties="random").starts[0])

    @property
    def alone(self) -> Play:
        """Of one attempt."""
        return self.alone_at(0)

    @property
    def clairvoyant(self) -> Play:
        """Of one attempt."""
        return self.clairvoyant_at(0)

    def alone_at(self, episode: int) -> Play:
        """`alone` in the attempt of that index, where worlds drift."""
        return self._one_attempt(((1.0, self._worlds_at(episode)),))

    def clairvoyant_at(self, episode: int) -> Play:
        return self._one_attempt(tuple((chance, ((1.0, world),)) for chance, world in self._worlds_at(episode)))

    def _worlds_at(self, episode: int) -> tuple[tuple[float, Hashable], ...]:
        """What the worlds have become at the attempt of that index."""
        between = getattr(self.graph.rules.model, "between", lambda world: [(1.0, world)])
        chances = {world: chance for chance, world in self.graph.worlds}
        for _ in range(episode):
            drifted: dict[Hashable, float] = {}
            for world, chance in chances.items():
                for share, next_world in between(world):
                    drifted[next_world] = drifted.get(next_world, 0.0) + chance * share
            chances = drifted
        return tuple((chance, world) for world, chance in chances.items())

    @cached_property
    def _attempts(self) -> dict[Hashable, Play]:
        return {}

    def _one_attempt(self, starts: tuple[tuple[float, tuple[tuple[float, Hashable], ...]], ...]) -> Play:
        """The best attempt for its own sake, the mean over what is known before it."""
        if starts not in self._attempts:
            self._attempts[starts] = self._solved_attempt(starts)
        return self._attempts[starts]

    def _solved_attempt(self, starts: Sequence[tuple[float, Worlds]]) -> Play:
        chances, worlds = zip(*starts, strict=True)
        of_trial = self.graph.rules
        rules = TrialRules(of_trial.model, of_trial.turns, 1, of_trial.stop, of_trial.timeout_reward)
        plan = Plan(BeliefGraph(rules, worlds), 0.0)
        return _play(np.average(plan.starts, axis=0, weights=chances))

    @cached_property
    def threshold(self) -> float | None:
        """γ*: the least γ_traj above which the best first attempt gives up return for the later ones; None if none."""
        high = next((step / _STEPS for step in range(1, _STEPS + 1) if self._gives_up(step / _STEPS)), None)
        if high is None:
            return None
        low = high - 1 / _STEPS
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if self._gives_up(middle) else (middle, high)
        return high

    def _gives_up(self, gamma_traj: float) -> bool:
        best = _play(Plan(self.graph, gamma_traj).starts[0])
        return best.returns[0] < self.alone.returns[0] - _LEAST

    def rows(self) -> list[dict[str, object]]:
        """A row for each way of playing."""
        plays = {f"optimum, gamma_traj {self.gamma_traj:g}": self.best}
        plays |= {"optimum, gamma_traj 1": self.undiscounted, "myopic": self.myopic}
        plays |= {"alone": self.alone, "clairvoyant": self.clairvoyant}
        return [
            {
                "play": name,
                **{f"return {n}": value for n, value in enumerate(play.returns, 1)},
                **{f"p@{k}": value for k, value in enumerate(play.p, 1)},
            }
            for name, play in plays.items()
        ]

    def __repr__(self) -> str:
        returns = ", ".join(f"{value:.3f}" for value in self.best.returns)
        value = f"{self.best.value(self.gamma_traj):.3f} at gamma_traj {self.gamma_traj:g}"
        return f"<Optimum of {self.env}: {value}; returns {returns}; {self.graph.beliefs:,} beliefs>"


def optimum_of(task: Task, settings: TrialSettings, gamma_traj: float = 1.0, most: tuple[int, int] = MOST) -> Optimum:
    """The optimum of trials on tasks with the parameters of `task`."""
    if not 0 <= gamma_traj <= 1:
        raise ParameterError(f"gamma_traj must be from 0 to 1 (got {gamma_traj})")
    spec = registry.spec(task.env)
    if not hasattr(spec.build, "model"):
        raise UsageError(f"{task.env} has no model, from which its optimum could be computed")
    if settings.restart not in (None, spec.restart):
        raise UsageError(f"the optimum of {task.env} is that of restart={spec.restart} (got {settings.restart})")
    return _optimum(any_of_pool(task), settings.episodes, settings.stop or spec.stop, gamma_traj, *most)


def any_of_pool(task: Task) -> Task:
    """The same task for all of the same parameters, whichever opponent of its pool the seed has drawn."""
    params: dict[str, Any] = dict(task.params)
    if not (params.get("pool") and "opponent" in params):
        return replace(task, seed=0)
    return registry.task_of(task.env, 0, {**params, "opponent": params["pool"], "turns": task.turns})


@lru_cache(maxsize=64)
def _optimum(task: Task, episodes: int, stop: Stop, gamma_traj: float, *most: int) -> Optimum:
    graph = _graph(task, episodes, stop, *most)
    if isinstance(graph, TooLarge):
        raise graph
    return Optimum(task.env, gamma_traj, graph)


@lru_cache(maxsize=64)
def _graph(task: Task, episodes: int, stop: Stop, most_worlds: int, most_outcomes: int) -> BeliefGraph | TooLarge:
    """The graph, or why it is refused: that too takes a while to find out."""
    model: Model = cast(Any, registry.build(task)).model()
    worlds = list(islice(model.worlds(), most_worlds + 1))
    try:
        if len(worlds) > most_worlds:
            raise TooLarge(f"more than {most_worlds:,} worlds")
        rules = TrialRules(model, task.turns, episodes, stop, registry.spec(task.env).timeout_reward)
        return BeliefGraph(rules, [worlds], most_outcomes)
    except TooLarge as error:
        return TooLarge(f"{task.task_class} is too large for an exact optimum: {error}")


def _play(figures: Figures) -> Play:
    """The figures of a start [figure, attempt], by name."""
    figures = figures.round(_EXACT) + 0.0  # without a sign before 0
    return Play(figures[RETURN].tolist(), figures[WON].tolist(), (1.0 - figures[UNSOLVED]).clip(0.0, 1.0).tolist())


def _discounted(returns: Sequence[float], gamma_traj: float) -> float:
    return sum(gamma_traj**n * each for n, each in enumerate(returns))


def mean_optimum(tasks: Sequence[Task], settings: TrialSettings, gamma_traj: float, most: tuple[int, int]) -> Play:
    """The mean optimum of these tasks; all that were drawn from one pool have the same."""
    counts = Counter(map(any_of_pool, tasks))
    plays = [_best(task, settings, gamma_traj, most) for task in counts]
    figures = zip(*([play.returns, play.won, play.p] for play in plays), strict=True)
    return Play(*(np.average(each, axis=0, weights=[*counts.values()]).tolist() for each in figures))


def _best(task: Task, settings: TrialSettings, gamma_traj: float, most: tuple[int, int]) -> Play:
    """The optimum of a task; of hands of poker by the shorter way."""
    from mulligan.eval.rooms import best_by_hand  # OpenSpiel's games, which few evaluations need

    returns = best_by_hand(task, settings, gamma_traj)
    return optimum_of(task, settings, gamma_traj, most).best if returns is None else Play(returns, [], [])
