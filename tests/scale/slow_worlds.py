"""Worlds that are slow, hang, kill their process, or raise."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

from mulligan.types import Step, Task


class Slow:
    """A number to guess: each step takes a while, and is written down with the process that took it."""

    defaults: ClassVar = {"seconds": 0.01, "log": "", "fault": "", "goal": 3}
    turns = 4

    def __init__(self, task: Task) -> None:
        self.task = task
        self.steps = 0

    def rules(self) -> str:
        return "Guess the number."

    def reset(self, chance: int = 0) -> str:
        self.steps = 0
        return f"world {self.task.seed}"

    def step(self, reply: str) -> Step:
        self.steps += 1
        time.sleep(float(self.task["seconds"]))
        if log := str(self.task["log"]):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()}\n")
        fault = str(self.task["fault"])
        if fault == "raise":
            raise _Own("it broke")
        if fault == "hang" and self.task.seed == 0:
            time.sleep(3600)
        if fault == "kill" and self.task.seed == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        won = self.steps == int(self.task["goal"])
        return Step(f"{self.steps} steps after {reply}", float(won), done=won, won=won, state_key=str(self.steps))


class _Own(Exception):
    """An error with a constructor of its own, which does not pickle."""

    def __init__(self, text: str, code: int = 1, *, needed: bool = True) -> None:
        super().__init__(text)
        self.lock = __import__("threading").Lock()
