"""From stored outcomes to what follows of them: the hold-out, do no harm, drift, and the choice of a strategy."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mulligan.journal.budget import Budget, choose, tally
from mulligan.journal.note_store import class_totals
from mulligan.journal.proof import Bounds, DriftAlarm, Proof, held_out, uniform
from mulligan.journal.schema import CHOICES, CLASSES, EPISODES, PENDING
from mulligan.journal.store import Row, Scope

MOST_CHOICES = 5_000
"""The newest outcomes of a decision that the next choice looks at."""
PATIENCE = 3_600.0
"""Seconds after its beginning for which the proof of a class waits for an episode that is still open.

The proof takes episodes in the order in which they began, because only of that order is known that it does not depend
on whether the journal was on: where failures take longer with the journal and successes without it, those that ended
first are not a fair sample. One that takes longer than this is taken in when it has ended.
"""
_DAY = 86_400.0


class ClassProof:
    """What the outcomes of a class show, kept as sums that the store carries from one episode to the next."""

    def __init__(self, task_class: str, bounds: Bounds) -> None:
        self.bounds = bounds
        self.proof, self.alarm = Proof(bounds), DriftAlarm(task_class, bounds=bounds)

    def observe(self, episodes: Sequence[Row]) -> list[str]:
        """Take in episodes in the order in which they began; returns the alarms they raise."""
        columns = ([row[name] for row in episodes] for name in ("journal_on", "reward", "chance"))
        self.proof.observe(*columns)
        drifts = (self.alarm.observe(row["reward"]) for row in episodes if row["journal_on"])
        return [drift.words for drift in drifts if drift is not None]

    def state(self) -> dict[str, Any]:
        return {"bounds": list(self.bounds), "proof": self.proof.state_dict(), "alarm": self.alarm.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.proof.load_state_dict(state["proof"])
        self.alarm.load_state_dict(state["alarm"])


class Outcomes(NamedTuple):
    """The outcomes of a class, in the order in which its episodes ended."""

    agents: list[str]
    rewards: list[float]


def arm_of(scope: Scope, namespace: str, task_class: str, episode_id: str, hold_out: float) -> tuple[bool, float]:
    """Whether the journal is on in an episode, and the probability with which it is."""
    return arm(class_totals(scope, task_class)["journal_on"], namespace, task_class, episode_id, hold_out)


def arm(class_on: bool, namespace: str, task_class: str, episode_id: str, hold_out: float) -> tuple[bool, float]:
    """`arm_of` of a class whose journal is on, or switched off."""
    drawn = held_out(namespace, task_class, episode_id, hold_out)
    return (not drawn, 1 - hold_out) if class_on else (drawn, hold_out)


def outcomes_of(scope: Scope, task_class: str) -> Outcomes:
    conditions = EPISODES.c.task_class == task_class, EPISODES.c.state == "finished"
    columns = EPISODES.c.agent, EPISODES.c.reward
    rows = scope.rows(EPISODES, *conditions, columns=columns, order=(EPISODES.c.ended, EPISODES.c.id))
    return Outcomes(*([row[column.name] for row in rows] for column in columns))


def class_proof(scope: Scope, totals: Row, task_class: str, bounds: Bounds) -> tuple[ClassProof, list[str], list[str]]:
    """The proof with all that it can take in now; the ids that it took from `PENDING`; the alarms they raised.

    Where the store has no sums, or those of other bounds, they are made anew from all finished episodes.
    """
    proof, columns = ClassProof(task_class, bounds), (EPISODES.c.id, *_OBSERVED)
    alarms: list[str] = []
    waiting = scope.rows(PENDING, PENDING.c.task_class == task_class, columns=columns, join=EPISODES, order=_BEGAN)
    if totals["proof"] and tuple(totals["proof"]["bounds"]) == bounds:
        proof.load(totals["proof"])
    else:
        finished = EPISODES.c.task_class == task_class, EPISODES.c.state == "finished"
        is_waiting = {row["id"] for row in waiting}
        every = scope.rows(EPISODES, *finished, columns=columns, order=_BEGAN)
        alarms = proof.observe([row for row in every if row["id"] not in is_waiting])
    limit = _first_open(scope, task_class)
    ready = [row for row in waiting if row["started"] < limit]
    return proof, [row["id"] for row in ready], alarms + proof.observe(ready)


_OBSERVED = EPISODES.c.started, EPISODES.c.journal_on, EPISODES.c.reward, EPISODES.c.chance
_BEGAN = EPISODES.c.started, EPISODES.c.id


def _first_open(scope: Scope, task_class: str) -> float:
    """When the first episode began that the proof waits for."""
    is_open = EPISODES.c.state == "open", EPISODES.c.task_class == task_class
    recent = EPISODES.c.started > time.time() - PATIENCE
    rows = scope.rows(EPISODES, *is_open, recent, columns=(EPISODES.c.started,), order=(EPISODES.c.started,), limit=1)
    return float(rows[0]["started"]) if rows else math.inf


def check_class(scope: Scope, task_class: str, bounds: Bounds) -> list[str]:
    """Switch the journal of a class off where it harms, and on where it helps again; returns what is new."""
    totals = class_totals(scope, task_class, lock=True)
    proof, taken, alarms = class_proof(scope, totals, task_class, bounds)
    verdict = proof.proof.verdict()
    news = [verdict.words] if verdict.on != totals["journal_on"] else []
    values: Row = {"journal_on": verdict.on, "because": verdict.words, "proof": proof.state()}
    if alarms:
        values |= {"alarm": alarms[-1], "outcomes_at_alarm": totals["outcomes"]}
    scope.update(CLASSES, values, CLASSES.c.task_class == task_class)
    if taken:
        scope.delete(PENDING, PENDING.c.task_class == task_class, PENDING.c.episode_id.in_(taken))
    return news + alarms


def past_choices(scope: Scope, task_class: str, decision: str, *, in_order: bool = False) -> list[Row]:
    """Finished choices of a decision, in the order in which their episodes ended: option, propensities, reward.

    With `in_order` in the order in which they began, up to the first that is still open, as estimates need them.
    """
    conditions = [EPISODES.c.task_class == task_class, EPISODES.c.state == "finished", CHOICES.c.decision == decision]
    columns = CHOICES.c.option, CHOICES.c.propensities, EPISODES.c.reward
    order = EPISODES.c.ended.desc(), EPISODES.c.id.desc()
    if in_order:
        order = EPISODES.c.started.desc(), EPISODES.c.id.desc()
        conditions.append(EPISODES.c.started < _first_open(scope, task_class))
    newest = scope.rows(CHOICES, *conditions, columns=columns, join=EPISODES, order=order, limit=MOST_CHOICES)
    return newest[::-1]


def choose_option(
    scope: Scope,
    options: Sequence[str],
    past: Sequence[Row],
    *,
    namespace: str,
    task_class: str,
    episode_id: str,
    decision: str,
    budget: Budget,
    bounds: Bounds,
) -> Row:
    """The values of a new choice. The class is locked meanwhile: no two choices spend the same rest of a day."""
    totals = class_totals(scope, task_class, lock=True)
    today = time.time() // _DAY * _DAY
    spent = CHOICES.c.explored, CHOICES.c.made >= today, EPISODES.c.task_class == task_class
    choice = choose(
        tally(options, [row["option"] for row in past], [row["reward"] for row in past], budget=budget, bounds=bounds),
        budget,
        episodes=totals["outcomes"] - totals["outcomes_at_alarm"],
        luck=uniform("strategy", namespace, task_class, decision, episode_id),
        explored_today=len(scope.rows(CHOICES, *spent, columns=(CHOICES.c.made,), join=EPISODES)),
    )
    return {
        "option": choice.strategy,
        "propensities": choice.chances,
        "explored": choice.explored,
        "reason": choice.words,
    }
