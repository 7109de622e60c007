"""Builds the flat batch of an update from groups of trials."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import fields

import numpy as np

from mulligan.algo.arrays import IntArray, discounted_suffix_sums, next_values
from mulligan.algo.batch import PLAY, REFLECT, StepBatch
from mulligan.algo.credit import flat_returns
from mulligan.errors import UsageError
from mulligan.types import Group, Reflection, Trial


def batch_from_groups(
    groups: Sequence[Group],
    *,
    gamma_step: float,
    gamma_traj: float,
    form: str = "paper",
    shaping_weight: float = 0.0,
    invalid_penalty: float = 0.0,
    length_penalty: float = 0.0,
    length_limit: int = 1,
    reflection_limit: int = 0,
) -> StepBatch:
    """The steps of `groups`. Trials that failed outside agent and task are left out, and so out of every baseline.

    A turn earns its reward without its luck. Shaping is `shaping_weight` times `Turn.shaping`, less the penalties; they
    fall on reflections as on turns.
    `length_limit` is the most tokens a reply may have, `reflection_limit` that of reflections, the same where it is 0.
    """
    source = [(g, i) for g, group in enumerate(groups) for i, trial in enumerate(group.trials) if not trial.failed]
    trials = [groups[g].trials[i] for g, i in source]
    episodes = [episode for trial in trials for episode in trial.episodes]
    turns = [turn for episode in episodes for turn in episode.turns]
    turn_counts = np.array([len(episode.turns) for episode in episodes], dtype=np.int64)
    episode_counts = np.array([len(trial.episodes) for trial in trials], dtype=np.int64)
    forfeits = np.array([episode.forfeit for episode in episodes], dtype=np.float64)

    def penalty(valid: bool, tokens: int, limit: int) -> float:
        return (0.0 if valid else -invalid_penalty) + penalty_for_length(tokens, limit, length_penalty)

    shaping = [
        shaping_weight * turn.shaping + penalty(turn.valid, turn.reply.completion_tokens, length_limit)
        for turn in turns
    ]
    if not np.isfinite(shaping).all():
        raise UsageError("the shaping of a turn must be finite")
    rewards = [turn.reward - turn.luck for turn in turns]
    returns = flat_returns(
        np.array(rewards, dtype=np.float64),
        turn_counts,
        episode_counts,
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
        forfeits=forfeits,
        shaping=np.array(shaping, dtype=np.float64),
    )
    # What episodes without a turn paid that follow each episode at once.
    entered = discounted_suffix_sums(forfeits, np.where(turn_counts == 0, gamma_traj, 0.0), episode_counts)
    forfeited = next_values(entered, episode_counts).tolist()

    paid: list[tuple[float, float, float, float]] = []  # value, reward, shaping, forfeit of each step
    of_turns = zip(returns.turn.tolist(), rewards, shaping, strict=True)
    entries = returns.entry.tolist()
    reflections = [own_reflection(trial, n) for trial in trials for n in range(len(trial.episodes))]
    for number, (episode, reflection) in enumerate(zip(episodes, reflections, strict=True)):
        for t in range(1, len(episode.turns) + 1):
            value, reward, shaped = next(of_turns)
            forfeit = gamma_traj * forfeited[number] if t == len(episode.turns) else 0.0
            paid.append((value, reward, shaped, forfeit))
        if reflection is not None:
            tokens = reflection.completion.completion_tokens if reflection.completion else 0
            penalised = penalty(reflection.valid, tokens, reflection_limit or length_limit)
            paid.append((entries[number + 1] + penalised, 0.0, penalised, forfeited[number]))
    positions, labels = _positions(trials)
    columns = [*np.array(paid, dtype=np.float64).reshape(-1, 4).T.copy(), *positions]  # in the order of the fields
    others = labels, tuple(source), gamma_step, gamma_traj, form
    names = [field.name for field in fields(StepBatch)]
    return StepBatch(**dict(zip(names, [*columns, *others], strict=False)))


def own_reflection(trial: Trial, n: int) -> Reflection | None:
    """The reflection after episode n where it is a step: the agent wrote it, and an episode shows what it was worth."""
    reflection = trial.episodes[n].reflection
    is_own = reflection is not None and reflection.completion is not None
    return reflection if is_own and n + 1 < len(trial.episodes) else None


def _positions(trials: Sequence[Trial]) -> tuple[IntArray, tuple[str, ...]]:
    """Trial, group, episode, phase, turn, state and task class of each step, [7, step]; and the labels of classes."""
    positions: list[tuple[int, ...]] = []
    tasks: dict[Hashable, int] = {}
    classes: dict[str, int] = {}
    states = {"": -1}  # the empty key says nothing about the state
    for number, trial in enumerate(trials):
        task = trial.task
        group = tasks.setdefault(task, len(tasks))
        label = json.dumps([task.task_class, task.opponent, task.seat, "agent"])
        task_class = classes.setdefault(label, len(classes))
        for n, episode in enumerate(trial.episodes):
            for t, turn in enumerate(episode.turns):
                state = states.setdefault(turn.state_key, len(states) - 1)
                positions.append((number, group, n, PLAY, t, state if t else -1, task_class))
            if own_reflection(trial, n) is not None:
                positions.append((number, group, n, REFLECT, 0, -1, task_class))
    return np.array(positions, dtype=np.int64).reshape(-1, 7).T.copy(), tuple(classes)


def penalty_for_length(tokens: int, limit: int, penalty: float) -> float:
    """0 up to half the limit, from there linearly down to ``-penalty`` at the limit."""
    half = limit / 2
    return 0.0 - penalty * min(max((tokens - half) / half, 0.0), 1.0)
