"""What is known of each class: whether its journal helps, its baselines, its strategies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from mulligan.journal.baselines import Baseline, Baselines
from mulligan.journal.budget import values
from mulligan.journal.evidence import class_proof, outcomes_of, past_choices
from mulligan.journal.proof import Bounds, Estimate
from mulligan.journal.schema import CHOICES, CLASSES, EPISODES, NOTES
from mulligan.journal.store import Row, Scope


@dataclass(frozen=True, slots=True)
class ClassReport:
    """One class of a journal."""

    task_class: str
    outcomes: int
    """Finished episodes."""
    journal_on: bool
    """False where it was switched off because it hurt."""
    because: str
    uplift: Estimate
    """Mean reward with the journal minus without it, by the hold-out; its interval is valid at any time one looks."""
    alarm: str
    """The last alarm that outcomes changed; empty if there was none."""
    abandoned: Mapping[bool, int]
    """Abandoned episodes with the journal on (True) and off (False): the uplift knows finished ones only."""
    notes: Mapping[str, int]
    """State -> number of notes."""
    baselines: Mapping[str, Baseline]
    """Agent -> its own history."""
    strategies: Mapping[str, Mapping[str, Estimate]]
    """Decision -> option -> what it gives, chosen or not (off-policy)."""


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """The figures of a class that cost little however many episodes it has: for monitoring."""

    task_class: str
    outcomes: int
    mean_reward: float
    """NaN without outcomes."""
    journal_on: bool
    alarm: str
    uplift: Estimate


def class_summaries(scope: Scope, bounds: Bounds, limit: int) -> list[ClassSummary]:
    """Summaries of the classes with the most outcomes."""
    rows = scope.rows(CLASSES, order=(CLASSES.c.outcomes.desc(), CLASSES.c.task_class), limit=limit)
    return [
        ClassSummary(
            row["task_class"],
            row["outcomes"],
            row["reward_sum"] / row["outcomes"] if row["outcomes"] else math.nan,
            row["journal_on"],
            row["alarm"],
            class_proof(scope, row, row["task_class"], bounds)[0].proof.uplift(),
        )
        for row in rows
    ]


def class_reports(scope: Scope, task_class: str | None, bounds: Bounds) -> list[ClassReport]:
    wanted = [] if task_class is None else [CLASSES.c.task_class == task_class]
    return [_report(scope, row, bounds) for row in scope.rows(CLASSES, *wanted, order=(CLASSES.c.task_class,))]


def _report(scope: Scope, totals: Row, bounds: Bounds) -> ClassReport:
    name = totals["task_class"]
    outcomes = outcomes_of(scope, name)
    baselines = Baselines()
    for agent, reward in zip(outcomes.agents, outcomes.rewards, strict=True):
        baselines.observe(name, agent, reward)
    abandoned = scope.rows(
        EPISODES, EPISODES.c.task_class == name, EPISODES.c.state == "abandoned", columns=(EPISODES.c.journal_on,)
    )
    decisions = scope.rows(CHOICES, EPISODES.c.task_class == name, columns=(CHOICES.c.decision,), join=EPISODES)
    return ClassReport(
        task_class=name,
        outcomes=totals["outcomes"],
        journal_on=totals["journal_on"],
        because=totals["because"],
        uplift=class_proof(scope, totals, name, bounds)[0].proof.uplift(),
        alarm=totals["alarm"],
        abandoned=Counter(row["journal_on"] for row in abandoned),
        notes=Counter(row["state"] for row in scope.rows(NOTES, NOTES.c.task_class == name, columns=(NOTES.c.state,))),
        baselines={agent: baselines.of(name, agent) for agent in sorted(set(outcomes.agents))},
        strategies={
            decision: _values(past_choices(scope, name, decision, in_order=True), bounds)
            for decision in sorted({row["decision"] for row in decisions})
        },
    )


def _values(past: list[Row], bounds: Bounds) -> dict[str, Estimate]:
    columns = ([row[name] for row in past] for name in ("option", "reward", "propensities"))
    chosen, rewards, chances = columns
    return values(chosen, rewards, chances, bounds=bounds)


def plain(value: Any) -> Any:
    """Data as JSON carries it: numbers that are none are null."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: Any) -> str:
    return {True: "on", False: "off"}[key] if isinstance(key, bool) else str(key)
