"""The proxy's way to the store: reads with little patience, writes behind, and no request that fails for it.

The event loop never waits for a write. What a request leaves is written by one thread, many at a time in one
transaction, after the answer was passed on; a crash loses what the last moments left, and no outcome that was
acknowledged. A store that is down or slow is left alone for some seconds; requests are then passed on without notes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mulligan.errors import JournalError
from mulligan.journal.context import Similarity
from mulligan.journal.journal import Journal
from mulligan.serve.live import Exchange, LiveEpisode, write_batch
from mulligan.serve.metrics import Metrics

T = TypeVar("T")
PATIENCE = 0.5
"""Seconds that a request waits for the store."""
PAUSE = 5.0
"""Seconds for which a store that failed is not asked again on behalf of a request."""
GATHER = 0.05
"""Seconds in which records gather to be written together: one fsync for all of them."""
MOST_WAITING = 10_000
"""Episodes that wait to be written; beyond these, the oldest are given up."""


class StoreDown(Exception):
    """The store did not answer, or not in time."""


class Keeper:
    """One store for all namespaces of a proxy."""

    log = logging.getLogger("mulligan.serve")

    def __init__(self, open_journal: Callable[[], Journal], metrics: Metrics) -> None:
        self._open, self.metrics = open_journal, metrics
        self._journals: dict[str, Journal] = {}
        self._down_until = 0.0
        self._readers = ThreadPoolExecutor(4, "journal-reads")
        self._writer = ThreadPoolExecutor(1, "journal-writes")
        self._waiting: dict[LiveEpisode, list[Exchange]] = {}
        self._has_work = asyncio.Event()
        metrics.store_up.set(1)

    @property
    def hold_out(self) -> float:
        """Of the journal, once it was read."""
        return next(iter(self._journals.values())).hold_out

    @property
    def similarity(self) -> Similarity | None:
        """As `hold_out`."""
        return next(iter(self._journals.values())).similarity

    @property
    def namespaces(self) -> list[str]:
        return list(self._journals)

    async def read(self, namespace: str, work: Callable[[Journal], T]) -> T:
        """What `work` reads, in a thread; raises `StoreDown` where that takes too long or fails."""
        if time.monotonic() < self._down_until:
            raise StoreDown
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._readers, lambda: work(self._journal(namespace)))
        try:
            return await asyncio.wait_for(asyncio.shield(reading), PATIENCE)
        except (JournalError, TimeoutError) as error:
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._went_down(error)
            raise StoreDown from error

    async def write(self, namespace: str, work: Callable[[Journal], T]) -> T:
        """What `work` does, after all that waits to be written; raises `StoreDown` where the store fails."""
        await self.flush()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writer, lambda: work(self._journal(namespace)))
        except JournalError as error:
            self._went_down(error)
            raise StoreDown from error

    def put(self, episode: LiveEpisode, exchange: Exchange | None = None) -> None:
        """Write an episode soon, with what was said in it."""
        exchanges = self._waiting.setdefault(episode, [])
        if exchange is not None:
            exchanges.append(exchange)
        while len(self._waiting) > MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
            self.metrics.lost.inc()
        self.metrics.waiting.set(len(self._waiting))
        self._has_work.set()

    async def run(self) -> None:
        """Write what is put, until cancelled."""
        while True:
            await self._has_work.wait()
            await asyncio.sleep(GATHER)
            try:
                await self.flush()
            except StoreDown:
                await asyncio.sleep(1.0)

    async def flush(self) -> None:
        """Write all that waits; raises `StoreDown` where the store fails, and keeps it then."""
        batch, self._waiting = self._waiting, {}
        self._has_work.clear()
        if not batch:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._write, batch)
        except JournalError as error:
            self._went_down(error)
            for episode in batch:  # what was said is in the episodes by now
                self._waiting.setdefault(episode, [])
            self._has_work.set()
            raise StoreDown from error
        finally:
            self.metrics.waiting.set(len(self._waiting))
        self.metrics.store_up.set(1)

    async def close(self) -> None:
        """Write what still waits, if the store lets us."""
        try:
            await self.flush()
        except StoreDown:
            self.log.error("%d episodes could not be written: the store is down", len(self._waiting))
        for pool in (self._readers, self._writer):
            pool.shutdown(wait=False, cancel_futures=True)
        for journal in list(self._journals.values())[:1]:  # they share their connections
            journal.close()

    def _write(self, batch: dict[LiveEpisode, list[Exchange]]) -> None:
        by_namespace: dict[str, list[LiveEpisode]] = {}
        for episode, exchanges in batch.items():
            while exchanges:
                episode.hear(exchanges.pop(0))
            by_namespace.setdefault(episode.namespace, []).append(episode)
        for namespace, episodes in by_namespace.items():
            write_batch(self._journal(namespace), episodes)

    def _journal(self, namespace: str) -> Journal:
        """In a thread: opening a journal may wait for the database."""
        if not self._journals:
            first = self._open()
            self._journals[first.namespace] = first
        if namespace not in self._journals:
            self._journals[namespace] = next(iter(self._journals.values())).in_namespace(namespace)
        return self._journals[namespace]

    def _went_down(self, error: BaseException) -> None:
        if time.monotonic() >= self._down_until:
            cause = str(error) or f"no answer within {PATIENCE:g} s"
            self.log.error("the journal's store is down, requests are passed on without it: %s", cause)
        self._down_until = time.monotonic() + PAUSE
        self.metrics.store_failures.inc()
        self.metrics.store_up.set(0)
