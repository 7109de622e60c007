"""PPO's generalised advantage estimation over the steps of a whole trial, with a critic.

Steps are turns and reflections; the critic's value of a step is read at the last token of its prompt.

    chained:  A_i = δ_i + λ·c_i·A_{i+1}     δ_i = r_i + c_i·V_{i+1} - V_i
              c = γ_step inside an episode, γ_traj from its last turn to the reflection (or to the next episode if
              there is none), 1 from the reflection to the next turn

    paper:    A = A_in + A_cross, with two heads
              V_in     discount γ_step, ends with the episode
              V_cross  discount 1 inside the episode; at its last turn the target is γ_traj · (V_in + V_cross) of the
                       next episode's first turn f, which GAE makes
                       A_cross = γ_traj·(V_in + V_cross)(f) - V_cross + λ·γ_traj·(A_in + A_cross)(f);
                       at a reflection the same without γ_traj

Success, the turn limit and the last episode end the trial or the episode: what would follow is worth 0. With λ = 1 both
forms give G_t - V_t. In the forms `difference` and `final` a return is no sum of discounted step rewards, and they are
refused. What an episode without a turn forfeits is paid on the way to it, as a part of δ.

Papers: PPO, arXiv 1707.06347; GAE, arXiv 1506.02438.
When it fits: long trials with rewards on the way, and enough updates to train a critic.
How it departs: the two heads. Shaping must not cross a border, so that its plain returns inside the episode are added,
without a critic. Advantages are not whitened; `scale="agent"` divides by σ_a. Groups play no part.
"""

from __future__ import annotations

import numpy as np

from mulligan.algo.advantage.base import Advantages, Options, ScaleName, divisors, group_metrics
from mulligan.algo.arrays import FloatArray, IntArray, dense_ids, discounted_suffix_sums, next_values
from mulligan.algo.batch import PLAY, StepBatch, samples_of
from mulligan.algo.normalise import History
from mulligan.errors import UsageError

HEADS = {"chained": 1, "paper": 2}


def heads(form: str) -> int:
    """How many numbers a step the critic gives: one (chained) or two (paper)."""
    if form not in HEADS:
        raise UsageError(f"ppo has no critic for returns of the form {form!r}; use one of: {', '.join(sorted(HEADS))}")
    return HEADS[form]


def estimate(batch: StepBatch, options: Options, history: History) -> Advantages:
    """One advantage for each step of `batch`, from `batch.critic` [step, head], and the critic's targets."""
    critic = batch.critic
    assert critic is not None, "the trainer sets the critic's values"
    if batch.form == "chained":
        parts = [_chained(batch, critic[:, 0], options.gae_lambda)]
    else:
        parts = list(_paper(batch, critic[:, 0], critic[:, 1], options.gae_lambda))
    targets = np.stack(parts, axis=1) + critic
    parts.append(_shaping_returns(batch))

    samples = samples_of(batch)
    scale: ScaleName = "agent" if options.scale == "agent" else "none"
    divisor = divisors(samples, scale, history)[samples.of_step]
    metrics = group_metrics(samples)
    spread = float(np.var(targets.sum(axis=1)))
    if spread > 0:
        metrics["critic/explained"] = 1.0 - float(np.var((targets - critic).sum(axis=1))) / spread
    return Advantages(np.sum(parts, axis=0) / divisor, metrics, targets)


def _gae(reward: FloatArray, value: FloatArray, discount: FloatArray, lengths: IntArray, lam: float) -> FloatArray:
    """``A_i = δ_i + λ·c_i·A_{i+1}`` with ``δ_i = r_i + c_i·V_{i+1} - V_i``; after the end of a run everything is 0.

    reward, value, discount: [step]; lengths: [run] -> [step].
    """
    following = next_values(value, lengths)
    return discounted_suffix_sums(reward + discount * following - value, lam * discount, lengths)


def _attempt(batch: StepBatch) -> IntArray:
    """The episode a step works for: its own, and for a reflection the next. It grows at borders only. -> [step]."""
    return batch.episode + batch.phase


def _chained(batch: StepBatch, value: FloatArray, lam: float) -> FloatArray:
    """One walk over all steps of each trial. value: [step] -> [step]."""
    borders = np.append(np.diff(_attempt(batch)), 0)
    inside = (borders == 0) & (batch.phase == PLAY)
    discount = np.where(inside, batch.gamma_step, np.power(batch.gamma_traj, np.maximum(borders, 0)))
    # A forfeit is paid once: at the reflection, where there is one between the turn and the forfeited episode.
    reflects_next = np.append((np.diff(batch.phase) > 0) & (np.diff(batch.trial) == 0), False)
    reward = batch.reward + np.where(reflects_next, 0.0, batch.forfeit)
    return _gae(reward, value, discount, np.bincount(batch.trial, minlength=len(batch.source)), lam)


def _shaping_returns(batch: StepBatch) -> FloatArray:
    """Returns of progress and penalties: each attempt by itself, with the reflection before it. -> [step]."""
    attempts, _ = dense_ids(batch.trial, _attempt(batch))
    discount = np.where(batch.phase == PLAY, batch.gamma_step, 1.0)
    return discounted_suffix_sums(batch.shaping, discount, np.bincount(attempts))


def _paper(
    batch: StepBatch, value_in: FloatArray, value_cross: FloatArray, lam: float
) -> tuple[FloatArray, FloatArray]:
    """A_in and A_cross. value_in, value_cross: [step] -> [step], [step]."""
    episodes = np.bincount(samples_of(batch).of_step)  # a reflection stands alone
    advantage_in = _gae(batch.reward, value_in, np.full(len(batch), batch.gamma_step, dtype=np.float64), episodes, lam)
    # The chain of V_cross runs over turns only: a reflection is valued, but does not stand between two episodes.
    play = np.flatnonzero(batch.phase == PLAY)
    trial, episode = batch.trial[play], batch.episode[play]
    follows = np.append(np.diff(trial) == 0, False)  # [turn] another turn of the trial comes after it
    borders = np.append(np.maximum(np.diff(episode), 0), 0)
    discount = np.where(follows, np.power(batch.gamma_traj, borders), 0.0)
    crosses = borders > 0

    def following(at_turns: FloatArray) -> FloatArray:
        return np.append(at_turns[1:], 0.0)

    bootstrap = following(value_cross[play]) + crosses * following(value_in[play])
    delta = batch.forfeit[play] + discount * bootstrap - value_cross[play]
    delta += lam * discount * crosses * following(advantage_in[play])
    cross = np.zeros(len(batch))
    cross[play] = discounted_suffix_sums(delta, lam * discount, np.bincount(trial, minlength=len(batch.source)))

    # Each reflection's value comes from the next turn, if that is of the same trial.
    reflect = np.flatnonzero(batch.phase != PLAY)
    next_play = np.searchsorted(play, reflect)
    after = play[np.minimum(next_play, len(play) - 1)] if len(play) else reflect
    continues = (next_play < len(play)) & (batch.trial[after] == batch.trial[reflect])
    borders = np.maximum(batch.episode[after] - batch.episode[reflect] - 1, 0)
    discount = np.where(continues, np.power(batch.gamma_traj, borders), 0.0)
    reached = (value_in + value_cross + lam * (advantage_in + cross))[after]
    cross[reflect] = batch.forfeit[reflect] + discount * reached - value_cross[reflect]
    return advantage_in, cross
