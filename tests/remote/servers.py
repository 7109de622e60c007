"""A Tinker server of SkyRL on JAX and the CPU, as a process that a test starts, kills and starts again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/tinker/bin/python"
"""Of the environment that `make test-tinker` makes."""
COMPILED = ROOT / "build/tinker-compiled"
"""What JAX has compiled: servers that start later, and tests that run again, read it."""
CONFIG = '{"max_lora_adapters": 4, "max_lora_rank": 32, "sample_max_num_sequences": 16, "train_micro_batch_size": 8}'
"""Adapter 0 is the base model, so that three are left. Sampling is compiled for 16 sequences at a time, and updates for
8 rows: compiling takes longer than all else."""


@dataclass
class SkyRL:
    """A server of one base model, with its database and checkpoints in a folder."""

    folder: Path
    base: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it answers."""
        self.port = self.port or free_port()
        words = f"--port {self.port} --base-model {self.base} --backend jax --checkpoints-base {self.folder}/saved"
        words += f" --database-url sqlite:///{self.folder}/server.db"
        variables = {
            "JAX_PLATFORMS": "cpu",
            "HF_HUB_OFFLINE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(PYTHON), str(ROOT / "tests/remote/skyrl_server.py"), *words.split(), "--backend-config", CONFIG],
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                httpx.get(f"{self.url}/api/v1/healthz", timeout=5)
                return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError((self.folder / "server.log").read_text()[-2000:])

    def kill(self) -> None:
        """End it and the process that computes, at once."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
