"""Validation between updates: p@k on validation tasks, and how diverse play is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.eval.optimum import mean_optimum
from mulligan.eval.passk import DIVERSITY_TRIALS, diversity, pass_at
from mulligan.policy.base import Policy
from mulligan.rollout.collect import Job, collect
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import next_alike, tasks_of
from mulligan.seeding import derive
from mulligan.training.config import Config
from mulligan.training.processes import Processes
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import evaluated_episodes
from mulligan.types import Completion, Episode, Trial

RETRIES = 2
"""How often a trial that failed outside agent and task is played again. More would hide a broken environment."""
KEPT_TASKS = 16
"""Tasks of each environment whose trials a run folder keeps at every validation: the same ones, so that the play of one
task can be followed from update to update."""
MOST_OPTIMUM = (100, 200_000)
"""Most worlds of a game, and most outcomes of its beliefs, whose optimum is computed: a few seconds, once a run."""
TRIALS_AT_A_TIME = 1024
"""Trials under way of each update. The engine's slots set the pace; this bounds the conversations in memory."""


class Validation:
    """Validation tasks of every environment of a run; always the same ones."""

    def __init__(
        self,
        config: Config,
        mixture: Mixture,
        policy: Policy,
        run: Callable[[Callable[[], Any]], Any],
        play: Callable[..., Awaitable[Trial]] = run_trial,
        processes: Processes | None = None,
    ) -> None:
        """`run` runs a coroutine to its end, and `play` is what plays a trial. Too few tasks are an error only where
        validation was asked for."""
        self.config, self.policy, self.run, self.play_trial = config.run, policy, run, play
        self.settings, self.processes = config.trial, processes or Processes()
        self.episodes = evaluated_episodes(config.trial.episodes)  # as evaluations have, so that both agree
        related = self.episodes - 1 if config.task.related else 0
        self.jobs: dict[str, list[Job]] = {}
        for name, _ in mixture.weights:
            tasks = tasks_of(
                name,
                self.config.validation_tasks,
                "validation",
                mixture.own_params(name),
                or_fewer=not self.config.validate_every,
                env_timeout=config.trial.env_timeout,
            )
            self.jobs[name] = [Job(task, self.config.seed, related=next_alike(task, tasks, related)) for task in tasks]

    def play(self) -> tuple[dict[str, float], list[Trial]]:
        """p@1 … p@N, with memory, for RL too; and the diversity of first episodes.

        The trials are those of the first `KEPT_TASKS` tasks of each environment, without their tokens.
        """
        if not any(self.jobs.values()):
            return {}, []
        trials = self._played([job for jobs in self.jobs.values() for job in jobs], self.episodes)
        metrics = {f"validation/p@{k}": share for k, share in enumerate(pass_at(trials, self.episodes), 1)}
        if failed := sum(trial.failed for trial in trials):  # they count as not solved
            metrics["validation/failed"] = float(failed)
        if self.optimum:
            reached = [sum(episode.value for episode in trial.episodes) for trial in trials]
            metrics["validation/share_of_optimum"] = sum(reached) / len(reached) / self.optimum
        if self.config.diversity_tasks:
            again = [
                replace(job, seed=derive(job.seed, "diversity", number), index=number)
                for jobs in self.jobs.values()
                for job in jobs[: self.config.diversity_tasks]
                for number in range(DIVERSITY_TRIALS)
            ]
            metrics["validation/diversity"] = diversity(self._played(again, 1))
        return metrics, [without_tokens(trial) for trial in self._to_keep(trials)]

    @cached_property
    def optimum(self) -> float | None:
        """The highest sum of the attempts' returns that any agent can expect, the mean over the tasks; None where it is
        not known: the game has no model or too large a one, or later episodes are of other tasks.

        Of games against opponents it is not taken: luck would hide the share on as few tasks as validation has.
        """
        settings, value, count = replace(self.settings, episodes=self.episodes), 0.0, 0
        for name, jobs in self.jobs.items():
            if not jobs:
                continue
            if registry.spec(name).kind == "versus" or jobs[0].related:
                return None
            try:
                play = mean_optimum([job.task for job in jobs], settings, 1.0, MOST_OPTIMUM)
            except UsageError:
                return None
            value, count = value + play.value() * len(jobs), count + len(jobs)
        return value / count

    def _to_keep(self, trials: list[Trial]) -> Iterator[Trial]:
        """`trials` are in the order of the jobs."""
        remaining = iter(trials)
        for jobs in self.jobs.values():
            yield from list(islice(remaining, len(jobs)))[:KEPT_TASKS]

    def _played(self, jobs: list[Job], episodes: int) -> list[Trial]:
        jobs, trials = list(self.processes.share(jobs)), dict[int, Trial]()
        settings = replace(self.settings, episodes=episodes, announced=self.episodes)
        playing = partial(collect, jobs, self.policy, settings, concurrency=TRIALS_AT_A_TIME, retries=RETRIES)
        self.run(partial(playing, on_trial=trials.__setitem__, play=self.play_trial))
        return self.processes.dealt(self.processes.gathered([trials[index] for index in sorted(trials)]))


def without_tokens(trial: Trial) -> Trial:
    """The trial as text: token ids and log-probabilities would be most of its size."""
    return replace(trial, episodes=tuple(map(_text_of_episode, trial.episodes)))


def _text_of_episode(episode: Episode) -> Episode:
    turns = tuple(replace(turn, reply=_text_of(turn.reply)) for turn in episode.turns)
    note = episode.reflection
    if note is not None and note.completion is not None:
        note = replace(note, completion=_text_of(note.completion))
    return replace(episode, turns=turns, reflection=note)


def _text_of(reply: Completion) -> Completion:
    return replace(reply, ids=None, logprobs=None, prompt_ids=None)
