"""Every belief that an agent with a perfect memory can come to in a trial, and the best play in each, backwards.

A belief is the posterior over (world, state) given all that the agent was told. Beliefs stand in layers, one for each
turn of an attempt: an action leads into the next turn's layer or, where the attempt ends, into the first layer, for the
next attempt. Where attempts begin with luck, the luck has the first layer for itself, with nothing to choose. The graph
does not depend on γ_traj: it is built once and solved for any number of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mulligan.envs.model import Belief, Model, Outcome
from mulligan.errors import ContractBroken, UsageError
from mulligan.types import Stop

Worlds = Sequence[tuple[float, Hashable]]
"""Worlds, each with its probability before it."""
Figures = NDArray[np.float64]
"""[belief or action, figure, attempt]: the expected return of each attempt, the chance to win it, and the chance that
neither it nor an attempt before it was won; 0 for attempts that are over."""
RETURN, WON, UNSOLVED = range(3)
Ties = Literal["future", "random"]
"""Which of several actions of equal value is taken: one with the highest return of the present attempt, then of the
next, and so on; or each with the same chance."""
OVER = -1
"""In place of a belief's number: the trial is over."""
MOST_OUTCOMES = 10_000_000
"""Outcomes that are looked at before a game is refused: some minutes of one core, about a gigabyte."""
_DIGITS = 10
"""Decimals by which beliefs are told apart: reached in two ways, the same belief may differ in the last ones."""
_KEPT = 1 << 18
"""Answers of a model that are kept: about a hundred megabytes at the most."""
_TIE = 1e-9
"""Values that differ by less are equal."""


class TooLarge(UsageError):
    """A game has too many beliefs: it is refused, and no number is given."""


class Branch(NamedTuple):
    """What an action may lead to, as far as the agent can tell."""

    probability: float
    ended: bool
    """Whether the attempt is over, by the game or by the turn limit."""
    won: bool
    belief: Belief | None
    """At the next turn or, where the attempt is over, before the next attempt; None where the trial is over."""


class Act(NamedTuple):
    """An action in a belief."""

    action: Hashable
    reward: float
    """Expected at once."""
    branches: Mapping[tuple[Hashable, bool, bool], Branch]
    """(What the agent is told, whether the attempt is over, whether it is won) -> what the agent then believes."""


class TrialRules:
    """A game's model, and how a trial of it is played."""

    def __init__(self, model: Model, turns: int, episodes: int, stop: Stop, timeout_reward: float = 0.0) -> None:
        self.model, self.turns, self.episodes, self.stop = model, turns, episodes, stop
        self.timeout_reward = timeout_reward
        self.deals = hasattr(model, "begins")
        """Whether attempts begin with luck, which is turn 0; the first turn of the agent is then turn 1."""
        self.layers = turns + self.deals
        self._begins = lru_cache(_KEPT)(lambda world: [Outcome(*each) for each in cast(Any, model).begins(world)])
        self._outcomes = lru_cache(_KEPT)(lambda *where: [Outcome(*each) for each in model.outcomes(*where)])
        self._actions = lru_cache(_KEPT)(lambda state: list(model.actions(state)))

    def start(self, worlds: Worlds) -> Belief:
        """The belief before the first attempt."""
        return _normal({(world, self.model.begin(world)): chance for chance, world in worlds})

    def acts(self, belief: Belief, episode: int, turn: int) -> list[Act]:
        """Every action in a belief, and what it leads to."""
        return [self._act(belief, action, episode, turn) for action in self.actions(belief, turn)]

    def actions(self, belief: Belief, turn: int) -> list[Hashable]:
        if self.deals and turn == 0:
            return [None]
        actions = self._actions(belief[0][1])
        for _, state, _ in belief:
            if self._actions(state) != actions:
                raise ContractBroken(f"model: actions() tells {belief[0][1]!r} from {state!r}, which look alike")
        return actions

    def _act(self, belief: Belief, action: Hashable, episode: int, turn: int) -> Act:
        reward = total = 0.0
        posterior: dict[tuple[Hashable, bool, bool], dict[tuple[Hashable, Hashable], float]] = {}
        for world, state, chance in belief:
            is_deal = self.deals and turn == 0
            for outcome in self._begins(world) if is_deal else self._outcomes(world, state, action):
                weight = chance * outcome.probability
                if weight <= 0.0:
                    continue
                is_last = turn + 1 == self.layers
                paid = outcome.reward + (self.timeout_reward if is_last and not outcome.done else 0.0)
                reward, total = reward + weight * paid, total + weight
                ended = outcome.done or is_last
                pairs = posterior.setdefault((outcome.told, ended, outcome.won), {})
                pair = (world, outcome.state)
                pairs[pair] = pairs.get(pair, 0.0) + weight
        if abs(total - 1) > 1e-6:
            raise ContractBroken(f"model: the outcomes of {action!r} have the probability {total:g} in all, not 1")
        branches = {}
        for (told, ended, won), pairs in posterior.items():
            over = ended and (episode + 1 == self.episodes or (won and self.stop == "success"))
            after = None if over else self._next_attempt(pairs) if ended else _normal(pairs)
            branches[told, ended, won] = Branch(sum(pairs.values()), ended, won, after)
        return Act(action, reward, branches)

    def _next_attempt(self, pairs: Mapping[tuple[Hashable, Hashable], float]) -> Belief:
        """The belief before the next attempt: what was learned of the world, which may drift; states begin anew."""
        between = getattr(self.model, "between", lambda world: [(1.0, world)])
        worlds: dict[tuple[Hashable, Hashable], float] = {}
        for (world, _), weight in pairs.items():
            for chance, next_world in between(world):
                pair = (next_world, self.model.begin(next_world))
                worlds[pair] = worlds.get(pair, 0.0) + weight * chance
        return _normal(worlds)


def _normal(pairs: Mapping[tuple[Hashable, Hashable], float]) -> Belief:
    """Weights as a belief, in one order: their sum is 1, and what is impossible is left out."""
    total = fsum(pairs.values())
    chances = ((pair, pairs[pair] / total) for pair in sorted(pairs, key=hash))
    return tuple((world, state, chance) for (world, state), chance in chances if chance > 0.0)


@dataclass(frozen=True)
class Layer:
    """The beliefs at one turn, in order: their actions, and the actions' branches."""

    first_action: NDArray[np.intp]
    """[belief] number of its first action."""
    rewards: Figures
    """[action]"""
    first_branch: NDArray[np.intp]
    """[action] number of its first branch."""
    probability: Figures
    """[branch]"""
    ended: NDArray[np.bool_]
    """[branch]"""
    won: NDArray[np.bool_]
    """[branch]"""
    child: NDArray[np.intp]
    """[branch] number of the belief in the next turn's layer or, where `ended`, in the first one; or OVER."""


@dataclass
class _GrowingLayer:
    first_action: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    first_branch: list[int] = field(default_factory=list)
    branches: list[tuple[float, bool, bool, int]] = field(default_factory=list)

    def finished(self) -> Layer:
        probability, ended, won, child = zip(*self.branches, strict=True) if self.branches else ((), (), (), ())
        return Layer(
            np.array(self.first_action, np.intp),
            np.array(self.rewards, np.float64),
            np.array(self.first_branch, np.intp),
            np.array(probability, np.float64),
            np.array(ended, np.bool_),
            np.array(won, np.bool_),
            np.array(child, np.intp),
        )


class BeliefGraph:
    """Every belief that some play leads to, from one start or several, each a list of possible worlds.

    A belief's actions are looked at once, in the attempt in which play may first come to it.
    """

    def __init__(self, rules: TrialRules, starts: Sequence[Worlds], most_outcomes: int = MOST_OUTCOMES) -> None:
        self.rules, self.worlds = rules, starts[0]
        self.numbers: list[dict[Hashable, int]] = [{} for _ in range(rules.layers)]
        """[turn] name of a belief -> its number in the layer."""
        self._first: list[list[Belief]] = [[] for _ in range(rules.layers)]
        """[turn] of each number the belief that was looked at; none where several have one name (`canonical`)."""
        self._waiting: list[list[Belief]] = [[] for _ in range(rules.layers)]
        self.starts = [self._number(rules.start(worlds), 0) for worlds in starts]
        """Their numbers in the first layer."""
        layers = [_GrowingLayer() for _ in range(rules.layers)]
        outcomes_left = most_outcomes
        for episode, (turn, layer) in itertools.product(range(rules.episodes), enumerate(layers)):
            waiting, self._waiting[turn] = self._waiting[turn], []
            outcomes_left -= sum(len(belief) * len(rules.actions(belief, turn)) for belief in waiting)
            if outcomes_left < 0:
                so_far = f"{self.beliefs:,} beliefs by turn {turn + 1} of attempt {episode + 1}"
                raise TooLarge(f"{len(self.worlds):,} worlds, {so_far}, more than {most_outcomes:,} outcomes")
            for belief in waiting:
                self._add(layer, belief, episode, turn)
        self.layers = [layer.finished() for layer in layers]

    @property
    def beliefs(self) -> int:
        """How many there are."""
        return sum(map(len, self.numbers))

    def layer_of(self, belief: Belief, episode: int, turn: int) -> Layer:
        """A belief alone, as a layer."""
        layer = _GrowingLayer()
        self._add(layer, belief, episode, turn)
        return layer.finished()

    def _add(self, layer: _GrowingLayer, belief: Belief, episode: int, turn: int) -> None:
        layer.first_action.append(len(layer.rewards))
        for act in self.rules.acts(belief, episode, turn):
            layer.first_branch.append(len(layer.branches))
            layer.rewards.append(act.reward)
            for probability, ended, won, after in act.branches.values():
                child = OVER if after is None else self._number(after, 0 if ended else turn + 1)
                layer.branches.append((probability, ended, won, child))

    def as_looked_at(self, belief: Belief, turn: int) -> Belief:
        """The belief with the very chances that the graph goes on from: others, by rounding, may lead out of it."""
        return self._first[turn][self._number(belief, turn)] if self._first[turn] else belief

    def _number(self, belief: Belief, turn: int) -> int:
        """The belief's number in its layer; a new one waits there for its actions to be looked at."""
        canonical = getattr(self.rules.model, "canonical", frozenset)
        name = canonical(tuple((world, state, round(chance, _DIGITS)) for world, state, chance in belief))
        if name not in self.numbers[turn]:
            self.numbers[turn][name] = len(self.numbers[turn])
            self._waiting[turn].append(belief)
            if canonical is frozenset:
                self._first[turn].append(belief)
        return self.numbers[turn][name]


class Plan:
    """The best play of a trial for one γ_traj: in every belief the action of the highest Σ γ_traj^n · return n."""

    def __init__(self, graph: BeliefGraph, gamma_traj: float, ties: Ties = "future") -> None:
        self.graph, self.gamma_traj, self.ties = graph, gamma_traj, ties
        self._chosen: dict[tuple[Belief, int, int], Act] = {}
        self.figures: list[list[Figures]] = [[np.empty(0)] * len(graph.layers) for _ in range(graph.rules.episodes)]
        """[attempt][turn]; for a belief that play cannot have come to by then, without meaning."""
        for episode in reversed(range(graph.rules.episodes)):
            for turn, layer in reversed([*enumerate(graph.layers)]):
                self.figures[episode][turn] = self._solved(layer, episode, turn)[0]

    @property
    def starts(self) -> Figures:
        """The figures of whole trials, for each belief in which they may start."""
        return self.figures[0][0][self.graph.starts]

    def action(self, belief: Belief, episode: int, turn: int) -> Act:
        """What to do in a belief, and what it leads to."""
        situation = (self.graph.as_looked_at(belief, turn), episode, turn)
        if situation not in self._chosen:
            acts = self.graph.rules.acts(*situation)
            layer = self.graph.layer_of(*situation)
            self._chosen[situation] = acts[int(self._solved(layer, episode, turn)[1][0])]
        return self._chosen[situation]

    def _solved(self, layer: Layer, episode: int, turn: int) -> tuple[Figures, NDArray[np.intp]]:
        """The figures of a layer's beliefs, and in each of them the number of the best action; of ties, the first."""
        if not len(layer.first_action):
            return np.zeros((0, 3, len(self.figures))), layer.first_action
        figures, first = self._action_figures(layer, episode, turn), layer.first_action
        counts = np.diff(np.append(first, len(figures)))
        returns, wins = figures[:, RETURN, episode:], figures[:, WON, episode:]
        columns = [returns @ self.gamma_traj ** np.arange(returns.shape[1])]
        columns += [*returns.T, *wins.T] if self.ties == "future" else []
        best = np.ones(len(figures), bool)
        for column in columns:
            among = np.where(best, column, -np.inf)
            best = among >= np.repeat(np.maximum.reduceat(among, first), counts) - _TIE
        numbers = np.flatnonzero(best)
        chosen = numbers[np.searchsorted(numbers, first)]
        if self.ties == "future":
            return figures[chosen], chosen
        weights = best / np.repeat(np.add.reduceat(best, first, dtype=float), counts)
        return np.add.reduceat(figures * weights[:, None, None], first), chosen

    def _action_figures(self, layer: Layer, episode: int, turn: int) -> Figures:
        """The figures of each action if the best is done afterwards. [action, figure, attempt]"""
        ended, won = layer.ended, layer.won
        after = np.zeros((len(layer.child), 3, len(self.figures)))
        if not ended.all():
            after[~ended] = self.figures[episode][turn + 1][layer.child[~ended]]
        if episode + 1 < len(self.figures):
            again = ended & (layer.child != OVER)
            after[again] = self.figures[episode + 1][0][layer.child[again]]
        after[ended & won, UNSOLVED] = 0.0
        after[ended, WON, episode] = won[ended]
        after[ended, UNSOLVED, episode] = ~won[ended]
        figures: Figures = np.add.reduceat(after * layer.probability[:, None, None], layer.first_branch)
        figures[:, RETURN, episode] += layer.rewards
        return figures
