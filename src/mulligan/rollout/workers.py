"""Processes of their own for what needs no model: demonstrations by the thousand, and the tasks they are given on.

A worker is a fresh Python that reads what to do from its standard input and writes its answer to its standard output:
nothing depends on how this process was started, and a worker whose reader is gone ends when it wants to write.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from mulligan.errors import MulliganError
from mulligan.policy.base import Policy
from mulligan.policy.threads import run_async
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.groups import Draw, Mixture, draw_tasks
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

FEWEST = 100
"""Jobs that a worker is worth: it takes a second or two to start."""

Ordered = tuple[Job, TrialSettings]
Answer = TypeVar("Answer")


def play(jobs: Sequence[Ordered], policy: Policy, processes: int = 1) -> list[Trial]:
    """The trials of `jobs`, in their order; the same ones however many processes play them."""
    count = min(processes, len(jobs) // FEWEST)
    if count <= 1:
        return _play(jobs, policy)
    found = _in_processes(_play, [(jobs[first::count], policy) for first in range(count)])
    return [found[place % count][place // count] for place in range(len(jobs))]


def draw(
    mixture: Mixture, tasks: int, *, seed: int, update: int, related: int = 0, name: str = "", processes: int = 1
) -> list[Draw]:
    """As `draw_tasks`, and the same tasks; the worlds are looked at in so many processes."""
    known: dict[tuple[str, int], bool] = {}
    count = min(processes, tasks // FEWEST)
    if count > 1:
        worlds = mixture.candidates(tasks * (1 + related), seed=seed, update=update, name=name)
        for part in _in_processes(_known, [(mixture, worlds[first::count]) for first in range(count)]):
            known |= part
    return draw_tasks(mixture, tasks, seed=seed, update=update, related=related, name=name, known=known)


def _in_processes(function: Callable[..., Answer], orders: Sequence[tuple[Any, ...]]) -> list[Answer]:
    """What a function of this module answers to each order, each in a process of its own."""
    said = [pickle.dumps((function.__name__, order)) for order in orders]
    begun = [_begin() for _ in said]
    with ThreadPoolExecutor(len(said)) as threads:
        try:
            return [pickle.loads(answer) for answer in threads.map(_ask, begun, said)]
        finally:  # before the threads are waited for: they wait for the workers
            for worker in begun:
                worker.kill()
                worker.wait()


def _begin() -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C is for this process, which then ends its workers.
    command = [sys.executable, "-P", "-m", __name__]
    paths = [path or os.getcwd() for path in sys.path]  # an environment's file may import what lies beside the script
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=env)


def _ask(worker: subprocess.Popen[bytes], order: bytes) -> bytes:
    said, _ = worker.communicate(order)
    if worker.returncode:
        raise MulliganError(f"a process for demonstrations ended with {worker.returncode}; see above")
    return said


def _play(jobs: Sequence[Ordered], policy: Policy) -> list[Trial]:
    found: dict[int, Trial] = {}
    for settings in dict.fromkeys(own for _, own in jobs):
        places = [place for place, (_, own) in enumerate(jobs) if own == settings]
        these, keep = [jobs[place][0] for place in places], partial(_keep, found, places)
        run_async(partial(collect, these, policy, settings, concurrency=1, on_trial=keep))
    return [found[place] for place in range(len(jobs))]


def _known(mixture: Mixture, worlds: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bool]:
    return mixture.known(worlds)


def _keep(found: dict[int, Trial], places: Sequence[int], number: int, trial: Trial) -> None:
    found[places[number]] = trial


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever an environment prints is no answer, however it prints it
    function, order = pickle.load(sys.stdin.buffer)
    answer.write(pickle.dumps(globals()[function](*order)))
    answer.flush()


if __name__ == "__main__":
    main()
