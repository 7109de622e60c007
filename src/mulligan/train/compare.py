"""Settings then and now: what a run that goes on, or a result that is used again, was made with otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mulligan.train.config import Config
from mulligan.train.resolve import to_tree

Pairs = dict[str, tuple[Any, Any]]
"""Dotted key -> what it was, and what it is."""
_MODEL = "model.name"
_CONTEXT = "engine.context"
MAY_CHANGE = frozenset((
    "run.updates", "run.retries", "run.concurrency", "run.threads", "run.checkpoint_every", "run.keep",
    "run.save_trials_every", "run.validate_every", "run.validation_tasks", "run.validation_episodes",
    "run.diversity_tasks", "run.max_bad_steps", "trial.env_timeout", "model.device", "model.gradient_checkpointing",
    "model.compile", "engine.slots", "engine.chunk", "engine.kind", "engine.share", "warmstart.processes",
    "warmstart.checkpoint_every", "optim.tokens", "optim.share",
))  # fmt: skip
"""How long a run goes on, what it keeps and looks at, and how it is computed: not what it learns from, nor how."""


def apart(then: Mapping[str, Any], now: Mapping[str, Any]) -> Pairs:
    """Entries that differ; None stands for one that is missing."""
    names = {*then, *now}
    return {name: (then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)}


def in_words(pairs: Pairs) -> list[str]:
    """``algo.gamma_traj was 0.6, is 0.1``, by name."""
    return [f"{name} was {_shown(before)}, is {_shown(now)}" for name, (before, now) in sorted(pairs.items())]


def changed_since(then: Config, now: Config) -> list[str]:
    """What makes `now` another run than the one begun with `then`, in words.

    Of a model that is a folder, the name counts and not where it lies. A context of 0 was left open then, and is a
    number since.
    """
    pairs = apart(_flat(then), _flat(now))
    if pairs.get(_CONTEXT, (None,))[0] == 0:
        del pairs[_CONTEXT]
    if _MODEL in pairs and len({Path(name).name for name in pairs[_MODEL]}) == 1:
        del pairs[_MODEL]
    return in_words({name: pair for name, pair in pairs.items() if name not in MAY_CHANGE})


def _flat(config: Config) -> dict[str, Any]:
    """Every setting by dotted key; the environment's parameters as ``env.mines``."""
    tree = to_tree(config)
    tree["env"] = tree["task"].pop("params")
    return {f"{section}.{name}": value for section, part in tree.items() for name, value in part.items()}


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
