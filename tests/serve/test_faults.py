"""What goes wrong around the proxy: upstream, store, clients, strangers."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time

import httpx
import pytest

from mulligan.errors import JournalError, UsageError
from mulligan.serve.listen import LONGEST_HEAD
from mulligan.serve.settings import LARGEST_BODY, ProxySettings, token_from
from serve.upstream import EVENT_STREAM, Upstream, plain

TOKEN = "a-token-of-enough-length"


@pytest.mark.parametrize("status", ["429 Too Many Requests", "400 Bad Request", "500 Oops", "529 Overloaded"])
def test_refusals_of_the_upstream_are_passed_on_as_they_are(proxy, upstream, status):
    async def answer(asked):
        yield plain({"error": {"message": "later"}}, status, "Retry-After: 7\r\n")

    upstream.answer = answer
    running = proxy()
    refused = running.ask()
    assert (refused.status_code, refused.json()) == (int(status[:3]), {"error": {"message": "later"}})
    assert refused.headers["retry-after"] == "7"
    [record] = running.records(lambda records: bool(records and records[0].transcript))
    assert (record.state, record.remark) == ("abandoned", f"the upstream answered {status[:3]}")
    assert record.transcript[-1]["status"] == int(status[:3])


def test_an_upstream_that_is_away_or_hangs_has_its_own_status(proxy, upstream, caplog):
    async def hangs(asked):
        await asyncio.sleep(60)
        yield b""

    upstream.answer = hangs
    slow = proxy(settings={"upstream_timeout": 0.2}).ask()
    assert (slow.status_code, slow.json()["error"]["type"]) == (504, "upstream_timeout")
    with Upstream() as closed:
        pass
    running = proxy(settings={"upstream": closed.base_url})
    away = running.ask({"messages": []}, path="/v1/messages", episode="kept")
    assert away.status_code == 502
    assert away.json()["error"]["type"] == "upstream_unreachable"
    assert away.json()["type"] == "error"  # as Anthropic's clients read it
    assert "cannot be reached" in caplog.text
    assert 'mulligan_upstream_failures_total{kind="unreachable"} 1.0' in running.client.get("/metrics").text
    assert [record.state for record in running.records(lambda records: len(records) == 2)][1] == "open"


@pytest.mark.parametrize("head", [EVENT_STREAM, b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"])
def test_an_answer_that_is_cut_off_is_cut_off_for_the_client_too(proxy, upstream, head):
    chunked = head.replace(b"Connection: close", b"Transfer-Encoding: chunked")

    async def answer(asked):
        event = b'data: {"choices":[{"index":0,"delta":{"content":"Let"}}]}\n\n'
        yield chunked + (b"%x\r\n%b\r\n" % (len(event), event) if b"chunked" in chunked else event)

    upstream.answer = answer
    running = proxy()
    received: list[bytes] = []
    response = running.client.send(
        running.client.build_request("POST", "/v1/chat/completions", json={"messages": []}), stream=True
    )
    with pytest.raises(httpx.RemoteProtocolError):
        received.extend(response.iter_raw())
    response.close()
    assert b"Let" in b"".join(received)
    [record] = running.records(lambda records: bool(records and records[0].transcript))
    assert record.state == "abandoned"
    assert "ended in mid-answer" in record.transcript[-1]["fault"]


def test_a_client_that_hangs_up_ends_the_request_to_the_upstream(proxy, upstream):
    async def answer(asked):
        yield EVENT_STREAM + b"data: {}\n\n"
        await asyncio.sleep(60)
        yield b"never"

    upstream.answer = answer
    running = proxy()
    with running.client.stream("POST", "/v1/chat/completions", json={"messages": []}) as response:
        next(response.iter_raw())
    assert upstream.hung_up.wait(10)
    [record] = running.records(lambda records: bool(records and records[0].transcript))
    assert (record.state, record.remark) == ("abandoned", "the client hung up")
    assert "mulligan_client_disconnects_total 1.0" in running.client.get("/metrics").text


def test_an_episode_without_an_outcome_is_abandoned_and_may_go_on(proxy, upstream):
    running = proxy(settings={"outcome_timeout": 0.4})
    running.ask(episode="named")
    unnamed = running.ask().headers["mulligan-episode"]
    records = running.records(lambda records: {record.state for record in records} == {"abandoned"})
    assert {record.remark for record in records} == {"no outcome came within 0.4 s"}
    running.ask({"messages": [{"role": "user", "content": "still here"}]}, episode="named")
    assert running.finish("named").status_code == running.finish(unnamed).status_code == 200
    named = next(record for record in running.records() if record.id == "named")
    assert (named.state, [entry["content"] for entry in named.transcript if isinstance(entry, dict)]) == (
        "finished",
        ["refund 18", "hi", "still here", "hi"],
    )


def test_an_episode_goes_on_after_the_proxy_was_started_again(proxy, upstream):
    turns = [{"role": "user", "content": "refund 18"}]
    first = proxy()
    first.ask({"messages": turns}, episode="e")
    first.__exit__()
    turns += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
    second = proxy()
    second.ask({"messages": turns}, episode="e")
    assert second.finish("e", reflection="look first").status_code == 200
    [record] = second.records()
    assert [entry["content"] for entry in record.transcript] == ["refund 18", "hi", "and?", "hi"]
    assert len(record.notes_written) == 1


def test_a_store_that_is_down_turns_no_request_away(proxy, upstream, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr("mulligan.serve.keeper.PAUSE", 0.0)
    is_down = threading.Event()
    is_down.set()

    def open_journal():
        if is_down.is_set():
            raise JournalError("no such host")
        return running.journal()

    running = proxy(open_journal=open_journal)
    answer = running.ask(episode="e")
    assert (answer.status_code, answer.headers["mulligan-journal"]) == (200, "off; the store is down")
    assert "requests are passed on without it: no such host" in caplog.text
    assert running.finish("e").status_code == 503
    figures = running.client.get("/metrics").text
    assert "mulligan_store_up 0.0" in figures
    assert 'mulligan_unrecorded_requests_total{reason="store"} 1.0' in figures
    is_down.clear()
    assert running.ask(episode="e").headers["mulligan-journal"] == "on; no notes"
    assert running.finish("e").status_code == 200


def test_what_could_not_be_written_is_written_when_the_store_is_back(proxy, upstream, monkeypatch):
    monkeypatch.setattr("mulligan.journal.store.BUSY_SECONDS", 0.1)
    running = proxy()
    running.ask()
    running.records()
    other = sqlite3.connect(running.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # nobody else can write
    ids = [running.ask().headers["mulligan-episode"] for _ in range(3)]
    time.sleep(0.3)
    assert "mulligan_store_up 0.0" in running.client.get("/metrics").text
    other.execute("ROLLBACK")
    other.close()
    records = running.records(lambda records: len(records) == 4)
    assert {record.id for record in records} >= set(ids)


def test_strangers_and_web_pages_are_turned_away(proxy, upstream):
    running = proxy()
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        for path in ("/v1/chat/completions", "/mulligan/classes", "/metrics"):
            assert running.client.get(path, headers=headers).status_code == 403
    guarded = proxy(settings={"token": TOKEN, "host": "0.0.0.0"})
    for path in ("/v1/models", "/mulligan/classes", "/metrics"):
        url = f"{guarded.address}{path}".replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Mulligan-Token": "wrong"}).status_code == 401
        assert httpx.get(url, headers={"Mulligan-Token": TOKEN, "Host": "proxy.example"}).status_code == 200
        with_bearer = httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code
        assert with_bearer == (401 if path.startswith("/v1") else 200)  # there it is the upstream's key
    assert [asked.headers.get("mulligan-token") for asked in upstream.asked] == [None]


def test_other_machines_need_a_token(monkeypatch):
    with pytest.raises(UsageError, match="can be reached from other machines: name the variable that holds a token"):
        ProxySettings("https://h/v1", host="0.0.0.0")
    monkeypatch.setenv("SHORT", "abc")
    with pytest.raises(UsageError, match="SHORT must hold a token of at least 16"):
        token_from("SHORT")
    for upstream in ("h/v1", "ftp://h", "https://u:p@h/v1", "https://h/v1?key=1"):
        with pytest.raises(UsageError, match="upstream must"):
            ProxySettings(upstream)


def test_what_is_too_large_is_refused(proxy, upstream):
    running = proxy()
    assert running.client.post("/v1/chat/completions", content=b" " * (LARGEST_BODY + 1)).status_code == 413
    with pytest.raises(httpx.TransportError):
        running.client.get("/v1/models", headers={"X-Long": "x" * (LONGEST_HEAD + 70_000)})
    assert upstream.asked == []
    assert running.ask().status_code == 200


def test_keys_are_neither_stored_nor_logged_nor_counted(proxy, upstream, caplog, capfd):
    caplog.set_level(logging.INFO)
    running = proxy()
    headers = {"Authorization": "Bearer sk-secret-1", "X-Api-Key": "sk-secret-2"}
    body = {"messages": [{"role": "user", "content": "x"}], "api_key": "sk-secret-3"}
    running.client.post("/v1/chat/completions?key=sk-secret-4", json=body, headers=headers)
    running.client.get("/v1/models?key=sk-secret-4", headers=headers)
    running.records(lambda records: bool(records and records[0].transcript))
    figures = running.client.get("/metrics").text
    running.__exit__()
    kept = b"".join(path.read_bytes() for path in running.database.parent.iterdir())
    ours = "".join(record.getMessage() for record in caplog.records if record.name != "httpx")  # the test's own client
    assert "sk-secret" not in kept.decode("latin-1") + figures + ours + "".join(capfd.readouterr())
