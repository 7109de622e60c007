"""Training runs of seconds, for the tests of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mulligan.training import checkpoint
from mulligan.training.config import (
    Config,
    EngineConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TaskConfig,
    WarmstartConfig,
)
from mulligan.training.metrics import MetricsFile
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling

TINY = "nano:hidden=32,layers=1"


def trial(*, temperature: float = 1.0, max_tokens: int = 512, **settings) -> TrialSettings:
    """The section [trial] of a training run."""
    return TrialSettings(sampling=Sampling(temperature, 1.0, max_tokens), **settings)


def small(**sections) -> Config:
    """Two quick updates on a two-armed bandit."""
    base = Config(
        run=RunConfig(updates=2, tasks=3, group=4, threads=1, checkpoint_every=1, keep=2, save_trials_every=1),
        task=TaskConfig(env="bandit", params={"arms": 2}),
        trial=trial(episodes=3, memory="history", style="bare", max_tokens=2, reflection_tokens=3),
        model=ModelConfig(name=TINY),
        engine=EngineConfig(slots=16),
        warmstart=WarmstartConfig(steps=10, trials=40, batch=16, lr=2e-2, warmup=1),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=2),
    )
    return replace(base, **sections)


def metrics(run: Path) -> list[dict]:
    """All metrics but times."""
    lines = MetricsFile(run / "metrics.jsonl").read()
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


def weights(run: Path) -> torch.Tensor:
    """All of a run's newest weights in a row."""
    model = checkpoint.load_model(run).model
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
