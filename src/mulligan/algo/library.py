"""Returns and advantages from plain lists, for trainers that are not this one; `docs/algo.md` has examples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from mulligan.algo.advantage import ESTIMATORS, Options
from mulligan.algo.advantage.base import BaselineName, ScaleName
from mulligan.algo.arrays import FloatArray, IntArray
from mulligan.algo.batch import PLAY, StepBatch
from mulligan.algo.credit import FORMS, flat_returns
from mulligan.algo.normalise import History
from mulligan.errors import ParameterError, UnknownName

Rewards = Sequence[Sequence[float]]
"""[episode][turn] of one trial."""


def cross_episode_returns(
    rewards: Rewards, *, gamma_step: float = 0.95, gamma_traj: float = 0.6, form: str = "paper"
) -> list[list[float]]:
    """The return of each turn of a trial: [episode][turn]. `form`: paper, chained, difference or final."""
    flat, turns, episodes = _flat([rewards])
    returns = flat_returns(flat, turns, episodes, gamma_step=gamma_step, gamma_traj=gamma_traj, form=_known(form))
    return [part.tolist() for part in np.split(returns.turn, np.cumsum(turns)[:-1])]


def reflection_returns(
    rewards: Rewards, *, gamma_step: float = 0.95, gamma_traj: float = 0.6, form: str = "paper"
) -> list[float]:
    """What is written between two episodes is worth the return on entering the next one: one number for each gap."""
    flat, turns, episodes = _flat([rewards])
    returns = flat_returns(flat, turns, episodes, gamma_step=gamma_step, gamma_traj=gamma_traj, form=_known(form))
    entries: list[float] = returns.entry.tolist()
    return entries[1:]


def cross_episode_advantages(
    trials: Sequence[Rewards],
    groups: Sequence[Hashable],
    *,
    estimator: str = "grpo",
    gamma_step: float = 0.95,
    gamma_traj: float = 0.6,
    form: str = "paper",
    baseline: BaselineName = "leave_one_out",
    scale: ScaleName = "std",
    history: History | None = None,
) -> list[list[list[float]]]:
    """The advantage of each turn: [trial][episode][turn].

    `groups` names the task of each trial: first episodes are compared with first episodes of the same task, and so on.
    `estimator`: grpo, rloo or reinforce_pp. `history` keeps what earlier updates were like, for groups of one or two
    trials; pass the same one at every update.
    """
    if len(trials) != len(groups):
        raise ParameterError(f"groups must name the task of each trial (got {len(groups)} for {len(trials)} trials)")
    if estimator not in (usable := sorted({*ESTIMATORS} - {"ppo", "gigpo"})):
        raise UnknownName("estimator of plain rewards", estimator, usable)  # the others read a critic, or states
    if not trials:
        return []
    history = History() if history is None else history
    batch = _batch(trials, groups, gamma_step, gamma_traj, _known(form))
    values = ESTIMATORS[estimator](batch, Options(baseline, scale), history).values
    history.observe(batch)
    remaining = iter(values.tolist())
    return [[[next(remaining) for _ in episode] for episode in trial] for trial in trials]


def _batch(
    trials: Sequence[Rewards], groups: Sequence[Hashable], gamma_step: float, gamma_traj: float, form: str
) -> StepBatch:
    flat, turns, episodes = _flat(trials)
    number_of = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    group_of_trial = np.array([number_of[group] for group in groups], np.int64)
    trial_of_episode = np.repeat(np.arange(len(trials)), episodes)
    episode = np.concatenate([np.arange(count) for count in episodes])
    zeros = np.zeros(len(flat))
    trial = np.repeat(trial_of_episode, turns)
    return StepBatch(
        value=flat_returns(flat, turns, episodes, gamma_step=gamma_step, gamma_traj=gamma_traj, form=form).turn,
        reward=flat,
        shaping=zeros,
        forfeit=zeros,
        trial=trial,
        group=group_of_trial[trial],
        episode=np.repeat(episode, turns),
        phase=np.full(len(flat), PLAY),
        turn=np.concatenate([np.arange(count) for count in turns]),
        state=np.full(len(flat), -1),
        task_class=np.zeros(len(flat), np.int64),
        class_labels=("all",),
        source=tuple((int(number), index) for index, number in enumerate(group_of_trial)),
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
    )


def _flat(trials: Sequence[Rewards]) -> tuple[FloatArray, IntArray, IntArray]:
    """Rewards [turn], the turns of each episode, and the episodes of each trial."""
    if not all(len(episode) for trial in trials for episode in trial) or not all(map(len, trials)):
        raise ParameterError("every trial must have an episode, and every episode a turn")
    flat = [float(reward) for trial in trials for episode in trial for reward in episode]
    turns = [len(episode) for trial in trials for episode in trial]
    return np.array(flat), np.array(turns, np.int64), np.array([len(trial) for trial in trials], np.int64)


def _known(form: str) -> str:
    if form not in FORMS:
        raise UnknownName("form of returns", form, FORMS)
    return form
