"""The proxy: an agent changes its base URL, and its requests go to the same model with what earlier attempts taught.

Everything passes as it came, byte for byte and as it comes: streams, tool calls, reasoning, unknown fields and paths,
refusals of the upstream. Only the notes are added to a request, where there are some. Nothing that the journal does or
fails to do turns a request away.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from mulligan.errors import ParameterError
from mulligan.serve.dialects import Dialect, dialect_of, error_body, parsed, said, task_in, with_context
from mulligan.serve.episodes import Episodes
from mulligan.serve.headers import Headers, Named, header, passed_back, passed_on
from mulligan.serve.keeper import StoreDown
from mulligan.serve.live import Exchange, LiveEpisode
from mulligan.serve.metrics import Metrics
from mulligan.serve.replies import LONGEST_REPLY
from mulligan.serve.settings import LARGEST_BODY, ProxySettings, is_loopback
from mulligan.serve.tracing import span

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
_CONNECT = 10.0
"""Seconds to reach the upstream."""
_SLOWEST_BODY = 60.0
"""Seconds between two pieces of a request."""
_IN_THREAD = 200_000
"""Bytes of a request from which on reading it would hold up the others: it is read in a thread."""


class Refused(Exception):
    """A request that the proxy answers itself, with a status and a line that says why."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Proxy:
    """The ASGI application for everything that goes to the upstream."""

    log = logging.getLogger("mulligan.serve")

    def __init__(self, settings: ProxySettings, episodes: Episodes, metrics: Metrics) -> None:
        self.settings, self.episodes, self.metrics = settings, episodes, metrics
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Inside, the upstream can be asked."""
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT, sock_read=self.settings.upstream_timeout)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as self._session:
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope["method"], scope["path"])
        try:
            check_caller(scope["headers"], self.settings)
            content = await read_body(receive)
        except Refused as refused:
            await answer(send, refused.status, error_body(dialect, refused.kind, str(refused)))
            return
        except ClientGone:
            return
        passing = asyncio.ensure_future(self._pass(scope, content, dialect, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not passing.done():
            self.metrics.disconnects.inc()
            passing.cancel()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await passing

    async def _pass(self, scope: Scope, content: bytes, dialect: Dialect | None, send: Send) -> None:
        began = time.perf_counter()
        try:
            content, headers, episode, exchange, words = await self._prepared(scope, content, dialect)
        except ParameterError as error:
            await answer(send, 400, error_body(dialect, "invalid_request_error", str(error)))
            return
        ours: Headers = [(b"mulligan-journal", words.encode())]
        if episode is not None:
            ours.append((b"mulligan-episode", episode.id.encode("utf-8")))
            self.episodes.enter(episode)
        self.metrics.before.observe(time.perf_counter() - began)
        failed = "the client hung up"
        try:
            with span("mulligan.request", dialect=dialect or "", journal=words, episode=episode.id if episode else ""):
                failed = await self._forward(scope, content, headers, dialect, exchange, ours, send)
        finally:
            if episode is not None:
                if exchange is not None:
                    exchange.fault = failed
                    self.episodes.keeper.put(episode, exchange)
                self.episodes.leave(episode, failed)

    async def _prepared(
        self, scope: Scope, content: bytes, dialect: Dialect | None
    ) -> tuple[bytes, list[tuple[str, str]], LiveEpisode | None, Exchange | None, str]:
        """The request as it goes to the upstream; its episode; what to say of the journal."""
        headers: Headers = scope["headers"]
        named = Named.of(headers, self.settings.namespace, self.settings.task_class)
        passed = passed_on(headers)
        if dialect is None:
            return content, passed, None, None, "off; this path is passed on as it is"
        plain = _unpacked(content, header(headers, b"content-encoding"))
        body = await _maybe_in_thread(len(plain), lambda: parsed(plain, dialect)) if plain is not None else None
        if body is None:
            self.metrics.unrecorded.labels("body").inc()
            return content, passed, None, None, "off; the body is not of a form that is known"
        try:
            episode = await self.episodes.of(named, task_in(body, dialect))
        except StoreDown:
            self.metrics.unrecorded.labels("store").inc()
            return content, passed, None, None, "off; the store is down"
        if episode.row["state"] == "finished":
            return content, passed, None, None, "off; the episode is finished"
        exchange = Exchange(dialect, said(body, dialect), 0, "", "")
        if not episode.row["journal_on"]:
            return content, passed, episode, exchange, "off; hold-out"
        if not episode.context:
            return content, passed, episode, exchange, "on; no notes"
        if body.get("previous_response_id") or body.get("conversation"):  # which have the notes from their beginning
            return content, passed, episode, exchange, "on; notes were given where the conversation began"
        changed = with_context(body, dialect, episode.context, self.settings.context_role)
        content = await _maybe_in_thread(len(content), lambda: json.dumps(changed, separators=(",", ":")).encode())
        passed = [(name, value) for name, value in passed if name != "content-encoding"]
        return content, passed, episode, exchange, f"on; notes={len(episode.note_ids)}"

    async def _forward(
        self,
        scope: Scope,
        content: bytes,
        headers: list[tuple[str, str]],
        dialect: Dialect | None,
        exchange: Exchange | None,
        ours: Headers,
        send: Send,
    ) -> str:
        """Pass the request on, and the answer back; returns why it has no end, empty if it has one."""
        assert self._session is not None, "inside `connected`"
        began, started = time.perf_counter(), False
        try:
            async with self._session.request(
                scope["method"], self._url(scope), data=content or None, headers=headers, allow_redirects=False
            ) as response:
                self.metrics.upstream.observe(time.perf_counter() - began)
                self.metrics.requests.labels(dialect or "other", str(response.status)).inc()
                raw = [(name.lower(), value) for name, value in response.raw_headers]
                if exchange is not None:
                    exchange.status, exchange.kind = response.status, header(raw, b"content-type")
                    exchange.encoding = header(raw, b"content-encoding").lower()
                start = {"type": "http.response.start", "status": response.status}
                await send({**start, "headers": passed_back(raw) + ours})
                started = True
                async for piece in response.content.iter_any():
                    if exchange is not None and len(exchange.content) < LONGEST_REPLY:
                        exchange.content += piece
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
                return f"the upstream answered {response.status}" if response.status >= 400 else ""
        except (aiohttp.ClientError, TimeoutError) as error:
            kind, status = ("timeout", 504) if isinstance(error, TimeoutError) else ("unreachable", 502)
            if started:  # the answer's beginning has gone out: without its end, the client's connection is closed too
                kind = "cut"
            self.metrics.upstream_failures.labels(kind).inc()
            reason = f"the upstream {self.settings.origin} {_REASONS[kind]} ({type(error).__name__})"
            self.log.warning("%s", reason)
            if not started:
                self.metrics.requests.labels(dialect or "other", str(status)).inc()
                await answer(send, status, error_body(dialect, f"upstream_{kind}", reason), ours)
            return reason

    def _url(self, scope: Scope) -> URL:
        """Where a request goes: the upstream's address stands where /v1 does; other paths are those of its host."""
        path = scope["raw_path"].decode("latin-1")
        base = (
            self.settings.base + path[3:] if path == "/v1" or path.startswith("/v1/") else self.settings.origin + path
        )
        query = scope["query_string"].decode("latin-1")
        return URL(f"{base}?{query}" if query else base, encoded=True)


_REASONS = {"timeout": "did not answer in time", "unreachable": "cannot be reached", "cut": "ended in mid-answer"}


class ClientGone(Exception):
    """The client hung up before its request was complete."""


def check_caller(headers: Headers, settings: ProxySettings, *, bearer: bool = False) -> None:
    """Raise `Refused` where a request may not be answered.

    bearer  whether ``Authorization: Bearer TOKEN`` will do: not where that header is the upstream's
    """
    origin, host = header(headers, b"origin"), header(headers, b"host")
    if origin and urlsplit(origin).netloc != host:
        raise Refused(403, "forbidden", "requests of web pages are not answered")
    if not settings.token:
        if not is_loopback(host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host):
            raise Refused(403, "forbidden", f"this proxy is called by the address of this machine (got {host!r:.80})")
        return
    given = header(headers, b"mulligan-token")
    if not given and bearer:
        given = header(headers, b"authorization").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode("latin-1"), settings.token.encode("latin-1")):
        raise Refused(401, "unauthorized", "the header Mulligan-Token must hold the proxy's token")


async def read_body(receive: Receive, largest: int = LARGEST_BODY) -> bytes:
    """The body of a request; raises `Refused` where it is too long or too slow."""
    pieces, length = [], 0
    while True:
        try:
            message = await asyncio.wait_for(receive(), _SLOWEST_BODY)
        except TimeoutError:
            raise Refused(408, "timeout", f"no byte of the request came for {_SLOWEST_BODY:g} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        length += len(pieces[-1])
        if length > largest:
            raise Refused(413, "request_too_large", f"a request may have {largest:,} bytes")
        if not message.get("more_body"):
            return b"".join(pieces)


async def answer(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """An answer of the proxy's own."""
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": kind + (headers or [])})
    await send({"type": "http.response.body", "body": body})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _unpacked(content: bytes, encoding: str) -> bytes | None:
    """A request's body without its compression; None where that cannot be undone within the limit."""
    if encoding.lower() in ("", "identity"):
        return content
    if encoding.lower() not in ("gzip", "deflate"):
        return None
    reader = zlib.decompressobj(wbits=47 if encoding.lower() == "gzip" else 15)
    try:
        plain = reader.decompress(content, LARGEST_BODY)
    except zlib.error:
        return None
    return None if reader.unconsumed_tail or not reader.eof else plain


async def _maybe_in_thread(length: int, work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work) if length > _IN_THREAD else work()
