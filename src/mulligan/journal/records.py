"""What is stored of an episode, as `Journal.episodes` gives it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import sqlalchemy as sa

from mulligan.journal.schema import CHOICES, EPISODES, ORIGINS, SHOWINGS
from mulligan.journal.store import Row, Scope

EpisodeState = Literal["open", "finished", "abandoned"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision of an episode."""

    decision: str
    """Which one, where an episode has several."""
    option: str
    propensities: Mapping[str, float]
    """Option -> the probability with which it was chosen."""
    explored: bool
    """Whether the exploration budget paid for it."""
    reason: str


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """A stored episode."""

    id: str
    task: str
    task_class: str
    agent: str
    person: str
    """Id of the person it was about, by which it can be deleted."""
    untrusted: bool
    """Whether strangers' text was in it: its note then waits for a person."""
    journal_on: bool
    """Whether it could see notes and explore; False in the hold-out."""
    chance: float
    """Probability with which the journal was on."""
    state: EpisodeState
    started: float
    """Seconds since 1970, as `ended`."""
    ended: float | None
    reward: float | None
    outcome: str
    transcript: Sequence[Any] | None
    remark: str
    """Why there is no note, or why it was abandoned."""
    notes_shown: tuple[str, ...]
    """Ids of notes, as `notes_written`."""
    notes_written: tuple[str, ...]
    choices: tuple[Choice, ...]


def episode_page(scope: Scope, *conditions: sa.ColumnElement[bool], after: Row | None = None) -> list[EpisodeRecord]:
    """The next episodes in the order in which they began, with what hangs on them."""
    page = scope.page(EPISODES, *conditions, order=(EPISODES.c.started, EPISODES.c.id), after=after)
    ids = [row["id"] for row in page]
    shown = _by_episode(scope.rows(SHOWINGS, SHOWINGS.c.episode_id.in_(ids)))
    written = _by_episode(scope.rows(ORIGINS, ORIGINS.c.episode_id.in_(ids)))
    choices = _by_episode(scope.rows(CHOICES, CHOICES.c.episode_id.in_(ids), order=(CHOICES.c.made,)))
    return [
        EpisodeRecord(
            **{name: value for name, value in row.items() if name not in ("namespace", "machine", "process")},
            notes_shown=tuple(each["note_id"] for each in shown[row["id"]]),
            notes_written=tuple(each["note_id"] for each in written[row["id"]]),
            choices=tuple(
                Choice(**{item.name: each[item.name] for item in fields(Choice)}) for each in choices[row["id"]]
            ),
        )
        for row in page
    ]


def _by_episode(rows: Sequence[Row]) -> defaultdict[str, list[Row]]:
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["episode_id"]].append(row)
    return grouped
