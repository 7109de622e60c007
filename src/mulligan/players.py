"""Every policy by name: those of `mulligan.policy.spec`, and what a run folder or a model has learned.

random | expert[:SKILL[:RECALL]] | hasty[:SKILL[:RECALL]] | omniscient | human | endpoint:MODEL | file.py:function
RUN | RUN@UPDATE | RUN@best | nano | smollm2 | hf:MODEL

RUN is a run folder. RUN@40 is its checkpoint after 40 updates, RUN@best that of the best validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mulligan.errors import MissingExtra, UsageError
from mulligan.policy.base import Policy
from mulligan.policy.spec import LOCAL, policy_from
from mulligan.trial.settings import TrialSettings
from mulligan.types import ParamValue, Sampling

if TYPE_CHECKING:
    from mulligan.engine.choose import Kind
    from mulligan.models.load import Loaded
    from mulligan.train.config import Config


class Plays(NamedTuple):
    """What a policy is about to play."""

    env: str
    params: Mapping[str, Any]
    settings: TrialSettings
    seed_set: str = "eval"


def player_from(
    spec: str,
    *,
    device: str = "auto",
    slots: int = 256,
    context: int | None = None,
    chunk: int = 512,
    kind: Kind = "auto",
    share: bool = True,
    plays: Plays | None = None,
    **endpoint: Any,
) -> Policy:
    """The policy that `spec` names; `endpoint` are options of `EndpointPolicy`, the others those of local models.

    Without a `context`, a run has the one it was trained with, and an untrained model what the trials that it `plays`
    need; where nobody says what it plays, its own limit.
    """
    engine = {"slots": slots, "context": context, "chunk": chunk, "kind": kind, "share": share}
    if run_of(spec) or spec.partition(":")[0] in LOCAL:
        return _local(spec, device, engine, plays)
    return policy_from(spec, **endpoint)


def run_of(spec: str) -> tuple[str, str] | None:
    """The run folder that `spec` names, and its checkpoint: ``runs/x@40`` -> ("runs/x", "40"); None if it names none.

    Without a checkpoint, which stands for the newest, that is empty.
    """
    folder, _, checkpoint = spec.rpartition("@")
    for run in ((spec, ""), (folder, checkpoint)):
        if run[0] and (Path(run[0]) / "config.toml").is_file():
            return run
    return None


def trained_with(spec: object) -> Config | None:
    """The configuration of the training run that `spec` names; None if it names none."""
    from mulligan.report.run import RunFolder

    run = run_of(spec) if isinstance(spec, str) else None
    if run is None:
        return None
    folder = RunFolder.open(run[0])
    if folder.config().get("kind") != "train":
        raise UsageError(f"{spec} is not a training run, so that it holds no policy")
    from mulligan.train.resolve import from_run

    return from_run(folder)


def as_trained(config: Config, env: str) -> tuple[TrialSettings, dict[str, ParamValue]]:
    """How a trained policy is evaluated unless told otherwise: as it was trained, on the worlds it was trained for.

    Three episodes whatever it was trained with, so that all methods are compared by one protocol, at temperature 0.7.
    """
    sampling = Sampling(max_tokens=config.trial.sampling.max_tokens)
    settings = replace(config.trial, episodes=TrialSettings().episodes, sampling=sampling)
    from mulligan.rollout.groups import Mixture

    mixture = Mixture.parse(config.task.env, config.task.params)
    known = env in [name for name, _ in mixture.weights]
    return settings, mixture.own_params(env) if known else {}


def _local(spec: str, device: str, engine: Mapping[str, Any], plays: Plays | None) -> Policy:
    try:
        import torch

        from mulligan.engine.choose import make_engine
        from mulligan.models.load import load
        from mulligan.policy.local import LocalPolicy
        from mulligan.report.run import RunFolder
        from mulligan.train.checkpoint import load_model
        from mulligan.train.context import trained_context
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "mulligan":
            raise
        raise MissingExtra(f"the policy {spec!r}", "train") from error

    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    run = run_of(spec)
    loaded = load_model(run[0], where, checkpoint=run[1]) if run else load(spec, device=where)
    loaded.model.eval()
    context = engine["context"]
    if not context:
        context = trained_context(RunFolder.open(run[0]), loaded) if run else _needed_context(plays, loaded)
    made = make_engine(loaded.model, **{**engine, "context": context})
    return LocalPolicy(made, loaded.renderer, name=spec.rstrip("/"))


def _needed_context(plays: Plays | None, loaded: Loaded) -> int | None:
    from mulligan.rollout.groups import Mixture
    from mulligan.train.context import played_context

    if plays is None:
        return None
    return played_context(Mixture.parse(plays.env, plays.params, plays.seed_set), plays.settings, loaded)
