"""Official clients and frameworks through the proxy, and LiteLLM with the journal as its callback."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from serve.upstream import EVENT_STREAM, chat, plain

pytestmark = [
    pytest.mark.serve,
    pytest.mark.filterwarnings("default"),  # libraries' own
]
NAMED = {"Mulligan-Class": "refund", "Mulligan-Episode": "t1"}
LOOK = {"type": "function", "function": {"name": "look", "description": "look", "parameters": {"type": "object"}}}


@pytest.fixture
def noted(proxy):
    """A proxy whose journal has a note."""
    running = proxy()
    with running.journal() as journal:
        journal.add_note("refund", plan="look up the order first")
    return running


def stream(*events: object) -> bytes:
    return (
        EVENT_STREAM
        + "".join(
            f"{'event: ' + event['type'] + chr(10) if 'type' in event else ''}data: {json.dumps(event)}\n\n"
            for event in events
            if isinstance(event, dict)
        ).encode()
    )


def test_openai(noted, upstream):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{noted.address}/v1", api_key="sk-1", default_headers=NAMED, max_retries=1)
    messages = [{"role": "user", "content": "refund 18"}]
    assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content == "hi"
    assert "look up the order first" in upstream.asked[-1].body["messages"][0]["content"]

    common = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    deltas = [{"content": "Let"}, {"content": " me"}, {"tool_calls": [{"index": 0, "id": "c1", "type": "function",
              "function": {"name": "look", "arguments": "{}"}}]}]  # fmt: skip
    events = [{**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]

    async def streams(asked):
        for event in stream(*events), b"data: [DONE]\n\n":
            yield event

    upstream.answer = streams
    pieces = list(client.chat.completions.create(model="m", messages=messages, tools=[LOOK], stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Let me"
    assert pieces[-1].choices[0].delta.tool_calls[0].function.name == "look"

    async def refuses(asked):
        yield plain({"error": {"message": "slow down"}}, "429 Too Many", "Retry-After: 0\r\n")

    upstream.answer = refuses
    before = len(upstream.asked)
    with pytest.raises(openai.RateLimitError, match="slow down"):
        client.chat.completions.create(model="m", messages=messages)
    assert len(upstream.asked) == before + 2  # the client's own retry

    async def cut(asked):
        whole = stream(*events).replace(b"Connection: close", b"Transfer-Encoding: chunked")
        head, _, rest = whole.partition(b"\r\n\r\n")
        yield head + b"\r\n\r\n%x\r\n%b\r\n" % (len(rest), rest)

    upstream.answer = cut
    with pytest.raises(Exception, match=r"(?i)peer closed|incomplete"):
        list(client.chat.completions.create(model="m", messages=messages, stream=True))
    assert noted.finish("t1").status_code == 200


def test_openai_responses_and_models(noted, upstream):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{noted.address}/v1", api_key="sk-1", default_headers=NAMED)
    text = {"type": "output_text", "text": "hi", "annotations": []}
    output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}]
    body = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": output, "status": "completed",
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip

    async def answer(asked):
        yield plain({"object": "list", "data": []} if "models" in asked.line else body)

    upstream.answer = answer
    assert client.responses.create(model="m", input="refund 18").output_text == "hi"
    assert "look up the order first" in upstream.asked[-1].body["input"]
    assert list(client.models.list()) == []


def test_anthropic(noted, upstream):
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=noted.address, api_key="sk-1", default_headers=NAMED, max_retries=0)
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": usage}  # fmt: skip
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    deltas = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in "hi"]
    ends = [{"type": "content_block_stop", "index": 0}, {"type": "message_delta", "delta": {"stop_reason": "end_turn",
            "stop_sequence": None}, "usage": usage}, {"type": "message_stop"}]  # fmt: skip

    async def answer(asked):
        if asked.body.get("stream"):
            yield stream({"type": "message_start", "message": message}, start, *deltas, *ends)
        elif asked.body["model"] == "overloaded":
            yield plain({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "529 Overloaded")
        else:
            yield plain({**message, "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"})

    upstream.answer = answer
    asked = {"model": "m", "max_tokens": 9, "system": "S", "messages": [{"role": "user", "content": "refund 18"}]}
    assert client.messages.create(**asked).content[0].text == "hi"
    sent = upstream.asked[-1]
    assert sent.line == "POST /v1/messages HTTP/1.1"
    assert "sk-1" in " ".join(sent.headers.values())
    assert sent.body["system"] == "S"
    assert "look up the order first" in sent.body["messages"][0]["content"]
    with client.messages.stream(**asked) as streaming:
        assert streaming.get_final_text() == "hi"
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        client.messages.create(**{**asked, "model": "overloaded"})
    assert noted.finish("t1").status_code == 200
    [record] = noted.records()
    assert record.transcript[:2] == [{"role": "system", "content": "S"}, {"role": "user", "content": "refund 18"}]


def test_litellm_with_the_journal_as_its_callback(upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network otherwise
    litellm = pytest.importorskip("litellm")
    import mulligan
    from mulligan.serve.litellm import JournalCallback

    journal = mulligan.Journal(tmp_path / "agent.db", hold_out=0.0)
    journal.add_note("refund", plan="look up the order first")
    litellm.callbacks = [JournalCallback(journal)]
    common = {"model": "openai/m", "api_base": upstream.base_url, "api_key": "sk-1"}
    messages = [{"role": "user", "content": "refund 18"}]

    async def agent() -> None:
        metadata = {"mulligan_class": "refund", "mulligan_episode": "t1"}
        reply = await litellm.acompletion(messages=messages, metadata=metadata, **common)
        assert reply.choices[0].message.content == "hi"
        await litellm.acompletion(messages=messages, **common)  # names no episode
        for _ in range(500):  # LiteLLM calls back when it finds the time
            if next(journal.episodes()).transcript:
                return
            await asyncio.sleep(0.02)

    asyncio.run(agent())
    first, second = (asked.body["messages"][0]["content"] for asked in upstream.asked)
    assert "look up the order first" in first
    assert second == "refund 18"
    [record] = journal.episodes()
    assert record.transcript == [*messages, {"role": "assistant", "content": "hi"}]
    journal.attach("t1").finish(1.0)
    assert journal.notes()[0].outcomes == 1
    journal.close()
    litellm.callbacks = []


def test_langgraph(noted, upstream):
    pytest.importorskip("langgraph")
    from examples_of import example

    assert example("journal_langgraph")(f"{noted.address}/v1", "refund", "t1") == "hi"
    assert "look up the order first" in upstream.asked[-1].content.decode()
    assert noted.finish("t1").status_code == 200


def test_openai_agents(noted, upstream):
    pytest.importorskip("agents")
    from examples_of import example

    async def answer(asked):
        yield plain(chat("hi"))

    upstream.answer = answer
    assert example("journal_openai_agents")(f"{noted.address}/v1", "refund", "t1") == "hi"
    assert "look up the order first" in upstream.asked[-1].content.decode()
    assert noted.finish("t1").status_code == 200


def test_spans_of_opentelemetry(noted):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    noted.ask(episode="t1", **{"class": "refund"})
    for _ in range(500):
        if exporter.get_finished_spans():
            break
        time.sleep(0.02)
    [span] = exporter.get_finished_spans()
    assert span.attributes["mulligan.episode"] == "t1"
    assert span.attributes["mulligan.journal"] == "on; notes=1"
