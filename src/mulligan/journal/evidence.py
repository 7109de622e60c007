"""From stored outcomes to what follows of them: the hold-out, do no harm, drift, and the choice of a strategy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from mulligan.journal.budget import Budget, choose, tally
from mulligan.journal.note_store import class_totals
from mulligan.journal.proof import Bounds, DriftAlarm, harms, held_out, uniform
from mulligan.journal.schema import CHOICES, CLASSES, EPISODES
from mulligan.journal.store import Row, Scope

MOST_CHOICES = 5_000
"""The newest outcomes of a decision that the next choice looks at."""
_DAY = 86_400.0


class Outcomes(NamedTuple):
    """The outcomes of a class, in the order in which its episodes ended."""

    on: list[bool]
    rewards: list[float]
    chances: list[float]
    agents: list[str]


def arm_of(scope: Scope, namespace: str, task_class: str, episode_id: str, hold_out: float) -> tuple[bool, float]:
    """Whether the journal is on in an episode, and the probability with which it is."""
    drawn = held_out(namespace, task_class, episode_id, hold_out)
    if class_totals(scope, task_class)["journal_on"]:
        return not drawn, 1 - hold_out
    return drawn, hold_out


def outcomes_of(scope: Scope, task_class: str) -> Outcomes:
    conditions = EPISODES.c.task_class == task_class, EPISODES.c.state == "finished"
    columns = EPISODES.c.journal_on, EPISODES.c.reward, EPISODES.c.chance, EPISODES.c.agent
    rows = scope.rows(EPISODES, *conditions, columns=columns, order=(EPISODES.c.ended, EPISODES.c.id))
    return Outcomes(*([row[column.name] for row in rows] for column in columns))


def is_due(scope: Scope, task_class: str) -> bool:
    """Whether enough outcomes came in since the class was looked at: half a percent, so that it costs little.

    The intervals are valid at any time one looks, and so also at these.
    """
    totals = class_totals(scope, task_class)
    return bool(totals["outcomes"] - totals["checked"] > totals["outcomes"] // 200)


def check_class(scope: Scope, task_class: str, bounds: Bounds) -> list[str]:
    """Switch the journal of a class off where it harms, and on where it helps again; returns what is new."""
    totals = class_totals(scope, task_class, lock=True)
    on, rewards, chances, _ = outcomes_of(scope, task_class)
    verdict = harms(on, rewards, chances, bounds=bounds)
    news = [verdict.words] if verdict.on != totals["journal_on"] else []
    alarm = DriftAlarm(task_class)
    with_journal = [reward for reward, is_on in zip(rewards, on, strict=True) if is_on]
    before = totals["drift"] or {"seen": 0}
    if "alarm" in before:
        alarm.load_state_dict(before["alarm"])
    for reward in with_journal[before["seen"] :]:
        if (drift := alarm.observe(reward)) is not None:
            news.append(drift.words)
            totals |= {"alarm": drift.words, "outcomes_at_alarm": totals["outcomes"]}
    values = {
        "checked": len(rewards),
        "journal_on": verdict.on,
        "because": verdict.words,
        "drift": {"seen": len(with_journal), "alarm": alarm.state_dict()},
        "alarm": totals["alarm"],
        "outcomes_at_alarm": totals["outcomes_at_alarm"],
    }
    scope.update(CLASSES, values, CLASSES.c.task_class == task_class)
    return news


def past_choices(scope: Scope, task_class: str, decision: str) -> list[Row]:
    """Finished choices of a decision, in the order in which their episodes ended: option, propensities, reward."""
    conditions = EPISODES.c.task_class == task_class, EPISODES.c.state == "finished", CHOICES.c.decision == decision
    columns = CHOICES.c.option, CHOICES.c.propensities, EPISODES.c.reward
    order = EPISODES.c.ended.desc(), EPISODES.c.id.desc()
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
