"""Any model behind an OpenAI-compatible ``/v1/chat/completions``: hosted, vLLM, SGLang, llama.cpp, Ollama.

What may pass by itself (429, 5xx, a timeout, a cut-off or unreadable answer) is tried again, with growing pauses. What
will not (a refused key, an unknown model) fails at once. A conversation that no longer fits is `ContextFull`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import os
import random
import re
import shlex
import sys
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from mulligan.errors import ContextFull, ParameterError, RequestFailed
from mulligan.policy.base import Conversation, estimate_tokens
from mulligan.seeding import derive, generator
from mulligan.text import storable
from mulligan.types import Completion, Message, Sampling, Task, Tool, ToolCall

if TYPE_CHECKING:
    import ssl

    import httpx

_KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"
"""Read where no address is given, as by the clients of OpenAI."""
LONGEST_WAIT = 60.0
"""Seconds; no pause between two tries is longer, whatever the server asks for."""
CONNECT_TIMEOUT = 10.0
LARGEST_ANSWER = 4 * 2**20
"""Bytes of an answer, unpacked; reading stops there."""
LONGEST_REPLY = 200_000
"""Characters; the rest is cut off, since conversations keep all replies. No game reads one that is half as long."""
_LONGEST_REFUSAL = 2_000
"""Characters; the rest is cut off."""
_MOST_CALLS, _LONGEST_CALL = 8, (200, 200, 20_000)
"""Tool calls of a reply, and characters of a call's id, name and arguments; the rest is cut off."""
_MOST_TOKENS = 2**40
"""A server that counts more has not counted."""
_TEMPORARY = {408, 409, 429}
"""Statuses below 500 that may pass by themselves."""
_FIXED_FIELDS = ("model", "messages", "n", "stream")
"""What `extra_body` cannot change, because the answer could then not be read."""
_COMPLETIONS = "/chat/completions"
_NOT_DONE, _OVER = "Not done: call one tool at a time.", "See the next message."
"""What the second call of a reply is answered with, and the call that ended an episode."""
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|(maximum|available|model's) context (length|size|window)"
    r"|prompt is too long|inputs?`? tokens \+|exceeds? (the )?context limit|maximum prompt length"
    r"|input token count .{0,20}exceeds the maximum",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp, TGI, Anthropic, xAI and Gemini say that a request does not fit the context."""
_FREE_FIELDS = ("max_tokens", "top_p", "temperature", "seed", "tools", "tool_choice")
"""Fields of a request that can be left out, the first of two named together first."""
_INSTEAD = re.compile(r"[Uu]se [`'\"]?(\w{1,40})[`'\"]? instead")
_UNSUPPORTED = re.compile(
    r"not support|unsupported|unrecognized|unknown|unexpected|not (permitted|allowed|available)|extra (inputs|fields)"
    r"|only the default|cannot both|deprecated|--enable-auto-tool-choice|cannot find field",
    re.IGNORECASE,
)
"""How servers say that they do not want a parameter, or not with this value."""
_MISSING = re.compile(r"[Mm]issing required parameter:? [`'\"]?(\w{1,40})|(\w{1,40}): [Ff]ield required")
_LONGEST_MESSAGE = 300
_SHORTEST_SECRET = 6
"""Placeholders like EMPTY, which local servers are given for a key, are not worth hiding."""


class EndpointPolicy:
    """A model served over HTTP.

    concurrency requests at a time; None: one for each trial that is played.
    timeout     seconds for one whole answer.
    retries     further tries after the first; the pause before each doubles, starting at about `backoff` seconds.
    extra_body  further fields of every request; None for a field leaves it out:
                ``{"max_tokens": None, "max_completion_tokens": 2048}``.
    sleep       what waits between tries; tests put their own here.

    Without `base_url`, the address is what OPENAI_BASE_URL holds. The key is `api_key`, or what the variable
    `api_key_env` holds; without one, none is sent. Connections are shared by all conversations of an event loop, and
    closed by `aclose` or at that loop's end.

    >>> policy = mulligan.EndpointPolicy("my-model", "http://127.0.0.1:8000/v1", concurrency=4)
    >>> policy.name
    'endpoint:my-model'
    """

    pays = True
    """Its replies cost something, and depend on the messages alone: a resumed evaluation does not repeat them."""

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        api_key_env: str = _KEY_VARIABLE,
        concurrency: int | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
        extra_body: Mapping[str, Any] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        for label, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0), ("backoff", backoff, 0)):
            if value is not None and not value >= least:
                raise ParameterError(f"endpoint: {label} must be >= {least} (got {value})")
        if not timeout > 0:
            raise ParameterError(f"endpoint: timeout must be > 0 seconds (got {timeout})")
        for field in _FIXED_FIELDS:
            if field in (extra_body or {}):
                raise ParameterError(f"endpoint: extra_body must not set {field!r}")
        self.name = f"endpoint:{model}"
        base_url = base_url or os.environ.get(URL_VARIABLE, "")
        self.model, self.url, self.api_key_env = model, completions_url(base_url), api_key_env
        self.concurrency, self.timeout, self.retries, self.backoff = concurrency, timeout, retries, backoff
        self.extra_body = dict(extra_body or {})
        if api_key is None and api_key_env != _KEY_VARIABLE and api_key_env not in os.environ:
            # Others may be keys. So may words like AKIAIOSFODNN7EXAMPLE, but names mostly have an underscore.
            got = f" (got {api_key_env})" if re.fullmatch("[A-Z0-9]+(_[A-Z0-9]+)+", api_key_env) else ""
            raise ParameterError(f"endpoint: api_key_env must name an environment variable that is set{got}")
        self._key = _checked_key(os.environ.get(api_key_env, "") if api_key is None else api_key, api_key_env)
        self._sleep = sleep
        self._connections: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._counts, self._faults = Counter[str](), Counter[str]()

    def __repr__(self) -> str:
        return f"EndpointPolicy({self.model!r}, {self.url!r})"

    @property
    def is_nearby(self) -> bool:
        """Whether the server is on this machine or in its network, where nobody sends a bill."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_private
        except ValueError:
            return "." not in host or host.endswith(".local")

    @property
    def stats(self) -> dict[str, Any]:
        """What it took so far.

        requests  sent, every try counted; each ended as an answer, as a fault, or cancelled
        answers   read
        retries   tries after a first
        failed    replies given up for good
        faults    kind -> requests it befell: a status, "timeout", "connection", "cut off", "garbled", "too large",
                  "context full"
        """
        counts = {name: self._counts[name] for name in ("requests", "answers", "retries", "failed")}
        return {**counts, "faults": dict(sorted(self._faults.items()))}

    def start(self, task: Task, seed: int) -> Conversation:
        return _EndpointConversation(self, seed)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.closer.aclose()

    @property
    def calls_tools(self) -> bool:
        """Whether tools are sent, where an environment offers some: not with the extra field ``"tools": None``."""
        return self.extra_body.get("tools", ()) is not None

    def body(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        seed: int,
        tools: Sequence[Tool] = (),
        *,
        may_call: bool = True,
    ) -> dict[str, Any]:
        """The request as it is sent; `may_call`: whether one of the tools may be called now."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": sent_messages(messages),
            "tools": [tool.schema() for tool in tools] or None,
            "tool_choice": "none" if tools and not may_call else None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed,
            "n": 1,
            "stream": False,
            **self.extra_body,
        }
        return {name: value for name, value in fields.items() if value is not None}

    async def complete(self, body: Mapping[str, Any], jitter: random.Random) -> Completion:
        """The answer to one request, after as many tries as it takes and `retries` allows."""
        for attempt in range(self.retries + 1):
            try:
                completion = await self._try(body)
            except _TemporaryFault as fault:
                self._faults[fault.kind] += 1
                seconds, last_message = self._pause(fault, attempt, jitter), str(fault)
                if fault.kind == "connection" and attempt and not self._counts["answers"]:
                    break  # nobody has ever listened there
            else:
                self._counts["answers"] += 1
                return completion
            if attempt < self.retries:
                self._counts["retries"] += 1
                await self._sleep(seconds)
        self._counts["failed"] += 1
        tries = f"{attempt + 1} tries" if attempt else "1 try"
        raise RequestFailed(
            f"no answer from {self.url} after {tries}; the last failure: {self._one_line(last_message)}"
        )

    def _pause(self, fault: _TemporaryFault, attempt: int, jitter: random.Random) -> float:
        """Seconds before the next try: as the server asks, or doubling; jitter spreads those that failed together."""
        if fault.retry_after is not None:
            return min(fault.retry_after + self.backoff * jitter.random(), LONGEST_WAIT)
        return min(self.backoff * 2.0 ** min(attempt, 30), LONGEST_WAIT) * (0.5 + 0.5 * jitter.random())

    async def _try(self, body: Mapping[str, Any]) -> Completion:
        """One request; raises `_TemporaryFault` where another may do better."""
        import httpx

        connections = await self._connected()
        async with connections.slots:
            self._counts["requests"] += 1
            try:
                async with asyncio.timeout(self.timeout):
                    response, content = await self._exchange(connections, json.dumps(body).encode())
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise _TemporaryFault("connection", f"could not connect: {error or type(error).__name__}") from None
            except (TimeoutError, httpx.TimeoutException):
                raise _TemporaryFault("timeout", f"no whole answer within {self.timeout:g} s") from None
            except httpx.RequestError as error:
                raise _TemporaryFault("cut off", f"the answer broke off: {error or type(error).__name__}") from None
        if response.status_code != 200:
            raise self._refusal(response, content, body)
        return self._stored(read_answer(content, body["messages"]))

    def _stored(self, reply: Completion) -> Completion:
        """The reply without the key, and cut where it is too long."""
        text, reasoning, refusal = map(self._without_key, (reply.text, reply.reasoning, reply.refusal))
        calls = [
            ToolCall(
                *(self._without_key(field)[:most] for field, most in zip(astuple(call), _LONGEST_CALL, strict=True))
            )
            for call in reply.tool_calls[:_MOST_CALLS]
        ]
        return replace(
            reply,
            text=text[:LONGEST_REPLY],
            finish=reply.finish if len(text) <= LONGEST_REPLY else "length",
            reasoning=reasoning[: max(0, LONGEST_REPLY - len(text))],
            refusal=refusal[:_LONGEST_REFUSAL],
            tool_calls=tuple(calls),
        )

    async def _exchange(self, connections: _Connections, request: bytes) -> tuple[httpx.Response, bytes]:
        """The response to one request, and its body."""
        client = connections.idle.pop() if connections.idle else self._client(connections)
        try:
            async with client.stream("POST", self.url, content=request) as response:
                return response, await read_body(response)
        finally:
            connections.idle.append(client)

    def _refusal(self, response: httpx.Response, content: bytes, body: Mapping[str, Any]) -> Exception:
        """What a status other than 200 means: try again, no room, or give up."""
        status = response.status_code
        message, names = server_message(content)
        message = message or response.reason_phrase or "no message"
        if status not in (401, 403, 429) and _TOO_LONG.search(f"{message} {names}"):
            self._faults["context full"] += 1
            return ContextFull(f"{self.model}: {self._one_line(message)}")
        no_money = "insufficient_quota" in names  # OpenAI's 429 for an empty account
        if (status in _TEMPORARY or status >= 500) and not no_money:
            return _TemporaryFault(str(status), f"{status}: {message}", retry_after(response.headers))
        self._faults[str(status)] += 1
        self._counts["failed"] += 1
        hint = ""
        if status in (401, 403):
            problem = "no key was sent: set" if self._key is None else "the key was refused: check"
            hint = f"; {problem} the environment variable {self.api_key_env}"
        elif status == 404:
            hint = f"; check the address, which usually ends in /v1, and that the server has a model {self.model!r}"
        elif status in (400, 422):
            hint = parameter_hint(f"{message} {names}", body, self.extra_body)
        return RequestFailed(f"{self.url} answered {status}: {self._one_line(message)}{hint}")

    def _one_line(self, text: str) -> str:
        """`text` as one line of limited length, without the key."""
        text = " ".join(self._without_key(storable(text)).split())
        return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"

    def _without_key(self, text: str) -> str:
        """`text` without the key, which some servers repeat: it would be stored, and shown to whoever reads the run."""
        return text.replace(self._key, "***") if self._key and len(self._key) >= _SHORTEST_SECRET else text

    async def _connected(self) -> _Connections:
        """The running event loop's connections: neither they nor a semaphore outlive the loop they were made in."""
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections = {loop: kept for loop, kept in self._connections.items() if not loop.is_closed()}
            slots = asyncio.Semaphore(self.concurrency or sys.maxsize)
            closer = _until_closed([])
            self._connections[loop] = _Connections(await anext(closer), [], slots, httpx.create_ssl_context(), closer)
        return self._connections[loop]

    def _client(self, connections: _Connections) -> httpx.AsyncClient:
        """A client of one connection."""
        import httpx

        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = httpx.Timeout(self.timeout, connect=min(self.timeout, CONNECT_TIMEOUT), pool=None)
        no_cookies = CookieJar(
            DefaultCookiePolicy(allowed_domains=[])
        )  # they would be sent back, more at every request
        client = httpx.AsyncClient(
            headers=headers, timeout=timeout, verify=connections.certificates, cookies=no_cookies
        )
        connections.clients.append(client)
        return client


class _EndpointConversation:
    """One trial's requests: numbered, so that a server that honours seeds repeats itself."""

    def __init__(self, policy: EndpointPolicy, seed: int) -> None:
        self.policy, self.seed, self.asked = policy, seed, 0
        self.jitter = generator(seed, "backoff")
        self.tools: Sequence[Tool] = ()
        self.may_call = False

    def offer(self, tools: Sequence[Tool]) -> bool:
        """Tools offered before stay in the request, since the messages may hold calls of them."""
        if not self.policy.calls_tools:
            return False
        self.tools, self.may_call = tools or self.tools, bool(tools)
        return True

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        seed = derive(self.seed, self.asked, "request") >> 32  # 31 bits: some servers keep no more
        self.asked += 1
        body = self.policy.body(messages, sampling, seed, self.tools, may_call=self.may_call)
        return await self.policy.complete(body, self.jitter)

    def close(self) -> None:
        pass  # connections belong to the policy: the next trial goes on with them


class _Connections(NamedTuple):
    """What the conversations of one event loop share."""

    clients: list[httpx.AsyncClient]
    """One for each request under way: httpx looks through all connections of a client at every request."""
    idle: list[httpx.AsyncClient]
    """Those without a request; the last one used comes first."""
    slots: asyncio.Semaphore
    certificates: ssl.SSLContext
    closer: AsyncGenerator[list[httpx.AsyncClient], None]


async def _until_closed(clients: list[httpx.AsyncClient]) -> AsyncGenerator[list[httpx.AsyncClient], None]:
    """Closes `clients` when it is closed itself: `asyncio.run` does that to generators it leaves open at its end."""
    try:
        yield clients
    finally:
        for client in clients:
            await client.aclose()


class _TemporaryFault(Exception):
    """A try that failed in a way that another may not."""

    def __init__(self, kind: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.retry_after = kind, retry_after


def completions_url(base_url: str) -> str:
    """Where requests go: ``/v1`` and ``/chat/completions`` are added to an address that lacks them."""
    if any(mark in base_url for mark in "@?#"):  # the message leaves out the address, which may hold a password
        raise ParameterError("base_url must have no user, password or ?query; put the key into OPENAI_API_KEY")
    try:
        parts = urlsplit(base_url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ParameterError(f"base_url must be an address like http://localhost:8000/v1 (got {base_url!r})")
    path = parts.path.rstrip("/")
    if not path.endswith(_COMPLETIONS):
        path += _COMPLETIONS if re.search(r"/v\d[^/]*(/|$)", path) else f"/v1{_COMPLETIONS}"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def sent_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as servers want them: each tool call is answered by a message of its own before the next one."""
    sent: list[dict[str, Any]] = []
    unanswered: list[str] = []
    for message in messages:
        results = [_NOT_DONE if message["role"] == "tool" else _OVER] * len(unanswered)
        if message["role"] == "tool":
            results[:1] = [message["content"]]
        sent += [
            {"role": "tool", "tool_call_id": call, "content": result}
            for call, result in zip(unanswered, results, strict=True)
        ]
        unanswered = [call["id"] for call in message.get("tool_calls", ())]
        if message["role"] != "tool":
            sent.append({**message, "content": message["content"] or None} if unanswered else {**message})
    return sent


async def read_body(response: httpx.Response) -> bytes:
    """The body, unpacked here: a megabyte of gzip may hold a gigabyte, and must not fill the memory."""
    packed = response.headers.get("content-encoding", "identity") != "identity"
    unpack = zlib.decompressobj(wbits=47).decompress if packed else lambda chunk, most: chunk  # 47: gzip or deflate
    body, received = bytearray(), 0
    async for chunk in response.aiter_raw():
        received += len(chunk)
        try:
            body += unpack(chunk, LARGEST_ANSWER + 1 - len(body))
        except zlib.error:
            raise _TemporaryFault("garbled", "the answer cannot be unpacked") from None
        if max(received, len(body)) > LARGEST_ANSWER:
            raise _TemporaryFault("too large", f"the answer has more than {LARGEST_ANSWER // 2**20} MB")
    return bytes(body)


def read_answer(content: bytes, messages: Sequence[Message]) -> Completion:
    """The completion that a 200 holds; raises `_TemporaryFault` when it cannot be read."""
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        message = choice["message"]
        text = _text(message.get("content"))
    except (ValueError, RecursionError):
        raise _TemporaryFault("garbled", "the answer is not JSON") from None
    except (KeyError, IndexError, TypeError, AttributeError):
        problem, _ = server_message(content)  # some gateways report an upstream failure with status 200
        raise _TemporaryFault("garbled", f"the answer holds no message{problem and f': {problem}'}") from None
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    prompt = [message["content"] or "" for message in messages]
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    finish = choice.get("finish_reason")
    refusal = _text(message.get("refusal")) or _text(message.get("content"), "refusal")
    calls = _calls(message.get("tool_calls"))
    return Completion(
        text,
        finish="length" if finish == "length" else "stop",
        prompt_tokens=_tokens(counts.get("prompt_tokens"), *prompt),
        completion_tokens=_tokens(counts.get("completion_tokens"), text, reasoning, refusal, *map(str, calls)),
        reasoning=reasoning,
        refusal=refusal or ("content filter" if finish == "content_filter" else ""),
        tool_calls=calls,
    )


def _text(content: object, kind: str = "text") -> str:
    """A message's content, plain or of its parts those of a kind; empty when there is none."""
    if isinstance(content, list):
        parts = [part.get(kind) for part in content if isinstance(part, dict) and part.get("type") == kind]
        content = "".join(text for text in parts if isinstance(text, str))
    elif kind != "text":
        return ""
    return storable(content) if isinstance(content, str) else ""


def _calls(calls: object) -> tuple[ToolCall, ...]:
    """The tool calls of a message; what is no call of a function is left out."""
    functions = []
    for number, call in enumerate(calls if isinstance(calls, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str):
            text = _argument_text(function.get("arguments"))
            functions.append(ToolCall(_text(call.get("id")) or f"call-{number}", storable(name), storable(text)))
    return tuple(functions)


def _argument_text(arguments: object) -> str:
    """The arguments of a call as text; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments or {})
    except RecursionError:
        return "nested too deep"


def _tokens(counted: object, *texts: str) -> int:
    """What the server counted, or an estimate."""
    return counted if type(counted) is int and 0 <= counted < _MOST_TOKENS else estimate_tokens(*texts)


def server_message(content: bytes) -> tuple[str, str]:
    """What a server says is wrong, and the names it gives it (code, type and param); empty where it says nothing.

    Read are ``{"error": {"message", "code", "type", "param"}}``, ``{"error": "…"}``, the same at the top, and
    ``{"detail": …}``; each also as the first of a list, which Gemini sends.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        text = content.decode("utf-8", "replace").strip()
        return ("" if text.startswith("<") else text), ""  # a proxy's HTML page says nothing that its status does not
    if isinstance(answer, list) and answer:
        answer = answer[0]
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error), ""
    message = error.get("message") or error.get("detail") or ""
    names = " ".join(str(error[name]) for name in ("code", "type", "param") if error.get(name))
    return (message if isinstance(message, str) else json.dumps(message)), names


def parameter_hint(message: str, body: Mapping[str, Any], extra_body: Mapping[str, Any]) -> str:
    """The option that gives a server the parameters it wants, to be added to its message; empty where it is not known.

    "Unsupported parameter: 'max_tokens' … Use 'max_completion_tokens' instead" becomes ``--extra-body '{"max_tokens":
    null, "max_completion_tokens": 512}'``; what `extra_body` holds already stays in it.
    """
    message = message.replace("tool choice", "tools")  # vLLM's words
    named = (name for name in (*_FREE_FIELDS, *extra_body) if name in body and _is_named(name, message))
    field = next(named, None)
    instead, missing = _INSTEAD.search(message), _MISSING.search(message)
    changes: dict[str, Any] = {}
    if field is not None and instead and instead[1] not in (field, *_FIXED_FIELDS):
        changes = {field: None, instead[1]: body[field]}
    elif field in _FREE_FIELDS and _UNSUPPORTED.search(message):
        changes = {field: None}
    elif field is not None and _UNSUPPORTED.search(message):
        return f"; leave {field!r} out of --extra-body (in Python extra_body)"
    elif missing and (name := missing[1] or missing[2]) not in (*body, *_FIXED_FIELDS):
        changes = {name: "VALUE"}
    if not changes:
        return ""
    return f"; add --extra-body {shlex.quote(json.dumps({**extra_body, **changes}))} (in Python extra_body)"


def _is_named(field: str, message: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(field)}(?![\w-])", message) is not None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` asks for, given as such or as a date; None when it is missing or unreadable.

    A date is counted from the server's own ``Date``, where it sends one: its clock may differ from ours.
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            now = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _checked_key(key: str, variable: str) -> str | None:
    """The key as it is sent; None when there is none. The message about a bad key does not show it."""
    key = key.strip()
    if not all("!" <= character <= "~" for character in key):
        raise ParameterError(f"the API key (api_key, or {variable}) must be printable ASCII: it is sent in a header")
    return key or None
