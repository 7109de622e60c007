"""How differently the agents of a population play, and whether a group of trials from all explores more than one's own.

python results/population/diversity.py RUN [TASKS]

Prints, in nats, means over validation tasks:
own       entropy of the action sequences of first episodes among 32 trials of one agent; mean over agents
together  the same of 32 trials, equally many of each agent
apart     how far the agents' answers to the first observation lie apart: Jensen-Shannon divergence of the chances of
          the legal replies (0: alike; ln K at most)
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from mulligan.envs import registry
from mulligan.eval.passk import DIVERSITY_TRIALS, diversity
from mulligan.players import player_from, trained_with
from mulligan.policy.threads import run_async
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import tasks_of
from mulligan.trial import prompts
from mulligan.types import Task, Trial


def played(policy, tasks: list[Task], settings, numbers: range) -> list[Trial]:
    trials: dict[int, Trial] = {}
    jobs = [Job(task, number, index=number) for task in tasks for number in numbers]
    run_async(partial(collect, jobs, policy, settings, concurrency=256, on_trial=trials.__setitem__))
    return [trials[index] for index in sorted(trials)]


def entropy(chances: list[float]) -> float:
    return -sum(chance * math.log(chance) for chance in chances if chance > 0)


def first_chances(policy, task: Task, settings) -> list[float]:
    """The chances of the legal replies to the first observation, relative to each other."""
    world, style = registry.build(task), prompts.style(settings.style)
    observation = world.reset(0)
    text = prompts.opening(observation, 0, settings.episodes, "", style, tell=settings.memory_mode != "none")
    system = prompts.system(world.rules(), style, task.turns, character=settings.character)
    messages = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": text}]
    replies = [style.demonstrated(reply) for reply in world.legal()]
    [chances] = policy.reply_chances([messages], [replies], settings.sampling)
    total = sum(chances) or 1.0
    return [chance / total for chance in chances]


def main(run: str, count: int) -> None:
    agents = json.loads((Path(run) / "population.json").read_text())["agents"]
    names = [f"{run}/agent-{number}" for number in range(agents)]
    config = trained_with(names[0])
    mixture = Mixture.parse(config.task.env, config.task.params)
    tasks = [
        task for name, _ in mixture.weights for task in tasks_of(name, count, "validation", mixture.own_params(name))
    ]
    each, shared, first = [], [], []
    for number, name in enumerate(names):
        policy, settings = player_from(name, device="cpu"), trained_with(name).trial
        trials = played(
            policy, tasks, replace(settings, episodes=1, announced=settings.episodes), range(DIVERSITY_TRIALS)
        )
        each.append(diversity(trials))
        shared += [trial for trial in trials if trial.index % agents == number]
        first.append([first_chances(policy, task, settings) for task in tasks])
    mixed = [[sum(column) / agents for column in zip(*of_task, strict=True)] for of_task in zip(*first, strict=True)]
    own = [sum(map(entropy, of_task)) / agents for of_task in zip(*first, strict=True)]
    apart = sum(entropy(mix) - mean for mix, mean in zip(mixed, own, strict=True)) / len(tasks)
    figures = {"own": sum(each) / agents, "together": diversity(shared), "apart": apart, "tasks": len(tasks)}
    sys.stdout.write(json.dumps({"run": Path(run).name, **{key: round(value, 4) for key, value in figures.items()}}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 32)
