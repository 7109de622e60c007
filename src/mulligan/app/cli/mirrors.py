"""Mirrors of a training run's metrics.jsonl in other programs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.app.progress import Metrics, OnUpdate
from mulligan.errors import MissingExtra

if TYPE_CHECKING:
    from mulligan.training.config import Config


def to_tensorboard(folder: Path, stack: ExitStack) -> OnUpdate:
    """The callback that writes an update for TensorBoard, inside the run folder."""
    writer = _import("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))
    stack.callback(writer.close)

    def log(numbers: dict[str, float], update: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, update)

    return _numbers_to(log)


def to_wandb(folder: Path, config: Config, stack: ExitStack) -> OnUpdate:
    """The callback that sends an update to Weights & Biases; a resumed run goes on there too."""
    wandb = _import("wandb", "wandb")
    from mulligan.training.resolve import to_tree

    folder.mkdir(parents=True, exist_ok=True)
    name, settings = folder.resolve().name, to_tree(config)
    session = wandb.init(project="mulligan", name=name, id=name, resume="allow", dir=str(folder), config=settings)
    stack.callback(session.finish)
    return _numbers_to(lambda numbers, update: session.log(numbers, step=update))


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"--{extra}", extra) from error


def _numbers_to(log: Callable[[dict[str, float], int], None]) -> OnUpdate:
    """Passes on the metrics of an update that can be plotted; none of the warm start's."""

    def on_update(metrics: Metrics) -> None:
        if "update" in metrics:
            numbers = {name: each for name, each in metrics.items() if isinstance(each, int | float)}
            log({name: each for name, each in numbers.items() if name != "updates"}, metrics["update"])

    return on_update
