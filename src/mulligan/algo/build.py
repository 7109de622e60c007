"""Builds the flat batch of an update, from plain lists or from groups of trials."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from mulligan.algo import shaping as shape
from mulligan.algo.arrays import BoolArray, FloatArray, IntArray, discounted_suffix_sums, starts
from mulligan.algo.batch import PLAY, REFLECT, StepBatch
from mulligan.algo.credit import Rewards, flat_shaped_returns
from mulligan.errors import UsageError
from mulligan.types import Group

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """What credit needs to know of one trial, as plain lists: ``[episode][turn]`` or ``[episode]``."""

    rewards: Rewards
    task: Hashable = 0
    """Trials with equal task, opponent, seat and agent form a group."""
    shaping: Rewards | None = None
    """Progress and penalties of each turn, weighted; None for none."""
    state_keys: Sequence[Sequence[str]] | None = None
    """Key of the state each reply was given in; empty where there is none. Turn 0's is not read."""
    reflected: Sequence[bool] | None = None
    """Whether the agent wrote a reflection after the episode. One that no episode follows is left out."""
    reflection_shaping: Sequence[float] | None = None
    """Penalties on the reflection itself; None for none."""
    forfeits: Sequence[float] | None = None
    """What an episode paid that has no turn, and so no reflection; None for nothing."""
    task_class: str = ""
    opponent: str | None = None
    seat: int | None = None
    agent: str = "agent"


def batch_from_records(
    records: Sequence[TrialRecord], *, gamma_step: float, gamma_traj: float, form: str = "paper"
) -> StepBatch:
    """The steps of trials given as plain lists; `StepBatch.source` numbers them ``(0, place in the list)``."""
    turn_counts: list[int] = []
    rewards: list[float] = []
    shaping: list[float] = []
    state_keys: list[str] = []
    reflected: list[bool] = []
    reflection_shaping: list[float] = []
    forfeits: list[float] = []
    for record in records:
        counts = [len(episode) for episode in record.rewards]
        turn_counts += counts
        rewards.extend(chain.from_iterable(record.rewards))
        shaping += _per_turn("shaping", record.shaping, counts, 0.0)
        state_keys += _per_turn("state_keys", record.state_keys, counts, "")
        reflected += _per_episode("reflected", record.reflected, counts, False)
        reflection_shaping += _per_episode("reflection_shaping", record.reflection_shaping, counts, 0.0)
        forfeits += _per_episode("forfeits", record.forfeits, counts, 0.0)
    played = _Played(
        rewards=np.array(rewards, dtype=np.float64),
        shaping=np.array(shaping, dtype=np.float64),
        state_keys=state_keys,
        turn_counts=np.array(turn_counts, dtype=np.int64),
        episode_counts=np.array([len(record.rewards) for record in records], dtype=np.int64),
        reflected=np.array(reflected, dtype=np.bool_),
        reflection_shaping=np.array(reflection_shaping, dtype=np.float64),
        forfeits=np.array(forfeits, dtype=np.float64),
        players=[
            _Player(record.task, record.task_class, record.opponent, record.seat, record.agent, (0, place))
            for place, record in enumerate(records)
        ],
    )
    return _assemble(played, gamma_step, gamma_traj, form)


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
    reflections, the same where it is 0. A reflection that the agent did
    not write itself (its `completion` is None) is no step. `agents` names each group's agent, where there are several.
    """
    kept = [
        (trial, (number, index))
        for number, group in enumerate(groups)
        for index, trial in enumerate(group.trials)
        if not trial.failed
    ]
    episodes = [episode for trial, _ in kept for episode in trial.episodes]
    turns = [turn for episode in episodes for turn in episode.turns]
    written = [episode.reflection for episode in episodes]

    def penalties(valid: Sequence[bool], tokens: Sequence[int], limit: int) -> FloatArray:
        penalty = shape.for_validity(valid, invalid_penalty)
        return penalty + shape.for_length(tokens, limit, length_penalty) if length_penalty else penalty

    played = _Played(
        rewards=np.array([turn.reward for turn in turns], dtype=np.float64),
        shaping=shaping_weight * np.array([turn.shaping for turn in turns], dtype=np.float64)
        + penalties([turn.valid for turn in turns], [turn.reply.completion_tokens for turn in turns], length_limit),
        state_keys=[turn.state_key for turn in turns],
        turn_counts=np.array([len(episode.turns) for episode in episodes], dtype=np.int64),
        episode_counts=np.array([len(trial.episodes) for trial, _ in kept], dtype=np.int64),
        reflected=np.array([text is not None and text.completion is not None for text in written], dtype=np.bool_),
        reflection_shaping=penalties(
            [text is None or text.valid for text in written],
            [text.completion.completion_tokens if text and text.completion else 0 for text in written],
            reflection_limit or length_limit,
        ),
        forfeits=np.array([episode.forfeit for episode in episodes], dtype=np.float64),
        players=[
            _Player(
                trial.task,
                trial.task.task_class,
                trial.task.opponent,
                trial.task.seat,
                agents[source[0]] if agents is not None else "agent",
                source,
            )
            for trial, source in kept
        ],
    )
    return _assemble(played, gamma_step, gamma_traj, form)


class _Player(NamedTuple):
    """Who played what, in one trial."""

    task: Hashable
    task_class: str
    opponent: str | None
    seat: int | None
    agent: str
    source: tuple[int, int]


class _Played(NamedTuple):
    """All that was played, flat."""

    rewards: FloatArray  # [turn]
    shaping: FloatArray  # [turn]
    state_keys: list[str]  # [turn]
    turn_counts: IntArray  # [episode]
    episode_counts: IntArray  # [trial]
    reflected: BoolArray  # [episode]
    reflection_shaping: FloatArray  # [episode]
    forfeits: FloatArray  # [episode]
    players: list[_Player]  # [trial]


def _assemble(played: _Played, gamma_step: float, gamma_traj: float, form: str) -> StepBatch:
    turns, episodes = played.turn_counts, played.episode_counts
    _check_finite(played)
    returns = flat_shaped_returns(
        played.rewards,
        played.shaping,
        turns,
        episodes,
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
        forfeits=played.forfeits,
    )
    reflected = played.reflected.copy()
    reflected[np.cumsum(episodes)[episodes > 0] - 1] = False  # no episode shows what that reflection was worth
    penalty = played.reflection_shaping[reflected]

    steps = turns + reflected  # [episode]
    trial = np.repeat(np.arange(len(episodes)), episodes)  # [episode]
    number = np.arange(len(turns)) - np.repeat(starts(episodes), episodes)  # [episode]
    turn = np.arange(len(played.rewards)) - np.repeat(starts(turns), turns)  # [turn]
    step_of_turn = np.repeat(starts(steps), turns) + turn
    step_of_reflection = (starts(steps) + turns)[reflected]

    def floats(at_turns: FloatArray, at_reflections: FloatArray | float) -> FloatArray:
        column = np.empty(int(steps.sum()))
        column[step_of_turn], column[step_of_reflection] = at_turns, at_reflections
        return column

    def integers(at_turns: IntArray | int, at_reflections: int) -> IntArray:
        column = np.empty(int(steps.sum()), dtype=np.int64)
        column[step_of_turn], column[step_of_reflection] = at_turns, at_reflections
        return column

    group, _ = _numbered([(x.task, x.opponent, x.seat, x.agent) for x in played.players])
    task_class, classes = _numbered([(x.task_class, x.opponent, x.seat, x.agent) for x in played.players])
    agent, agents = _numbered([x.agent for x in played.players])
    trial_of_step = np.repeat(trial, steps)
    return StepBatch(
        value=floats(returns.turn, returns.entry[np.flatnonzero(reflected) + 1] + penalty),
        reward=floats(played.rewards, 0.0),
        shaping=floats(played.shaping, penalty),
        forfeit=floats(*_forfeits_after(played, reflected, gamma_traj)),
        trial=trial_of_step,
        group=group[trial_of_step],
        episode=np.repeat(number, steps),
        phase=integers(PLAY, REFLECT),
        turn=integers(turn, 0),
        state=integers(np.where(turn > 0, _state_numbers(played.state_keys), -1), -1),
        task_class=task_class[trial_of_step],
        agent=agent[trial_of_step],
        class_labels=tuple(json.dumps(label) for label in classes),
        agent_labels=tuple(str(label) for label in agents),
        source=tuple(player.source for player in played.players),
        gamma_step=gamma_step,
        gamma_traj=gamma_traj,
        form=form,
    )


def _forfeits_after(played: _Played, reflected: BoolArray, gamma_traj: float) -> tuple[FloatArray, FloatArray]:
    """What episodes without a turn paid that follow a turn, or a reflection, at once. -> [turn], [reflection]."""
    turns, episodes = played.turn_counts, played.episode_counts
    entered = discounted_suffix_sums(played.forfeits, np.where(turns == 0, gamma_traj, 0.0), episodes)
    after = np.append(entered[1:], 0.0)[: len(entered)]
    after[np.cumsum(episodes)[episodes > 0] - 1] = 0.0  # nothing follows the last episode of a trial
    at_turns = np.zeros(len(played.rewards))
    last = (np.cumsum(turns) - 1)[turns > 0]
    at_turns[last] = gamma_traj * after[turns > 0]
    return at_turns, after[reflected]


def _numbered(labels: Sequence[Hashable]) -> tuple[IntArray, list[Hashable]]:
    """Number the distinct labels in order of appearance; returns the number of each, and the distinct ones."""
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    return ids, list(numbers)


def _state_numbers(keys: Sequence[str]) -> IntArray:
    """Number the distinct keys from 0; the empty one, which says nothing about the state, is -1. [turn] -> [turn]."""
    numbers = {"": -1}
    return np.array([numbers.setdefault(key, len(numbers) - 1) for key in keys], dtype=np.int64)


def _per_turn(name: str, given: Sequence[Sequence[Entry]] | None, counts: list[int], default: Entry) -> list[Entry]:
    """`given` of one trial, flat; `default` for every turn where it is None."""
    if given is None:
        return [default] * sum(counts)
    if [len(episode) for episode in given] != counts:
        raise UsageError(f"{name} of a trial needs an entry for each reward: {counts} turns in its episodes")
    return list(chain.from_iterable(given))


def _per_episode(name: str, given: Sequence[Entry] | None, counts: list[int], default: Entry) -> list[Entry]:
    """`given` of one trial; `default` for every episode where it is None."""
    if given is None:
        return [default] * len(counts)
    if len(given) != len(counts):
        raise UsageError(f"{name} of a trial needs an entry for each of its {len(counts)} episodes; got {len(given)}")
    return list(given)


def _check_finite(played: _Played) -> None:
    for name, values in (("reward", played.rewards), ("shaping", played.shaping)):
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            turns = np.repeat(np.arange(len(played.turn_counts)), played.turn_counts)
            trial = np.repeat(np.arange(len(played.episode_counts)), played.episode_counts)[turns[wrong[0]]]
            raise UsageError(
                f"a {name} of {values[wrong[0]]} in {played.players[trial].task_class!r}; it must be finite"
            )
