"""Where notes go in the three forms of request, and what is read from a reply in each."""

from __future__ import annotations

import json

import pytest

from mulligan.serve.dialects import dialect_of, parsed, said, task_in, with_context
from mulligan.serve.replies import reply_in

REQUESTS = {
    "chat": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "tools": []},
    "messages": {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "U"}]},
    "responses": {"instructions": "S", "input": [{"role": "user", "content": [{"type": "input_text", "text": "U"}]}]},
}
WITH_NOTES = {
    ("chat", "user"): {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "N\n\nU"}]},
    ("chat", "system"): {"messages": [{"role": "system", "content": "S\n\nN"}, {"role": "user", "content": "U"}]},
    ("messages", "user"): {"messages": [{"role": "user", "content": "N\n\nU"}]},
    ("messages", "system"): {"system": [{"type": "text", "text": "S"}, {"type": "text", "text": "N"}]},
    ("responses", "user"): {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "N"}, {"type": "input_text", "text": "U"}]}
        ]
    },
    ("responses", "system"): {"instructions": "S\n\nN"},
}


@pytest.mark.parametrize(("dialect", "role"), WITH_NOTES)
def test_notes_go_where_the_setting_says_and_nothing_else_changes(dialect, role):
    before = json.dumps(REQUESTS[dialect])
    body = parsed(before.encode(), dialect)
    assert with_context(body, dialect, "N", role) == {**REQUESTS[dialect], **WITH_NOTES[dialect, role]}
    assert json.dumps(body) == before  # the record has what the agent said
    assert task_in(body, dialect) == "U"
    assert said(body, dialect)[0]["role"] == "system"


def test_requests_without_a_user_message_or_a_system_message_get_one():
    only_system = {"messages": [{"role": "developer", "content": "S"}, {"role": "assistant", "content": "A"}]}
    turns = with_context(only_system, "chat", "N", "user")["messages"]
    assert [turn["role"] for turn in turns] == ["developer", "user", "assistant"]
    turns = with_context({"messages": []}, "chat", "N", "system")["messages"]
    assert turns == [{"role": "system", "content": "N"}]
    assert with_context({"input": "U"}, "responses", "N", "user") == {"input": "N\n\nU"}
    assert with_context({"input": "U"}, "responses", "N", "system") == {"input": "U", "instructions": "N"}


def test_only_the_paths_that_are_known_are_read():
    assert dialect_of("POST", "/v1/messages") == "messages"
    for method, path in (("GET", "/v1/responses"), ("POST", "/v1/messages/batches"), ("POST", "/v1/embeddings")):
        assert dialect_of(method, path) is None
    for content in (b"", b"[]", b'{"messages": [1]}', b'{"messages": {}}', b"\xff"):
        assert parsed(content, "chat") is None


def events(*data: object) -> bytes:
    return "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in data).encode()


def read(content: bytes, dialect: str, kind: str = "text/event-stream") -> object:
    return reply_in(content, dialect, status=200, kind=kind, encoding="")


def test_streams_are_read_as_the_reply_that_they_spell():
    start = {"type": "content_block_start"}
    delta = {"type": "content_block_delta"}
    content = events(
        {"type": "message_start", "message": {"role": "assistant"}},
        {**start, "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {**delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {**start, "index": 1, "content_block": {"type": "text", "text": ""}},
        {**delta, "index": 1, "delta": {"type": "text_delta", "text": "Let"}},
        {**start, "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}}},
        {**delta, "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {**delta, "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
    )
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Let"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
    ]
    assert read(content, "messages") == {"role": "assistant", "content": blocks}
    output = [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]
    text = {"type": "response.output_text.delta", "delta": "hi"}
    done = {"type": "response.completed", "response": {"output": output}}
    assert read(events(text, done), "responses") == {"role": "assistant", "content": output}
    assert read(events(text, text), "responses") == {"role": "assistant", "content": "hihi"}  # cut off


def test_what_cannot_be_read_is_said_to_be_so():
    for content in (b"<html>", b'{"choices": []}', b'{"choices": 1}', b"[" * 100_000):
        assert read(content, "chat", "application/json")["unreadable"]  # type: ignore[index]
    packed = reply_in(b"\x1b\x03", "chat", status=200, kind="application/json", encoding="br")
    assert packed["unreadable"].startswith("br: ")
    bomb = reply_in(b"\x1f\x8bnothing", "chat", status=200, kind="application/json", encoding="gzip")
    assert bomb["unreadable"].startswith("gzip: ")
