"""Supervised training on scripted play: trials of the demonstrators, through the normal trial runner.

The loss falls on replies and reflections only, and not on those that a player knows to be mistaken. The demonstrator
is mediocre on purpose (`skill`, `recall`): the warm start teaches the form of play, and leaves the rest to be learned.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mulligan.errors import MulliganError
from mulligan.models.renderer import Renderer
from mulligan.policy.local import Demonstrated
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder
from mulligan.rollout import workers
from mulligan.rollout.collect import Job
from mulligan.rollout.groups import Mixture
from mulligan.seeding import derive, generator
from mulligan.training import checkpoint
from mulligan.training.config import Config, shown_memories, shown_params
from mulligan.training.rows import Row, rows_of
from mulligan.training.step import Learner
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

EPISODES = 3
"""Episodes of a demonstrated trial, the same for RL and meta-RL, so that both start from the same weights."""
CHECKPOINT_EVERY = 100
"""Steps after which a warm start is saved: some minutes of a GPU. A warm start that is asked to stop is saved too."""


def demonstrate(config: Config, mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> list[Trial]:
    """The demonstrated trials, with the tokens an agent should have sampled. Always with several episodes: RL and
    meta-RL start from the same play."""
    warm, seed = config.warmstart, config.run.seed
    style = prompts.style(settings.style)
    player = Demonstrated(ExpertPolicy(warm.skill, warm.recall, kind=warm.player), renderer, style.demonstrated)
    related = EPISODES - 1 if config.task.related else 0
    mixture = replace(mixture, params=shown_params(config))
    draws = workers.draw(
        mixture, warm.trials, seed=seed, update=-1, related=related, name="warmstart", processes=warm.processes
    )
    in_turn = [replace(settings, episodes=EPISODES, memory=memory) for memory in shown_memories(config)]
    jobs = [
        (Job(draw.task, derive(seed, "demonstration", number), related=draw.related), in_turn[number % len(in_turn)])
        for number, draw in enumerate(draws)
    ]
    return workers.play(jobs, player, warm.processes)


class WarmStart:
    """A warm start under way, from where an earlier process left it or from the beginning."""

    def __init__(
        self,
        config: Config,
        learner: Learner,
        folder: RunFolder,
        on_update: Callable[[dict[str, Any]], None],
        notices: Sequence[str] = (),
    ) -> None:
        """`on_update` gets the number of steps done, the loss and a warning after each step; `notices` are the warning
        before the first."""
        self.config, self.learner, self.folder, self.on_update = config, learner, folder, on_update
        self.began = time.perf_counter()
        self.optimisers = learner.warm_optimisers()
        self.before = checkpoint.restore_warm_start(folder.path, learner, self.optimisers)
        warm = config.warmstart
        begins = {"warmstart": self.before.steps, "steps": warm.steps, "demonstrations": warm.trials}
        on_update({**begins, **({"warning": "; ".join(notices)} if notices else {})})

    def train(self, trials: Sequence[Trial], context: int, stop: Callable[[], bool]) -> bool:
        """All steps that are left, on demonstrated trials; returns False where `stop` ended them before the last.

        context  tokens of the longest sequence that an agent can play
        """
        warm = self.config.warmstart
        rows = _rows(trials)
        warning = _too_long(rows, context)
        rng = generator(self.config.run.seed, "warmstart")
        for _ in range(self.before.steps * warm.batch):  # earlier processes have drawn these
            rng.random()
        loss = self.before.loss
        for done in range(self.before.steps + 1, warm.steps + 1):
            loss = self._step([rows[int(rng.random() * len(rows))] for _ in range(warm.batch)], done - 1)
            stopping = done < warm.steps and stop()
            if stopping or (done < warm.steps and done % CHECKPOINT_EVERY == 0):
                kept = checkpoint.Warmed(done, loss, self._seconds())
                checkpoint.save_warm_start(self.folder.path, kept, self.learner, self.optimisers)
            self.on_update({"warmstart": done, "steps": warm.steps, "loss": loss, "warning": warning})
            if stopping:
                return False
        solved = sum(trial.solved_at is not None for trial in trials) / len(trials)
        figures = {"loss": loss, "demonstrated": solved, "rows": float(len(rows)), "seconds": self._seconds()}
        self.folder.write_text("warmstart.json", json.dumps(figures, indent=2) + "\n")
        return True

    def _step(self, rows: Sequence[Row], before: int) -> float:
        """One step after `before` others; returns its loss."""
        warm = self.config.warmstart
        cosine = 0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * before / warm.steps))
        rise = min(1.0, (before + 1) / max(1, warm.warmup))
        return self.learner.supervised(rows, warm.lr * rise * cosine, self.optimisers)

    def _seconds(self) -> float:
        return self.before.seconds + time.perf_counter() - self.began


def _rows(trials: Sequence[Trial]) -> list[Row]:
    """The rows that have something to imitate."""
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
