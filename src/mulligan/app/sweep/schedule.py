"""Processes side by side: each starts when the weights it needs and cores for it are there; they end together."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mulligan.app.progress import shown
from mulligan.app.sweep.arms import ORDER, Work, read_result
from mulligan.app.sweep.worker import EVALUATING, LEFT, MEMORY_FULL
from mulligan.errors import MulliganError
from mulligan.report.files import replace_file
from mulligan.text import visible

OnProgress = Callable[[Work, str, int, int], None]
"""Called with the work, its stage, how much of that is done and how much there is."""
Reports = queue.Queue[tuple[Work, dict[str, Any] | None]]
"""Progress of the workers, in the order in which it comes; None: one has ended."""
_LOG = "worker.log"
_WORKER = ("-P", "-m", "mulligan.app.sweep.worker")


class TimeOver(MulliganError):
    """The time that was given is over, and there is more to do."""


def run_work(
    work: Sequence[Work], cores: int, on_progress: OnProgress, seconds: float = math.inf
) -> dict[Path, dict[str, Any]]:
    """Do what is not done yet, on so many cores; returns the result of each folder's arm.

    An arm that fails costs the others nothing: they go on, and the failure is raised when they are done. One that
    found too little memory free beside others begins again when one of them has ended; until then nobody else begins
    beside them. An interruption, or the end of so many seconds (`TimeOver`), lets all save what they have trained; an
    interruption while they do ends them at once. Asked for again, the same work goes on from there.
    """
    scheduler = _Scheduler(work, cores, on_progress)
    end = time.monotonic() + seconds
    try:
        while scheduler.waiting or scheduler.running:
            if time.monotonic() >= end:
                raise TimeOver(f"{seconds / 60:g} minutes are over")
            scheduler.begin_what_fits()
            with contextlib.suppress(queue.Empty):
                scheduler.take_report(None if seconds == math.inf else max(0.0, end - time.monotonic()))
    except (KeyboardInterrupt, TimeOver):
        scheduler.let_go()
        scheduler.raise_failures()
        raise
    finally:
        for process in scheduler.running.values():
            process.end()
    scheduler.raise_failures()
    return {each.folder: result for each in work if (result := read_result(each.folder)) is not None}


@contextlib.contextmanager
def work_progress(work: Sequence[Work], *, quiet: bool = False) -> Iterator[OnProgress]:
    """Gives the callback that `run_work` calls: it shows each run under way, and says which are done."""
    several_seeds = len({each.seed for each in work}) > 1
    done = sum(read_result(each.folder) is not None for each in work)
    with shown(quiet=quiet) as display:

        def show(one: Work, stage: str, count: int, total: int) -> None:
            nonlocal done
            name = f"{one.name} (seed {one.seed})" if several_seeds else one.name
            if stage != "done":
                shown_stage = "" if one.name.startswith(stage) else f"{stage} "  # not "warm start: warm start 1 of 250"
                display.show(name, f"{shown_stage}{count} of {total}", count, total)
                return
            done += 1
            if not quiet:
                display.note(f"{name}: done, {done} of {len(work)} runs")

        yield show


class _Scheduler:
    """What waits, what runs, and what has failed."""

    def __init__(self, work: Sequence[Work], cores: int, on_progress: OnProgress) -> None:
        self.work, self.cores, self.on_progress = work, cores, on_progress
        self.waiting = [each for each in work if read_result(each.folder) is None]
        self.running: dict[Path, _Process] = {}
        self.trained = {each.folder for each in work} - {each.folder for each in self.waiting}
        """Folders with weights that others can start from."""
        self.failures: list[str] = []
        self.memory_is_short = False
        self.reports: Reports = queue.Queue()

    def begin_what_fits(self) -> None:
        """Start whoever has its weights, cores and memory."""
        for each in list(self.waiting):
            free = self.cores - sum(process.work.threads for process in self.running.values())
            fits = not self.running or (each.threads <= free and not self.memory_is_short)
            if fits and self.trained.issuperset(each.needs):
                self.waiting.remove(each)
                self.running[each.folder] = _Process(each, self.reports)
                for process in self.running.values():
                    process.is_alone = len(self.running) == 1

    def take_report(self, timeout: float | None) -> None:
        """Wait for progress of a worker, or for its end."""
        one, progress = self.reports.get(timeout=timeout)
        if progress is not None:
            if progress["stage"] == EVALUATING:
                self.trained.add(one.folder)
            self.on_progress(one, progress["stage"], progress["done"], progress["total"])
            return
        process = self.running.pop(one.folder)
        failure = process.failure()
        self.memory_is_short = process.may_fit_later
        if failure is None:
            self.trained.add(one.folder)
            self.on_progress(one, "done", 1, 1)
        elif process.may_fit_later:
            waiting = [*self.waiting, one]
            self.waiting = [each for each in self.work if each in waiting]  # whoever is started from comes first
            sys.stderr.write(f"{visible(failure)}; it begins again when another has ended\n")
        else:
            self._give_up(one, failure)

    def _give_up(self, work: Work, failure: str) -> None:
        """Note a failure, and leave out whoever waits to start from it."""
        lost: list[Work] = []
        for each in self.waiting:  # in which nobody waits for what comes later
            lost += [each] * any(one.folder in each.needs for one in (work, *lost))
        if lost:
            self.waiting = [each for each in self.waiting if each not in lost]
            failure = f"{failure}; not begun without it: {', '.join(map(_in_words, lost))}"
        self.failures.append(failure)
        if self.waiting or self.running:
            sys.stderr.write(f"{visible(failure)}; the others go on\n")

    def let_go(self) -> None:
        """Ask all workers to leave, and wait until they have."""
        if self.running:
            sys.stderr.write("stopping after the updates that are under way; once more to stop at once\n")
        for process in self.running.values():
            process.ask_to_leave()
        while self.running:
            one, progress = self.reports.get()
            if progress is None:
                process = self.running.pop(one.folder)
                failure = process.failure()
                if failure and process.process.returncode not in (0, LEFT) and not process.may_fit_later:
                    self.failures.append(failure)

    def raise_failures(self) -> None:
        if self.failures:
            raise MulliganError("\n".join(self.failures)) from None


class _Process:
    """A worker under way; a thread passes on its reports, and None when it has ended."""

    def __init__(self, work: Work, reports: Reports) -> None:
        self.work, self.is_alone = work, False
        work.folder.mkdir(parents=True, exist_ok=True)
        self.log = work.folder / _LOG
        threads = str(work.threads)
        # Where cores are shared with others, threads that spin cost seven times more.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        environment |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        replace_file(work.folder / ORDER, json.dumps(work.order).encode())
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, *_WORKER, str(work.folder)],
                stdin=subprocess.PIPE,  # which stays open: its end tells the worker that nobody listens any more
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                env=environment,
            )
        assert self.process.stdin is not None and self.process.stdout is not None, "both are pipes"  # noqa: PT018
        self.input, self.output = self.process.stdin, self.process.stdout
        self.listener = threading.Thread(target=self._listen, args=(reports,), daemon=True)
        self.listener.start()

    def _listen(self, reports: Reports) -> None:
        try:
            with self.output as lines:
                for line in lines:
                    reports.put((self.work, json.loads(line)))
        finally:
            self.process.wait()
            reports.put((self.work, None))

    @property
    def may_fit_later(self) -> bool:
        """Whether the worker, which has ended, did so because others had left it too little memory."""
        return self.process.returncode == MEMORY_FULL and not self.is_alone

    def failure(self) -> str | None:
        """How the worker, which has ended, failed, if it did."""
        self._close()
        if not self.process.returncode and read_result(self.work.folder) is not None:
            return None
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "no output"
        return (
            f"{_in_words(self.work)} failed (exit code {self.process.returncode}): {last}; its output is in {self.log}"
        )

    def ask_to_leave(self) -> None:
        with contextlib.suppress(OSError):  # it has ended by itself meanwhile
            self.input.write("leave\n")
            self.input.flush()

    def end(self) -> None:
        self.process.kill()
        self._close()

    def _close(self) -> None:
        self.listener.join()
        with contextlib.suppress(OSError):  # it ended before it read the last line
            self.input.close()


def _in_words(work: Work) -> str:
    return f"{work.name!r} with seed {work.seed}"
