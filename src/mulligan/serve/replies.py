"""What a model answered, read from the bytes that passed by: for the record alone, after they were passed on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from mulligan.serve.dialects import Body, Dialect

LONGEST_REPLY = 4_000_000
"""Bytes of an answer that are kept for the record, packed and unpacked."""
LONGEST_ERROR = 2_000


def reply_in(content: bytes, dialect: Dialect, *, status: int, kind: str, encoding: str) -> Any:
    """The reply as a message for the transcript. `kind` is the content type; what cannot be read is said to be so."""
    try:
        text = _unpacked(content, encoding).decode("utf-8", "replace")
    except (ValueError, zlib.error) as error:
        return {"role": "assistant", "content": "", "unreadable": f"{encoding}: {error}"}
    if status >= 400:
        return {"role": "assistant", "content": "", "status": status, "error": text[:LONGEST_ERROR]}
    events = kind.startswith("text/event-stream")
    try:
        body = _assembled(text, dialect) if events else json.loads(text)
        return _message(body, dialect)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {"role": "assistant", "content": "", "unreadable": text[:LONGEST_ERROR]}


def _unpacked(content: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return content
    if encoding not in ("gzip", "deflate"):
        raise ValueError("not an encoding that the record reads")
    return zlib.decompressobj(wbits=47 if encoding == "gzip" else 15).decompress(content, LONGEST_REPLY)


def _message(body: Body, dialect: Dialect) -> Any:
    if dialect == "chat":
        message = dict(body["choices"][0]["message"])
        finish = body["choices"][0].get("finish_reason")
        return message if finish in (None, "stop", "tool_calls") else {**message, "finish_reason": finish}
    if dialect == "messages":
        return {"role": "assistant", "content": body["content"]}
    return {"role": "assistant", "content": body["output"]}


def _events(text: str) -> Iterator[Body]:
    """The events of a stream that hold a JSON object, up to where it ends or was cut."""
    for line in text.splitlines():
        if line.startswith("data:") and (data := line[5:].strip()) not in ("", "[DONE]"):
            try:
                event = json.loads(data)
            except ValueError:
                return
            if isinstance(event, dict):
                yield event


def _assembled(text: str, dialect: Dialect) -> Body:
    """A stream as the body that the same request gets without streaming."""
    if dialect == "chat":
        return _chat(text)
    if dialect == "messages":
        return {"content": _blocks(text)}
    done = [event["response"] for event in _events(text) if event.get("type") == "response.completed"]
    if done:
        return dict(done[-1])
    deltas = [event["delta"] for event in _events(text) if event.get("type") == "response.output_text.delta"]
    return {"output": "".join(deltas)}


def _chat(text: str) -> Body:
    message: Body = {"role": "assistant", "content": ""}
    calls: dict[int, Body] = {}
    finish = None
    for event in _events(text):
        for choice in event.get("choices") or []:
            if choice.get("index", 0) != 0:
                continue
            finish = choice.get("finish_reason") or finish
            for name, value in (choice.get("delta") or {}).items():
                if name == "tool_calls":
                    for call in value or []:
                        _add_call(calls.setdefault(call.get("index", 0), {}), call)
                elif isinstance(value, str) and name != "role":
                    message[name] = (message.get(name) or "") + value
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {"choices": [{"message": message, "finish_reason": finish}]}


def _add_call(whole: Body, part: Body) -> None:
    function = whole.setdefault("function", {"name": "", "arguments": ""})
    for name in ("name", "arguments"):
        function[name] += (part.get("function") or {}).get(name) or ""
    whole |= {name: part[name] for name in ("id", "type") if part.get(name)}


_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def _blocks(text: str) -> list[Body]:
    blocks: dict[int, Body] = {}
    for event in _events(text):
        if event.get("type") == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event.get("type") == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if (name := _DELTAS.get(delta.get("type"))) is not None:
                block[name] = (block.get(name) or "") + delta[name]
    for block in blocks.values():
        if "partial_json" in block:
            written = block.pop("partial_json")
            try:
                block["input"] = json.loads(written or "{}")
            except ValueError:
                block["input"] = written
    return [blocks[index] for index in sorted(blocks)]
