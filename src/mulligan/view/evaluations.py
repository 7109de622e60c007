"""Which training run an evaluation measured, and which evaluations measured a training run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mulligan.view.folder import is_folder, stamp, toml_of

_CONFIG = "config.toml"


def trained_run(evaluation: Path, policy: str) -> Path | None:
    """The training run that an evaluation names as its policy (``RUN@CHECKPOINT``); None: the policy is none.

    It is around the evaluation, where the policy says, or beside the evaluation: runs are moved together.
    """
    run = Path(policy.partition("@")[0])
    places = [evaluation.parent, run, evaluation.parent / run.name] if run.name else []
    others = [place for place in places if place.name == run.name and place != evaluation]
    return next((place for place in others if (place / _CONFIG).is_file()), None)


def evaluations_inside(run: Path) -> list[Path]:
    """The evaluations of a training run in its folder, as sweeps make them."""
    return [path for path in _folders(run) if _measures(path, run)]


def evaluations_beside(run: Path) -> list[Path]:
    """The evaluations of a training run in the folder that it lies in, the newest first."""
    found = [path for path in _folders(run.parent) if _measures(path, run)]
    return sorted(found, key=lambda path: stamp(path / _CONFIG)[2], reverse=True)


def _measures(evaluation: Path, run: Path) -> bool:
    config = toml_of(evaluation / _CONFIG)
    if config.get("kind") != "eval":
        return False
    trained = trained_run(evaluation, str(config.get("policy", "")))
    return trained is not None and trained.resolve() == run.resolve()


def _folders(path: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return
    yield from (path / name for name in names if is_folder(path / name))
