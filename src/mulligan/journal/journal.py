"""The journal: episodes of an agent whose model stays frozen, and the notes that they leave for the next ones."""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.journal import forget, note_store, transfer
from mulligan.journal.budget import NEVER, Budget
from mulligan.journal.context import Similarity
from mulligan.journal.episode import JournalEpisode, name_of, stored_text
from mulligan.journal.evidence import arm_of
from mulligan.journal.notes import ALLOWABLE, Note, Refused, State, check_fields, cleaned
from mulligan.journal.process import has_died, machine, process
from mulligan.journal.records import EpisodeRecord, EpisodeState, episode_page
from mulligan.journal.report import ClassReport, class_reports
from mulligan.journal.schema import CLASSES, EPISODES
from mulligan.journal.similarity import similarity_named
from mulligan.journal.snapshot import ClassSnapshot, snapshot_of
from mulligan.journal.store import PAGE, Scope, Store
from mulligan.policy.base import Policy, ReplyFunction

ABANDONED_AFTER = 86_400.0
"""Seconds after which an open episode of another machine counts as abandoned: whether its process lives is unknown."""
MOST_SNAPSHOTS = 64
"""Classes whose notes are kept in memory."""
SWEEP_EVERY = 60.0
"""Seconds between two looks for episodes whose process died."""


class Journal:
    """What an agent learned, in a database that outlives it.

    url           ``sqlite:///agent.db``, a path, or ``postgresql+psycopg://user@host/database``
    namespace     the tenant; nothing of one namespace is ever seen in another
    agent         name of the agent, for baselines of its own
    reflect       who writes reflections: a function of the messages, or a policy such as `EndpointPolicy`
    reward_range  the lowest and the highest reward; proofs need it
    hold_out      share of episodes that run with the journal off, to measure what it is worth; 0 measures nothing
    allow         what may stand in notes beside plain text: some of urls, code, roles
    budget        how much of its episodes a class spends on exploration (`mulligan.journal.budget.Budget`)
    never_explore classes in which nothing is tried: always the best strategy so far
    similarity    "wordllama", which finds notes on tasks in other words (the extra `similarity`), or a function
                  (task, texts of notes) -> how alike each is to the task, from 0 to 1; without it, none but the same

    One journal may be used by any number of threads and processes at a time, forked ones too.

    >>> with mulligan.Journal("sqlite:///agent.db", namespace="shop", hold_out=0) as journal:
    ...     with journal.episode("refund for order 18", task_class="refund") as episode:
    ...         shown = episode.context(max_tokens=500)  # nothing yet
    ...         episode.finish(reward=1.0, outcome="refunded", reflection="plan: look up the order first")
    ...     [report] = journal.classes("refund")
    >>> shown, report.task_class
    ('', 'refund')
    """

    log = logging.getLogger("mulligan.journal")

    def __init__(
        self,
        url: str | os.PathLike[str] = "sqlite:///journal.db",
        namespace: str = "default",
        *,
        agent: str = "",
        reflect: Policy | ReplyFunction | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        hold_out: float = 0.1,
        allow: Collection[str] = (),
        budget: Budget = Budget(),
        never_explore: Collection[str] = (),
        similarity: Similarity | str | None = None,
    ) -> None:
        low, high = map(float, reward_range)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"reward_range must be two numbers, the lower one first (got {reward_range})")
        if not 0 <= hold_out <= 0.5:
            raise ParameterError(f"hold_out must be from 0 to 0.5 (got {hold_out})")
        for kind in [allow] if isinstance(allow, str) else allow:
            if kind not in ALLOWABLE:
                raise UnknownName("kind of text to allow in notes", kind, ALLOWABLE)
        self.namespace, self.agent = name_of("namespace", namespace), name_of("agent", agent, empty=True)
        self.reflect = reflect
        self.similarity = similarity_named(similarity) if isinstance(similarity, str) else similarity
        self.reward_range, self.hold_out = (low, high), float(hold_out)
        self.budget, self.never_explore = budget, frozenset(never_explore)
        self.allow = (allow,) if isinstance(allow, str) else tuple(allow)
        self._store = Store(os.fspath(url))
        self._snapshots: dict[str, ClassSnapshot] = {}
        self._swept = -math.inf
        self._sweep()

    def __repr__(self) -> str:
        return f"<Journal {self._store}, namespace {self.namespace!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def in_namespace(self, namespace: str) -> Journal:
        """The same journal for another tenant, over the same connections."""
        other = copy.copy(self)
        other.namespace, other._snapshots = name_of("namespace", namespace), {}
        other._sweep(now=True)
        return other

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._store.close()

    def episode(
        self,
        task: str,
        task_class: str,
        *,
        id: str | None = None,
        agent: str | None = None,
        person: str = "",
        untrusted: bool = False,
    ) -> JournalEpisode:
        """Begin an episode: ``with journal.episode(task="refund for order 18", task_class="refund") as ep: …``.

        task        in words; notes on the same task come first
        task_class  what is compared with each other, and what notes are kept by
        id          your own id of it; by default a new one
        agent       in place of the journal's
        person      id of the person it is about: by it all can be deleted, and nobody confirms a note of their own
        untrusted   whether strangers' text is in the transcript: its note is then not shown until somebody confirms it
        """
        self._sweep()
        row: dict[str, Any] = {
            "id": note_store.new_id() if id is None else name_of("id", id),
            "task": stored_text(task),
            "task_class": name_of("task_class", task_class),
            "agent": self.agent if agent is None else name_of("agent", agent, empty=True),
            "person": name_of("person", person, empty=True),
            "untrusted": bool(untrusted),
            "state": "open",
            "started": time.time(),
            "machine": machine(),
            "process": process(),
        }
        with self.writing() as scope:
            if scope.row(EPISODES, EPISODES.c.id == row["id"]) is not None:
                raise UsageError(f"the journal has an episode {row['id']!r} already; go on with it: journal.attach(…)")
            on, chance = arm_of(scope, self.namespace, row["task_class"], row["id"], self.hold_out)
            row |= {"journal_on": on, "chance": chance}
            scope.insert(CLASSES, [{"task_class": row["task_class"]}])
            scope.insert(EPISODES, [row])
        return JournalEpisode(self, row)

    def attach(self, id: str) -> JournalEpisode:
        """An episode that began elsewhere, in another process perhaps: to finish it when its outcome is known."""
        with self.reading() as scope:
            row = scope.row(EPISODES, EPISODES.c.id == id)
        if row is None:
            raise UsageError(f"the journal has no episode {id!r}")
        return JournalEpisode(self, row)

    def episodes(
        self,
        task_class: str | None = None,
        *,
        id: str | None = None,
        task: str | None = None,
        person: str | None = None,
        agent: str | None = None,
        state: EpisodeState | None = None,
    ) -> Iterator[EpisodeRecord]:
        """What is stored, in the order in which the episodes began."""
        self._sweep(now=True)
        wanted = {"task_class": task_class, "id": id, "task": task, "person": person, "agent": agent, "state": state}
        conditions = [EPISODES.c[name] == value for name, value in wanted.items() if value is not None]
        after = None
        while True:
            with self.reading() as scope:  # a transaction a page: who reads slowly holds up nobody
                records = episode_page(scope, *conditions, after=after)
            yield from records
            if len(records) < PAGE:
                return
            after = {"started": records[-1].started, "id": records[-1].id}

    def notes(self, task_class: str | None = None, *, state: State | None = None) -> list[Note]:
        """Notes with their records, the newest first; ``state="quarantined"``: those that wait to be confirmed."""
        with self.reading() as scope:
            return note_store.notes_in(scope, task_class, None if state is None else (state,))

    def classes(self, task_class: str | None = None) -> list[ClassReport]:
        """What is known of each class: whether the journal helps, with an interval; baselines; strategies."""
        with self.reading() as scope:
            return class_reports(scope, task_class, self.reward_range)

    def add_note(self, task_class: str, **fields: str) -> str:
        """Store a note of a person, confirmed at once: ``journal.add_note("refund", plan="look up the order first")``.

        Returns its id. The parts are those of `mulligan.journal.notes.NOTE_FIELDS`.
        """
        parts = self._checked(fields)
        with self.writing() as scope:
            return note_store.add_note(scope, name_of("task_class", task_class), parts, "person")

    def correct(self, note_id: str, **fields: str) -> None:
        """Change parts of a note; its earlier words are gone, and its record begins anew. An empty part is removed."""
        check_fields(fields)
        with self.writing() as scope:
            before = note_store.note_named(scope, note_id, lock=True)
            note_store.rewrite(scope, note_id, self._checked({**before.fields, **fields}))
        self._store.erase_traces()

    def supersede(self, note_id: str, **fields: str) -> str:
        """Put a new note in the place of one that is kept, but not shown any more; returns the new one's id."""
        parts = self._checked(fields)
        with self.writing() as scope:
            before = note_store.note_named(scope, note_id, lock=True)
            new = note_store.add_note(scope, before.task_class, parts, "person")
            if new == note_id:
                raise UsageError(f"note {note_id!r} says the same already; nothing supersedes it")
            note_store.set_state(scope, note_id, "superseded", f"superseded by {new}", new)
        return new

    def confirm(self, note_id: str) -> None:
        """Let a note be shown: a person has read it."""
        self._set_state(note_id, "confirmed", "confirmed by a person")

    def quarantine(self, note_id: str) -> None:
        """Put a note back to those that wait; its record begins anew.

        One of an agent is tried in single episodes until an outcome confirms it, any other waits for a person.
        """
        self._set_state(note_id, "quarantined", "put into quarantine by a person")

    def retire(self, note_id: str) -> None:
        """Show a note no more."""
        self._set_state(note_id, "retired", "retired by a person")

    def delete(
        self,
        *,
        note: str | None = None,
        episode: str | None = None,
        task: str | None = None,
        task_class: str | None = None,
        person: str | None = None,
        everything: bool = False,
    ) -> forget.Deleted:
        """Delete one note, or the episodes of a task, a class, a person, an id, or everything of this namespace.

        Notes that came of deleted episodes alone go with them. It is really gone: the database's files are rewritten
        (`Store.erase_traces`), which takes as long as copying them. Exported files and backups are yours to delete.
        """
        given = {"note": note, "episode": episode, "task": task, "task_class": task_class, "person": person}
        named = [name for name, value in given.items() if value is not None]
        if len(named) + everything != 1 or any(given[name] == "" for name in named):
            raise UsageError(f"delete takes exactly one of {', '.join(given)} or everything=True, and not empty")
        with self.writing() as scope:
            if everything:
                deleted = forget.forget_namespace(scope)
            elif task_class is not None:
                deleted = forget.forget_class(scope, task_class)
            elif note is not None:
                deleted = forget.forget_note(scope, note)
            else:
                column = {"episode": EPISODES.c.id, "task": EPISODES.c.task, "person": EPISODES.c.person}[named[0]]
                deleted = forget.forget_episodes(scope, column == given[named[0]])
        self._store.erase_traces()
        return deleted

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write everything of this namespace as JSON lines; returns how many lines. The file is for its owner alone."""
        with self.reading() as scope:
            return transfer.export(scope, path)

    def load(self, path: str | os.PathLike[str], *, trusted: bool = False) -> int:
        """Read a file that `export` wrote into this namespace; returns how many rows. What is there already stays.

        Only with `trusted` episodes and records are taken over. Otherwise its notes alone are, into quarantine, until a
        person confirms them: whoever wrote the file could have written anything.
        """
        with self.writing() as scope:
            return transfer.load(scope, path, trusted=trusted, allow=self.allow)

    # What episodes of this journal use.

    def reading(self) -> AbstractContextManager[Scope]:
        return self._store.reading(self.namespace)

    def writing(self) -> AbstractContextManager[Scope]:
        return self._store.writing(self.namespace)

    def snapshot(self, scope: Scope, task_class: str) -> ClassSnapshot:
        """What retrieval reads of a class; from memory, if nobody has changed it since."""
        before = self._snapshots.pop(task_class, None)
        snapshot = self._snapshots[task_class] = snapshot_of(scope, task_class, self.reward_range, before)
        while len(self._snapshots) > MOST_SNAPSHOTS:
            self._snapshots.pop(next(iter(self._snapshots)), None)  # the one that was used least lately
        return snapshot

    def budget_of(self, task_class: str) -> Budget:
        return NEVER if task_class in self.never_explore else self.budget

    def _set_state(self, note_id: str, state: State, reason: str) -> None:
        with self.writing() as scope:
            note_store.set_state(scope, note_id, state, reason)

    def _checked(self, fields: Mapping[str, str]) -> dict[str, str]:
        """A person's note as it is stored; a mistake is an error here, not a remark."""
        check_fields(fields)
        try:
            return cleaned(fields, self.allow)
        except Refused as error:
            raise ParameterError(f"this note cannot be stored: {error}") from error

    def _sweep(self, *, now: bool = False) -> None:
        """Close as abandoned the open episodes whose process died, or of which nothing was heard for a day."""
        if not now and time.monotonic() - self._swept < SWEEP_EVERY:
            return
        self._swept = time.monotonic()
        this_machine, latest = machine(), time.time() - ABANDONED_AFTER
        with self.reading() as scope:
            still_open = scope.rows(EPISODES, EPISODES.c.state == "open")
        dead = {
            row["id"]: "its process died" if row["machine"] == this_machine else "nothing was heard of it for a day"
            for row in still_open
            if (has_died(row["process"]) if row["machine"] == this_machine else row["started"] < latest)
        }
        if not dead:
            return
        with self.writing() as scope:
            for id, remark in dead.items():
                values = {"state": "abandoned", "ended": time.time(), "remark": remark}
                scope.update(EPISODES, values, EPISODES.c.id == id, EPISODES.c.state == "open")
