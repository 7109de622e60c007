"""A policy behind OpenAI's interface: `mulligan serve --model runs/x`, for tools and agents that speak HTTP.

Small on purpose: one reply a request, no tools, and a stream has the whole reply in one piece.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mulligan.errors import ContextFull, MulliganError, UsageError
from mulligan.policy.base import Policy
from mulligan.serve.proxy import ClientGone, Refused, check_caller, read_body
from mulligan.serve.settings import ProxySettings
from mulligan.types import Completion, Message, Sampling, Task

LARGEST_REQUEST = 4_000_000
_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_REFUSED = ("tools", "functions", "response_format")
"""What a request must not ask for, because it would not get it."""


class ModelServer:
    """Serves one policy; requests that come together share the engine's batch."""

    def __init__(self, policy: Policy, settings: ProxySettings) -> None:
        self.policy, self.settings = policy, settings
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ]
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.policy.name, "object": "model", "created": 0}]})

    async def _chat(self, request: Request) -> Response:
        try:
            check_caller(request.scope["headers"], self.settings, bearer=True)
            body = _read(await read_body(request.receive, LARGEST_REQUEST))
            reply = await self._reply(body)
        except Refused as refused:
            return _error(refused.status, refused.kind, str(refused))
        except ClientGone:
            return Response(status_code=400)
        except ContextFull as error:
            return _error(400, "context_length_exceeded", str(error))
        except MulliganError as error:
            return _error(400, "invalid_request_error", str(error))
        answer = self._answer(body, reply)
        if not body.get("stream"):
            return JSONResponse(answer)
        return Response(_as_stream(answer), media_type="text/event-stream")

    async def _reply(self, body: Mapping[str, Any]) -> Completion:
        seed = body.get("seed")
        conversation = self.policy.start(_TASK, seed if isinstance(seed, int) else secrets.randbits(32))
        try:
            return await conversation.reply(_messages(body["messages"]), _sampling(body))
        finally:
            conversation.close()

    def _answer(self, body: Mapping[str, Any], reply: Completion) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text}
        spent = reply.prompt_tokens, reply.completion_tokens
        return {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model") or self.policy.name,
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
            "usage": {"prompt_tokens": spent[0], "completion_tokens": spent[1], "total_tokens": sum(spent)},
        }


_TASK = Task("chat", 0, 1, "chat")


def _read(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise UsageError('a request is a JSON object with "messages"')
    for name in _REFUSED:
        if body.get(name) and body[name] != {"type": "text"}:
            raise UsageError(f"this server of a local model has no {name}")
    if body.get("n") not in (None, 1):
        raise UsageError(f"this server gives one reply a request (got n={body['n']!r:.20})")
    return body


def _messages(given: list[Any]) -> list[Message]:
    return [{"role": _role(each), "content": _text(each.get("content"))} for each in given]


def _role(message: Any) -> Any:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("system", "developer", "user", "assistant"):
        raise UsageError(f"the role of a message is system, user or assistant (got {role!r:.40})")
    return "system" if role == "developer" else role


def _text(content: Any) -> str:
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "\n".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise UsageError("the content of a message is text, or a list of parts with text")
    return content


def _sampling(body: Mapping[str, Any]) -> Sampling:
    values = {ours: body[theirs] for theirs, ours in _SAMPLING.items() if body.get(theirs) is not None}
    if body.get("max_completion_tokens") is not None:
        values["max_tokens"] = body["max_completion_tokens"]
    return Sampling(**values)


def _as_stream(answer: Mapping[str, Any]) -> str:
    common = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = answer["choices"][0]
    pieces = [
        {**common, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]},
        {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**common, "choices": [], "usage": answer["usage"]},
    ]
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"


def _error(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": kind}}, status)
