"""The endpoint policy over real HTTP on 127.0.0.1, against a server that fails in every way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import KEY, ask, play, policy_at
from tests.e2e.chat_server import ChatServer, Received

from mulligan import EvalResult, evaluate
from mulligan.app.cli import main
from mulligan.errors import ContextFull, ParameterError, PolicyError, RequestFailed, StopReason
from mulligan.policy.endpoint import EndpointPolicy, server_message

pytestmark = pytest.mark.usefixtures("_bare_environment")


class Waits(list[float]):
    """Stands for `asyncio.sleep`: writes down how long, and goes on at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


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
    policy = EndpointPolicy("tiny", address, retries=5, backoff=0.0)
    with pytest.raises(RequestFailed, match=f"{address}/v1/chat/completions after 2 tries"):
        ask(policy)  # two tries are enough where nobody has ever answered
    assert policy.stats["faults"] == {"connection": 2}


def test_a_key_given_as_the_variables_name_is_not_repeated() -> None:
    with pytest.raises(ParameterError, match="environment variable that is set") as caught:
        EndpointPolicy("tiny", "http://127.0.0.1:9", api_key_env="sk-secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(ParameterError, match="got MY_KEY"):
        EndpointPolicy("tiny", "http://127.0.0.1:9", api_key_env="MY_KEY")


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
    with ChatServer(faults=["quota"]) as server, pytest.raises(RequestFailed, match="429"):
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


def test_an_evaluation_that_reaches_no_model_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["eval", "bandit", "--policy", "endpoint:m", "--tasks", "20", "--no-room", "--run", "mine"]
    with ChatServer(faults=lambda _: 404) as server, pytest.raises(SystemExit):
        main([*words, "--base-url", server.base_url])
    assert capsys.readouterr().err.endswith("; continue with: mulligan eval --resume mine --trust\n")
    with ChatServer() as server, pytest.raises(SystemExit) as stopped:
        main(["eval", "--resume", "mine", "--base-url", server.base_url])
    assert not stopped.value.code


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
        assert found.requests["requests"] == len(server.received)  # before the interruption too
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
        with pytest.raises(PolicyError, match=r"404: no model tiny; .* /v1, .* 'tiny'"):
            evaluate_at(server)
        assert len(server.received) < 60
