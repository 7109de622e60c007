"""The proxy's own pages beside what it passes on: outcomes, classes, metrics; and how all of it is run."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mulligan.errors import MulliganError, UsageError
from mulligan.journal.journal import Journal
from mulligan.journal.report import plain
from mulligan.policy.base import Policy, ReplyFunction
from mulligan.serve.episodes import Episodes
from mulligan.serve.headers import Named
from mulligan.serve.keeper import Keeper, StoreDown
from mulligan.serve.metrics import CONTENT_TYPE, Metrics
from mulligan.serve.proxy import ClientGone, Proxy, Receive, Refused, Scope, Send, check_caller, read_body
from mulligan.serve.settings import ProxySettings

LARGEST_OUTCOME = 1_000_000
"""Bytes of an outcome with its reflection."""
_OUTCOME: dict[str, type | tuple[type, ...]] = {"reward": (int, float), "outcome": str, "reflection": (str, dict)}
_Page = Callable[[Request], Awaitable[Response]]


class ProxyApp:
    """The proxy over the journal that `open_journal` gives; `writer` writes reflections where an outcome has none."""

    log = logging.getLogger("mulligan.serve")

    def __init__(
        self,
        settings: ProxySettings,
        open_journal: Callable[[], Journal],
        writer: Policy | ReplyFunction | None = None,
    ) -> None:
        self.settings, self.writer = settings, writer
        self.metrics = Metrics()
        self.keeper = Keeper(open_journal, self.metrics)
        self.episodes = Episodes(self.keeper, settings, self.metrics)
        self.proxy = Proxy(settings, self.episodes, self.metrics)
        self._background: set[asyncio.Task[None]] = set()
        pages = [
            Route("/mulligan/episodes/{id:path}/outcome", self._page(self._outcome), methods=["POST"]),
            Route("/mulligan/classes", self._page(self._classes), methods=["GET"]),
            Route("/metrics", self._page(self._metrics), methods=["GET"]),
        ]
        self.pages = Starlette(routes=pages, lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pages of our own are Starlette's; all else goes straight to the upstream."""
        is_ours = scope["type"] != "http" or scope["path"] == "/metrics" or scope["path"].startswith("/mulligan/")
        await (self.pages(scope, receive, send) if is_ours else self.proxy(scope, receive, send))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.proxy.connected():
            working = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._sweep())]
            yield
            for task in [*working, *self._background]:
                task.cancel()
            await asyncio.gather(*working, *self._background, return_exceptions=True)
            await self.keeper.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(15.0, self.settings.outcome_timeout / 4))
            with suppress(StoreDown):
                await self.episodes.sweep()

    def _page(self, page: _Page) -> _Page:
        """A page for those who may see it, whose mistakes are one line of JSON."""

        async def checked(request: Request) -> Response:
            try:
                check_caller(request.scope["headers"], self.settings, bearer=True)
                return await page(request)
            except Refused as refused:
                return _json({"error": str(refused)}, refused.status)
            except ClientGone:
                return Response(status_code=400)
            except StoreDown:
                return _json({"error": "the journal's store is down; try again"}, 503, {"Retry-After": "1"})
            except MulliganError as error:
                return _json({"error": str(error)}, _status(str(error)))

        return checked

    async def _outcome(self, request: Request) -> Response:
        named = Named.of(request.scope["headers"], self.settings.namespace, self.settings.task_class)
        values = _outcome_in(await read_body(request.receive, LARGEST_OUTCOME))
        id = request.path_params["id"]
        await self.episodes.finish(named.namespace, id, values)
        if self.writer is not None and values.get("reflection") is None:
            task = asyncio.create_task(self._reflect(named.namespace, id))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        return _json({"episode": id, "reward": values["reward"]})

    async def _reflect(self, namespace: str, id: str) -> None:
        """Ask for the reflection after the outcome was acknowledged: that takes as long as a model does."""
        writer = self.writer
        assert writer is not None
        try:
            journal = await self.keeper.read(namespace, lambda journal: journal)
            await asyncio.to_thread(lambda: journal.attach(id).reflect(writer))
        except (MulliganError, StoreDown) as error:
            self.log.warning("no reflection on episode %s: %s", id, error)

    async def _classes(self, request: Request) -> Response:
        named = Named.of(request.scope["headers"], self.settings.namespace, self.settings.task_class)
        namespace = request.query_params.get("namespace", named.namespace)
        reports = await self.episodes.reports(namespace)
        return _json({"namespace": namespace, "classes": [plain(report) for report in reports]})

    async def _metrics(self, request: Request) -> Response:
        try:
            classes = await self.episodes.summaries()
        except StoreDown:
            classes = []  # the gauge mulligan_store_up says so
        return Response(self.metrics.text(classes), headers={"Content-Type": CONTENT_TYPE})


def _outcome_in(content: bytes) -> dict[str, Any]:
    """The arguments of `JournalEpisode.finish` that a body names."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or "reward" not in body:
        raise UsageError('an outcome is a JSON object like {"reward": 1.0, "outcome": "refunded"}')
    for name, value in body.items():
        if name not in _OUTCOME:
            raise UsageError(f"an outcome has {', '.join(_OUTCOME)} (got {name!r:.80})")
        if value is not None and (not isinstance(value, _OUTCOME[name]) or isinstance(value, bool)):
            raise UsageError(f"{name} of an outcome is of another kind (got {value!r:.80})")
    if isinstance(body.get("reflection"), dict) and not all(isinstance(v, str) for v in body["reflection"].values()):
        raise UsageError("the parts of a reflection are strings")
    return {name: value for name, value in body.items() if value is not None}


def _status(words: str) -> int:
    if "has no episode" in words:
        return 404
    return 409 if "finished already" in words else 400


def _json(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers=headers, media_type="application/json")
