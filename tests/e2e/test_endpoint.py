"""The endpoint policy over real HTTP on 127.0.0.1, against a server that fails in every way."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.chat_server import ChatServer, Received

import mulligan
from mulligan.cli import main
from mulligan.errors import ContextFull, Fault, ParameterError, PolicyError, RequestFailed, StopReason
from mulligan.eval.run import EvalResult, evaluate
from mulligan.policy.endpoint import EndpointPolicy, completions_url, server_message
from mulligan.report.run import trial_to_dict
from mulligan.trial.runner import run_trial
from mulligan.types import Completion, Message, Sampling, Trial

TASK = mulligan.make_task("minesweeper", seed=3, rows=4, cols=4, mines=3)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key and no proxy from outside; and connections left open are found in the test that left them."""
    for name in ("OPENAI_API_KEY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield
    gc.collect()


class Waits(list[float]):
    """Stands for `asyncio.sleep`: writes down how long, and goes on at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def policy_at(server: ChatServer, **options: Any) -> EndpointPolicy:
    return EndpointPolicy("tiny", server.base_url, **{"backoff": 0.0, "timeout": 20.0, **options})


def play(policy: EndpointPolicy, **options: Any) -> Trial:
    return asyncio.run(run_trial(TASK, policy, **options))


def ask(policy: EndpointPolicy, seed: int = 0) -> Completion:
    return asyncio.run(policy.start(TASK, seed).reply(HELLO, Sampling()))


def completions(trial: Trial) -> list[Completion]:
    found = [turn.reply for episode in trial.episodes for turn in episode.turns]
    written = [episode.reflection for episode in trial.episodes if episode.reflection is not None]
    return found + [reflection.completion for reflection in written if reflection.completion is not None]


def first_tries_fail(faults: list[int | str]) -> Callable[[Received], int | str]:
    """Every request meets the next fault of the list on its first try, and the one after that on its second."""
    met: Counter[str] = Counter()

    def plan(request: Received) -> int | str:
        if request.attempt > 1:
            return "ok"
        met["faults"] += 1
        return faults[met["faults"] % len(faults)]

    return plan


# --- nothing is lost -------------------------------------------------------------------------------------------------


def test_a_trial_through_every_passing_fault_is_the_trial_without_faults() -> None:
    with ChatServer() as calm:
        expected = play(policy_at(calm))
    assert len(calm.received) >= 8, "the trial is too short to meet every fault"
    faults: list[int | str] = [429, 500, "cut", "garbage", 503, "slow", "drop", "error", 408, "ok", 529]
    faults += [429, 500, "cut", "garbage", 503, "ok"]  # one slow answer is enough to wait for
    planned: Counter[str] = Counter()
    plan = first_tries_fail(faults)

    def counted(request: Received) -> int | str:
        fault = plan(request)
        planned[str(fault)] += 1
        return fault

    with ChatServer(faults=counted) as stormy:
        policy = policy_at(stormy, timeout=1.5)
        assert play(policy) == expected
    names = {"cut": "cut off", "drop": "cut off", "garbage": "garbled", "error": "garbled", "slow": "timeout"}
    met: Counter[str] = Counter()
    for fault, times in planned.items():
        if fault != "ok":
            met[names.get(fault, fault)] += times
    assert {"429", "500", "cut off", "garbled", "timeout"} <= met.keys()
    assert policy.stats == {
        "requests": len(stormy.received),
        "answers": len(calm.received),
        "retries": sum(met.values()),
        "failed": 0,
        "faults": dict(met),
    }
    assert stormy.answered == calm.answered, "no answer was paid for twice"


def test_a_request_that_fails_for_good_ends_its_episode_and_the_trial_goes_on() -> None:
    with ChatServer(faults=["ok", 500, "cut", 503]) as server:
        policy = policy_at(server, retries=2)
        trial = play(policy, episodes=2, memory="none")
        first, second = trial.episodes
        assert first.stop is StopReason.REQUEST_FAILED
        assert len(first.turns) == 1
        assert f"{server.base_url}/chat/completions after 3 tries; the last failure: 503: try later" in first.error
        assert second.stop in (StopReason.WON, StopReason.LOST)
        assert policy.stats["failed"] == 1
        assert policy.stats["faults"] == {"500": 1, "503": 1, "cut off": 1}


def test_a_server_that_is_not_there_is_named_with_its_address() -> None:
    with ChatServer() as server:
        address = server.address
    policy = EndpointPolicy("tiny", address, retries=1, backoff=0.0)
    with pytest.raises(RequestFailed, match=f"{address}/v1/chat/completions after 2 tries.*could not connect"):
        ask(policy)
    assert policy.stats["faults"] == {"connection": 2}


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_statuses_that_may_pass_are_tried_again(status: int) -> None:
    with ChatServer(faults=[status], answer=lambda _: "hi") as server:
        assert ask(policy_at(server)).text == "hi"
        assert len(server.received) == 2


@pytest.mark.parametrize("status", [301, 400, 403, 404, 422])
def test_statuses_that_will_not_pass_fail_at_once_in_one_line(status: int) -> None:
    with ChatServer(faults=[status], message="no such\nmodel: tiny") as server:
        with pytest.raises(RequestFailed) as caught:
            ask(policy_at(server))
        assert len(server.received) == 1
        assert f"{server.base_url}/chat/completions answered {status}: no such model: tiny" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_empty_account_is_not_asked_again() -> None:
    with ChatServer(faults=["quota"]) as server, pytest.raises(RequestFailed, match="answered 429: refused"):
        ask(policy_at(server))
    assert len(server.received) == 1


# --- context ---------------------------------------------------------------------------------------------------------

TOO_LONG = [
    "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens.",
    "You passed 1015 input tokens. However, the model's context length is only 1024 tokens.",
    "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length",
    "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
    "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_every_servers_words_for_too_long_are_understood(message: str) -> None:
    with ChatServer(faults=[400], message=message) as server:
        with pytest.raises(ContextFull):
            ask(policy_at(server))
        assert len(server.received) == 1


def test_an_error_in_a_list_is_read_as_the_error_alone() -> None:
    error = {"error": {"code": 400, "message": "The input token count (9) exceeds the maximum", "status": "INVALID"}}
    assert server_message(json.dumps([error]).encode()) == server_message(json.dumps(error).encode())


def test_a_full_context_ends_the_episode_as_such() -> None:
    with ChatServer(faults=["ok", "context"]) as server:
        policy = policy_at(server)
        trial = play(policy, episodes=2, memory="none")
    assert trial.episodes[0].stop is StopReason.CONTEXT_FULL
    assert trial.episodes[1].stop is not StopReason.CONTEXT_FULL
    assert not trial.failed
    assert policy.stats["faults"] == {"context full": 1}
    assert policy.stats["failed"] == 0


# --- pauses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.25"}, 0.25),
        ({"Retry-After": "3600"}, 60.0),  # longer than anybody should wait
        # half a minute by the server's clock, whatever ours shows
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0.0),  # long past by ours
        ({"Retry-After": "soon"}, 0.0),  # as if it were not there: backoff is 0 here
        ({"Retry-After": "nan"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
    ],
)
def test_retry_after_is_honoured(headers: dict[str, str], seconds: float) -> None:
    waits = Waits()
    with ChatServer(faults=[429, 503], headers=headers) as server:
        ask(policy_at(server, sleep=waits))
    assert waits == [seconds, seconds]


def test_pauses_double_are_spread_and_are_the_same_for_the_same_seed() -> None:
    def waits_of(seed: int) -> Waits:
        waits = Waits()
        with ChatServer(faults=[500] * 9) as server:
            ask(policy_at(server, backoff=1.0, retries=9, sleep=waits), seed)
        return waits

    waits = waits_of(1)
    assert len(waits) == 9
    # 1, 2, 4, …, 32, then 64, 128, 256 held at 60; each taken from its upper half
    for attempt, wait in enumerate(waits):
        longest = min(2.0**attempt, 60.0)
        assert longest / 2 <= wait <= longest
    assert waits == waits_of(1)
    assert waits != waits_of(2)


@pytest.mark.parametrize(("faults", "code"), [([400] * 2, 1), ([400, "ok"], 0)], ids=["all failed", "one failed"])
def test_an_evaluation_without_a_single_answer_is_no_success(
    faults: list[Any], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that looks at the exit code must not go on with zeros that nobody played for."""
    monkeypatch.chdir(tmp_path)
    words = ["bandit", "--tasks", "2", "--episodes", "1", "--no-room", "--controls", "", "--concurrency", "1"]
    with ChatServer(faults=faults) as server, pytest.raises(SystemExit) as stopped:
        main(["eval", *words, "--policy", "endpoint:m", "--base-url", server.base_url])
    assert int(stopped.value.code or 0) == code
    assert ("every trial failed" in capsys.readouterr().err) == bool(code)


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
    assert "MY_KEY" in error
    assert "***" in error
    for shown in (error, repr(policy), caplog.text, json.dumps(trial_to_dict(trial)), json.dumps(policy.stats)):
        assert KEY not in shown


def test_without_a_key_none_is_sent_and_a_server_that_wants_one_is_explained() -> None:
    with ChatServer(faults=["ok", 401]) as server:
        policy = policy_at(server)
        ask(policy)
        assert "authorization" not in server.received[0].headers
        with pytest.raises(RequestFailed, match=r"no key was sent.*OPENAI_API_KEY"):
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


def test_importing_the_package_does_not_load_the_http_library() -> None:
    code = "import mulligan, mulligan.policy.endpoint, sys; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- evaluations -----------------------------------------------------------------------------------------------------


def evaluate_at(server: ChatServer, **options: Any) -> EvalResult:
    policy = options.pop("policy", None) or policy_at(server)
    asked = {"tasks": 30, "params": {"rows": 4, "cols": 4, "mines": 2}, "episodes": 2, "controls": (), "room": False}
    return evaluate("minesweeper", policy, **{**asked, **options})


def test_an_evaluation_through_faults_finds_the_same_numbers() -> None:
    with ChatServer() as calm:
        expected = evaluate_at(calm)
    assert 0.0 < expected.p[0] < expected.p[1] < 1.0
    faults: list[int | str] = [429, "ok", 500, "cut", "ok", "garbage", "ok", "drop"]
    with ChatServer(faults=first_tries_fail(faults), headers={"Retry-After": "0.001"}) as stormy:
        policy = policy_at(stormy)
        found = evaluate_at(stormy, policy=policy)
    assert found.p == expected.p
    assert found.trials == expected.trials
    assert found.complete
    assert stormy.answered == calm.answered
    stats = policy.stats
    assert stats["requests"] == len(stormy.received) == stats["answers"] + sum(stats["faults"].values())
    assert stats["retries"] == sum(stats["faults"].values()) > 100
    assert stats["failed"] == 0


def test_an_interrupted_evaluation_goes_on_without_paying_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer() as server:
        expected = evaluate_at(server, tasks=12, controls=("independent",), concurrency=1)
        whole = server.answered

    def interrupt(arm: str, done: int, total: int) -> None:
        if (arm, done) == ("independent", 5):
            raise KeyboardInterrupt

    options: dict[str, Any] = {"tasks": 12, "controls": ("independent",), "concurrency": 1, "run": tmp_path / "run"}
    with ChatServer() as server:
        with pytest.raises(KeyboardInterrupt):
            evaluate_at(server, **options, progress=interrupt)
        assert 0 < server.answered < whole
        found = evaluate_at(server, **options, resume=True)
        assert server.answered == whole
    assert found.p == expected.p
    assert found.trials == expected.trials
    for file in (tmp_path / "run").rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes()


def test_trials_that_could_not_be_asked_are_played_when_the_evaluation_is_resumed(tmp_path: Path) -> None:
    """The model goes away after its fortieth answer; the second run plays what is missing."""
    with ChatServer() as server:
        expected = evaluate_at(server, tasks=12)
    assert server.answered > 40
    with ChatServer(faults=["ok"] * 40 + [503] * 10_000) as server:
        broken = evaluate_at(server, policy=policy_at(server, retries=1), tasks=12, run=tmp_path / "run")
        assert any(trial.failed for trial in broken.trials)
        server.faults = ()
        found = evaluate_at(server, tasks=12, run=tmp_path / "run", resume=True)
    assert not any(trial.failed for trial in found.trials)
    assert found.p == expected.p


def test_an_evaluation_of_a_model_that_never_answers_says_so() -> None:
    with ChatServer(faults=lambda _: 404, message="no model tiny") as server:
        with pytest.raises(PolicyError, match="answered 404: no model tiny"):
            evaluate_at(server)
        assert len(server.received) < 60
