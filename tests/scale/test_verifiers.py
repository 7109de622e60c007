"""`vf-eval` plays trials against a server: an agent for each attempt, whose trace has the return across episodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from chat_server import play

pytestmark = pytest.mark.scale
pytest.importorskip("verifiers", reason="verifiers has an environment of its own; see make test-scale")
BIN = Path(sys.executable).parent
GAMMA = 0.5


class Streaming(BaseHTTPRequestHandler):
    """A model that opens a closed cell, word by word."""

    asked: list[list[dict[str, Any]]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = [{**message, "content": _text(message["content"])} for message in body["messages"]]
        self.asked.append(messages)
        about = {"id": "x", "created": 0, "model": body["model"]}
        answer = {"role": "assistant", "content": play(messages)}
        if not body.get("stream"):
            choice = {"index": 0, "message": answer, "finish_reason": "stop"}
            return self._send("application/json", {**about, "object": "chat.completion", "choices": [choice]})
        parts = [(answer, None), ({}, "stop")]
        chunks = [
            {**about, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d, "finish_reason": f}]}
            for d, f in parts
        ]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        return self._send("text/event-stream", text)

    def _send(self, kind: str, content: object) -> None:
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Streaming) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/v1"
        listening.shutdown()


def test_vf_eval_plays_trials(server, tmp_path):
    words = ["mulligan-verifiers", "--env.taskset.env", "minesweeper", "-m", "any", "--client.base-url", server]
    words += ["--env.episodes", "2", "--env.memory", "both", "--env.gamma-traj", str(GAMMA), "--env.gamma-step", "1"]
    words += ["-n", "2", "-r", "2", "--no-rich", "--no-push", "-o", str(tmp_path)]
    around = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OPENAI_API_KEY": "unused"}
    command = [str(BIN / "vf-eval"), *words, "--client.api-key-var", "OPENAI_API_KEY"]
    ended = subprocess.run(command, env=around, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    (traces,) = tmp_path.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in traces.read_text().splitlines()]
    assert len(episodes) == 4
    assert all(episode["ok"] for episode in episodes), episodes[0]["errors"]
    two_attempts = [episode["traces"] for episode in episodes if len(episode["traces"]) == 2]
    assert two_attempts, "no trial needed a second attempt"
    for first, second in two_attempts:
        assert (first["agent"]["name"], second["agent"]["name"]) == ("attempt1", "attempt2")
        own = [sum(trace["info"]["mulligan"]["rewards"]) for trace in (first, second)]
        returns = [trace["rewards"]["return"]["score"] for trace in (first, second)]
        assert returns == pytest.approx([own[0] + GAMMA * own[1], own[1]])
    beginnings = [messages for messages in Streaming.asked if len(messages) == 2]
    remembered = [messages[1]["content"] for messages in beginnings if "Episode 2 of 2" in messages[1]["content"]]
    assert any("guess" in text for text in remembered), "the second attempt is shown the note of the first"
    assert any("Write a short reflection" in messages[-1]["content"] for messages in Streaming.asked)
