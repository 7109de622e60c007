"""A world whose steps never end, but for the first tasks of a set; it says when it hangs."""

from __future__ import annotations

import sys
import threading
import time
from typing import ClassVar

from mulligan.types import Step, Task


class Hanging:
    """Say anything, twice."""

    turns: ClassVar[int] = 2
    defaults: ClassVar[dict[str, str | int]] = {"how": "sleep", "where": "step", "free": 3, "half": False}

    def __init__(self, task: Task) -> None:
        self.task = task
        if task["where"] == "__init__":
            self.hang()

    def rules(self) -> str:
        return "Say anything."

    def reset(self, chance: int = 0) -> str:
        if self.task["where"] == "reset":
            self.hang()
        self.taken = 0
        return "1"

    def step(self, reply: str) -> Step:
        if self.task["where"] == "step":
            self.hang()
        self.taken += 1
        return Step("2", 0.0, self.taken == 2)

    def legal(self) -> list[str]:
        return ["<action>a</action>"]

    def hang(self) -> None:
        if self.task.seed % 1_000_000_000 < self.task.integer("free") or (self.task["half"] and self.task.seed % 2):
            return
        sys.stderr.write("it hangs\n")
        sys.stderr.flush()
        if self.task["how"] == "lock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        while self.task["how"] == "loop":
            pass
        time.sleep(1000)
