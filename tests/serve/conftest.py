"""A proxy on a port of its own, before an upstream that a test makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mulligan.journal.journal import Journal
from mulligan.journal.records import EpisodeRecord
from mulligan.serve.app import ProxyApp
from mulligan.serve.listen import address_of, bound, server_of
from mulligan.serve.settings import ProxySettings
from serve.upstream import Upstream


@dataclass
class Running:
    """A proxy in a thread of this process, as `mulligan serve` runs it."""

    upstream: Upstream
    database: Path
    settings: dict[str, Any] = field(default_factory=dict)
    journal_options: dict[str, Any] = field(default_factory=dict)
    writer: Any = None
    open_journal: Callable[[], Journal] | None = None

    def __enter__(self) -> Running:
        settings = ProxySettings(**{"upstream": self.upstream.base_url, "port": 0, **self.settings})
        self.app = ProxyApp(settings, self.open_journal or self.journal, self.writer)
        listener = bound(settings.host, 0)
        self.address = address_of(listener)
        self.server = server_of(self.app)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        self.client = httpx.Client(base_url=self.address, timeout=20)
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join()

    def journal(self, namespace: str = "default") -> Journal:
        return Journal(self.database, namespace, **{"hold_out": 0.0, **self.journal_options})

    def ask(self, body: dict[str, Any] | None = None, path: str = "/v1/chat/completions", **headers: str) -> Any:
        """A request, with ``episode="e"`` as the header Mulligan-Episode."""
        named = {f"Mulligan-{name.title()}": value for name, value in headers.items()}
        body = body or {"model": "m", "messages": [{"role": "user", "content": "refund 18"}]}
        return self.client.post(path, json=body, headers=named)

    def finish(self, id: str, reward: float = 1.0, **more: Any) -> httpx.Response:
        return self.client.post(f"/mulligan/episodes/{id}/outcome", json={"reward": reward, **more})

    def records(self, wanted: Callable[[list[EpisodeRecord]], bool] = bool) -> list[EpisodeRecord]:
        """What is stored, once it is as `wanted`: the proxy writes behind."""
        with self.journal() as journal:
            for _ in range(3000):
                records = list(journal.episodes())
                if wanted(records):
                    return records
                time.sleep(0.02)
        raise AssertionError(f"after a minute there are {records}")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture
def proxy(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Starts proxies before one upstream, on one database; with patience, because machines are slow at times."""
    monkeypatch.setattr("mulligan.serve.keeper.PATIENCE", 30.0)
    running: list[Running] = []

    def start(**options: Any) -> Running:
        running.append(Running(upstream, tmp_path / "agent.db", **options).__enter__())
        return running[-1]

    yield start
    for each in running:
        each.__exit__()
