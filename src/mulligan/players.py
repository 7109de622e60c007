"""Every policy by name: those of `mulligan.policy.spec`, and what a run folder or a model has learned.

random | expert[:SKILL[:RECALL]] | omniscient | human | endpoint:MODEL | file.py:function | RUN FOLDER | nano | hf:MODEL
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mulligan.policy.base import Policy
from mulligan.policy.spec import policy_from


def player_from(spec: str, *, device: str = "auto", slots: int = 256, **endpoint: Any) -> Policy:
    """The policy that `spec` names; `endpoint` are options of `EndpointPolicy`, the others those of local models."""
    if (Path(spec) / "config.toml").is_file():
        return _local(spec, device, slots, trained=True)
    if spec.partition(":")[0] in ("nano", "hf"):
        return _local(spec, device, slots, trained=False)
    return policy_from(spec, **endpoint)


def _local(spec: str, device: str, slots: int, *, trained: bool) -> Policy:
    import torch

    from mulligan.engine.slots import SlotEngine
    from mulligan.models.load import load
    from mulligan.policy.local import LocalPolicy
    from mulligan.train.checkpoint import load_model

    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    loaded = load_model(spec, where) if trained else load(spec, device=where)
    loaded.model.eval()
    return LocalPolicy(SlotEngine(loaded.model, slots=slots), loaded.renderer, name=spec.rstrip("/"))
