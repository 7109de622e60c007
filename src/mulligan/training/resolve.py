"""A training configuration from its layers: defaults, preset, file, command line; each says only what it changes.

Every layer is a tree of sections: ``[algo] gamma_traj = 0.9``, or ``{"algo.gamma-traj": "0.9"}`` on the command line.
Two words stand at the top of a preset or a file: ``base = "cpu"`` names the preset it builds on, and
``[for.sokoban.algo]`` holds only where that environment, or one game of it, and no mixture, is played. A layer's
``for`` comes right after the layer itself. A setting that may be None takes "none"; "default" where "none" is one of
its values.

A run that goes on may change some settings (`MAY_CHANGE`); others would make it another run.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mulligan.envs.registry import game_of
from mulligan.errors import ParameterError, RunFolderError, UnknownName, UsageError
from mulligan.report.run import RunFolder
from mulligan.settings import is_one_line, with_values
from mulligan.training.config import Config, evaluated_params, settings, shown_memories, shown_params, value_at
from mulligan.trial.memory import shows_reflection
from mulligan.types import ParamValue

_PRESETS = Path(__file__).with_name("presets")
PARAMS = "task.params."
"""The one setting that is a table itself: parameters of the environment, ``task.params.mines`` or ``env.mines``."""
Changes = dict[str, tuple[Any, Any]]
"""Dotted key -> value before and after; None where it is missing."""
MAY_CHANGE = frozenset((
    "run.updates", "run.threads", "run.checkpoint_every", "run.keep", "run.save_trials_every", "run.validate_every",
    "run.validation_tasks", "run.diversity_tasks", "run.evaluate", "trial.env_timeout", "model.device",
    "model.gradient_checkpointing", "backend.url", "engine.slots", "ray.workers", "ray.address", "warmstart.processes",
    "optim.tokens",
))  # fmt: skip
"""How long a run goes on, what it keeps and measures, and how it is computed: not what it learns from, nor how."""


@dataclass(frozen=True)
class Layer:
    """One source of settings."""

    where: str
    """For messages: `` in run.toml``; empty for the command line."""
    values: Mapping[str, Any]
    """Dotted key -> value as it was written."""
    is_text: bool = False
    """Whether all values are text, as on the command line."""


def resolve(
    preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, str] | None = None
) -> Config:
    """The configuration that the layers give, with every name in it checked; imports no torch.

    `flags` are dotted keys with dashes or underscores: ``{"algo.gamma-traj": "0.9", "env.mines": "4"}``. The `base` of
    `file` stands in where no `preset` is given.
    """
    layers = [Layer("", flags or {}, is_text=True)]
    if file is not None:
        tree = read_toml(Path(file), "settings")
        layers.insert(0, Layer(f" in {file}", flat(tree)))
        preset = preset if preset is not None else tree.get("base")
    while preset is not None:
        if preset not in presets():
            raise UnknownName("preset", str(preset), presets())
        tree = tomllib.loads((_PRESETS / f"{preset}.toml").read_text(encoding="utf-8"))
        layers.insert(0, Layer(f" in preset {preset!r}", flat(tree)))
        preset = tree.get("base")
    return checked(_applied(Config(), layers))


def to_tree(config: Config) -> dict[str, Any]:
    """The configuration as nested plain data, section by section; what is None is left out."""
    tree: dict[str, Any] = {section.name: {} for section in fields(config)}
    tree["task"]["params"] = dict(config.task.params)
    for key in settings():
        section, _, name = key.partition(".")
        if (value := value_at(config, key)) is not None:
            tree[section][name] = value
    return tree


def from_tree(tree: Mapping[str, Any]) -> Config:
    """The configuration that `to_tree` wrote, exactly; single values at the top (a schema version) are passed over."""
    sections = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    return _applied(Config(), [Layer("", flat(sections))])


def from_run(folder: RunFolder) -> Config:
    tree = folder.config()
    if tree.get("kind") not in ("train", "population"):
        raise RunFolderError(f"{folder.name} is not a training run")
    return from_tree(tree)


def presets() -> dict[str, str]:
    """Name of every preset -> what it is for."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(_PRESETS.glob("*.toml"))}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items()}


def checked(config: Config) -> Config:
    """`config`, where everything it names exists: environments and their parameters, estimator, form."""
    from mulligan.algo.advantage import ESTIMATORS
    from mulligan.algo.credit import FORMS
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture

    for key, choices in (("algo.estimator", ESTIMATORS), ("algo.form", FORMS)):
        if value_at(config, key) not in choices:
            raise UnknownName(key, value_at(config, key), choices)
    shown_memories(config)
    if config.run.player:
        _check_advised(config)
    if config.backend.kind == "tinker":
        _check_remote(config)
    games = [name for name, _ in Mixture.parse(config.task.env, {}).weights]
    for env in games:
        if config.warmstart.steps and not hasattr(registry.spec(env).build, "player"):
            raise ParameterError(
                f"warmstart.steps must be 0 for {env}, which has no player() to imitate "
                f"(got {config.warmstart.steps}); write one, or give --warmstart.steps 0"
            )
        if config.warmstart.steps:
            registry.check_player(env, config.warmstart.player)
        if config.run.random_trials and not hasattr(registry.spec(env).build, "legal"):
            raise ParameterError(
                f"run.random_trials must be 0 for {env}, which has no legal() to draw moves from "
                f"(got {config.run.random_trials:g})"
            )
    if config.algo.scale == "population" and not config.population.agents:
        raise ParameterError("algo.scale must be std, none or agent without a population (got population)")
    evaluated = evaluated_params(config)
    if evaluated and len(games) > 1:
        raise ParameterError(f"run.evaluate must be empty for a mixture of environments (got {config.run.evaluate!r})")
    if evaluated and config.run.player:
        raise ParameterError(
            "run.evaluate must be empty where run.player plays; mulligan eval --writer evaluates notes"
        )
    further = [{**config.task.params, **params} for params in evaluated.values()]
    for params in (config.task.params, shown_params(config), *further):
        mixture = Mixture.parse(config.task.env, params)
        for env, _ in mixture.weights:
            registry.task_of(env, 0, mixture.own_params(env))
    return config


def _check_advised(config: Config) -> None:
    """Raise where the reflections of a frozen player cannot be trained."""
    trial = config.trial
    if trial.episodes < 2 or not shows_reflection(trial.memory_mode):
        raise ParameterError(
            "run.player needs trial.episodes >= 2 and trial.memory = reflection or both "
            f"(got {trial.episodes} and {trial.memory_mode})"
        )
    if config.algo.estimator == "ppo":
        raise ParameterError("run.player needs an estimator without a critic (got algo.estimator = ppo)")
    if config.run.random_trials:
        raise ParameterError("run.random_trials must be 0 where run.player plays")


def _check_remote(config: Config) -> None:
    """Raise where a Tinker server cannot do what is asked for."""
    if not config.backend.url:
        raise ParameterError("backend.url must name a server where backend.kind = tinker, e.g. http://127.0.0.1:8000")
    if config.model.name.partition(":")[0] in ("nano", "smollm2"):
        raise ParameterError(
            f"model.name must be the server's base model where backend.kind = tinker (got {config.model.name})"
        )
    if config.algo.estimator == "ppo":
        raise ParameterError("backend.kind = tinker needs an estimator without a critic (got algo.estimator = ppo)")
    if config.engine.kind != "auto":
        raise ParameterError(f"engine.kind must be auto where backend.kind = tinker (got {config.engine.kind})")
    if config.population.agents and "trial.temperature" in config.population.vary:
        raise ParameterError("population.vary must not name trial.temperature where backend.kind = tinker")
    if config.population.agents and config.backend.rank == 0:
        raise ParameterError(
            "backend.rank must be >= 1 in a population: a server trains all weights of one model alone"
        )
    refused: dict[str, tuple[Any, Any, str]] = {
        "algo.kl_weight": (config.algo.kl_weight, 0, "its servers compute no KL to a reference"),
        "algo.entropy_weight": (config.algo.entropy_weight, 0, "its servers give no entropy bonus"),
        "algo.entropy_end": (config.algo.entropy_end or 0, 0, "its servers give no entropy bonus"),
        "trial.temperature": (config.trial.sampling.temperature, 1, "its log-probabilities are those at 1"),
        "warmstart.steps": (config.warmstart.steps, 0, "begin with a model that was warmed up before"),
        "run.random_trials": (config.run.random_trials, 0, "all trials are the agent's own"),
        "population.past": (config.population.past, 0, "a server may have one copy of an agent's weights"),
        "model.lora_rank": (config.model.lora_rank, 0, "backend.rank is the adapter's rank"),
    }
    for key, (value, only, reason) in refused.items():
        if value != only:
            raise ParameterError(f"{key} must be {only} where backend.kind = tinker: {reason} (got {value:g})")


def read_toml(path: Path, content: str) -> dict[str, Any]:
    """The tree of a TOML file that should hold `content`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r} to take {content} from") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}") from None


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables -> dotted keys; without recursion, since a file may nest them without end."""
    values: dict[str, Any] = {}
    waiting = [*tree.items()]
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting[:0] = [(f"{name}.{key}", each) for key, each in value.items()]
        else:
            values[name] = value
    return values


def _applied(config: Config, layers: list[Layer]) -> Config:
    """`config` with the layers on top, the last one uppermost."""
    named = [layer.values["task.env"] for layer in layers if "task.env" in layer.values]
    case = f"for.{game_of(named[-1] if named else config.task.env)[0]}."
    params: dict[str, ParamValue] = dict(config.task.params)
    sections: dict[str, dict[str, Any]] = {}
    for layer in layers:
        general = [(key, value) for key, value in layer.values.items() if key != "base" and not key.startswith("for.")]
        special = [(key.removeprefix(case), value) for key, value in layer.values.items() if key.startswith(case)]
        for written, value in general + special:
            key = written.replace("-", "_")
            key = f"{PARAMS}{key.removeprefix('env.')}" if key.startswith("env.") else key
            if key.startswith(PARAMS):
                params[key.removeprefix(PARAMS)] = _param(key, value, layer)
                continue
            if key not in settings():
                raise _unknown_setting(f"setting{layer.where}", key)
            read = settings()[key].parse if layer.is_text else settings()[key].check
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = read(value, layer.where)
    changed = {section: with_values(getattr(config, section), values) for section, values in sections.items()}
    task = replace(changed.get("task", config.task), params=params)
    return replace(config, **{**changed, "task": task})


def _unknown_setting(kind: str, key: str) -> UnknownName:
    """The error for a key that nothing answers to: names the nearest one, or lists the sections."""
    keys = list(settings())
    namesakes = [other for other in keys if other.rpartition(".")[2] == key.rpartition(".")[2]]
    is_near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    return UnknownName(kind, key, namesakes or (keys if is_near else [section.name for section in fields(Config)]))


def _param(key: str, value: Any, layer: Layer) -> ParamValue:
    """A parameter of the environment, whose type only the environment knows."""
    if not key.removeprefix(PARAMS).isidentifier():
        raise ParameterError(f"{key}{layer.where} is no parameter of an environment; write --env.NAME VALUE")
    if not isinstance(value, bool | int | float | str) or (isinstance(value, str) and not is_one_line(value)):
        raise ParameterError(f"{key}{layer.where} must be a number, text on one line, true or false (got {value!r})")
    if not layer.is_text or not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        # What would be written differently stays as it was given: the parameter may be a text like '007'.
        if math.isfinite(number) and repr(number) == value:
            return number
    return value


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    names = sorted({*before, *after})
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def in_words(changes: Changes) -> list[str]:
    """``algo.gamma_traj was 0.6, is 0.1``, one for each setting."""
    shown = {name: ["not set" if value is None else value for value in pair] for name, pair in changes.items()}
    return [f"{name} was {before}, is {now}" for name, (before, now) in shown.items()]


def changed_since(then: Config, now: Config) -> list[str]:
    """What makes `now` another run than the one begun with `then`, in words.

    Of a model that is a folder, the name counts and not where it lies.
    """
    changes = differences(flat_settings(then), flat_settings(now))
    if "model.name" in changes and len({Path(name).name for name in changes["model.name"]}) == 1:
        del changes["model.name"]
    return in_words({name: pair for name, pair in changes.items() if name not in MAY_CHANGE})


def with_resume_flags(config: Config, flags: Mapping[str, str]) -> Config:
    """The settings of a run that goes on with other ones; those that would make it another run are refused by name."""
    changed = checked(_applied(config, [Layer("", flags, is_text=True)]))
    if refused := changed_since(config, changed):
        raise UsageError(
            f"a resumed run must keep its settings ({'; '.join(refused)}); begin another run with --model.name RUN, "
            "which starts from its weights"
        )
    return changed


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by dotted key; the environment's parameters as ``env.mines``."""
    tree = to_tree(config)
    tree["env"] = tree["task"].pop("params")
    return {f"{section}.{name}": value for section, part in tree.items() for name, value in part.items()}
