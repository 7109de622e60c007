"""Processes of their own for what needs no model: demonstrations by the thousand, and the tasks they are given on.

A worker is a fresh Python that reads a call from its standard input and writes the result to its standard output.
Unlike one of `multiprocessing`, it does not import the main module again, so that scripts need no ``__name__`` guard,
and it ends when this process is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mulligan.envs import registry
from mulligan.errors import MulliganError
from mulligan.policy.base import Policy
from mulligan.policy.threads import run_async
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.groups import Draw, Mixture, draw_tasks
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

FEWEST = 100
"""Fewest jobs of a worker, which takes a second or two to start."""

Ordered = tuple[Job, TrialSettings]
Answer = TypeVar("Answer")
OnPlayed = Callable[[int], None]


def play(
    jobs: Sequence[Ordered], policy: Policy, processes: int = 1, on_played: OnPlayed = lambda played: None
) -> list[Trial]:
    """The trials of `jobs`, in their order; the same ones however many processes play them.

    `on_played` gets how many were played, now and then; nothing where other processes play them.
    """
    local = any(job.task.env in registry.REGISTERED for job, _ in jobs)
    count = 1 if local else min(processes, len(jobs) // FEWEST)
    if count <= 1:
        return _play(jobs, policy, on_played)
    parts = _in_processes(_play, [(jobs[first::count], policy) for first in range(count)])
    return [parts[index % count][index // count] for index in range(len(jobs))]


def draw(
    mixture: Mixture, tasks: int, *, seed: int, update: int, related: int = 0, name: str = "", processes: int = 1
) -> list[Draw]:
    """As `draw_tasks`, and the same tasks; the worlds are looked at in so many processes."""
    local = any(registry.game_of(env)[0] in registry.REGISTERED for env, _ in mixture.weights)
    count = 1 if local else min(processes, tasks // FEWEST)
    if count > 1:
        worlds = mixture.candidates(tasks * (1 + related), seed=seed, update=update, name=name)
        parts = _in_processes(Mixture.look_at, [(mixture, worlds[first::count]) for first in range(count)])
        mixture = replace(mixture, membership={world: member for part in parts for world, member in part.items()})
    return draw_tasks(mixture, tasks, seed=seed, update=update, related=related, name=name)


def _in_processes(function: Callable[..., Answer], calls: Sequence[tuple[Any, ...]]) -> list[Answer]:
    """The results of a function, each call in a process of its own."""
    messages = [pickle.dumps((function, arguments)) for arguments in calls]
    workers = [_begin() for _ in messages]
    with ThreadPoolExecutor(len(messages)) as threads:
        try:
            return [pickle.loads(answer) for answer in threads.map(_ask, workers, messages)]
        finally:  # before the threads are waited for: they wait for the workers
            for worker in workers:
                worker.kill()
                worker.wait()


def _begin() -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C is for this process, which then ends its workers.
    command = [sys.executable, "-P", "-m", __name__]
    paths = [path or os.getcwd() for path in sys.path]  # an environment's file may import what lies beside the script
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=env)


def _ask(worker: subprocess.Popen[bytes], message: bytes) -> bytes:
    answer, _ = worker.communicate(message)
    if worker.returncode:
        raise MulliganError(f"a process for demonstrations ended with {worker.returncode}; see above")
    return answer


def _play(jobs: Sequence[Ordered], policy: Policy, on_played: OnPlayed = lambda played: None) -> list[Trial]:
    trials: dict[int, Trial] = {}

    def keep(indices: Sequence[int], number: int, trial: Trial) -> None:
        trials[indices[number]] = trial
        if len(trials) % FEWEST == 0:
            on_played(len(trials))

    for settings in dict.fromkeys(job_settings for _, job_settings in jobs):
        indices = [index for index, (_, job_settings) in enumerate(jobs) if job_settings == settings]
        same = [jobs[index][0] for index in indices]
        run_async(partial(collect, same, policy, settings, concurrency=1, on_trial=partial(keep, indices)))
    return [trials[index] for index in range(len(jobs))]


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not get into the answer, also where its C code prints
    function, arguments = pickle.load(sys.stdin.buffer)
    answer.write(pickle.dumps(function(*arguments)))
    answer.flush()


if __name__ == "__main__":
    main()
