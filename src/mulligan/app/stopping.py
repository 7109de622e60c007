"""Stopping a long run: Ctrl-C finishes and saves the current update; a second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.errors import extra_named
from mulligan.report.run import RunFolder

if TYPE_CHECKING:
    from mulligan.app.progress import Metrics, OnUpdate
    from mulligan.training.config import Config

_SAME_REQUEST = 1.0
"""Seconds within which two signals are one request."""


@contextmanager
def handling(handler: Callable[..., None]) -> Iterator[None]:
    """Inside, `handler` gets Ctrl-C and the signal by which schedulers end a job; in the main thread only, which alone
    may set handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)  # None: not set from Python


def train_until_stopped(config: Config, run: Path, callbacks: Sequence[OnUpdate], *, resume: bool) -> bool:
    """Train into the folder `run`; returns whether that was interrupted with updates left to do."""
    with extra_named("training"):
        if config.population.agents:
            from mulligan.population.loop import train
        else:
            from mulligan.training.loop import train
        from mulligan.training.metrics import MetricsFile

    has_begun = is_stopping = False

    def stop(*_: object) -> None:
        nonlocal is_stopping
        if is_stopping or not has_begun:  # before the first step there is nothing to save
            raise KeyboardInterrupt
        is_stopping = True
        sys.stderr.write("stopping after this step or update; once more to stop at once\n")

    def is_asked_to_stop() -> bool:
        nonlocal has_begun
        has_begun = True  # the trainer asks before its first step or update too
        return is_stopping

    def on_update(metrics: Metrics) -> None:
        for callback in callbacks:
            callback(metrics)

    with handling(stop):
        try:
            train(config, run, resume=resume, on_update=on_update, stop=is_asked_to_stop)
        except KeyboardInterrupt:
            if not (run / "config.toml").exists():
                raise  # before the run began
            return True
    metrics = MetricsFile(run / "metrics.jsonl").read() if is_stopping else []
    return is_stopping and not any(line["update"] >= config.run.updates for line in metrics)


def kept_trials(path: str | os.PathLike[str]) -> str:
    """How many trials an interrupted evaluation has left in its folder."""
    folder = RunFolder(path)
    count = sum(len(folder.trials(arm)) for arm in folder.arms())
    return f"{count} trial{' is' if count == 1 else 's are'} in {path}"


def interrupt_once() -> Callable[..., None]:
    """A handler that interrupts; a second signal within a second is the same request.

    `timeout` signals the process, then its group.
    """
    last = -_SAME_REQUEST

    def interrupt(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SAME_REQUEST:
            last = now
            raise KeyboardInterrupt

    return interrupt
