"""The episodes of a proxy: how a request begins one or goes on with it, and how they end."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from mulligan.journal.episode import LONGEST_TEXT
from mulligan.journal.evidence import arm
from mulligan.journal.journal import Journal
from mulligan.journal.note_store import new_id, notes_from
from mulligan.journal.process import machine, process
from mulligan.journal.report import ClassReport, ClassSummary, class_summaries
from mulligan.journal.schema import EPISODES
from mulligan.journal.snapshot import ClassSnapshot
from mulligan.journal.store import Row
from mulligan.policy.base import estimate_tokens
from mulligan.serve.headers import Named
from mulligan.serve.keeper import Keeper
from mulligan.serve.live import LiveEpisode, new_row, reopened, threads_of
from mulligan.serve.metrics import MOST_CLASSES, Metrics
from mulligan.serve.settings import ProxySettings

FRESH = 1.0
"""Seconds for which notes are shown without asking the store whether they changed."""
MOST_SNAPSHOTS = 1_000
MOST_LIVE = 10_000
"""Named episodes that are kept in memory; one that comes again later is read from the store."""


class Seen(NamedTuple):
    """What the store has of an episode before its first request here."""

    snapshot: ClassSnapshot
    row: Row | None
    from_same_person: set[str]


class Episodes:
    """The episodes that requests of one proxy belong to."""

    def __init__(self, keeper: Keeper, settings: ProxySettings, metrics: Metrics) -> None:
        self.keeper, self.settings, self.metrics = keeper, settings, metrics
        self._live: OrderedDict[tuple[str, str], LiveEpisode] = OrderedDict()
        self._beginning: dict[tuple[str, str], asyncio.Task[LiveEpisode]] = {}
        self._snapshots: OrderedDict[tuple[str, str], tuple[ClassSnapshot, float]] = OrderedDict()

    async def of(self, named: Named, task: str) -> LiveEpisode:
        """The episode that a request belongs to; raises `StoreDown`."""
        if not named.episode:
            return await self._begin(named, task)
        key = named.namespace, named.episode
        if key not in self._live:
            beginning = self._beginning.get(key)
            if beginning is None:  # requests of one episode that come together begin it once
                beginning = self._beginning[key] = asyncio.create_task(self._begin(named, task))
                beginning.add_done_callback(lambda done: self._beginning.pop(key, None))
            self._live[key] = await asyncio.shield(beginning)
            self._forget_oldest()
        episode = self._live[key]
        self._live.move_to_end(key)
        if episode.row["state"] == "abandoned":  # it was given up too early
            episode.row = reopened(episode.row)
        return episode

    def enter(self, episode: LiveEpisode) -> None:
        episode.under_way += 1
        episode.last_heard = time.time()

    def leave(self, episode: LiveEpisode, failed: str) -> None:
        """A request of an episode has ended; `failed` says why without an answer. One without a name ends with it."""
        episode.under_way -= 1
        episode.last_heard = time.time()
        if failed and not episode.named:
            self.abandon(episode, failed)

    def abandon(self, episode: LiveEpisode, remark: str) -> None:
        episode.abandon(remark)
        self.metrics.episodes.labels("abandoned").inc()
        self.keeper.put(episode)

    async def finish(self, namespace: str, id: str, values: Mapping[str, Any]) -> None:
        """Store an outcome; raises what `JournalEpisode.finish` raises, and `StoreDown`. The next request knows it."""

        def work(journal: Journal) -> str:
            attached = journal.attach(id)
            attached.finish(**values)
            return attached.task_class

        self._snapshots.pop((namespace, await self.keeper.write(namespace, work)), None)
        self.metrics.episodes.labels("finished").inc()
        if (episode := self._live.get((namespace, id))) is not None:
            episode.row["state"] = "finished"

    async def reports(self, namespace: str) -> list[ClassReport]:
        await self.keeper.flush()
        return await self.keeper.read(namespace, lambda journal: journal.classes())

    async def summaries(self) -> list[tuple[str, ClassSummary]]:
        """Of every namespace that this proxy has met."""

        def work(journal: Journal) -> list[ClassSummary]:
            with journal.reading() as scope:
                return class_summaries(scope, journal.reward_range, MOST_CLASSES)

        of_namespaces = [(namespace, await self.keeper.read(namespace, work)) for namespace in self.keeper.namespaces]
        return [(namespace, summary) for namespace, summaries in of_namespaces for summary in summaries]

    async def sweep(self) -> None:
        """Give up episodes whose outcome has not come in time; raises `StoreDown`."""
        latest = time.time() - self.settings.outcome_timeout
        for key, episode in list(self._live.items()):
            if not episode.under_way and episode.last_heard < latest:
                if episode.row["state"] == "open":
                    self.abandon(episode, self._too_late)
                del self._live[key]
        for namespace in self.keeper.namespaces:
            live = {id for of, id in self._live if of == namespace}
            count = await self.keeper.write(namespace, partial(self._abandon, latest=latest, live=live))
            self.metrics.episodes.labels("abandoned").inc(count)

    @property
    def _too_late(self) -> str:
        return f"no outcome came within {self.settings.outcome_timeout:g} s"

    def _abandon(self, journal: Journal, latest: float, live: set[str]) -> int:
        """Those that are in the store alone."""
        mine = EPISODES.c.machine == machine(), EPISODES.c.process == process(), EPISODES.c.started < latest
        with journal.writing() as scope:
            rows = scope.rows(EPISODES, EPISODES.c.state == "open", *mine, columns=(EPISODES.c.id,))
            ids = sorted({row["id"] for row in rows} - live)
            values = {"state": "abandoned", "ended": time.time(), "remark": self._too_late}
            for id in ids:
                scope.update(EPISODES, values, EPISODES.c.id == id, EPISODES.c.state == "open")
        return len(ids)

    async def _begin(self, named: Named, task: str) -> LiveEpisode:
        seen = await self._seen(named)
        if seen.row is not None:
            return await self._gone_on_with(named, seen)
        id = named.episode or new_id()
        on, chance = arm(seen.snapshot.journal_on, named.namespace, named.task_class, id, self.keeper.hold_out)
        row = new_row(
            id,
            named.task_class,
            task=named.task or task[:LONGEST_TEXT],
            agent=named.agent,
            person=named.person,
            untrusted=named.untrusted,
            journal_on=on,
            chance=chance,
        )
        episode = await self._with_notes(LiveEpisode(named.namespace, row, bool(named.episode)), seen)
        self.metrics.episodes.labels("begun").inc()
        self.keeper.put(episode)
        return episode

    async def _gone_on_with(self, named: Named, seen: Seen) -> LiveEpisode:
        """An episode that began elsewhere, or before this proxy was started again."""
        assert seen.row is not None
        if seen.row["state"] == "finished":
            return LiveEpisode(named.namespace, seen.row, named=True, stored=True)
        threads = threads_of(seen.row["transcript"])
        episode = LiveEpisode(named.namespace, reopened(seen.row), named=True, stored=True, threads=threads)
        return await self._with_notes(episode, seen)

    async def _with_notes(self, episode: LiveEpisode, seen: Seen) -> LiveEpisode:
        if episode.row["journal_on"]:
            similarity = self.keeper.similarity
            select = partial(
                seen.snapshot.selection,
                task=episode.row["task"],
                episode_id=episode.id,
                untrusted=episode.row["untrusted"],
                from_same_person=seen.from_same_person,
                similarity=similarity,
                max_tokens=self.settings.context_tokens,
                count=estimate_tokens,
            )
            selection = select() if similarity is None else await asyncio.to_thread(select)
            episode.context, episode.note_ids = selection.text, tuple(note.id for note in selection.notes)
        return episode

    async def _seen(self, named: Named) -> Seen:
        if not named.episode and not named.person:
            return Seen(await self._snapshot(named.namespace, named.task_class), None, set())

        def look(journal: Journal) -> Seen:
            with journal.reading() as scope:
                row = scope.row(EPISODES, EPISODES.c.id == named.episode) if named.episode else None
                task_class = row["task_class"] if row else named.task_class
                person = row["person"] if row else named.person
                return Seen(journal.snapshot(scope, task_class), row, notes_from(scope, person))

        return await self.keeper.read(named.namespace, look)

    async def _snapshot(self, namespace: str, task_class: str) -> ClassSnapshot:
        key = namespace, task_class
        kept = self._snapshots.get(key)
        if kept is not None and time.monotonic() - kept[1] < FRESH:
            return kept[0]

        def look(journal: Journal) -> ClassSnapshot:
            with journal.reading() as scope:
                return journal.snapshot(scope, task_class)

        snapshot = await self.keeper.read(namespace, look)
        self._snapshots[key] = snapshot, time.monotonic()
        self._snapshots.move_to_end(key)
        while len(self._snapshots) > MOST_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return snapshot

    def _forget_oldest(self) -> None:
        for key in list(self._live)[: max(0, len(self._live) - MOST_LIVE)]:
            if not self._live[key].under_way:
                del self._live[key]
