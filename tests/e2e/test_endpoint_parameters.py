"""Servers that want other parameters, in the words of real ones; and the address of the environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import KEY, ask, policy_at
from tests.e2e.chat_server import ChatServer, Received
from tests.tool_worlds import SafeOfTools

import mulligan
from mulligan.app.cli import main
from mulligan.errors import ParameterError, RequestFailed, UsageError
from mulligan.players import player_from
from mulligan.policy.endpoint import EndpointPolicy, parameter_hint

pytestmark = pytest.mark.usefixtures("_bare_environment")
REASONING = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
FIXED = (
    "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
)
BODY = {"max_tokens": 512, "temperature": 0.7, "top_p": 1.0, "seed": 3, "model": "m", "messages": [], "n": 1}


def run_command(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (REASONING, {"max_tokens": None, "max_completion_tokens": 512}),
        (FIXED, {"temperature": None}),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", {"top_p": None}),
        ("Unrecognized request argument supplied: seed", {"seed": None}),
        ('Invalid JSON payload received. Unknown name "seed": Cannot find field.', {"seed": None}),
        ("property 'seed' is unsupported", {"seed": None}),
        (
            '[{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]',
            {"seed": None},
        ),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            {"tools": None},
        ),
        ("registry.ollama.ai/library/llama2 does not support tools", {"tools": None}),
        ("Missing required parameter: 'reasoning_effort'", {"reasoning_effort": "VALUE"}),
        ("max_output: Field required", {"max_output": "VALUE"}),
    ],
)
def test_a_wish_for_another_parameter_names_the_option(message: str, fields: dict[str, Any]) -> None:
    hint = parameter_hint(message, {**BODY, "tools": [{}]}, {"top_k": 20})
    words = shlex.split(hint.removeprefix("; add "))
    assert words[0] == "--extra-body"
    assert json.loads(words[1]) == {"top_k": 20, **fields}


def test_what_a_user_added_is_to_be_left_out_again() -> None:
    for field in ("stop", "logprobs"):
        hint = parameter_hint(f"'{field}' is not supported with this model", {**BODY, field: 1}, {field: 1, "top_k": 2})
        assert hint == f"; leave '{field}' out of --extra-body (in Python extra_body)"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no such model",
        "max_tokens is too large: 512",
        "Use 'model' instead",
        "Unsupported",
        "Missing required parameter: 'messages'",
        "the max_tokens_limit is not supported",
    ],
)
def test_other_refusals_get_no_advice(message: str) -> None:
    assert parameter_hint(message, BODY, {}) == ""


def wants(accepts: Callable[[dict[str, Any]], bool]) -> Callable[[Received], int | str]:
    return lambda request: "ok" if accepts(request.body) else 400


def test_who_follows_the_advice_gets_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that reasons: it takes neither max_tokens nor a temperature, and says so one after the other."""
    words = ["eval", "bandit", "--tasks", "9", "--episodes", "1", "--no-room", "--controls", "off", "--policy"]
    with ChatServer(faults=wants(lambda body: "max_tokens" not in body), message=REASONING) as server:
        assert run_command(*words, "endpoint:m", "--base-url", server.base_url, "--run", "run") == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert "answered 400: Unsupported parameter: 'max_tokens'" in told
        option = shlex.split(told.partition("; add ")[2].partition(" (in Python")[0])
        server.faults = wants(lambda body: "max_tokens" not in body and "temperature" not in body)
        server.message = FIXED
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url, *option) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        option = shlex.split(told.partition("; add ")[2].partition(" (in Python")[0])
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url, *option) == 0
        assert server.bodies[-1]["max_completion_tokens"] == 512
        assert "temperature" not in server.bodies[-1]


def test_a_server_without_tools_is_told_how_to_play_in_text() -> None:
    without_tools = wants(lambda body: "tools" not in body)
    with ChatServer(faults=without_tools, message="llama2 does not support tools") as server:
        with pytest.warns(UserWarning, match="--extra-body '{\"tools\": null}'"):
            mulligan.run_trial_sync(mulligan.make_task(SafeOfTools), policy_at(server), episodes=1)
        trial = mulligan.run_trial_sync(
            mulligan.make_task(SafeOfTools), policy_at(server, extra_body={"tools": None}), episodes=1
        )
    assert not trial.failed


# --- what real servers refuse with -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "told", "requests"),
    [
        (
            401,
            {
                "message": f"Incorrect API key provided: {KEY}.",
                "type": "invalid_request_error",
                "code": "invalid_api_key",
            },
            "the key was refused: check the environment variable OPENAI_API_KEY",
            1,
        ),
        (
            404,
            {"message": "The model `m` does not exist", "type": "invalid_request_error", "code": "model_not_found"},
            "that the server has a model 'tiny'",
            1,
        ),
        (413, {"message": "Request too large", "type": "invalid_request_error"}, "413: Request too large", 1),
        (429, {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}, "after 3 tries", 3),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "429: You exceeded", 1),
    ],
)
def test_refusals_of_real_servers_are_one_line_with_what_to_do(
    status: int, error: dict[str, Any], told: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with ChatServer(faults=lambda _: status, error=error, headers={"Retry-After": "7"}) as server:
        with pytest.raises(RequestFailed) as caught:
            ask(policy_at(server, retries=2, sleep=sleep))
        assert len(server.received) == requests
    assert told in str(caught.value)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert waits == [7.0] * (2 if requests == 3 else 0)  # after the last try nobody waits


# --- the address of the environment ----------------------------------------------------------------------------------

PLAYED = ["--tasks", "2", "--episodes", "1", "--no-room", "--controls", "off", "--run", "run"]


def test_the_address_is_read_from_the_environment_unless_one_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer() as named, ChatServer() as typed:
        monkeypatch.setenv("OPENAI_BASE_URL", named.base_url)
        ask(EndpointPolicy("tiny"))
        ask(EndpointPolicy("tiny", typed.base_url))
        assert (len(named.received), len(typed.received)) == (1, 1)
        assert run_command("eval", "bandit", "--policy", "endpoint:m", *PLAYED) == 0
        assert (len(named.received), len(typed.received)) == (3, 1)
        assert named.base_url in Path("run/config.toml").read_text()
        assert run_command("eval", "bandit", "--policy", "random", "--tasks", "2") == 0, "it is for endpoints alone"
        assert isinstance(player_from("endpoint:m"), EndpointPolicy)


def test_without_an_address_it_is_told_where_to_give_one() -> None:
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        player_from("endpoint:m")
    with pytest.raises(ParameterError, match="http://localhost:8000/v1"):
        EndpointPolicy("m")


def test_a_folder_is_resumed_only_with_an_address_that_is_typed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be somebody else's, who would decide that this machine pays for requests."""
    with ChatServer(faults=[400]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert run_command("eval", "bandit", "--policy", "endpoint:m", "--concurrency", "1", *PLAYED) == 0
        asked = len(server.received)
        assert run_command("eval", "--resume", "run") == 2
        assert f"if you mean them, add --base-url {server.base_url}" in capsys.readouterr().err
        config = Path("run/config.toml")
        lines = [line for line in config.read_text().splitlines() if not line.startswith("base_url")]
        config.write_text("\n".join(lines) + "\n")
        for trust in ([], ["--trust"]):
            assert run_command("eval", "--resume", "run", *trust) == 2
            assert "run names no server; add --base-url URL" in capsys.readouterr().err
        assert len(server.received) == asked
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url) == 0
        assert len(server.received) == asked + 1
