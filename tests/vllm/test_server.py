"""vLLM's OpenAI server as the endpoint of `mulligan eval`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def server(tiny_llama, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("server") / "log").open("w")
    options = ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager"]
    options += ["--port", str(port), "--kv-cache-memory-bytes", str(2**26)]
    # `vllm serve` asks for the version of a package "vllm", which the build for CPUs is not called.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", tiny_llama, *options]
    process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        while not answers(f"{url}/health"):
            assert process.poll() is None, Path(log.name).read_text()[-4000:]
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait()
        log.close()


def answers(url):
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_its_server_plays_in_an_evaluation(server, tmp_path):
    """Two tasks, with a note after each attempt that failed, and the control: vLLM itself counts replies."""
    run = tmp_path / "run"
    options = ["--base-url", f"{server}/v1", "--tasks", "2", "--max-tokens", "16", "--run", str(run), "--json", "--yes"]
    command = [BIN / "mulligan", "eval", "bandit", "--policy", "endpoint:tiny", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["trials"] == 2
    assert result["failed"] == 0
    assert metric(server, "vllm:request_success_total") >= 6


def metric(server, name):
    """The sum of a counter of vLLM's own metrics."""
    lines = httpx.get(f"{server}/metrics", timeout=30).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and line[len(name)] in "{ ")
