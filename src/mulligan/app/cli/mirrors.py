"""Mirrors of a training run's metrics.jsonl in other programs."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.app.progress import Metrics, OnUpdate
from mulligan.errors import MissingExtra

if TYPE_CHECKING:
    from mulligan.training.config import Config


@contextlib.contextmanager
def to_tensorboard(folder: Path) -> Iterator[OnUpdate]:
    """Gives the callback that writes an update for TensorBoard, inside the run folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("--tensorboard", "tensorboard") from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def log(metrics: Metrics) -> None:
        for name, value in _numbers(metrics).items():
            writer.add_scalar(name, value, metrics["update"])

    try:
        yield log
    finally:
        writer.close()


@contextlib.contextmanager
def to_wandb(folder: Path, config: Config) -> Iterator[OnUpdate]:
    """Gives the callback that sends an update to Weights & Biases; a resumed run goes on there too."""
    try:
        wandb: Any = importlib.import_module("wandb")
    except ImportError as error:
        raise MissingExtra("--wandb", "wandb") from error
    from mulligan.training.resolve import to_tree

    folder.mkdir(parents=True, exist_ok=True)
    name = folder.resolve().name
    session = wandb.init(
        project="mulligan", name=name, id=name, resume="allow", dir=str(folder), config=to_tree(config)
    )

    def log(metrics: Metrics) -> None:
        if numbers := _numbers(metrics):
            session.log(numbers, step=metrics["update"])

    try:
        yield log
    finally:
        session.finish()


def _numbers(metrics: Metrics) -> dict[str, float]:
    """The metrics of an update that can be plotted; none of the warm start's."""
    if "update" not in metrics:
        return {}
    return {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != "updates"}
