"""The run that another run starts from (`model.name`): how its folder is named, and where it is found.

A run folder beside the new one is kept as ``../NAME``, so that folders which are moved together still fit.
"""

from __future__ import annotations

from dataclasses import replace
from os.path import abspath
from pathlib import Path

from mulligan.errors import RunFolderError
from mulligan.training.config import Config

_MODELS = ("nano", "smollm2", "hf")


def as_kept(config: Config, run: Path) -> Config:
    """`config` as the folder `run` keeps it: where it starts from a run folder, that is named as seen from `run`."""
    name = config.model.name
    is_kept_already = name.startswith("../") and _is_run(run.parent / name.removeprefix("../"))
    if _is_model(name) or is_kept_already or not _is_run(Path(name)):
        return config
    start = Path(abspath(name))
    is_beside = start.parent.resolve() == Path(run).resolve().parent  # as seen through a link, too
    return replace(config, model=replace(config.model, name=f"../{start.name}" if is_beside else str(start)))


def find_start(name: str, run: Path) -> Path | None:
    """The run folder that `run` starts from; None where `name` is that of a model."""
    if _is_model(name):
        return None
    for folder in (run / name, Path(name)):
        if _is_run(folder) and folder.resolve() != run.resolve():
            return folder
    if len(Path(name).parts) > 1 and not Path(name).is_dir():
        raise RunFolderError(f"{run} starts from {name}, which is missing; put that run folder back")
    return None


def _is_model(name: str) -> bool:
    """Whether it names a model, even where a folder is called so too."""
    return name.partition(":")[0] in _MODELS


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()
