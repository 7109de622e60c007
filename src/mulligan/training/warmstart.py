"""Supervised training on scripted play: trials of the demonstrators, through the normal trial runner.

The loss falls on replies and reflections only, and not on those that a player knows to be mistaken. The demonstrator
is mediocre on purpose (`skill`, `recall`): the warm start teaches the form of play, and leaves the rest to be learned.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import MulliganError
from mulligan.models.renderer import Renderer
from mulligan.policy.local import Demonstrated
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout import workers
from mulligan.rollout.collect import Job
from mulligan.rollout.groups import Mixture
from mulligan.seeding import derive, generator
from mulligan.training import checkpoint
from mulligan.training.config import Config, shown_memories, shown_params
from mulligan.training.rows import Row, rows_of
from mulligan.trial import prompts
from mulligan.types import Trial

if TYPE_CHECKING:
    from mulligan.training.loop import Trainer

EPISODES = 3
"""Episodes of a demonstrated trial, the same for RL and meta-RL, so that both start from the same weights."""
CHECKPOINT_EVERY = 100
"""Steps after which a warm start is saved: some minutes of a GPU. A warm start that is asked to stop is saved too."""


def demonstrate(config: Config, renderer: Renderer, on_played: workers.OnPlayed = lambda played: None) -> list[Trial]:
    """The demonstrated trials, with the tokens an agent should have sampled; `on_played` gets how many there are.

    Always with several episodes: RL and meta-RL start from the same play.
    """
    warm, seed = config.warmstart, config.run.seed
    style = prompts.style(config.trial.style)
    player = Demonstrated(ExpertPolicy(warm.skill, warm.recall, kind=warm.player), renderer, style.demonstrated)
    related = EPISODES - 1 if config.task.related else 0
    mixture = replace(Mixture.parse(config.task.env, shown_params(config)), env_timeout=config.trial.env_timeout)
    draws = workers.draw(
        mixture, warm.trials, seed=seed, update=-1, related=related, name="warmstart", processes=warm.processes
    )
    in_turn = [replace(config.trial, episodes=EPISODES, memory=memory) for memory in shown_memories(config)]
    jobs = [
        (Job(draw.task, derive(seed, "demonstration", number), related=draw.related), in_turn[number % len(in_turn)])
        for number, draw in enumerate(draws)
    ]
    return workers.play(jobs, player, warm.processes, on_played)


def warm_start(trainer: Trainer) -> bool:
    """All steps that an earlier process has left; returns False where `trainer.stop` ended them before the last.

    `trainer.on_update` gets the number of steps done, the loss and a warning after each step; before the first, the
    trainer's notices and how many demonstrations were played.
    """
    config, learner, folder, on_update = trainer.config, trainer.local_learner, trainer.folder, trainer.on_update
    warm, began = config.warmstart, time.perf_counter()
    optimisers = learner.warm_optimisers()
    before = checkpoint.restore_warm_start(folder.path, learner, optimisers)
    begins = {"warmstart": before.steps, "steps": warm.steps, "demonstrations": warm.trials, "demonstrated": 0}
    on_update({**begins, **({"warning": "; ".join(trainer.notices)} if trainer.notices else {})})
    trainer.notices = []
    trials = demonstrate(config, trainer.loaded.renderer, lambda played: on_update({**begins, "demonstrated": played}))
    rows = _rows(trials)
    warning = _too_long(rows, trainer.engine.context)
    rng = generator(config.run.seed, "warmstart")
    for _ in range(before.steps * warm.batch):  # earlier processes have drawn these
        rng.random()
    trainer.stop()  # from here on there is a step to finish
    loss = before.loss
    for done in range(before.steps + 1, warm.steps + 1):
        cosine = 0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * (done - 1) / warm.steps))
        rate = warm.lr * min(1.0, done / max(1, warm.warmup)) * cosine
        loss = learner.supervised([rows[int(rng.random() * len(rows))] for _ in range(warm.batch)], rate, optimisers)
        stopping = done < warm.steps and trainer.stop()
        if stopping or (done < warm.steps and done % CHECKPOINT_EVERY == 0):
            warmed = checkpoint.Warmed(done, loss, before.seconds + time.perf_counter() - began)
            checkpoint.save_warm_start(folder.path, warmed, learner, optimisers)
        on_update({"warmstart": done, "steps": warm.steps, "loss": loss, "warning": warning})
        if stopping:
            return False
    solved = sum(trial.solved_at is not None for trial in trials) / len(trials)
    seconds = before.seconds + time.perf_counter() - began
    figures = {"loss": loss, "demonstrated": solved, "rows": float(len(rows)), "seconds": seconds}
    if trainer.processes.is_first:
        folder.write_text("warmstart.json", json.dumps(figures, indent=2) + "\n")
    return True


def _rows(trials: Sequence[Trial]) -> list[Row]:
    rows = [row for row in rows_of(trials)[0] if row.spans]
    if not rows:
        errors = (episode.error for trial in trials for episode in trial.episodes if episode.error)
        raise MulliganError(
            f"nothing was demonstrated in {len(trials)} trials; the first: {next(errors, 'none has a turn')}"
        )
    return rows


def _too_long(rows: Sequence[Row], context: int) -> str | None:
    """A warning of demonstrations that an agent could not play to their end."""
    longer = [len(row.ids) for row in rows if len(row.ids) > context]
    if not longer:
        return None
    return (
        f"{len(longer)} of {len(rows)} demonstrated sequences are longer than the context of {context} tokens, "
        f"where an agent's episodes end; the longest has {max(longer)}"
    )
