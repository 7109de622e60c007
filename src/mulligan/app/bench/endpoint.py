"""Requests per second to a model behind HTTP, and the processor time that each costs this process.

The server is a process of its own on this machine, and answers every request after 0.2 s, so that at concurrency 32
nobody can do more than 160 requests a second. It takes its share of the cores.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress

from mulligan.app.bench import Cell, Report
from mulligan.envs import registry
from mulligan.policy.endpoint import EndpointPolicy
from mulligan.types import Message, Sampling

DELAY = 0.2
CONCURRENCY = (32, 64, 256)
ROUNDS = 12
"""Requests of each conversation; the first of them opens a connection and is not timed."""
_MESSAGES: list[Message] = [{"role": "system", "content": "rules " * 200}, {"role": "user", "content": "board " * 100}]


def run() -> Report:
    command = [sys.executable, "-c", "from mulligan.app.bench.endpoint import serve; serve()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            rows = [asyncio.run(_measure(port, concurrency)) for concurrency in CONCURRENCY]
        finally:
            server.terminate()
    return Report(f"An endpoint that answers after {DELAY:g} s", rows)


async def _measure(port: int, concurrency: int) -> dict[str, Cell]:
    policy = EndpointPolicy("model", f"http://127.0.0.1:{port}", concurrency=concurrency, api_key="")
    task = registry.task_of("bandit", 0, {})
    conversations = [policy.start(task, seed) for seed in range(concurrency)]

    async def talk(rounds: int) -> None:
        async def ask(number: int) -> None:
            for _ in range(rounds):
                await conversations[number].reply(_MESSAGES, Sampling())

        await asyncio.gather(*map(ask, range(concurrency)))

    await talk(1)
    started, processor = time.perf_counter(), time.process_time()
    await talk(ROUNDS - 1)
    took, processor = time.perf_counter() - started, time.process_time() - processor
    await policy.aclose()
    requests = concurrency * (ROUNDS - 1)
    return {
        "requests at a time": concurrency,
        "requests/s": requests / took,
        "at most": concurrency / DELAY,
        "processor ms a request": 1000 * processor / requests,
    }


def serve() -> None:
    """The server; prints its port."""
    serve_with(Answers)


def serve_with(answers: type[Answers]) -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(answers))


async def _serve(answers: type[Answers]) -> None:
    server = await asyncio.get_running_loop().create_server(answers, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


class Answers(asyncio.Protocol):
    """One connection, whose every request gets the same answer after `delay` seconds."""

    delay = DELAY
    transport: asyncio.Transport
    text = json.dumps(
        {
            "choices": [
                {"message": {"role": "assistant", "content": "<action>(1, 1)</action>"}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 400, "completion_tokens": 9},
        }
    ).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
        if length and len(body) == int(length):
            self.received = b""
            asyncio.get_running_loop().call_later(self.delay, self.transport.write, self.answer)
