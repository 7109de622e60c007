"""What the journal's proxy adds to a request, against an upstream that answers at once.

Upstream, proxy and client are three processes on this machine and share its cores; the proxy is one process with one
event loop. The journal holds 250 notes of the class. Added is the difference of medians, request after request; the
pairs are measured in turns, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from mulligan.app.bench import Cell, Report
from mulligan.app.bench.endpoint import Answers, serve_with
from mulligan.journal.journal import Journal

NOTES = 250
ROUNDS, EACH = 6, 100
"""Requests one after the other: so many turns, of so many each."""
CONCURRENCY, REQUESTS = 32, 6_000
_BODY = json.dumps(
    {
        "model": "m",
        "messages": [{"role": "system", "content": "rules " * 200}, {"role": "user", "content": "order " * 100}],
    }
).encode()
KINDS = {
    "each request an episode of its own": "",
    "ten requests an episode": "Mulligan-Episode: bench-{episode}\r\n",
}


def run() -> Report:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "journal.db"
        with Journal(database, hold_out=0.0) as journal:
            for number in range(NOTES):
                plan = f"lesson {number}: look at the order and at its history before anything is promised"
                journal.add_note("bench", plan=plan, not_when=f"the order is older than {number} days")
        upstream = [sys.executable, "-c", "from mulligan.app.bench.proxy import serve; serve()"]
        with _started(upstream, sys.stdout) as (direct, _):
            command = [sys.executable, "-m", "mulligan", "serve", "--upstream", f"{direct}/v1", "--port", "0"]
            with _started([*command, "--journal", str(database), "--hold-out", "0"], sys.stderr) as (proxied, pid):
                rows = [asyncio.run(_measure(kind, direct, proxied, pid)) for kind in KINDS]
    return Report(f"The journal's proxy, {NOTES} notes, an instant upstream, {_cores()}", rows)


def _cores() -> str:
    busy = f", load average {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores{busy}"


@contextmanager
def _started(command: list[str], says_its_port_on: object) -> Iterator[tuple[str, int]]:
    """A server as a process of its own; gives its address, which its output names, and its process number."""
    on_stdout = says_its_port_on is sys.stdout
    streams = {"stdout" if on_stdout else "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as server:  # type: ignore[call-overload]
        try:
            for line in server.stdout if on_stdout else server.stderr:
                if (port := re.search(r"(\d+)(?:/v1)?$", line.strip())) and (on_stdout or "base URL" in line):
                    break
            else:
                raise RuntimeError(f"{command[-1]} ended before it named its port")
            yield f"http://127.0.0.1:{port[1]}", server.pid
        finally:
            server.terminate()


def _processor_seconds(pid: int) -> float:
    """Of a process so far, as Linux tells it; NaN elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure(kind: str, direct: str, proxied: str, pid: int) -> dict[str, Cell]:
    number = 0
    times: dict[str, list[float]] = {direct: [], proxied: []}
    for address in times:
        await _ask(address, kind, EACH, number)  # opens connections, reads the notes
    for _ in range(ROUNDS):
        for address, seconds in times.items():
            number += EACH
            seconds += await _ask(address, kind, EACH, number)
    began, processor = time.perf_counter(), _processor_seconds(pid)
    each = REQUESTS // CONCURRENCY
    starts = range(number + EACH, number + EACH + REQUESTS, each)
    asked = await asyncio.gather(*(_ask(proxied, kind, each, start) for start in starts))
    took, processor = time.perf_counter() - began, _processor_seconds(pid) - processor
    without, with_proxy = (1000 * median(seconds) for seconds in times.values())
    return {
        "": kind,
        "direct ms": f"{without:.2f}",
        "through the proxy ms": f"{with_proxy:.2f}",
        "added ms": f"{with_proxy - without:.2f}",
        f"requests/s, {CONCURRENCY} at a time": sum(map(len, asked)) / took,
        "processor ms a request": f"{1000 * processor / sum(map(len, asked)):.2f}",
    }


async def _ask(address: str, kind: str, count: int, start: int) -> list[float]:
    """Seconds of each of `count` requests on one connection."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    seconds = []
    for number in range(start, start + count):
        named = KINDS[kind].format(episode=number // 10)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nMulligan-Class: bench\r\n{named}"
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY
        began = time.perf_counter()
        writer.write(request)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"^content-length: (\d+)", answered, re.MULTILINE)
        await reader.readexactly(int(length[1]) if length else 0)
        seconds.append(time.perf_counter() - began)
        if " 200 " not in answered.partition("\r\n")[0]:
            raise RuntimeError(f"{address} answered {answered[:80]!r}")
    writer.close()
    await writer.wait_closed()
    return seconds


def serve() -> None:
    """The upstream; prints its port."""
    serve_with(_AtOnce)


class _AtOnce(Answers):
    delay = 0.0
