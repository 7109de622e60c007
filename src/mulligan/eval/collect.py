"""Plays many trials at once, each on its own: no trial waits for another.

Each trial's randomness depends on its task and index alone, so that the result does not depend on how many run at the
same time or in which order they end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from mulligan.errors import PolicyError, StopReason
from mulligan.policy.base import Policy
from mulligan.trial.runner import ReflectionSource, run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task, Trial

HOPELESS = 8
"""So many first trials without a single reply, and the run stops: the model is not there."""


async def collect(
    tasks: Sequence[Task],
    places: Iterable[int],
    policy: Policy,
    settings: TrialSettings,
    *,
    seed: int,
    index: int = 0,
    concurrency: int,
    reflections: Callable[[int], ReflectionSource] | None = None,
    on_trial: Callable[[int, Trial], None],
    proceed: Callable[[], bool] = lambda: True,
) -> None:
    """Play one trial for each of `places` (indices into `tasks`), `concurrency` at a time.

    `on_trial` gets each trial as it ends. `proceed` is asked before each new trial; False lets those under way finish.
    """
    waiting = iter(places)
    judge = _Judge()

    async def work() -> None:
        for place in waiting:
            if not proceed():
                return
            source = reflections(place) if reflections is not None else None
            trial = await run_trial(tasks[place], policy, settings=settings, seed=seed, index=index, reflections=source)
            on_trial(place, trial)
            judge.see(trial)
            await asyncio.sleep(0)  # scripted players never wait; let the others, and Ctrl-C, have a turn

    workers = [asyncio.ensure_future(work()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class _Judge:
    """Ends a run whose policy has never answered."""

    def __init__(self) -> None:
        self.silent, self.answered = 0, False

    def see(self, trial: Trial) -> None:
        if self.answered:
            return
        last = trial.episodes[-1]
        mute = (StopReason.REQUEST_FAILED, StopReason.CONTEXT_FULL)
        if any(episode.turns for episode in trial.episodes) or last.stop not in mute:
            self.answered = True
            return
        self.silent += 1
        if self.silent >= HOPELESS:
            raise PolicyError(f"no reply in the first {self.silent} trials; the last failure: {last.error}")
