"""Episodes that are under way: what was said in them, and how that is written to the journal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mulligan.journal.episode import storable_transcript
from mulligan.journal.journal import Journal
from mulligan.journal.note_store import class_totals, record_shown
from mulligan.journal.process import machine, process
from mulligan.journal.schema import CLASSES, EPISODES, NOTES, SHOWINGS
from mulligan.journal.store import Row, Scope
from mulligan.serve.dialects import Dialect
from mulligan.serve.replies import reply_in

ANOTHER = "[another conversation of this episode]"
"""Stands between the conversations of an episode in its transcript."""
MOST_THREADS = 20
"""Conversations of an episode that are kept, the latest ones."""


@dataclass(slots=True)
class Exchange:
    """A request and the bytes of its answer."""

    dialect: Dialect
    messages: list[Any]
    status: int
    kind: str
    """Content type."""
    encoding: str
    content: bytes = b""
    fault: str = ""
    """Why the answer has no end, if it has none."""

    def reply(self) -> Any:
        if not self.status:
            return {"role": "assistant", "content": "", "fault": self.fault}
        read = reply_in(self.content, self.dialect, status=self.status, kind=self.kind, encoding=self.encoding)
        return {**read, "fault": self.fault} if self.fault else read


@dataclass(slots=True, eq=False)
class LiveEpisode:
    """An episode that the proxy has heard of."""

    namespace: str
    row: Row
    """As it is, or will be, in the store."""
    named: bool
    """Whether the client has a name for it and may come again; otherwise it is one request."""
    context: str = ""
    note_ids: tuple[str, ...] = ()
    stored: bool = False
    showings_stored: bool = False
    threads: list[list[Any]] = field(default_factory=list)
    """Conversations, each a request's messages and the reply to them."""
    last_heard: float = field(default_factory=time.time)
    under_way: int = 0
    """Requests that have no answer yet."""

    @property
    def id(self) -> str:
        return str(self.row["id"])

    def hear(self, exchange: Exchange) -> None:
        """Add what was said. A request that goes on where an earlier one ended takes its place."""
        thread = [*exchange.messages, exchange.reply()]
        for index, earlier in enumerate(self.threads):
            asked = earlier[:-1]
            if exchange.messages[: len(asked)] == asked:
                self.threads[index] = thread
                return
        self.threads = [*self.threads, thread][-MOST_THREADS:]

    def transcript(self) -> list[Any]:
        entries = [entry for thread in self.threads for entry in (ANOTHER, *thread)]
        return storable_transcript(entries[1:]) or []

    def abandon(self, remark: str) -> None:
        if self.row["state"] == "open":
            self.row |= {"state": "abandoned", "ended": time.time(), "remark": remark}


def new_row(id: str, task_class: str, **values: Any) -> Row:
    """An episode that begins now, in this process."""
    return {
        "id": id,
        "task_class": task_class,
        "state": "open",
        "started": time.time(),
        "ended": None,
        "remark": "",
        "machine": machine(),
        "process": process(),
        **values,
    }


def reopened(row: Row) -> Row:
    """A stored episode that goes on in this process."""
    return {**row, "state": "open", "ended": None, "remark": "", "machine": machine(), "process": process()}


def threads_of(transcript: Sequence[Any] | None) -> list[list[Any]]:
    """The conversations of a stored transcript."""
    threads: list[list[Any]] = []
    for entry in transcript or []:
        if not threads or entry == ANOTHER:
            threads.append([])
        if entry != ANOTHER:
            threads[-1].append(entry)
    return [thread for thread in threads if thread]


def write_batch(journal: Journal, episodes: Sequence[LiveEpisode]) -> None:
    """Write episodes of one namespace in one transaction."""
    with journal.writing() as scope:
        new = [episode for episode in episodes if not episode.stored]
        stored_before = sorted((episode for episode in episodes if episode.stored), key=lambda episode: episode.id)
        for episode in stored_before:
            _update(scope, episode)
        rows = [{**episode.row, "transcript": episode.transcript()} for episode in new]
        scope.insert(CLASSES, [{"task_class": name} for name in sorted({row["task_class"] for row in rows})])
        scope.insert(EPISODES, rows)
        # Locked in the order of all other transactions: episodes, classes, notes.
        for name in sorted({episode.row["task_class"] for episode in episodes if episode.note_ids}):
            class_totals(scope, name, lock=True)
        for episode in stored_before:
            if episode.note_ids and not episode.showings_stored:
                record_shown(scope, episode.id, episode.row["task_class"], episode.note_ids)
        _record_shown(scope, new)
    for episode in new:
        episode.stored = True
    for episode in episodes:
        episode.showings_stored = True


def _update(scope: Scope, episode: LiveEpisode) -> None:
    columns = ("state", "ended", "remark", "machine", "process")
    values = {name: episode.row[name] for name in columns}
    scope.update(EPISODES, {"transcript": episode.transcript()}, EPISODES.c.id == episode.id)
    scope.update(EPISODES, values, EPISODES.c.id == episode.id, EPISODES.c.state != "finished")


def _record_shown(scope: Scope, episodes: Sequence[LiveEpisode]) -> None:
    """As `note_store.record_shown`, for many new episodes at a time."""
    shown = Counter(note_id for episode in episodes for note_id in episode.note_ids)
    rows = scope.rows(NOTES, NOTES.c.id.in_(shown), columns=(NOTES.c.id,), order=(NOTES.c.id,), lock=True)
    existing = {row["id"] for row in rows}
    by_count: dict[int, list[str]] = {}
    for note_id in existing:
        by_count.setdefault(shown[note_id], []).append(note_id)
    for count, note_ids in sorted(by_count.items()):
        scope.update(NOTES, {"shown": NOTES.c.shown + count}, NOTES.c.id.in_(note_ids))
    pairs = [(episode.id, note_id) for episode in episodes for note_id in episode.note_ids if note_id in existing]
    scope.insert(SHOWINGS, [{"episode_id": episode_id, "note_id": note_id} for episode_id, note_id in pairs])
