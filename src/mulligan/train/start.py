"""The run that another run starts from (`model.name`): how it is named, and where it is found again.

Runs that lie beside each other, as those of a sweep do, name each other so, ``../warm``: folders that are moved or
copied together still fit. Earlier versions kept paths as they were given.
"""

from __future__ import annotations

from dataclasses import replace
from os.path import abspath
from pathlib import Path

from mulligan.errors import RunFolderError
from mulligan.train.config import Config

_MODELS = ("nano", "smollm2", "hf")


def as_kept(config: Config, run: Path) -> Config:
    """`config` as the folder `run` keeps it: where it starts from a run folder, that is named as seen from `run`."""
    if _is_model(config.model.name) or not _is_run(Path(config.model.name)):
        return config
    start = Path(abspath(config.model.name))
    is_beside = start.parent.resolve() == Path(run).resolve().parent  # as seen through a link, too
    return starting_from(config, f"../{start.name}" if is_beside else str(start))


def starting_from(config: Config, name: str) -> Config:
    """`config` with another model or run folder to start from."""
    return replace(config, model=replace(config.model, name=name))


def find_start(name: str, run: Path, *, is_trained: bool) -> Path | None:
    """The run folder that `run` starts from; None where `name` is that of a model.

    Where `run` is trained already, its own weights count, and a folder of the same name beside it will do: both may
    have been moved.
    """
    if _is_model(name):
        return None
    if len(Path(name).parts) == 1:
        return Path(name) if _is_run(Path(name)) and Path(name).resolve() != run.resolve() else None
    beside = run.resolve().parent / Path(name).name
    for place in (run / name, Path(name), *([beside] if is_trained else [])):
        if _is_run(place) and place.resolve() != run.resolve():
            return place
    if is_trained and not Path(name).is_dir():
        raise RunFolderError(f"{run} starts from {name}, which is not there; put that run folder at {beside}")
    return None


def _is_model(name: str) -> bool:
    """Whether it names a model, even where a folder is called so too."""
    return name.partition(":")[0] in _MODELS


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()
