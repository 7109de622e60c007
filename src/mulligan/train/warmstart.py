"""Supervised training on scripted play: trials of the demonstrators, through the normal trial runner.

The loss falls on replies and reflections only, and not on those that a player knows to be mistaken. The demonstrator
is mediocre on purpose (`skill`, `recall`): the warm start teaches the form of play, and leaves the rest to be learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from mulligan.errors import MulliganError
from mulligan.policy.local import Demonstrated, Renderer
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout import workers
from mulligan.rollout.collect import Job
from mulligan.rollout.groups import Mixture
from mulligan.seeding import derive, generator
from mulligan.train.checkpoint import Warmed
from mulligan.train.config import Config, shown_memories, shown_params
from mulligan.train.rows import Row, rows_of
from mulligan.train.step import Learner
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial


def demonstrate(config: Config, mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> list[Trial]:
    """The demonstrated trials, with the tokens an agent should have sampled. Always with several episodes: RL and
    meta-RL start from the same play."""
    warm, seed = config.warmstart, config.run.seed
    style = prompts.style(settings.style)
    player = Demonstrated(ExpertPolicy(warm.skill, warm.recall, kind=warm.player), renderer, style.demonstrated)
    related = warm.episodes - 1 if config.trial.tasks == "related" else 0
    mixture = replace(mixture, params=shown_params(config))
    draws = workers.draw(
        mixture, warm.trials, seed=seed, update=-1, related=related, name="warmstart", processes=warm.processes
    )
    jobs = [
        Job(draw.task, derive(seed, "demonstration", place), related=draw.related) for place, draw in enumerate(draws)
    ]
    shown = [replace(settings, episodes=warm.episodes, memory=memory) for memory in shown_memories(config)]
    ordered = [(job, shown[place % len(shown)]) for place, job in enumerate(jobs)]
    return workers.play(ordered, player, warm.processes)


def warm_start(
    config: Config,
    learner: Learner,
    mixture: Mixture,
    settings: TrialSettings,
    renderer: Renderer,
    context: int,
    optimisers: Sequence[torch.optim.Optimizer],
    warmed: Warmed,
    on_step: Callable[[int, float, str | None], bool],
) -> dict[str, float] | None:
    """Train on demonstrations; returns what the demonstrators reached and the last loss, or None where it was stopped.

    context  tokens of the longest sequence that an agent can play
    warmed   how far an earlier process has come, whose weights and optimisers these are
    on_step  is told how many steps are done, the loss, and what a person should know of the demonstrations, if
             anything; says whether to stop
    """
    warm = config.warmstart
    trials = demonstrate(config, mixture, settings, renderer)
    rows = [row for row in rows_of(trials)[0] if row.spans]
    if not rows:
        said = next(
            (episode.error for trial in trials for episode in trial.episodes if episode.error), "none has a turn"
        )
        raise MulliganError(f"nothing was demonstrated in {len(trials)} trials; the first: {said}")
    warning = _too_long(rows, context)
    rng = generator(config.run.seed, "warmstart")
    for _ in range(warmed.steps * warm.batch):
        rng.random()
    loss = warmed.loss
    for step in range(warmed.steps, warm.steps):
        chosen: list[Row] = [rows[int(rng.random() * len(rows))] for _ in range(warm.batch)]
        cosine = 0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * step / warm.steps))
        loss = learner.supervised(chosen, warm.lr * min(1.0, (step + 1) / max(1, warm.warmup)) * cosine, optimisers)
        if on_step(step + 1, loss, warning):
            return None
    solved = sum(trial.solved_at is not None for trial in trials) / len(trials)
    return {"loss": loss, "demonstrated": solved, "rows": float(len(rows))}


def _too_long(rows: Sequence[Row], context: int) -> str | None:
    """What to say of demonstrations that an agent could not play to their end."""
    longer = [len(row.ids) for row in rows if len(row.ids) > context]
    if not longer:
        return None
    return (
        f"{len(longer)} of {len(rows)} demonstrated sequences are longer than the context of {context} tokens, "
        f"where an agent's episodes end; the longest has {max(longer)}"
    )
