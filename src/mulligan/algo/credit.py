"""Returns across the episodes of a trial: what a turn, or a reflection, is worth for everything that follows.

Episode n = 0 … N-1 of a trial has turns t = 0 … T_n-1 with rewards r_t^(n), and the in-episode return
``g_t^(n) = Σ_{l≥t} γ_step^(l-t) · r_l^(n)``. The forms:

paper       G_t^(n) = g_t^(n) + Σ_{m>n} γ_traj^(m-n) · g_0^(m)              (LaMer, arXiv 2512.16848)
chained     one walk backwards over all turns of the trial, times γ_step inside an episode and γ_traj across a border:
            later episodes are discounted by the turns left in the earlier one too      (what LaMer's code computes)
difference  with R_n = Σ_t r_t^(n), the rewards become d_0 = R_0, d_n = R_n - R_{n-1} on the last turn of each
            episode, then as chained                                                    (what MAGE's code computes)
final       only the last episode L that was played counts: γ_traj^(L-n) · g_0^(L) for every turn of n < L, and
            g_t^(L) in L itself                                             (MAGE's objective, arXiv 2603.03680)

A reflection between n and n+1 is trained with the return on entering n+1: G_0^(n+1) in the paper form, and likewise in
the others. An episode without a turn (the context was full at once) counts as a border like any other and earns 0 or,
in a game, what it forfeits: then it counts as played, with one turn that paid that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from mulligan.algo.arrays import FloatArray, IntArray, discounted_suffix_sums, next_values, starts


class Returns(NamedTuple):
    """Returns of many trials, flat."""

    turn: FloatArray
    """[turn] G_t^(n)."""
    entry: FloatArray
    """[episode] The return on entering the episode, which is what the reflection just before it is trained with."""


def flat_returns(
    rewards: FloatArray,
    turn_counts: IntArray,
    episode_counts: IntArray,
    *,
    gamma_step: float,
    gamma_traj: float,
    form: str = "paper",
    forfeits: FloatArray | None = None,
    shaping: FloatArray | None = None,
) -> Returns:
    """Returns of many trials at once: ``G = returns(task rewards) + in-episode returns(shaping and penalties)``.

    rewards, shaping: [turn] of all episodes one after the other; turn_counts: [episode] turns of each; episode_counts:
    [trial] episodes of each; forfeits: [episode] what each paid that had no turn.

    If shaping crossed the border, failing first would pay: with 0.3 · progress, a near miss and then a win would be
    worth more than winning now as soon as γ_traj > 1/1.3. A reflection sees the shaping of the episode it prepares.
    """
    paid = np.zeros(len(turn_counts)) if forfeits is None else forfeits
    # An episode without a turn is lent one that pays what was forfeited, and gives it back afterwards.
    borrowers = np.flatnonzero((turn_counts == 0) & ((paid != 0) | (form in _NEEDS_A_TURN)))
    filled_counts = turn_counts.copy()
    filled_counts[borrowers] = 1
    filled_rewards = np.insert(rewards, starts(turn_counts)[borrowers], paid[borrowers])
    returns = FORMS[form](filled_rewards, filled_counts, episode_counts, gamma_step, gamma_traj)
    turn, entry = np.delete(returns.turn, starts(filled_counts)[borrowers]), returns.entry
    if shaping is None:
        return Returns(turn, entry)
    inside = _inside(shaping, turn_counts, gamma_step)
    return Returns(turn + inside, entry + _first(inside, turn_counts))


def _paper(rewards: FloatArray, turns: IntArray, episodes: IntArray, gamma_step: float, gamma_traj: float) -> Returns:
    inside = _inside(rewards, turns, gamma_step)
    entry = discounted_suffix_sums(_first(inside, turns), np.full(len(turns), gamma_traj, dtype=np.float64), episodes)
    return Returns(inside + np.repeat(gamma_traj * next_values(entry, episodes), turns), entry)


def _chained(rewards: FloatArray, turns: IntArray, episodes: IntArray, gamma_step: float, gamma_traj: float) -> Returns:
    discounts = np.full(len(rewards), gamma_step, dtype=np.float64)
    discounts[np.cumsum(turns) - 1] = gamma_traj
    played, border = np.append(0, np.cumsum(turns)), np.cumsum(episodes)
    walked = discounted_suffix_sums(rewards, discounts, played[border] - played[border - episodes])
    return Returns(walked, _first(walked, turns))


def _difference(
    rewards: FloatArray, turns: IntArray, episodes: IntArray, gamma_step: float, gamma_traj: float
) -> Returns:
    total = np.bincount(np.repeat(np.arange(len(turns)), turns), weights=rewards, minlength=len(turns))
    before = np.append(0.0, total[:-1])[: len(turns)]
    before[starts(episodes)[episodes > 0]] = 0.0
    gained = np.zeros(len(rewards))
    gained[np.cumsum(turns) - 1] = total - before
    return _chained(gained, turns, episodes, gamma_step, gamma_traj)


def _final(rewards: FloatArray, turns: IntArray, episodes: IntArray, gamma_step: float, gamma_traj: float) -> Returns:
    inside = _inside(rewards, turns, gamma_step)
    number = np.arange(len(turns))
    trial = np.repeat(np.arange(len(episodes)), episodes)
    last = np.full(len(episodes), -1, dtype=np.int64)
    np.maximum.at(last, trial[turns > 0], number[turns > 0])
    distance = last[trial] - number  # negative after the last episode that was played: nothing follows there
    worth = _first(inside, turns)[last[trial]] if len(turns) else np.zeros(0)
    entry = np.where(distance >= 0, np.power(gamma_traj, np.maximum(distance, 0)) * worth, 0.0)
    return Returns(np.where(np.repeat(distance, turns) == 0, inside, np.repeat(entry, turns)), entry)


FORMS: Mapping[str, Callable[[FloatArray, IntArray, IntArray, float, float], Returns]] = {
    "paper": _paper,
    "chained": _chained,
    "difference": _difference,
    "final": _final,
}
# These put something on an episode's last turn, so that an episode without a turn is lent one, whatever it paid.
_NEEDS_A_TURN = ("chained", "difference")


def _inside(rewards: FloatArray, turns: IntArray, gamma_step: float) -> FloatArray:
    """g_t^(n). rewards: [turn] -> [turn]."""
    return discounted_suffix_sums(rewards, np.full(len(rewards), gamma_step, dtype=np.float64), turns)


def _first(values: FloatArray, turns: IntArray) -> FloatArray:
    """The value at turn 0 of each episode, 0 where it has none. values: [turn] -> [episode]."""
    first = np.zeros(len(turns))
    first[turns > 0] = values[starts(turns)[turns > 0]]
    return first
