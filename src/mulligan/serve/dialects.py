"""The three forms of request that the journal understands, by their path: where notes go, and what was said.

chat        OpenAI's ``/chat/completions``, which nearly every server speaks
messages    Anthropic's ``/messages``
responses   OpenAI's ``/responses``

Everything in a body that is not named here stays as it is. A body that holds something else than expected is passed on
untouched.
"""

from __future__ import annotations

import json
from typing import Any, Literal

Dialect = Literal["chat", "messages", "responses"]
Body = dict[str, Any]
_BY_PATH: dict[str, Dialect] = {
    "/chat/completions": "chat",
    "/messages": "messages",
    "/responses": "responses",
}
_LIST = {"chat": "messages", "messages": "messages", "responses": "input"}
_SYSTEM = ("system", "developer")


def dialect_of(method: str, path: str) -> Dialect | None:
    """How a request speaks; None where it is passed on as it is."""
    if method != "POST":
        return None
    return next((dialect for ending, dialect in _BY_PATH.items() if path.endswith(ending)), None)


def parsed(content: bytes, dialect: Dialect) -> Body | None:
    """The body of a request; None where it is not what the dialect has."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    turns = body.get(_LIST[dialect])
    if dialect == "responses" and isinstance(turns, str):
        return body
    is_list = isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)
    return body if is_list else None


def said(body: Body, dialect: Dialect) -> list[Any]:
    """The messages of a request, the system message first, as they are stored."""
    turns = body[_LIST[dialect]]
    listed = [{"role": "user", "content": turns}] if isinstance(turns, str) else list(turns)
    system = body.get({"messages": "system", "responses": "instructions"}.get(dialect, ""))
    return [{"role": "system", "content": system}, *listed] if system else listed


def task_in(body: Body, dialect: Dialect) -> str:
    """What the first user message says: the task, where no header names it."""
    for turn in said(body, dialect):
        if turn.get("role") == "user":
            content = turn.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = (part.get("text") for part in parts if isinstance(part, dict))
            return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def with_context(body: Body, dialect: Dialect, context: str, role: Literal["user", "system"]) -> Body:
    """The body with notes: before the first user message, or at the end of the system message."""
    if role == "system":
        return _in_system(body, dialect, context)
    key = _LIST[dialect]
    if isinstance(body[key], str):
        return {**body, key: f"{context}\n\n{body[key]}"}
    turns = list(body[key])
    for index, turn in enumerate(turns):
        if turn.get("role") == "user":
            turns[index] = {**turn, "content": _before(turn.get("content"), context, _part_type(dialect))}
            return {**body, key: turns}
    after_system = next((i for i, turn in enumerate(turns) if turn.get("role") not in _SYSTEM), len(turns))
    turns.insert(after_system, {"role": "user", "content": context})
    return {**body, key: turns}


def _in_system(body: Body, dialect: Dialect, context: str) -> Body:
    if dialect != "chat":
        key = {"messages": "system", "responses": "instructions"}[dialect]
        system = body.get(key)
        if isinstance(system, list):
            return {**body, key: [*system, {"type": "text", "text": context}]}
        return {**body, key: f"{system}\n\n{context}" if system else context}
    turns = list(body["messages"])
    if turns and turns[0].get("role") in _SYSTEM:
        content = turns[0].get("content")
        added = (
            [*content, {"type": "text", "text": context}] if isinstance(content, list) else f"{content}\n\n{context}"
        )
        turns[0] = {**turns[0], "content": added}
    else:
        turns.insert(0, {"role": "system", "content": context})
    return {**body, "messages": turns}


def _before(content: Any, context: str, part_type: str) -> Any:
    if isinstance(content, str):
        return f"{context}\n\n{content}"
    return [{"type": part_type, "text": context}, *(content if isinstance(content, list) else [])]


def _part_type(dialect: Dialect) -> str:
    return "input_text" if dialect == "responses" else "text"


def error_body(dialect: Dialect | None, kind: str, message: str) -> bytes:
    """An error of the proxy's own in the form that the client expects."""
    error = {"type": kind, "message": message}
    return json.dumps({"type": "error", "error": error} if dialect == "messages" else {"error": error}).encode()
