"""The endpoint policy over real HTTP on 127.0.0.1: its key, what is sent and read, event loops."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from tests.e2e.asking import HELLO, KEY, TASK, ask, play, policy_at
from tests.e2e.chat_server import ChatServer

import mulligan
from mulligan.app.bench import endpoint as benchmark
from mulligan.errors import Fault, ParameterError, RequestFailed, StopReason
from mulligan.policy.endpoint import EndpointPolicy, completions_url
from mulligan.report.run import trial_to_dict
from mulligan.types import Completion, Sampling, Trial

pytestmark = pytest.mark.usefixtures("_bare_environment")


def completions(trial: Trial) -> list[Completion]:
    found = [turn.reply for episode in trial.episodes for turn in episode.turns]
    written = [episode.reflection for episode in trial.episodes if episode.reflection is not None]
    return found + [reflection.completion for reflection in written if reflection.completion is not None]


# --- the key ---------------------------------------------------------------------------------------------------------


def test_a_refused_key_is_not_tried_again_and_nowhere_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with ChatServer(faults=lambda _: 401, message=f"Incorrect API key provided: {KEY}.") as server:
        policy = policy_at(server, api_key_env="MY_KEY")
        trial = play(policy, episodes=1)
        assert len(server.received) == 1
        assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert trial.episodes[0].stop is StopReason.REQUEST_FAILED
    error = trial.episodes[0].error
    assert "401" in error
    assert "the key was refused: check the environment variable MY_KEY" in error
    assert "***" in error
    for shown in (error, repr(policy), caplog.text, json.dumps(trial_to_dict(trial)), json.dumps(policy.stats)):
        assert KEY not in shown


def test_without_a_key_none_is_sent_and_a_server_that_wants_one_is_explained() -> None:
    with ChatServer(faults=["ok", 401]) as server:
        policy = policy_at(server)
        ask(policy)
        assert "authorization" not in server.received[0].headers
        with pytest.raises(RequestFailed, match="no key was sent: set the environment variable OPENAI_API_KEY"):
            ask(policy)


def test_a_key_given_goes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment\n")
    with ChatServer() as server:
        for options in ({}, {"api_key": "given"}, {"api_key": ""}):
            ask(policy_at(server, **options))
        sent = [request.headers.get("authorization") for request in server.received]
    assert sent == ["Bearer from-the-environment", "Bearer given", None]


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    with pytest.raises(ParameterError, match="OPENAI_API_KEY") as caught:
        EndpointPolicy("tiny", "http://localhost", api_key="sk-secret\nX-Other: 1")
    assert "sk-secret" not in str(caught.value)


# --- what is sent and read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_base_url_may_be_written_in_several_ways(form: str) -> None:
    with ChatServer() as server:
        ask(EndpointPolicy("tiny", server.address + form))
        assert server.received[0].path == "/v1/chat/completions"


def test_a_path_with_a_version_of_its_own_is_kept() -> None:
    assert completions_url("https://host/api/v1") == "https://host/api/v1/chat/completions"
    assert completions_url("https://host/v1beta/openai/") == "https://host/v1beta/openai/chat/completions"
    assert completions_url("http://host:80/proxy") == "http://host:80/proxy/v1/chat/completions"
    assert completions_url("https://host/inference/chat/completions/") == "https://host/inference/chat/completions"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "http://host:port", "//host/v1"])
def test_what_is_no_address_is_said_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ParameterError, match="http://localhost:8000/v1"):
        EndpointPolicy("tiny", url)


@pytest.mark.parametrize("url", ["http://me:password@host/v1", "http://host/v1?key=password", "me:password@host"])
def test_an_address_with_a_secret_in_it_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ParameterError) as caught:
        EndpointPolicy("tiny", url)
    assert "=password" not in str(caught.value)
    assert ":password" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"timeout": 0}, {"retries": -1}, {"backoff": -0.1}, {"extra_body": {"stream": True}}],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        EndpointPolicy("tiny", "http://localhost", **options)


def test_the_same_seed_sends_the_same_bodies_and_another_seed_others() -> None:
    sent = []
    for seed in (5, 5, 6):
        with ChatServer() as server:
            play(policy_at(server), seed=seed)
            sent.append(server.bodies)
    assert sent[0] == sent[1]
    seeds = [[body["seed"] for body in bodies] for bodies in sent]
    assert len(set(seeds[0])) == len(seeds[0]), "two requests of a trial must not draw the same"
    assert seeds[0][0] != seeds[2][0]
    assert all(0 <= seed < 2**31 for seed in seeds[0])


def test_a_request_says_how_to_sample() -> None:
    with ChatServer() as server:
        play(policy_at(server), episodes=2, sampling=Sampling(0.25, 0.5, 64), reflection_tokens=99)
        first = dict(server.bodies[0])
        limits = {body["max_tokens"] for body in server.bodies}
    assert [message["role"] for message in first.pop("messages")] == ["system", "user"]
    first.pop("seed")
    assert first == {"model": "tiny", "temperature": 0.25, "top_p": 0.5, "max_tokens": 64, "n": 1, "stream": False}
    assert limits == {64, 99}


def test_extra_fields_are_added_and_none_leaves_one_out() -> None:
    with ChatServer() as server:
        ask(policy_at(server, extra_body={"top_k": 20, "temperature": 1.0, "seed": None}))
        body = server.bodies[0]
    assert (body["top_k"], body["temperature"]) == (20, 1.0)
    assert "seed" not in body


def test_tokens_the_server_counts_are_the_trials() -> None:
    with ChatServer() as server:
        trial = play(policy_at(server))
    assert trial.episodes[0].reflection is not None
    for name in ("prompt_tokens", "completion_tokens"):
        assert sum(getattr(reply, name) for reply in completions(trial)) == sum(used[name] for used in server.usage) > 0


def test_tokens_are_estimated_where_the_server_does_not_count() -> None:
    with ChatServer(faults=["no-usage"], answer=lambda _: "123456789") as server:
        reply = ask(policy_at(server))
    assert (reply.prompt_tokens, reply.completion_tokens) == (2, 3)  # "hello": ⌈5/4⌉; nine characters: ⌈9/4⌉


def test_an_empty_and_a_cut_off_reply_are_faults_of_the_agent_not_of_the_connection() -> None:
    with ChatServer(faults=["empty", "length"], answer=lambda _: "let me think") as server:
        policy = policy_at(server)
        trial = play(policy, episodes=1, memory="none")
    turns = trial.episodes[0].turns
    assert [turn.fault for turn in turns[:3]] == [Fault.EMPTY, Fault.CUT_OFF, Fault.INVALID]
    assert turns[0].reply.text == ""
    assert policy.stats["retries"] == 0


def test_half_a_character_in_a_reply_can_be_sent_again_and_stored() -> None:
    with ChatServer(answer=lambda _: "\ud83d <action>(1, 1)</action>") as server:
        trial = play(policy_at(server), episodes=2)
    assert trial.episodes[0].stop is not StopReason.REQUEST_FAILED
    assert all(reply.text.encode() for reply in completions(trial))


# --- event loops and concurrency -------------------------------------------------------------------------------------


def test_one_policy_serves_event_loops_one_after_another_and_leaves_nothing_open() -> None:
    with ChatServer() as server:
        policy = policy_at(server)
        trials = [play(policy) for _ in range(3)]
        gc.collect()  # an unclosed connection would warn here, and warnings are errors
        assert trials[0] == trials[1] == trials[2]
        assert len({request.port for request in server.received}) == 3, "one connection for each loop, kept open"


def test_it_works_from_inside_a_running_event_loop() -> None:
    with ChatServer() as server:
        policy = policy_at(server)

        async def notebook() -> tuple[Trial, Trial]:
            return mulligan.run_trial_sync(TASK, policy), await mulligan.run_trial(TASK, policy)

        inside, outside = asyncio.run(notebook())
    assert inside == outside


def test_a_closed_policy_opens_again_when_it_is_asked() -> None:
    with ChatServer() as server:
        policy = policy_at(server)

        async def twice() -> list[Completion]:
            replies = []
            for _ in range(2):
                replies.append(await policy.start(TASK, 0).reply(HELLO, Sampling()))
                await policy.aclose()
            await policy.aclose()
            return replies

        first, second = asyncio.run(twice())
        assert first == second
        assert len({request.port for request in server.received}) == 2


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    with ChatServer(hold=0.05) as server:
        policy = policy_at(server, concurrency=3)

        async def many() -> None:
            await asyncio.gather(*(policy.start(TASK, seed).reply(HELLO, Sampling()) for seed in range(12)))

        asyncio.run(many())
    assert server.answered == 12
    assert server.most_in_flight == 3


def test_a_cancelled_reply_frees_its_place() -> None:
    with ChatServer(faults=["slow"]) as server:
        policy = policy_at(server, concurrency=1)

        async def cancelled() -> Completion:
            stuck = asyncio.ensure_future(policy.start(TASK, 0).reply(HELLO, Sampling()))
            while not server.received:
                await asyncio.sleep(0.01)
            stuck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stuck
            return await asyncio.wait_for(policy.start(TASK, 1).reply(HELLO, Sampling()), 10)

        assert asyncio.run(cancelled()).text


def test_a_pause_does_not_keep_others_from_asking() -> None:
    """With one place, a request that waits for its next try must give it up."""
    others: list[Completion] = []
    with ChatServer(faults=[429]) as server:

        async def meanwhile(seconds: float) -> None:
            others.append(await asyncio.wait_for(policy.start(TASK, 1).reply(HELLO, Sampling()), 10))

        policy = policy_at(server, concurrency=1, sleep=meanwhile)
        ask(policy)
    assert len(others) == 1


def test_the_benchmark_asks_a_server_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "CONCURRENCY", (4, 8))
    monkeypatch.setattr(benchmark, "ROUNDS", 2)
    rows = benchmark.run().rows
    assert [row["requests at a time"] for row in rows] == [4, 8]
    assert all(0 < row["requests/s"] < row["at most"] for row in rows)


def test_importing_the_package_does_not_load_the_http_library() -> None:
    code = "import mulligan, mulligan.policy.endpoint, sys; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
