"""What a run earns in each hand with luck left out, on validation tasks: for pilots, where exact scores take minutes.

    python results/opponents/by_hand.py RUN "seen;validation" [TASKS]

Luck is what `Step.luck` says. Replies are sampled as in training. The figure behind ± is a standard error over tasks.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from functools import partial

from rich.console import Console

from mulligan.players import as_trained, player_from, trained_with
from mulligan.policy.threads import run_async
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.tasksets import tasks_of
from mulligan.types import Trial

HANDS = 3


def main(run: str, opponents: str = "seen", count: str = "512") -> None:
    config = trained_with(run)
    if config is None:
        raise SystemExit(f"{run} is no training run")
    env, policy = config.task.env, player_from(run, device="cpu")
    settings, params = replace(config.trial, episodes=HANDS), as_trained(config, env)[1]
    for opponent in opponents.split(";"):
        tasks = tasks_of(env, int(count), "validation", {**params, "opponent": opponent})
        trials: dict[int, Trial] = {}
        jobs = [Job(task, number) for number, task in enumerate(tasks)]
        run_async(partial(collect, jobs, policy, settings, concurrency=256, on_trial=trials.__setitem__))
        hands = [
            [sum(turn.reward - turn.luck for turn in trial.episodes[hand].turns) for trial in trials.values()]
            for hand in range(HANDS)
        ]
        figures = (f"{statistics.mean(e):.3f} ±{statistics.stdev(e) / len(e) ** 0.5:.3f}" for e in hands)
        Console(highlight=False, soft_wrap=True).print(f"{env}, {opponent}: {' / '.join(figures)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
