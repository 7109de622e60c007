"""What a warm start depends on: which arms can share one, and whether a finished one still is what is planned."""

from __future__ import annotations

import json
from typing import Any

from mulligan.train.config import Config, shown_memories, trial_settings
from mulligan.train.resolve import to_tree

_NOT_OF_WARM_START = ("episodes", "temperature", "memory")
"""Entries of [trial] that demonstrations do not depend on."""
_HOW = ("processes", "checkpoint_every")
"""Entries of [warmstart] that change nothing in the weights."""
_OF_WARM_START = ("beta1", "beta2", "grad_clip")
"""Entries of [optim] that the warm start's optimiser uses."""


def warm_key(config: Config) -> str:
    """What the weights after the warm start depend on, but for the seed."""
    return json.dumps(_of_warm_weights(config), sort_keys=True)


def _of_warm_weights(config: Config) -> dict[str, Any]:
    tree = to_tree(config)
    warm = {name: value for name, value in tree["warmstart"].items() if name not in _HOW}
    parts = {
        "env": tree["task"].pop("params"),
        "task": tree["task"],
        "model": tree["model"],
        "warmstart": {**warm, "memory": shown_memories(config)},
        "trial": {name: value for name, value in tree["trial"].items() if name not in _NOT_OF_WARM_START},
        "optim": {name: tree["optim"][name] for name in _OF_WARM_START},
    }
    return {f"{section}.{name}": value for section, part in parts.items() for name, value in part.items()}


def warm_parts(config: Config) -> dict[str, Any]:
    """Everything that a finished warm start depends on, by dotted key: its weights, the seed, how it was evaluated."""
    evaluated = {"trial.memory": trial_settings(config).memory_mode, "engine.context": config.engine.context}
    return {**_of_warm_weights(config), **evaluated, "run.seed": config.run.seed}
