"""A tiny Llama whose replies depend on everything, and a Tinker server of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from e2e.command import call
from mulligan.models.load import load, save
from remote.servers import SkyRL

TINY = "nano:hidden=64,layers=2,heads=4,feedforward=128"


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a folder; its norms are not left at 1, and its replies are not the prompt's last token."""
    loaded = load(TINY)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, weight in loaded.model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(weight, 0.5, 1.5)
            else:
                torch.nn.init.normal_(weight, std=0.2)
    folder = tmp_path_factory.mktemp("models") / "base"
    save(loaded, folder)
    return folder


@pytest.fixture(scope="session")
def server(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    """One that no test kills."""
    skyrl = SkyRL(tmp_path_factory.mktemp("server"), base)
    skyrl.start()
    yield skyrl
    skyrl.kill()


@pytest.fixture(scope="session")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows how to answer in a bandit, and hardly that a paying arm pays again."""
    folder = tmp_path_factory.mktemp("beginner")
    run = folder / "warm"
    words = (
        f"train bandit --env.arms 2 --model.name {TINY} --trial.style bare "
        "--trial.memory history --trial.max-tokens 1 --run.updates 0 --warmstart.steps 150 --warmstart.trials 400 "
        "--warmstart.skill 1 --warmstart.recall 0.6 --warmstart.batch 32 --warmstart.lr 6e-3 --warmstart.warmup 5 "
        f"--run.threads 1 --run.validation-tasks 20 --run {run}"
    )
    assert call(*words.split()) == 0
    assert call("export", str(run), str(folder / "base")) == 0
    return folder / "base"


@pytest.fixture(scope="session")
def bandit_server(beginner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    """One of the beginner, that no test kills."""
    skyrl = SkyRL(tmp_path_factory.mktemp("server"), beginner)
    skyrl.start()
    yield skyrl
    skyrl.kill()
