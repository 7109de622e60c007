"""What a run earns in each hand with luck left out, on validation tasks: for pilots, where exact scores take minutes.

    python results/opponents/by_hand.py RUN "seen;validation" [TASKS]

Luck is what `Step.luck` says. Replies are sampled as in training. Opponents and seats count as the pool draws them.
Chips, the half of a 95 % interval over tasks, and the share of the adaptive room.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
from rich.console import Console

from mulligan.eval.ceilings import ceilings_of
from mulligan.eval.intervals import interval_of_mean, weighted
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
        ceilings = ceilings_of(tasks, settings)
        trials: dict[int, Trial] = {}
        jobs = [Job(task, number) for number, task in enumerate(tasks)]
        run_async(partial(collect, jobs, policy, settings, concurrency=256, on_trial=trials.__setitem__))
        figures = []
        for hand in range(HANDS):
            episodes = [trials[number].episodes[hand] for number in range(len(tasks))]
            earned = np.array([[sum(turn.reward - turn.luck for turn in episode.turns) for episode in episodes]])
            values = weighted(earned, ceilings.strata, ceilings.weights)
            if values is None:
                raise SystemExit(f"{opponent}: an opponent is met by fewer than two of {count} tasks; take more")
            mean, (low, high) = interval_of_mean(values)
            static, room = ceilings.static[hand], ceilings.optimal[hand] - ceilings.static[hand]
            share = f" ({(mean - static) / room:.0%})" if room > 0.01 else ""
            figures.append(f"{mean:.3f} ±{(high - low) / 2:.3f}{share}")
        Console(highlight=False, soft_wrap=True).print(f"{env}, {opponent}: {' / '.join(figures)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
