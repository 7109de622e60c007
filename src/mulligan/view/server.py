"""The pages over HTTP, for this machine alone unless a token is set.

Refused are requests under another host name (a foreign page whose name was pointed here), from another origin, with
another method than GET, HEAD and POST, and, where a token is set, without it. GET changes nothing. A POST, which begins
a game or plays a move, must say that it comes from this page, and holds JSON.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mulligan.errors import MulliganError, RunFolderError, UsageError
from mulligan.report.run import finite
from mulligan.view.library import Answering

PAGES = Path(__file__).with_name("pages")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_COOKIE = "mulligan_view"
_LARGEST_BODY = 65_536
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def application(library: Answering, hosts: tuple[str, ...] = LOOPBACK, token: str = "", home: str = "") -> ASGIApp:
    """The pages of `library` under these host names; any name where there is a token. `home` is the page it begins at,
    where that is not the list of runs."""

    async def static(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        path = PAGES / name
        if path.parent != PAGES or path.suffix not in TYPES or not path.is_file():
            return PlainTextResponse("There is no such page.", 404)
        content = path.read_bytes()
        if home and name == "index.html":
            content = content.replace(b'<html lang="en">', f'<html lang="en" data-home="{escape(home)}">'.encode())
        return Response(content, media_type=f"{TYPES[path.suffix]}; charset=utf-8")

    async def data(request: Request) -> Response:
        try:
            question = request.path_params["question"]
            answer = await run_in_threadpool(library.answer, question, dict(request.query_params))
        except MulliganError as error:
            status = 500 if isinstance(error, RunFolderError) else 404
            return JSONResponse({"error": str(error)}, status)
        return Response(json.dumps(finite(answer), separators=(",", ":")), media_type="application/json")

    async def change(request: Request) -> Response:
        content = await _body(request)
        if content is None:
            return JSONResponse({"error": f"a request may have {_LARGEST_BODY:,} bytes"}, 413)
        try:
            given = json.loads(content)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            return JSONResponse({"error": "a request must be a JSON object of texts"}, 400)
        try:
            answer = await run_in_threadpool(library.change, request.path_params["change"], given)
        except MulliganError as error:
            return JSONResponse({"error": str(error)}, 500 if isinstance(error, RunFolderError) else 400)
        return Response(json.dumps(finite(answer), separators=(",", ":")), media_type="application/json")

    routes = [
        Route("/api/{question}", data),
        Route("/do/{change}", change, methods=["POST"]),
        Route("/", static),
        Route("/{name}", static),
    ]
    return _Guard(Starlette(routes=routes), hosts, token)


async def _body(request: Request) -> bytes | None:
    """What was sent; None where it is too much."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST_BODY:
            return None
    return content


class _Guard:
    """Lets through what is meant for this server, and puts the same headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], token: str) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal = self._refusal(request)
        await (refusal or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not self.token and host_name(host) not in self.hosts:
            return PlainTextResponse(f"This page is for {' and '.join(self.hosts)} only.", 403)
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return PlainTextResponse("Requests must come from this page.", 403)
        is_foreign = request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        is_change = request.method == "POST" and request.url.path.startswith("/do/")
        if is_foreign and (is_change or request.url.path.startswith("/api/")):  # a link to a page may stand anywhere
            return PlainTextResponse("Requests must come from this page.", 403)
        if is_change and (origin is None or request.headers.get("content-type") != "application/json"):
            return PlainTextResponse("A change must come from this page.", 403)
        if request.method not in ("GET", "HEAD") and not is_change:
            return PlainTextResponse("There is nothing to change here.", 405)
        return self._without_token(request) if self.token else None

    def _without_token(self, request: Request) -> Response | None:
        """A refusal where the token is missing; where the address holds it, a cookie, and the address without it."""
        if self._is_token(request.query_params.get("token", "")):
            rest = urlencode([pair for pair in parse_qsl(request.url.query) if pair[0] != "token"])
            answer = RedirectResponse("/" + request.url.path.lstrip("/") + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(_COOKIE, self.token, httponly=True, samesite="strict")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(bearer) or self._is_token(request.cookies.get(_COOKIE, "")):
            return None
        return PlainTextResponse("Open this page with ?token=…: the value of the variable that --token-env names.", 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def host_name(host: str) -> str:
    """A Host header without its port: ``[::1]:80`` is ``::1``."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _with_headers(send: Send) -> Callable[[Any], Awaitable[None]]:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message["headers"]}
            ours = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            message["headers"] = [*message["headers"], *(pair for pair in ours if pair[0] not in names)]
        await send(message)

    return sending


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; `port` 0 takes any that is free. Whoever calls before it is served, waits."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, OverflowError) as failure:
        bound.close()
        raise UsageError(f"port {port} of {host}: {failure}; give another --port") from None
    return bound


def serve(app: ASGIApp, bound: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, date_header=False, limit_concurrency=200,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[bound])
