"""Processes side by side: each starts when the weights it needs are there, and cores for it; they end together."""

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
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import MulliganError, UsageError
from mulligan.sweep.arms import Work
from mulligan.sweep.match import differences, read_result
from mulligan.sweep.worker import DEVICE_LOST, EVALUATING, LEFT, MEMORY_FULL

OnProgress = Callable[[Work, str, int, int], None]
"""Called with the work, its stage, how much of that is done and how much there is."""
Said = queue.Queue[tuple[Work, dict[str, Any] | None]]
"""What the workers say, in the order in which it comes; None: one has ended."""
RESTARTS = 2
"""How often an arm begins again after its device has failed."""
_LOG = "worker.log"
_WORKER = ("-P", "-m", "mulligan.sweep.worker")


class TimeOver(MulliganError):
    """The time that was given is over, and there is more to do."""


def run_work(
    work: Sequence[Work], cores: int, on_progress: OnProgress, seconds: float = math.inf
) -> dict[Path, dict[str, Any]]:
    """Do what is not done yet, on so many cores; returns what each folder's arm found.

    An arm that fails costs the others nothing: they go on, and the failure is raised when they are done. One whose
    device failed begins again where it was saved, up to `RESTARTS` times; one that found too little memory free beside
    others, when one of them has ended; until then nobody else begins beside them. An interruption, or the end of so
    many seconds (`TimeOver`), lets all save what they have trained; an interruption while they do ends them at once.
    Asked for again, the same work goes on from there.
    """
    end = time.monotonic() + seconds
    waiting = [each for each in work if not _is_done(each)]
    done = {each.folder for each in work} - {each.folder for each in waiting}
    trained: set[Path] = set()
    running: dict[Path, _Process] = {}
    memory_is_short = False
    failed = _Failed()
    said: Said = queue.Queue()
    try:
        while waiting or running:
            for each in list(waiting) if time.monotonic() < end else ():
                free = cores - sum(process.work.threads for process in running.values())
                fits = not running or (each.threads <= free and not memory_is_short)
                if each.after in (None, *done, *trained) and fits:
                    waiting.remove(each)
                    running[each.folder] = _Process(each, said)
                    for process in running.values():
                        process.alone = len(running) == 1
            if not running and time.monotonic() < end:
                raise MulliganError(f"{waiting[0].name!r} waits for {waiting[0].after}, which nothing makes")
            try:
                one, progress = said.get(timeout=None if seconds == math.inf else max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise TimeOver(f"{seconds / 60:g} minutes are over") from None
            if progress is not None:
                if progress["stage"] == EVALUATING:
                    trained.add(one.folder)
                on_progress(one, progress["stage"], progress["done"], progress["total"])
                continue
            process = running.pop(one.folder)
            failure = process.failure()
            memory_is_short = process.may_fit_later
            if failure is None:
                done.add(one.folder)
                on_progress(one, "done", 1, 1)
            elif process.may_fit_later:
                waiting.append(one)
                sys.stderr.write(f"{failure}; it begins again when another has ended\n")
            else:
                waiting = failed.take(process, failure, waiting)
                if waiting or running:
                    sys.stderr.write(f"{failed.said}\n")
            waiting = [each for each in work if each in waiting]  # whoever is started from comes first
    except (KeyboardInterrupt, MulliganError) as error:
        failed.failures += _let_go(running, said)
        if isinstance(error, KeyboardInterrupt | TimeOver):
            failed.check()
        raise
    finally:
        for process in running.values():
            process.end()
    failed.check()
    return {each.folder: found for each in work if (found := read_result(each.folder)) is not None}


class _Failed:
    """The arms that have failed, and how often each was begun again."""

    def __init__(self) -> None:
        self.failures: list[MulliganError] = []
        self.restarts: Counter[Path] = Counter()
        self.said = ""
        """Of the last one, while others go on."""

    def take(self, process: _Process, failure: MulliganError, waiting: Sequence[Work]) -> list[Work]:
        """Note how a worker ended; returns what is to be done still: it once more, or all that can do without it."""
        work = process.work
        if process.lost_its_device and self.restarts[work.folder] < RESTARTS:
            self.restarts[work.folder] += 1
            self.said = f"{failure}; it begins again where it was saved"
            return [work, *waiting]
        missing, vain = {work.folder}, list[Work]()
        for each in waiting:  # whoever is started from comes first
            if each.after in missing:
                missing.add(each.folder)
                vain.append(each)
        if vain:
            names = ", ".join(f"{each.name!r} with seed {each.seed}" for each in vain)
            failure = MulliganError(f"{failure}; not begun without it: {names}")
        self.failures.append(failure)
        self.said = f"{failure}; the others go on"
        return [each for each in waiting if each not in vain]

    def check(self) -> None:
        """Complain of all failures, if there are any."""
        if self.failures:
            raise MulliganError("\n".join(map(str, self.failures))) from None


def _let_go(running: dict[Path, _Process], said: Said) -> list[MulliganError]:
    """Ask all workers to leave, and wait until they have; returns how those failed that did."""
    if running:
        sys.stderr.write("stopping after the updates that are under way; once more to stop at once\n")
    for process in running.values():
        process.ask_to_leave()
    failures = []
    while running:
        one, progress = said.get()
        if progress is None and one.folder in running:
            process = running.pop(one.folder)
            process.end()
            can_go_on = process.process.returncode in (0, LEFT, DEVICE_LOST) or process.may_fit_later
            if not can_go_on and (failure := process.failure()) is not None:
                failures.append(failure)
    return failures


def _is_done(work: Work) -> bool:
    """Whether an earlier process has done just this; what was done under other settings is not passed off as this."""
    found = read_result(work.folder)
    if found is None:
        return False
    apart = differences(work, found)
    if apart:
        raise UsageError(f"{work.folder} was made with other settings ({'; '.join(apart)}); choose another folder")
    return True


class _Process:
    """A worker under way; a thread passes on what it says, and None when it has ended."""

    def __init__(self, work: Work, said: Said) -> None:
        self.work, self.alone = work, False
        work.folder.mkdir(parents=True, exist_ok=True)
        self.log = work.folder / _LOG
        threads = str(work.threads)
        environment = {
            "OMP_WAIT_POLICY": "PASSIVE",  # where cores are shared with others, threads that spin cost seven times more
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        }
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, *_WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                env=environment,
            )
        order = {
            "name": work.name,
            "folder": str(work.folder),
            "after": None if work.after is None else str(work.after),
            "preset": work.preset,
            "settings": dict(work.settings),
            "evaluation": dict(work.evaluation),
        }
        self._tell(json.dumps(order))  # the pipe stays open: its end tells the worker that nobody listens any more
        self.listener = threading.Thread(target=self._listen, args=(said,), daemon=True)
        self.listener.start()

    def _listen(self, said: Said) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                said.put((self.work, json.loads(line)))
        finally:
            self.process.wait()
            said.put((self.work, None))

    @property
    def lost_its_device(self) -> bool:
        """Whether the worker, which has ended, did so because a GPU failed under it."""
        return self.process.returncode == DEVICE_LOST

    @property
    def may_fit_later(self) -> bool:
        """Whether the worker, which has ended, did so because others had left it too little memory."""
        return self.process.returncode == MEMORY_FULL and not self.alone

    def failure(self) -> MulliganError | None:
        """How the worker, which has ended, failed, if it did."""
        self._close()
        if not self.process.returncode and read_result(self.work.folder) is not None:
            return None
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        return MulliganError(
            f"{self.work.name!r} with seed {self.work.seed} failed (exit code {self.process.returncode}): {last}; "
            f"all it said is in {self.log}"
        )

    def ask_to_leave(self) -> None:
        self._tell("leave")

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended by itself meanwhile
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self._close()

    def _close(self) -> None:
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it was told last, it did not live to read
                    pipe.close()
