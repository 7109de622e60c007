"""The steps of one update as flat arrays: what every advantage estimator reads.

A *step* is a turn or a reflection. Steps stand in order of play: trial by trial, episode by episode, its turns and then
the reflection written after it. `mulligan.algo.build` makes batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mulligan.algo.arrays import FloatArray, IntArray, dense_ids

PLAY, REFLECT = 0, 1
PHASES = ("play", "reflect")


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """All steps of an update. Every array without another axis named is [step]."""

    value: FloatArray
    """G_t: the return of a turn; of a reflection, the return on entering the next episode."""
    reward: FloatArray
    """What the task paid for the step; 0 for a reflection."""
    shaping: FloatArray
    """Progress and penalties of the step, weighted; they never cross an episode border."""
    forfeit: FloatArray
    """What the episodes without a turn paid that follow the step at once, as seen from it: they have no step."""
    trial: IntArray
    """0, 1, … in order; `source` says which trial that was."""
    group: IntArray
    """Number of the task, with its opponent and seat: only steps of one group are compared."""
    episode: IntArray
    """n, from 0; of a reflection, the episode it follows."""
    phase: IntArray
    """`PLAY` or `REFLECT`."""
    turn: IntArray
    """t, from 0; 0 for a reflection."""
    state: IntArray
    """Number of the turn's `state_key`; -1 where it has none, at turn 0 and for reflections."""
    task_class: IntArray
    """Index into `class_labels`."""
    class_labels: tuple[str, ...]
    """What running baselines are kept by: (task class, opponent, seat, "agent"), as JSON."""
    source: tuple[tuple[int, int], ...]
    """[trial] (index of the group, index in the group) of the trial in what the batch was built from."""
    gamma_step: float
    gamma_traj: float
    form: str
    """The form of return that `value` holds."""
    critic: FloatArray | None = None
    """[step, head] The critic's values, where the estimator is `ppo`; set with `dataclasses.replace`."""

    def __len__(self) -> int:
        return len(self.value)

    def of_phase(self, phase: int) -> StepBatch:
        """The steps of one phase alone, with the values they have among all: `PLAY` or `REFLECT`."""
        kept = self.phase == phase
        return replace(self, **{name: getattr(self, name)[kept] for name in _STEP_ARRAYS})


_STEP_ARRAYS = (
    "value",
    "reward",
    "shaping",
    "forfeit",
    "trial",
    "group",
    "episode",
    "phase",
    "turn",
    "state",
    "task_class",
)


class Samples(NamedTuple):
    """What is compared: one sample for each (trial, episode, phase), never one for each turn. Arrays are [sample]."""

    value: FloatArray
    """The return at turn 0 of the episode, or of the reflection."""
    key: IntArray
    """Number of the (group, episode, phase): a key's samples are S_n, the trials that played episode n."""
    key_first: IntArray
    """[key] The first sample of each key."""
    survivors: IntArray
    """|S_n|: how many samples share the sample's key."""
    group: IntArray
    episode: IntArray
    phase: IntArray
    task_class: IntArray
    of_step: IntArray
    """[step] The sample that each step of the batch belongs to."""


def samples_of(batch: StepBatch) -> Samples:
    """One sample for each trial and episode (and for each reflection), whatever its number of turns."""
    new = np.ones(len(batch), dtype=bool)
    new[1:] = (np.diff(batch.trial) != 0) | (np.diff(batch.episode) != 0) | (np.diff(batch.phase) != 0)
    row = np.flatnonzero(new)
    key, first = dense_ids(batch.group[row], batch.episode[row], batch.phase[row])
    return Samples(
        value=batch.value[row],
        key=key,
        key_first=first,
        survivors=np.bincount(key, minlength=len(first))[key].astype(np.int64),
        group=batch.group[row],
        episode=batch.episode[row],
        phase=batch.phase[row],
        task_class=batch.task_class[row],
        of_step=np.cumsum(new) - 1,
    )
