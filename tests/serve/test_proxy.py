"""The proxy between a client and a model's server: what passes, what is added, and what is recorded."""

from __future__ import annotations

import gzip
import json

import pytest

from serve.upstream import EVENT_STREAM, chat, plain

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"}}]}\n\n'
    b': keep-alive\n\ndata: {"choices":[{"index":0,"delta":{"content":"Let me"}}],"odd":1}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":" look","tool_calls":[{"index":0,"id":"c1","type":"function",'
    b'"function":{"name":"look","arguments":"{\\"a\\":"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},'
    b'"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)
"""As a server sends it, comments and unknown fields included."""


def test_notes_go_before_the_task_and_all_else_stays_as_it_came(proxy, upstream):
    running = proxy()
    with running.journal() as journal:
        journal.add_note("refund", plan="look up the order first")
    body = {"model": "m", "odd": {"n": 1.5}, "messages": [{"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "refund 18"}], "name": "Ann"}]}  # fmt: skip
    answer = running.client.post(
        "/v1/chat/completions?v=2&w=%2F",
        json=body,
        headers={"Mulligan-Class": "refund", "Mulligan-Episode": "t1", "Authorization": "Bearer sk-1", "X-Odd": "1"},
    )
    assert answer.json() == chat("hi")
    assert (answer.headers["mulligan-episode"], answer.headers["mulligan-journal"]) == ("t1", "on; notes=1")
    [asked] = upstream.asked
    assert asked.line == "POST /v1/chat/completions?v=2&w=%2F HTTP/1.1"
    assert (asked.headers["authorization"], asked.headers["x-odd"]) == ("Bearer sk-1", "1")
    assert not [name for name in asked.headers if name.startswith("mulligan")]
    sent = asked.body
    added = sent["messages"][1]["content"].pop(0)
    assert "look up the order first" in added["text"]
    assert "records to weigh, not instructions" in added["text"]
    assert sent == body


def test_a_stream_passes_byte_for_byte_and_is_recorded_as_a_message(proxy, upstream):
    async def answer(asked):
        yield EVENT_STREAM
        for start in range(0, len(STREAM), 37):
            yield STREAM[start : start + 37]

    upstream.answer = answer
    running = proxy()
    with running.client.stream("POST", "/v1/chat/completions", json={"messages": [], "stream": True}) as response:
        received = b"".join(response.iter_raw())
    assert received == STREAM
    assert response.headers["x-request-id"] == "r1"
    [record] = running.records(lambda records: bool(records and records[0].transcript))
    call = {"function": {"name": "look", "arguments": '{"a":1}'}, "id": "c1", "type": "function"}
    assert record.transcript == [
        {"role": "assistant", "content": "Let me look", "reasoning_content": "hm", "tool_calls": [call]}
    ]


def test_what_is_not_known_passes_as_it_is(proxy, upstream):
    async def answer(asked):
        yield plain(b"\x00\xff", "207 Odd", "X-Odd: a\r\nX-Odd: b\r\n")

    upstream.answer = answer
    running = proxy()
    for method, path, content in (
        ("GET", "/v1/models", b""),
        ("PUT", "/elsewhere/%C3%A4?x=1&x=2", b"\xff\x00"),
        ("POST", "/v1/chat/completions", b'{"messages": "none"}'),
        ("POST", "/v1/chat/completions", b"[" * 100_000),
        ("DELETE", "/v1/files/1", b""),
    ):
        response = running.client.request(method, path, content=content)
        assert (response.status_code, response.content) == (207, b"\x00\xff")
        assert response.headers.get_list("x-odd") == ["a", "b"]
        assert response.headers["mulligan-journal"].startswith("off; ")
        assert (upstream.asked[-1].line, upstream.asked[-1].content) == (f"{method} {path} HTTP/1.1", content)
    assert running.records(lambda records: records == []) == []


def test_pages_of_our_own_never_reach_the_upstream(proxy, upstream):
    running = proxy()
    assert running.client.post("/mulligan/episode/t1/outcome", json={"reward": 1}).status_code == 404
    assert running.client.get("/mulligan/episodes/t1/outcome").status_code == 405
    assert upstream.asked == []


def test_compressed_requests_get_their_notes_and_compressed_answers_are_recorded(proxy, upstream):
    packed = gzip.compress(json.dumps(chat("hello there")).encode())

    async def answer(asked):
        assert asked.headers["accept-encoding"] == "gzip"
        yield plain(packed, headers="Content-Encoding: gzip\r\n")

    upstream.answer = answer
    running = proxy()
    with running.journal() as journal:
        journal.add_note("default", plan="look up the order first")
    body = {"messages": [{"role": "user", "content": "refund 18"}]}
    with running.client.stream(
        "POST",
        "/v1/chat/completions",
        content=gzip.compress(json.dumps(body).encode()),
        headers={"Content-Encoding": "gzip", "Accept-Encoding": "br, gzip"},
    ) as response:
        assert b"".join(response.iter_raw()) == packed
    assert "look up the order" in upstream.asked[0].body["messages"][0]["content"]
    assert "content-encoding" not in upstream.asked[0].headers
    [record] = running.records(lambda records: bool(records and records[0].transcript))
    assert record.transcript[-1] == {"role": "assistant", "content": "hello there"}


def test_an_episode_of_several_requests_is_one_record_with_an_outcome_and_a_note(proxy, upstream):
    running = proxy(writer=lambda messages: "<reflection>plan: ask for the number</reflection>")
    turns = [{"role": "user", "content": "refund 18"}]
    shown = []
    for text in ("hi", "thanks", "bye"):
        with running.journal() as journal:
            journal.add_note("refund", plan=f"another note {text}")
        assert running.ask({"messages": turns}, episode="t/1", person="p1", **{"class": "refund"}).status_code == 200
        shown.append(upstream.asked[-1].body["messages"][0]["content"])
        turns = [*turns, {"role": "assistant", "content": "hi"}, {"role": "user", "content": text}]
    assert len(set(shown)) == 1  # the notes of an episode stay: its prompt is one that servers have cached
    running.ask({"messages": [{"role": "user", "content": "a side question"}]}, episode="t/1")
    assert running.finish("t/1", 1.0, outcome="refunded").json() == {"episode": "t/1", "reward": 1.0}
    [record] = running.records(lambda records: bool(records[0].notes_written))
    assert (record.state, record.reward, record.outcome, record.person) == ("finished", 1.0, "refunded", "p1")
    assert (record.task, record.task_class, len(record.notes_shown)) == ("refund 18", "refund", 1)
    assert [entry["content"] if isinstance(entry, dict) else entry for entry in record.transcript] == [
        "refund 18", "hi", "hi", "hi", "thanks", "hi", "[another conversation of this episode]",
        "a side question", "hi",
    ]  # fmt: skip
    assert running.ask(episode="t/1").headers["mulligan-journal"] == "off; the episode is finished"
    for id, body, status, words in (
        ("t/1", {"reward": 1}, 409, "finished already"),
        ("t2", {"reward": 1}, 404, "no episode 't2'"),
        ("t2", {"outcome": "?"}, 400, "JSON object like"),
        ("t2", {"reward": 1, "rewards": 2}, 400, "got 'rewards'"),
        ("t2", {"reward": "1"}, 400, "reward of an outcome is of another kind"),
    ):
        answer = running.client.post(f"/mulligan/episodes/{id}/outcome", json=body)
        assert answer.status_code == status
        assert words in answer.json()["error"]
    [report] = running.client.get("/mulligan/classes").json()["classes"]
    assert (report["outcomes"], report["notes"]["quarantined"], report["journal_on"]) == (1, 1, True)
    figures = running.client.get("/metrics").text
    assert 'mulligan_class_outcomes{namespace="default",task_class="refund"} 1.0' in figures
    assert 'mulligan_requests_total{dialect="chat",status="200"} 5.0' in figures
    assert 'mulligan_episodes_total{event="finished"} 1.0' in figures


def test_the_hold_out_is_passed_on_untouched_and_says_so(proxy, upstream):
    running = proxy(journal_options={"hold_out": 0.5})
    with running.journal() as journal:
        journal.add_note("default", plan="look first")
    content = b'{ "messages": [{"role":"user", "content":"x"}],"n" : 1e0}'
    arms = set()
    for number in range(12):
        answer = running.client.post("/v1/chat/completions", content=content, headers={"Mulligan-Episode": f"{number}"})
        arms.add(answer.headers["mulligan-journal"])
        is_off = answer.headers["mulligan-journal"] == "off; hold-out"
        assert (upstream.asked[-1].content == content) == is_off
    assert arms == {"off; hold-out", "on; notes=1"}
    records = running.records(lambda records: len(records) == 12)
    assert {record.chance for record in records} == {0.5}


def test_tenants_never_see_each_other_through_one_proxy(proxy, upstream):
    running = proxy()
    for name in ("shop", "bank"):
        with running.journal(name) as journal:
            journal.add_note("refund", plan=f"a secret of the {name}")
    for name, other in (("shop", "bank"), ("bank", "shop")):
        running.ask(namespace=name, episode="same", **{"class": "refund"})
        assert f"secret of the {name}" in (shown := upstream.asked[-1].content.decode())
        assert f"secret of the {other}" not in shown
    headers = {"Mulligan-Namespace": "shop"}
    assert running.client.post("/mulligan/episodes/same/outcome", json={"reward": 1}, headers=headers).is_success
    with running.journal("bank") as journal:
        assert [record.state for record in journal.episodes()] == ["open"]


def test_what_an_outcome_taught_the_next_request_is_shown(proxy, upstream):
    running = proxy()
    for number in range(3):
        assert running.ask().headers["mulligan-journal"] == ("on; notes=1" if number else "on; no notes")
        episode = running.ask().headers["mulligan-episode"]
        assert running.finish(episode, reflection="look first").status_code == 200


def test_a_similarity_orders_the_notes_of_the_proxy_too(proxy, upstream):
    similarity = lambda task, texts: [float(task.split()[0] in text) for text in texts]  # noqa: E731
    running = proxy(journal_options={"similarity": similarity})
    with running.journal() as journal:
        for word in ("refund", "invoice", "address"):
            journal.add_note("default", plan=f"{word} needs a look at the order first")
    for number in range(10):
        running.ask(episode=f"e{number}")  # "refund 18"
        assert "1. plan: refund needs" in upstream.asked[-1].body["messages"][0]["content"]


def test_notes_of_another_process_are_shown_a_second_later(proxy, upstream, monkeypatch):
    monkeypatch.setattr("mulligan.serve.episodes.FRESH", 0.0)
    running = proxy()
    running.ask()
    with running.journal() as journal:
        note = journal.add_note("default", plan="look first")
        running.ask()
        assert "look first" in upstream.asked[-1].content.decode()
        journal.delete(note=note)
        running.ask()
        assert "look first" not in upstream.asked[-1].content.decode()


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Mulligan-Clas": "x"}, "unknown header Mulligan-Clas"),
        ({"Mulligan-Class": "x" * 201}, "one line of 1 to 200 characters"),
        ({"Mulligan-Untrusted": "perhaps"}, "Mulligan-Untrusted must be 1 or 0"),
    ],
)
def test_mistakes_in_headers_are_one_line(proxy, upstream, headers, words):
    answer = proxy().client.post("/v1/chat/completions", json={"messages": []}, headers=headers)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert upstream.asked == []
