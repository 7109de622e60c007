"""Trials written as plain lists of rewards, for the tests of credit and advantages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from mulligan.algo.advantage import ESTIMATORS, Advantages, Options
from mulligan.algo.batch import StepBatch
from mulligan.algo.build import batch_from_groups
from mulligan.algo.normalise import History
from mulligan.errors import StopReason
from mulligan.types import Completion, Episode, Group, Reflection, Task, Trial, Turn

REFLECTION_PENALTY = 0.1


@dataclass(frozen=True)
class TrialRecord:
    """What credit needs to know of one trial: ``[episode][turn]`` or ``[episode]``."""

    rewards: Sequence[Sequence[float]]
    task: Hashable = 0
    shaping: Sequence[Sequence[float]] | None = None
    state_keys: Sequence[Sequence[str]] | None = None
    reflected: Sequence[bool] = field(default=())
    """Whether the agent wrote a reflection after the episode."""
    penalised: Sequence[bool] = field(default=())
    """Whether that reflection costs `REFLECTION_PENALTY`."""
    forfeits: Sequence[float] = field(default=())
    task_class: str = ""
    opponent: str | None = None
    seat: int | None = None

    def episode(self, n: int) -> Episode:
        turns = tuple(
            Turn(
                "seen",
                Completion("done"),
                reward,
                True,
                self.state_keys[n][t] if self.state_keys else "",
                shaping=self.shaping[n][t] if self.shaping else 0.0,
            )
            for t, reward in enumerate(self.rewards[n])
        )
        reflection = None
        if self.reflected and self.reflected[n]:
            valid = not (self.penalised and self.penalised[n])
            reflection = Reflection("note", valid, completion=Completion("note"))
        forfeit = self.forfeits[n] if self.forfeits else 0.0
        return Episode(n, turns, "end", StopReason.LOST, reflection=reflection, forfeit=forfeit)


def batch_from_records(records: Sequence[TrialRecord], **options) -> StepBatch:
    """The batch of these trials, each in a group of its own: what is compared is decided by the task."""
    seeds: dict[Hashable, int] = {}
    groups = []
    for record in records:
        given = {"opponent": record.opponent, "seat": record.seat}
        params = tuple((name, value) for name, value in given.items() if value is not None)
        task = Task("any", seeds.setdefault(record.task, len(seeds)), 99, record.task_class, params)
        episodes = tuple(record.episode(n) for n in range(len(record.rewards)))
        groups.append(Group(task, (Trial(task, episodes, "both"),)))
    return batch_from_groups(
        groups,
        shaping_weight=1.0,
        invalid_penalty=REFLECTION_PENALTY,
        **options,
    )


def estimate(name: str, batch: StepBatch, options: Options | None = None, history: History | None = None) -> Advantages:
    """The advantages of a batch, by default as at the first update."""
    return ESTIMATORS[name](batch, options or Options(), history or History())
