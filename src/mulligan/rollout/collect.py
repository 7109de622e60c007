"""Plays many trials at once, each on its own: no trial waits for another.

Each trial's randomness depends on its job alone, so that the result does not depend on how many run at the same time or
in which order they end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mulligan.errors import PolicyError, StopReason
from mulligan.policy.base import Policy
from mulligan.trial.runner import MemorySource, ReflectionSource, run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task, Trial

HOPELESS = 8
"""First trials without a single reply after which the run stops: the model cannot be reached."""


@dataclass(frozen=True)
class Job:
    """One trial to play."""

    task: Task
    seed: int
    index: int = 0
    """Which of the task's trials it is."""
    reflections: ReflectionSource | None = None
    """Where its reflections come from, if not from the agent (a control)."""
    memories: MemorySource | None = None
    """Where what it remembers comes from, if not from its own episodes (a control)."""
    related: tuple[Task, ...] = ()
    """Tasks of the second and later episodes, where they are not the same one."""
    stand_in: Policy | None = None
    """Who plays some of its episodes in the agent's place."""


async def collect(
    jobs: Sequence[Job],
    policy: Policy,
    settings: TrialSettings,
    *,
    concurrency: int,
    on_trial: Callable[[int, Trial], None],
    proceed: Callable[[], bool] = lambda: True,
    retries: int = 0,
    on_failure: Callable[[Trial], None] = lambda trial: None,
    on_last: Callable[[], None] = lambda: None,
    judge: Judge | None = None,
    play: Callable[..., Awaitable[Trial]] = run_trial,
) -> None:
    """Play `jobs`, `concurrency` at a time; `on_trial` gets each trial with the index of its job as it ends.

    `proceed` is called before each new trial; False starts no more of them. A trial that failed outside agent and task
    is played again with the same seed, up to `retries` times; `on_failure` gets every failed attempt. `on_last` is
    called as soon as the last job has begun. `judge` has seen the policy's earlier jobs, if there were any. `play` is
    what plays a trial.
    """
    waiting = iter(enumerate(jobs))
    judge = judge or Judge()
    play = partial(play, policy=policy, settings=settings)

    async def work() -> None:
        for index, job in waiting:
            if not proceed():
                return
            if index + 1 == len(jobs):
                asyncio.get_running_loop().call_soon(on_last)
            for _ in range(retries + 1):
                trial = await play(
                    job.task,
                    seed=job.seed,
                    index=job.index,
                    reflections=job.reflections,
                    memories=job.memories,
                    related=job.related,
                    stand_in=job.stand_in,
                )
                if not trial.failed:
                    break
                on_failure(trial)
            judge.see(trial)  # after the retries: a failure that they mend is no reason to stop
            on_trial(index, trial)
            await asyncio.sleep(0)  # scripted players never await: without this, no other task gets a turn

    workers = [asyncio.ensure_future(work()) for _ in range(max(1, min(concurrency, len(jobs))))]
    try:
        await asyncio.gather(*workers)
        judge.end()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class Judge:
    """Ends a run whose policy has never answered.

    Where requests fail, the first trials decide. A prompt that does not fit ends its trial before any other has a
    reply: one long task is no reason to stop, and whether all are too long is known when all trials have ended.
    """

    def __init__(self) -> None:
        self.answered = False
        """Whether the policy has ever given a reply."""
        self.silent: list[Trial] = []
        """Trials without a reply."""

    def see(self, trial: Trial) -> None:
        mute = (StopReason.REQUEST_FAILED, StopReason.CONTEXT_FULL)
        own_episodes = [episode for episode in trial.episodes if not episode.by_stand_in]
        if not own_episodes:
            return
        if any(episode.turns for episode in own_episodes) or own_episodes[-1].stop not in mute:
            self.answered = True
        if self.answered:
            self.silent.clear()
            return
        self.silent.append(trial)
        if sum(each.failed for each in self.silent) >= HOPELESS:
            self._give_up()

    def end(self) -> None:
        """All trials have ended."""
        if len(self.silent) >= HOPELESS and len({trial.task for trial in self.silent}) > 1:
            self._give_up()

    def _give_up(self) -> None:
        last_error = self.silent[-1].episodes[-1].error
        raise PolicyError(f"no reply in the first {len(self.silent)} trials; the last failure: {last_error}")
