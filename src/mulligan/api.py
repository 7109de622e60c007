"""What Python programs and notebooks call: `evaluate` and `train`, with policies and settings by name, and trials whose
failures are told."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from mulligan.envs.base import Env
from mulligan.errors import UsageError
from mulligan.eval import run as evaluation
from mulligan.eval.run import EvalResult
from mulligan.players import Plays, as_trained, player_from, trained_with
from mulligan.policy.base import Policy, ReplyFunction
from mulligan.trial import runner
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task, Trial

if TYPE_CHECKING:
    from mulligan.train.config import Config


Options = ParamSpec("Options")
_ENDPOINT = ("base_url", "api_key", "api_key_env", "timeout", "retries", "backoff", "extra_body")


def evaluate(env: str, policy: str | Path | Policy | ReplyFunction, **options: Any) -> EvalResult:
    """p@1 … p@N of a policy on a frozen task set, with intervals, controls, ceiling and room.

    ``mulligan.evaluate("minesweeper", my_function, tasks=64, memory="history")``. A string names a policy: "expert",
    "endpoint:MODEL" (with base_url=… and what else `EndpointPolicy` takes), a run folder, which may be a path too. All
    other options: `mulligan.eval.run.evaluate`.
    """
    if isinstance(policy, Path):  # as `train` returns it
        policy = str(policy)
    endpoint = {name: options.pop(name) for name in _ENDPOINT if name in options}
    if endpoint and not (isinstance(policy, str) and policy.partition(":")[0] == "endpoint"):
        raise UsageError(f"evaluate: {next(iter(endpoint))}= is for the policy 'endpoint:MODEL'")
    if endpoint and "concurrency" in options:  # as many requests as trials at a time
        endpoint["concurrency"] = options["concurrency"]
    config = trained_with(policy)
    if config is not None:  # as it was trained, unless told otherwise
        settings, params = as_trained(config, env)
        options = {
            "settings": settings,
            "related": config.task.related,
            **options,
            "params": {**params, **(options.get("params") or {})},
        }
    player = player_from(policy, plays=_plays(env, options), **endpoint) if isinstance(policy, str) else policy
    result = evaluation.evaluate(env, player, **options)
    if result.says_nothing:
        said = f"every trial failed for reasons outside the agent; the figures say nothing of it: {result.main.failure}"
        warnings.warn(said, stacklevel=2)
    return result


def _plays(env: str, options: Mapping[str, Any]) -> Plays:
    """What `evaluate` is about to play with these options."""
    overrides = {name: value for name, value in options.items() if name in TrialSettings.__slots__}
    settings = runner.with_overrides(options.get("settings") or TrialSettings(), overrides)
    return Plays(env, options.get("params") or {}, settings, options.get("seed_set", "eval"))


def _telling(play: Callable[Options, Coroutine[Any, Any, Trial]]) -> Callable[Options, Coroutine[Any, Any, Trial]]:
    """As `play`, with a warning where the trial failed."""

    @functools.wraps(play)
    async def told(*given: Options.args, **options: Options.kwargs) -> Trial:
        trial = await play(*given, **options)
        _warn_of_failure(trial)
        return trial

    return told


run_trial = _telling(runner.run_trial)


def run_trial_sync(task: Task | Env, policy: Policy | ReplyFunction, **options: Any) -> Trial:
    """`run_trial` for code that is not async; works inside a running event loop too (a notebook)."""
    trial = runner.run_trial_sync(task, policy, **options)
    _warn_of_failure(trial)
    return trial


def _warn_of_failure(trial: Trial) -> None:
    """Once a trial, at the line that asked for it."""
    if trial.failed:
        first = next(episode for episode in trial.episodes if episode.stop.is_infrastructure or episode.unreflected)
        said = f"the trial failed for reasons outside the agent, in episode {first.index + 1}: {first.error}"
        warnings.warn(said, stacklevel=3)


def train(
    env: str | None = None,
    *,
    preset: str | None = None,
    config: Config | None = None,
    run: str | Path,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    on_update: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Train a policy into the folder `run`; returns the folder, which `evaluate` takes as a policy.

    ``mulligan.train("minesweeper", preset="cpu", run="runs/mine", settings={"algo.gamma_traj": 0.9})``. Without a
    preset, a configuration or a model's name, the preset is "cpu". A `config`, or the run that is resumed, has all the
    settings; others beside it are refused.
    """
    given = [name for name, value in (("env", env), ("preset", preset), ("settings", settings)) if value]
    if resume and config is not None:
        given.append("config")
    if given and (config is not None or resume):
        source = "resume" if resume else "config"
        raise UsageError(f"train: {source}= brings its own settings; leave out {', '.join(given)}")
    from mulligan.train.loop import train as train_into
    from mulligan.train.resolve import resolve

    if config is None and not resume:
        flags = {key: str(value) for key, value in (settings or {}).items()}
        if preset is None and "model.name" not in flags:
            preset = "cpu"
        config = resolve(preset, None, {**({"task.env": env} if env else {}), **flags})
    return train_into(config, run, resume=resume, on_update=on_update)
