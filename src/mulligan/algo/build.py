"""Builds the flat batch of an update from groups of trials."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mulligan.algo.arrays import BoolArray, FloatArray, IntArray, discounted_suffix_sums, next_values, starts
from mulligan.algo.batch import PLAY, REFLECT, StepBatch
from mulligan.algo.credit import flat_shaped_returns
from mulligan.errors import ParameterError, UsageError
from mulligan.types import Group, Turn


class _Played(NamedTuple):
    """All that was played, flat."""

    turns: list[Turn]
    shaping: FloatArray  # [turn] progress less penalties
    turn_counts: IntArray  # [episode]
    episode_counts: IntArray  # [trial]
    reflected: BoolArray  # [episode] whether a reflection follows that is a step
    reflection_penalty: FloatArray  # [reflection]
    forfeits: FloatArray  # [episode]
    players: list[tuple[Hashable, str, str | None, int | None, str]]  # [trial] task, its class, opponent, seat, agent
    source: tuple[tuple[int, int], ...]  # [trial]


def batch_from_groups(
    groups: Sequence[Group],
    *,
    gamma_step: float,
    gamma_traj: float,
    form: str = "paper",
    shaping_weight: float = 0.0,
    invalid_penalty: float = 0.0,
    length_penalty: float = 0.0,
    length_limit: int = 0,
    reflection_limit: int = 0,
    agents: Sequence[str] | None = None,
) -> StepBatch:
    """The steps of `groups`. Trials that failed outside agent and task are left out, and so out of every baseline.

    Shaping is `shaping_weight` times `Turn.shaping`, less the penalties; they fall on reflections as on turns.
    `length_limit`, the most tokens a reply may have, is needed with `length_penalty`; `reflection_limit` is that of
    reflections, the same where it is 0. A reflection is a step if the agent wrote it itself (its `completion` is not
    None) and an episode follows it. `agents` names each group's agent, where there are several.
    """
    source = [(g, i) for g, group in enumerate(groups) for i, trial in enumerate(group.trials) if not trial.failed]
    trials = [groups[g].trials[i] for g, i in source]
    episodes = [episode for trial in trials for episode in trial.episodes]
    turns = [turn for episode in episodes for turn in episode.turns]
    episode_counts = np.array([len(trial.episodes) for trial in trials], dtype=np.int64)
    reflections = [episode.reflection for episode in episodes]
    replies = [reflection.completion if reflection else None for reflection in reflections]
    reflected = np.array([reply is not None for reply in replies], dtype=np.bool_)
    reflected[np.cumsum(episode_counts)[episode_counts > 0] - 1] = False  # no episode shows what that one was worth

    def penalties(valid: Sequence[bool], tokens: Sequence[int], limit: int) -> FloatArray:
        penalty = np.where(np.array(valid, dtype=bool), 0.0, -invalid_penalty)
        return penalty + penalty_for_length(tokens, limit, length_penalty) if length_penalty else penalty

    played = _Played(
        turns=turns,
        shaping=shaping_weight * np.array([turn.shaping for turn in turns], dtype=np.float64)
        + penalties([turn.valid for turn in turns], [turn.reply.completion_tokens for turn in turns], length_limit),
        turn_counts=np.array([len(episode.turns) for episode in episodes], dtype=np.int64),
        episode_counts=episode_counts,
        reflected=reflected,
        reflection_penalty=penalties(
            [reflection is None or reflection.valid for reflection in reflections],
            [reply.completion_tokens if reply else 0 for reply in replies],
            reflection_limit or length_limit,
        )[reflected],
        forfeits=np.array([episode.forfeit for episode in episodes], dtype=np.float64),
        players=[
            (task, task.task_class, task.opponent, task.seat, agents[g] if agents is not None else "agent")
            for task, (g, _) in zip([trial.task for trial in trials], source, strict=True)
        ],
        source=tuple(source),
    )
    return _assemble(played, gamma_step, gamma_traj, form)


def penalty_for_length(tokens: npt.ArrayLike, limit: int, penalty: float) -> FloatArray:
    """0 up to half the limit, from there linearly down to ``-penalty`` at the limit. tokens: [step] -> [step]."""
    if limit < 1:
        raise ParameterError(f"length_limit must be >= 1 with a length penalty (got {limit})")
    half = limit / 2
    return 0.0 - penalty * np.clip((np.asarray(tokens, dtype=np.float64) - half) / half, 0.0, 1.0)


def _assemble(played: _Played, gamma_step: float, gamma_traj: float, form: str) -> StepBatch:
    turn_counts, episode_counts, reflected = played.turn_counts, played.episode_counts, played.reflected
    rewards = np.array([turn.reward for turn in played.turns], dtype=np.float64)
    _check_finite(played, rewards)
    returns = flat_shaped_returns(
        rewards,
        played.shaping,
        turn_counts,
        episode_counts,
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
        forfeits=played.forfeits,
    )
    # An episode of two turns and a reflection, then one of one turn: `steps` is [3, 1], the turns are the steps 0, 1
    # and 3, the reflection is step 2.
    steps = turn_counts + reflected  # [episode]
    turn = np.arange(len(rewards)) - np.repeat(starts(turn_counts), turn_counts)  # [turn] its number in the episode
    step_of_turn = np.repeat(starts(steps), turn_counts) + turn
    step_of_reflection = (starts(steps) + turn_counts)[reflected]

    def floats(at_turns: FloatArray, at_reflections: FloatArray | float) -> FloatArray:
        column = np.empty(int(steps.sum()))
        column[step_of_turn], column[step_of_reflection] = at_turns, at_reflections
        return column

    def integers(at_turns: IntArray | int, at_reflections: int) -> IntArray:
        column = np.empty(int(steps.sum()), dtype=np.int64)
        column[step_of_turn], column[step_of_reflection] = at_turns, at_reflections
        return column

    group, _ = _numbered([(task, *rest) for task, _, *rest in played.players])
    task_class, classes = _numbered([tuple(rest) for _, *rest in played.players])
    agent, agents = _numbered([agent for *_, agent in played.players])
    state_numbers = {"": -1}  # the empty key says nothing about the state
    states = [state_numbers.setdefault(turn.state_key, len(state_numbers) - 1) for turn in played.turns]
    trial_of_step = np.repeat(np.repeat(np.arange(len(episode_counts)), episode_counts), steps)
    episode = np.arange(len(turn_counts)) - np.repeat(starts(episode_counts), episode_counts)
    return StepBatch(
        value=floats(returns.turn, returns.entry[np.flatnonzero(reflected) + 1] + played.reflection_penalty),
        reward=floats(rewards, 0.0),
        shaping=floats(played.shaping, played.reflection_penalty),
        forfeit=floats(*_forfeits_after(played, gamma_traj)),
        trial=trial_of_step,
        group=group[trial_of_step],
        episode=np.repeat(episode, steps),
        phase=integers(PLAY, REFLECT),
        turn=integers(turn, 0),
        state=integers(np.where(turn > 0, np.array(states, dtype=np.int64), -1), -1),
        task_class=task_class[trial_of_step],
        agent=agent[trial_of_step],
        class_labels=tuple(json.dumps(label) for label in classes),
        agent_labels=tuple(str(label) for label in agents),
        source=played.source,
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
    )


def _forfeits_after(played: _Played, gamma_traj: float) -> tuple[FloatArray, FloatArray]:
    """What episodes without a turn paid that follow a turn, or a reflection, at once. -> [turn], [reflection]."""
    turn_counts, episode_counts = played.turn_counts, played.episode_counts
    entered = discounted_suffix_sums(played.forfeits, np.where(turn_counts == 0, gamma_traj, 0.0), episode_counts)
    after = next_values(entered, episode_counts)
    at_turns = np.zeros(len(played.turns))
    at_turns[(np.cumsum(turn_counts) - 1)[turn_counts > 0]] = gamma_traj * after[turn_counts > 0]
    return at_turns, after[played.reflected]


def _numbered(labels: Sequence[Hashable]) -> tuple[IntArray, list[Hashable]]:
    """Number the distinct labels in order of appearance; returns the number of each, and the distinct ones."""
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    return ids, list(numbers)


def _check_finite(played: _Played, rewards: FloatArray) -> None:
    for name, values in (("reward", rewards), ("shaping", played.shaping)):
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            episode = np.repeat(np.arange(len(played.turn_counts)), played.turn_counts)[wrong[0]]
            trial = np.repeat(np.arange(len(played.episode_counts)), played.episode_counts)[episode]
            raise UsageError(f"{name} must be finite (got {values[wrong[0]]} in {played.players[trial][1]!r})")
