"""Every policy by name, as the command line and `evaluate` take it.

random | expert[:SKILL[:RECALL]] | hasty[:SKILL[:RECALL]] | omniscient | player:NAME[:SKILL[:RECALL]] |
optimal[:GAMMA_TRAJ] | human | endpoint:MODEL | tinker:MODEL | path/to/file.py:NAME | RUN | RUN@UPDATE | RUN@best |
nano | smollm2 | hf:MODEL

A player is one of the environment's own; the optimal one plays any game that has a model. In a file, NAME is a function
of the messages, a policy, or a class of policies that needs no arguments. RUN is a run folder, RUN@40 its checkpoint
after 40 updates, RUN@best that of the best validation. A population's RUN is its best agent, RUN/agent-3 that one.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mulligan.envs import registry
from mulligan.errors import ParameterError, UnknownName, UsageError, extra_named
from mulligan.policy.base import Policy, as_policy
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.policy.writer import Advised
from mulligan.report.run import RunFolder, policy_folder
from mulligan.rollout.groups import Mixture
from mulligan.trial.memory import shows_reflection
from mulligan.trial.settings import TrialSettings, evaluated_episodes
from mulligan.trusted import check_server, check_url
from mulligan.types import ParamValue, Sampling

if TYPE_CHECKING:
    from mulligan.engine.choose import Kind
    from mulligan.policy.local import LocalPolicy
    from mulligan.training.config import Config

MODELS = ("nano", "smollm2", "hf")
"""Models in this process."""
NAMES = ("random", "expert", "hasty", "omniscient", "player", "optimal", "human", "endpoint", "tinker", *MODELS)


class Plays(NamedTuple):
    """What a policy is about to play."""

    env: str
    params: Mapping[str, Any]
    settings: TrialSettings


def player_from(
    name: str,
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
    """The policy called `name`; `endpoint` are options of `EndpointPolicy`, the others those of local models.

    Without a `context`, a run has the one it was trained with, and an untrained model what the trials that it `plays`
    need, or its own limit if `plays` is None.
    """
    kind_of_policy, _, rest = name.partition(":")
    if run_of(name) or kind_of_policy in MODELS:
        engine = {"slots": slots, "context": context, "chunk": chunk, "kind": kind, "share": share}
        model = _local(name, device, engine, plays)
        config = trained_with(name)
        if config is None or not config.run.player:
            return model
        if config.run.player.startswith("endpoint:"):
            check_server(config.run.player)
        return Advised(
            player_from(_player_of(name, config), device=device, slots=slots, plays=plays, **endpoint), model
        )
    if kind_of_policy == "tinker":
        return _tinker(name, rest, slots, context, plays, endpoint.get("base_url"))
    if kind_of_policy == "optimal":
        return _optimal(name, rest, plays)
    return _other(name, kind_of_policy, rest, endpoint)


def _player_of(name: str, config: Config) -> str:
    """Who plays for the run `name`, which trained a writer; raises where that is a run that is not there."""
    from mulligan.training.checkpoint import player_of

    run = run_of(name)
    player = player_of(config.run.player, Path(run[0])) if run else config.run.player
    played = run_of(player)
    if run is not None and played is not None and Path(run[0]).resolve() == Path(played[0]).resolve():
        raise UsageError(f"{name} names itself as its player (run.player)")
    if played is None and "/" in player and ".py:" not in player:
        raise UsageError(f"{name} was trained for the player {player} (run.player), which is not there")
    return player


def writer_from(name: str, **options: Any) -> Policy:
    """The policy called `name`, to write another one's reflections; of a run that trained a writer, the writer."""
    policy = player_from(name, **options)
    return policy.writer if isinstance(policy, Advised) else policy


def advised_by(player: Policy, writer: Policy, settings: TrialSettings) -> Policy:
    """`player` with reflections by `writer`; raises where nothing would be asked for one."""
    if not shows_reflection(settings.memory_mode):
        raise UsageError(
            f"a writer needs a memory that shows reflections: reflection or both (got {settings.memory_mode})"
        )
    if writer.name.partition(":")[0] == "optimal":
        raise UsageError("the optimal player writes no reflections; name another writer, such as expert:1:1")
    return Advised(player.player if isinstance(player, Advised) else player, writer)


def _other(name: str, kind: str, rest: str, endpoint: dict[str, Any]) -> Policy:
    """A policy without a model in this process."""
    if kind == "random":
        return RandomPolicy()
    if kind in ("expert", "hasty", "omniscient"):
        return _expert(name, kind, rest)
    if kind == "player":
        player, _, shares = rest.partition(":")
        if not player:
            raise UsageError("the policy player: needs a name: player:NAME, as the environment calls it")
        return _expert(name, player, shares)
    if kind == "human":
        from mulligan.policy.human import HumanPolicy

        return HumanPolicy()
    if kind == "endpoint":
        return _endpoint(rest, endpoint)
    file, _, attribute = name.rpartition(":")
    if file.endswith(".py"):
        return _from_file(Path(file), attribute)
    if name.endswith(".py"):
        raise UsageError(f"name the policy in the file: {name}:NAME")
    if "/" in name or Path(name).exists():
        raise UsageError(f"{name} is not a run folder (it has no config.toml); a model's folder is hf:{name}")
    raise UnknownName("policy", name, NAMES)


def _expert(name: str, kind: str, shares: str) -> Policy:
    try:
        return ExpertPolicy(*map(float, filter(None, shares.split(":"))), kind=kind)
    except (ParameterError, TypeError, ValueError):
        raise ParameterError(f"policy must be {kind}[:SKILL[:RECALL]] with shares from 0 to 1 (got {name!r})") from None


def _optimal(name: str, gamma_traj: str, plays: Plays | None) -> Policy:
    from mulligan.eval.optimal import OptimalPolicy

    try:
        gamma = float(gamma_traj or 1.0)
    except ValueError:
        raise ParameterError(f"policy must be optimal[:GAMMA_TRAJ] with a number (got {name!r})") from None
    return OptimalPolicy(plays.settings if plays else TrialSettings(), gamma)


def _endpoint(model: str, options: dict[str, Any]) -> Policy:
    from mulligan.policy.endpoint import URL_VARIABLE, EndpointPolicy

    model = model or str(options.get("model") or "")
    if not model or not (options.get("base_url") or os.environ.get(URL_VARIABLE)):
        raise UsageError(
            "the endpoint policy needs a model and a URL: --policy endpoint:MODEL --base-url http://…/v1 (or the "
            f'variable {URL_VARIABLE}), or in Python mulligan.EndpointPolicy("MODEL", "http://…/v1")'
        )
    options.pop("model", None)
    if isinstance(text := options.get("extra_body"), str):
        try:
            options["extra_body"] = dict(json.loads(text))
        except (ValueError, TypeError):
            raise ParameterError(f'extra_body must be a JSON object like {{"top_k": 20}} (got {text!r})') from None
    return EndpointPolicy(model, **options)


def _tinker(name: str, model: str, slots: int, context: int | None, plays: Plays | None, url: str | None) -> Policy:
    """A model that a Tinker server samples from; its tokenizer is read here."""
    if not model or not url:
        raise UsageError("the tinker policy needs a model and a URL: --policy tinker:MODEL --base-url http://…")
    with extra_named(f"the policy {name!r}"):
        from mulligan.engine.tinker import TinkerEngine, connect, sampling_client
        from mulligan.models.load import load_without_weights
        from mulligan.policy.local import LocalPolicy
        from mulligan.training.context import model_limit, played_context
    loaded = load_without_weights(model)
    if not context and plays is not None:
        context = played_context(Mixture.parse(plays.env, plays.params), plays.settings, loaded)
    client = sampling_client(connect(url), model.removeprefix("hf:"))
    return LocalPolicy(TinkerEngine(client, slots=slots, context=context or model_limit(loaded)), loaded.renderer, name)


def _from_file(path: Path, attribute: str) -> Policy:
    module = registry.import_file(path)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(f"policy in {str(path)!r}", attribute, public)
    policy = getattr(module, attribute)
    if inspect.isclass(policy):
        try:
            policy = policy()
        except TypeError as error:
            raise UsageError(f"{attribute} in {str(path)!r} must need no arguments: {error}") from error
    return as_policy(policy)


def run_of(name: str) -> tuple[str, str] | None:
    """The run folder and the checkpoint (empty: the newest) of ``runs/x@40``: ("runs/x", "40"); None if no run."""
    folder, _, checkpoint = name.rpartition("@")
    for run in ((name, ""), (folder, checkpoint)):
        if run[0] and (Path(run[0]) / "config.toml").is_file():
            return policy_folder(run[0]), run[1]
    return None


def trained_with(name: object) -> Config | None:
    """The configuration of the training run called `name`; None if no run is called so."""
    run = run_of(name) if isinstance(name, str) else None
    if run is None:
        return None
    folder = RunFolder.open(run[0])
    if folder.config().get("kind") != "train":
        raise UsageError(f"{name} is not a training run, so that it holds no policy")
    from mulligan.training.resolve import from_run

    return from_run(folder)


def as_trained(config: Config, env: str) -> tuple[TrialSettings, dict[str, ParamValue]]:
    """How a trained policy is evaluated by default: as trained, but with `evaluated_episodes` and temperature 0.7."""
    sampling = Sampling(max_tokens=config.trial.sampling.max_tokens)
    settings = replace(config.trial, episodes=evaluated_episodes(config.trial.episodes), sampling=sampling)
    mixture = Mixture.parse(config.task.env, config.task.params)
    was_trained_on = env in [name for name, _ in mixture.weights]
    return settings, mixture.own_params(env) if was_trained_on else {}


def _local(name: str, device: str, engine: Mapping[str, Any], plays: Plays | None) -> Policy:
    with extra_named(f"the policy {name!r}"):
        import torch  # noqa: F401

        from mulligan.engine.choose import make_engine
        from mulligan.models.load import load
        from mulligan.policy.local import LocalPolicy
        from mulligan.training.checkpoint import load_model
        from mulligan.training.context import played_context, trained_context
    run, config = run_of(name), trained_with(name)
    if run is not None and config is not None and config.backend.kind == "tinker":
        return _on_server(name, run, config, engine)
    loaded = load_model(run[0], device, checkpoint=run[1]) if run else load(name, device=device)
    context = engine["context"]
    if not context and run:
        context = trained_context(RunFolder.open(run[0]), loaded)
    elif not context and plays is not None:
        context = played_context(Mixture.parse(plays.env, plays.params), plays.settings, loaded)
    made = make_engine(loaded.model, **{**engine, "context": context})
    return _as_trained(LocalPolicy(made, loaded.renderer, name=name.rstrip("/")), config)


def _on_server(name: str, run: tuple[str, str], config: Config, engine: Mapping[str, Any]) -> Policy:
    """The model of a run whose weights a Tinker server saved: it loads them again, and samples."""
    from mulligan.models.load import load_without_weights
    from mulligan.policy.local import LocalPolicy
    from mulligan.training.checkpoint import find, saved_on_server
    from mulligan.training.context import trained_context
    from mulligan.training.remote import RemoteLearner

    check_url(config.backend.url)
    saved = saved_on_server(find(Path(run[0]), run[1]))
    loaded = load_without_weights(config.model.name)
    context = engine["context"] or trained_context(RunFolder.open(run[0]), loaded)
    learner = RemoteLearner(config, context=context, slots=engine["slots"])
    learner.load(saved["state"])
    return _as_trained(LocalPolicy(learner.engine, loaded.renderer, name=name.rstrip("/")), config)


def _as_trained(policy: LocalPolicy, config: Config | None) -> LocalPolicy:
    if config is not None and config.trial.episodes > 1:
        policy.gamma_traj = config.algo.gamma_traj
    return policy
