"""Settings then and now: what a run that goes on may change, and what would make it another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mulligan.errors import UsageError
from mulligan.training.config import Config
from mulligan.training.resolve import to_tree, with_flags

Changes = dict[str, tuple[Any, Any]]
"""Dotted key -> value before and after; None where it is missing."""
MAY_CHANGE = frozenset((
    "run.updates", "run.threads", "run.checkpoint_every", "run.keep", "run.save_trials_every", "run.validate_every",
    "run.validation_tasks", "run.diversity_tasks", "trial.env_timeout", "model.device", "model.gradient_checkpointing",
    "engine.slots", "warmstart.processes", "optim.tokens",
))  # fmt: skip
"""How long a run goes on, what it keeps and measures, and how it is computed: not what it learns from, nor how."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Entries that differ, by name."""
    names = sorted({*before, *after})
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def in_words(changes: Changes) -> list[str]:
    """``algo.gamma_traj was 0.6, is 0.1``, one for each setting."""
    return [f"{name} was {_shown(before)}, is {_shown(now)}" for name, (before, now) in changes.items()]


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def changed_settings(before: Config, after: Config) -> Changes:
    """Settings that differ; of a model that is a folder, the name counts and not where it lies."""
    changes = differences(flat_settings(before), flat_settings(after))
    if "model.name" in changes and len({Path(name).name for name in changes["model.name"]}) == 1:
        del changes["model.name"]
    return changes


def changed_since(then: Config, now: Config) -> list[str]:
    """What makes `now` another run than the one begun with `then`, in words."""
    return in_words({name: pair for name, pair in changed_settings(then, now).items() if name not in MAY_CHANGE})


def with_resume_flags(config: Config, flags: Mapping[str, str]) -> Config:
    """The settings of a run that goes on with other ones; those that would make it another run are refused by name."""
    changed = with_flags(config, flags)
    for name, (before, after) in changed_settings(config, changed).items():
        if name not in MAY_CHANGE:
            raise UsageError(
                f"{name} cannot be changed on resume (it is {before}, got {after}); begin another run with "
                "--model.name RUN, which starts from its weights"
            )
    return changed


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by dotted key; the environment's parameters as ``env.mines``."""
    tree = to_tree(config)
    tree["env"] = tree["task"].pop("params")
    return {f"{section}.{name}": value for section, part in tree.items() for name, value in part.items()}
