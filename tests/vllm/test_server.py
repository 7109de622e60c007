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
    command = [BIN / "vllm", "serve", tiny_llama, "--port", str(port), *options, "--kv-cache-memory-bytes", str(2**26)]
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
    """Two tasks of three attempts and the control; every reply came from the server, with its own counts of tokens."""
    run = tmp_path / "run"
    asked = metric(server, "vllm:request_success_total")
    options = ["--base-url", f"{server}/v1", "--tasks", "2", "--max-tokens", "16", "--run", str(run), "--json", "--yes"]
    done = subprocess.run(
        [BIN / "mulligan", "eval", "bandit", "--policy", "endpoint:tiny", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    replies = metric(server, "vllm:request_success_total") - asked
    assert replies >= 2 * 3
    assert result["tasks"] == 2
    assert metric(server, "vllm:prefix_cache_hits_total") > 0, "attempts begin with the same rules"


def metric(server, name):
    """The sum of a counter of vLLM's own metrics."""
    lines = httpx.get(f"{server}/metrics", timeout=30).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and line[len(name)] in "{ ")
