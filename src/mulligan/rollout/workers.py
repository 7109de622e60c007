"""Trials in processes of their own, for players that need no model: demonstrations by the thousand.

A worker is a fresh Python that reads what to play from its standard input and writes the trials to its standard output;
so nothing depends on how this process was started, and a worker whose reader is gone ends when it wants to write.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mulligan.errors import MulliganError
from mulligan.policy.base import Policy
from mulligan.rollout.collect import Job, collect
from mulligan.trial.runner import run_async
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

FEWEST = 100
"""Jobs that a worker is worth: it takes a second or two to start."""


Ordered = tuple[Job, TrialSettings]


def play(jobs: Sequence[Ordered], policy: Policy, processes: int = 1) -> list[Trial]:
    """The trials of `jobs`, in their order; the same ones however many processes play them."""
    count = min(processes, len(jobs) // FEWEST)
    if count <= 1:
        return _play(jobs, policy)
    parts = [jobs[first::count] for first in range(count)]
    orders = [pickle.dumps((part, policy)) for part in parts]
    begun = [_begin() for _ in parts]
    with ThreadPoolExecutor(count) as threads:
        try:
            found = [pickle.loads(said) for said in threads.map(_ask, begun, orders)]
        finally:  # before the threads are waited for: they wait for the workers
            for worker in begun:
                worker.kill()
                worker.wait()
    return [found[place % count][place // count] for place in range(len(jobs))]


def _begin() -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C is for this process, which then ends its workers.
    command = [sys.executable, "-P", "-m", __name__]
    paths = [path or os.getcwd() for path in sys.path]  # an environment's file may import what lies beside the script
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=env)


def _ask(worker: subprocess.Popen[bytes], order: bytes) -> bytes:
    said, _ = worker.communicate(order)
    if worker.returncode:
        raise MulliganError(f"a process that plays demonstrations ended with {worker.returncode}; see above")
    return said


def _play(jobs: Sequence[Ordered], policy: Policy) -> list[Trial]:
    found: dict[int, Trial] = {}
    for settings in dict.fromkeys(own for _, own in jobs):
        places = [place for place, (_, own) in enumerate(jobs) if own == settings]
        these, keep = [jobs[place][0] for place in places], partial(_keep, found, places)
        run_async(partial(collect, these, policy, settings, concurrency=1, on_trial=keep))
    return [found[place] for place in range(len(jobs))]


def _keep(found: dict[int, Trial], places: Sequence[int], number: int, trial: Trial) -> None:
    found[places[number]] = trial


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever an environment prints is no answer, however it prints it
    jobs, policy = pickle.load(sys.stdin.buffer)
    answer.write(pickle.dumps(_play(jobs, policy)))
    answer.flush()


if __name__ == "__main__":
    main()
