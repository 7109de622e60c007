"""An index over the trials of a run: what is asked of many at once, and where each one stands in its file.

It lies in the user's cache and not in the run folder, which is only read and may be somebody else's. It is a SQLite
file, so that a page of 100,000 trials is a query; files that grow are read on from where the index ends.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.cache import cache_folder
from mulligan.errors import RunFolderError
from mulligan.view.folder import is_folder, open_regular, stamp
from mulligan.view.members import Gap, Member, read_member, scan

_VERSION = 1
_SCHEMA = """
CREATE TABLE files (id INTEGER PRIMARY KEY, arm TEXT UNIQUE, inode INTEGER, indexed INTEGER, size INTEGER,
    changed INTEGER, unread INTEGER);
CREATE TABLE trials (file INTEGER, place INTEGER, offset INTEGER, size INTEGER, start INTEGER, length INTEGER,
    env TEXT, seed INTEGER, class TEXT, opponent TEXT, task TEXT, outcomes TEXT, solved INTEGER, reward REAL,
    turns INTEGER, invalid INTEGER, faults TEXT, notes INTEGER, PRIMARY KEY (file, place)) WITHOUT ROWID;
CREATE INDEX of_task ON trials (task);
"""
_SUFFIX = ".jsonl.gz"
_UNUSED_DAYS = 60
"""Indexes that nobody looked at for so long are deleted: they can be made again."""
_COMMIT_SECONDS = 0.5
_OUTCOMES: Mapping[str, str] = {"won": "w", "lost": "l", "drawn": "d", "turn_limit": "t", "context_full": "c"}
"""Why an episode ended, as one letter; everything else is "f", failed outside the agent."""


class Place(NamedTuple):
    """Where the line of a trial stands."""

    offset: int
    size: int
    start: int
    length: int


class TrialIndex:
    """The index of one run. Every call opens a connection of its own, so that any thread may call."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "trials"
        name = hashlib.sha256(str(run.absolute()).encode()).hexdigest()[:32]
        self.path = cache_folder() / "view" / f"{name}.sqlite"
        self._writing = threading.Lock()
        self._background: threading.Thread | None = None

    def refresh(self, seconds: float, first: str | None = None) -> None:
        """Index what is new, the arm `first` before others; after `seconds` a thread goes on with it."""
        if self.is_behind:
            return
        if self._work(time.monotonic() + seconds, first):
            return
        self._background = threading.Thread(target=self._work, args=(float("inf"), first), daemon=True)
        self._background.start()

    @property
    def is_behind(self) -> bool:
        """Whether a thread is still at work on it."""
        return self._background is not None and self._background.is_alive()

    def state(self) -> dict[str, Any]:
        """How many bytes of the files are indexed, how many could not be read, and the trials of each arm."""
        files = self._files()
        with self.connected() as store:
            rows = store.execute("SELECT arm, indexed, unread, size, changed FROM files").fetchall()
            counts = dict(
                store.execute("SELECT arm, COUNT(*) FROM trials JOIN files ON files.id = trials.file GROUP BY arm")
            )
        read = unread = 0
        for arm, indexed, gaps, size, changed in rows:
            if arm in files:
                is_done = (size, changed) == files[arm][1:]  # what is left then is no member: it was cut off
                read += size if is_done else indexed
                unread += gaps + (size - indexed if is_done else 0)
        return {
            "bytes": sum(size for _, size, _ in files.values()),
            "indexed": read,
            "unread": unread,
            "arms": [{"name": arm, "trials": counts.get(arm, 0)} for arm in sorted(files, key=_main_first)],
        }

    def read(self, arm: str, place: int) -> dict[str, Any]:
        """One trial as its file has it."""
        where = self.place(arm, place)
        if where is None:
            raise RunFolderError(f"{self.folder.parent} has no trial of task {place + 1} in {arm!r}")
        try:
            with open_regular(self.folder / f"{arm}{_SUFFIX}") as file:
                lines = read_member(file, where.offset, where.size)
        except FileNotFoundError:
            raise RunFolderError(f"{self.folder / (arm + _SUFFIX)} is gone") from None
        line = lines[where.start : where.start + where.length]
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RunFolderError(
                f"{self.folder.parent}: the trial of task {place + 1} in {arm!r} has changed"
            ) from error
        return dict(data)

    def place(self, arm: str, place: int) -> Place | None:
        with self.connected() as store:
            row = store.execute(
                "SELECT offset, trials.size, start, length FROM trials JOIN files ON files.id = file "
                "WHERE arm = ? AND place = ?",
                (arm, place),
            ).fetchone()
        return Place(*row) if row else None

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as store:
            yield store

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                reason = f"{self.path.parent} cannot be written: {error.strerror or error}"
                raise RunFolderError(f"{reason}; set MULLIGAN_CACHE to a folder with room") from error
            _forget_unused(self.path.parent)
        for attempt in range(2):
            store = sqlite3.connect(self.path, timeout=20)
            try:
                if store.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
                    return store
                store.execute("PRAGMA journal_mode = WAL")
                with store:
                    store.execute("BEGIN IMMEDIATE")
                    if store.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                        for table in ("trials", "files"):
                            store.execute(f"DROP TABLE IF EXISTS {table}")
                        for statement in _SCHEMA.split(";"):
                            store.execute(statement)
                        store.execute(f"PRAGMA user_version = {_VERSION}")
                return store
            except sqlite3.DatabaseError:
                store.close()
                if attempt:
                    raise
                self.path.unlink(missing_ok=True)  # damaged: it can be made again
        raise AssertionError("the second attempt returns or raises")

    def _files(self) -> dict[str, tuple[int, int, int]]:
        """Arm -> the stamp of its file."""
        if not is_folder(self.folder):
            return {}
        stamps = {path.name.removesuffix(_SUFFIX): stamp(path) for path in self.folder.glob(f"*{_SUFFIX}")}
        return {arm: each for arm, each in stamps.items() if each[1]}

    def _work(self, until: float, first: str | None) -> bool:
        """Index until a moment; whether all is done."""
        with self._writing, self.connected() as store:
            store.execute("PRAGMA synchronous = NORMAL")  # no wait for the disk at each commit: it can be made again
            files = self._files()
            indexed_files = {
                row[0]: row[1:] for row in store.execute("SELECT arm, inode, indexed, size, changed FROM files")
            }
            for arm in indexed_files.keys() - files.keys():
                _drop(store, arm)
            store.commit()
            # Validations are small, and a page that follows a task over training needs all of them.
            for arm in sorted(files, key=lambda arm: (arm != first, not arm.startswith("validation-"), arm)):
                inode, size, changed = files[arm]
                before = indexed_files.get(arm)
                if before is not None and before[2:] == (size, changed) and before[0] == inode:
                    continue
                # Files only grow, or are replaced: one of the same size, or smaller, is another one.
                if before is None or before[0] != inode or size < before[1] or 0 < size <= before[2]:
                    _drop(store, arm)
                    store.execute("INSERT INTO files VALUES (NULL, ?, ?, 0, 0, 0, 0)", (arm, inode))
                if not self._index_file(store, arm, until):
                    return False
                store.execute("UPDATE files SET size = ?, changed = ? WHERE arm = ?", (size, changed, arm))
                store.commit()
                if time.monotonic() > until:
                    return False
        return True

    def _index_file(self, store: sqlite3.Connection, arm: str, until: float) -> bool:
        """Index the rest of a file; False where the time ended before."""
        number, indexed = store.execute("SELECT id, indexed FROM files WHERE arm = ?", (arm,)).fetchone()
        committed = time.monotonic()
        with suppress(FileNotFoundError), open_regular(self.folder / f"{arm}{_SUFFIX}") as file:
            for piece in scan(file, indexed):
                unread = piece.size if isinstance(piece, Gap) else _add(store, number, piece)
                store.execute(
                    "UPDATE files SET indexed = ?, unread = unread + ? WHERE id = ?",
                    (piece.offset + piece.size, unread, number),
                )
                now = time.monotonic()
                if now - committed > _COMMIT_SECONDS or now > until:
                    store.commit()
                    committed = now
                    if now > until:
                        return False
        return True


def _add(store: sqlite3.Connection, number: int, member: Member) -> int:
    """Add the trials of a member; returns the bytes of lines that are none."""
    start = unread = 0
    rows = []
    for line in member.lines.splitlines(keepends=True):
        try:
            rows.append((number, *_row(json.loads(line), member, start, len(line))))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            unread += len(line)
        start += len(line)
    store.executemany(f"INSERT OR REPLACE INTO trials VALUES ({', '.join('?' * 18)})", rows)
    return unread


def _row(data: Mapping[str, Any], member: Member, start: int, length: int) -> tuple[Any, ...]:
    """What the index keeps of a trial, in the order of the columns."""
    task, episodes = data["task"], data["episodes"]
    turns = [turn for episode in episodes for turn in episode["turns"]]
    outcomes = "".join(_OUTCOMES.get(episode["stop"], "f") for episode in episodes)
    faults = sorted({str(turn["fault"]) for turn in turns if turn["fault"]})
    reward = sum(float(turn["reward"]) for turn in turns) + sum(float(episode["forfeit"]) for episode in episodes)
    params = {str(key): value for key, value in task["params"]}
    return (
        int(data["place"]),
        member.offset,
        member.size,
        start,
        length,
        str(task["env"]),
        int(task["seed"]),
        str(task["task_class"]),
        None if params.get("opponent") is None else str(params["opponent"]),
        task_key(task),
        outcomes,
        outcomes.find("w") + 1,
        reward,
        len(turns),
        sum(not turn["valid"] for turn in turns),
        " ".join(faults),
        sum(episode["reflection"] is not None for episode in episodes),
    )


def task_key(task: Mapping[str, Any]) -> str:
    """Equal for equal tasks: the same world with the same parameters."""
    named = [task["env"], task["seed"], task["turns"], sorted([str(key), value] for key, value in task["params"])]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]


def _main_first(arm: str) -> tuple[bool, str]:
    return arm != "main", arm


def _drop(store: sqlite3.Connection, arm: str) -> None:
    store.execute("DELETE FROM trials WHERE file IN (SELECT id FROM files WHERE arm = ?)", (arm,))
    store.execute("DELETE FROM files WHERE arm = ?", (arm,))


def _forget_unused(folder: Path) -> None:
    oldest = time.time() - _UNUSED_DAYS * 86_400
    for path in folder.glob("*.sqlite*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
