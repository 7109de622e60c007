"""A training configuration from its layers: defaults, preset, file, command line; each says only what it changes.

Every layer is a tree of sections: ``[algo] gamma_traj = 0.9``, or ``{"algo.gamma-traj": "0.9"}`` on the command line.
Two words stand at the top of a preset or a file: ``base = "cpu"`` names the preset it builds on, and
``[for.sokoban.algo]`` holds only where that environment, and no mixture, is played. A layer's ``for`` comes right after
the layer itself. A setting that may be None takes "none"; "default" where "none" is one of its values.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, RunFolderError, UnknownName, UsageError
from mulligan.report.run import RunFolder
from mulligan.settings import is_one_line, with_values
from mulligan.training.config import Config, settings, shown_memories, shown_params, value_at
from mulligan.types import ParamValue

PARAMS = "task.params"
"""The one setting that is a table itself: parameters of the environment, ``task.params.mines`` or ``env.mines``."""
_BASE, _FOR = "base", "for"


@dataclass(frozen=True)
class Layer:
    """One source of settings."""

    where: str
    """For messages: ``in run.toml``; empty for the command line."""
    values: Mapping[str, Any]
    """Dotted key -> value as it was written."""
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Environment -> what holds for it alone."""
    is_text: bool = False
    """Whether all values are text, as on the command line."""


def resolve(
    preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, str] | None = None
) -> Config:
    """The configuration that the layers give, with every name in it checked; imports no torch.

    `flags` are dotted keys with dashes or underscores: ``{"algo.gamma-traj": "0.9", "env.mines": "4"}``. The `base` of
    `file` stands in where no `preset` is given.
    """
    layers = [_flag_layer(flags or {})]
    if file is not None:
        tree = read_toml(Path(file), "settings")
        layers.insert(0, _layer(tree, f" in {file}"))
        preset = preset if preset is not None else _base(tree, f" in {file}")
    config = _applied(Config(), [*_preset_layers(preset), *layers])
    check(config)
    return config


def with_flags(config: Config, flags: Mapping[str, str]) -> Config:
    """`config` with what the command line changes."""
    config = _applied(config, [_flag_layer(flags)])
    check(config)
    return config


def to_tree(config: Config) -> dict[str, Any]:
    """The configuration as nested plain data, section by section; what is None is left out."""
    tree: dict[str, Any] = {section.name: {} for section in fields(config)}
    tree["task"]["params"] = {name: _python_value(value) for name, value in config.task.params.items()}
    for key in settings():
        section, _, name = key.partition(".")
        if (value := value_at(config, key)) is not None:
            tree[section][name] = _python_value(value)
    return tree


def from_tree(tree: Mapping[str, Any]) -> Config:
    """The configuration that `to_tree` wrote, exactly; single values at the top (a schema version) are passed over."""
    return _applied(Config(), [_layer({key: value for key, value in tree.items() if isinstance(value, Mapping)}, "")])


def checked(config: Config) -> Config:
    """A configuration made in Python, as a run folder will keep it, with every name in it checked.

    NumPy numbers become Python's, which files can hold and which randomness is derived from.
    """
    config = from_tree(to_tree(config))
    check(config)
    return config


def from_run(folder: RunFolder) -> Config:
    """The configuration of a training run."""
    tree = folder.config()
    if tree.get("kind") != "train":
        raise RunFolderError(f"{folder.path} is not a training run")
    return from_tree(tree)


def presets() -> dict[str, str]:
    """Name of every preset -> what it is for."""
    files = [file for file in resources.files("mulligan.training.presets").iterdir() if file.name.endswith(".toml")]
    summaries = {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for file in files
    }
    return dict(sorted(summaries.items()))


def check(config: Config) -> None:
    """Whether everything the configuration names exists: environments and their parameters, estimator, form."""
    from mulligan.algo.advantage import ESTIMATORS
    from mulligan.algo.credit import FORMS
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture

    for key, choices in (("algo.estimator", ESTIMATORS), ("algo.form", FORMS)):
        if value_at(config, key) not in choices:
            raise UnknownName(key, value_at(config, key), choices)
    shown_memories(config)
    for env, _ in Mixture.parse(config.task.env, {}).weights:
        if config.warmstart.steps and not hasattr(registry.spec(env).build, "player"):
            raise ParameterError(
                f"warmstart.steps must be 0 for {env}, which has no player() to imitate "
                f"(got {config.warmstart.steps}); write one, or give --warmstart.steps 0"
            )
        if config.warmstart.steps:
            registry.check_player(env, config.warmstart.player)
    for params in (config.task.params, shown_params(config)):
        mixture = Mixture.parse(config.task.env, params)
        for env, _ in mixture.weights:
            registry.task_of(env, 0, mixture.own_params(env))


def unknown_setting(kind: str, key: str) -> UnknownName:
    """The error for a key that nothing answers to: names the nearest one, or lists the section's."""
    keys = list(settings())
    section, _, name = key.rpartition(".")
    namesakes = [other for other in keys if other.rpartition(".")[2] == name]
    if namesakes or difflib.get_close_matches(key, keys, n=1, cutoff=0.5):
        return UnknownName(kind, key, namesakes or keys)
    return UnknownName(kind, key, [other for other in keys if other.startswith(f"{section}.")] or _sections())


def read_toml(path: Path, content: str) -> dict[str, Any]:
    """The tree of a TOML file that should hold `content`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r} to take {content} from") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}") from None


def as_table(value: object, name: str, where: str) -> Mapping[str, Any]:
    """`value` as the table that it has to be."""
    if not isinstance(value, Mapping):
        raise ParameterError(f"{name}{where} must be a table, [{name}] (got {value!r})")
    return value


def _sections() -> list[str]:
    return [section.name for section in fields(Config)]


def _preset_layers(name: str | None) -> list[Layer]:
    """The preset and those it builds on, the deepest first."""
    layers: list[Layer] = []
    while name is not None:
        if name not in presets():
            raise UnknownName("preset", name, presets())
        tree = tomllib.loads(
            (resources.files("mulligan.training.presets") / f"{name}.toml").read_text(encoding="utf-8")
        )
        where = f" in preset {name!r}"
        layers.insert(0, _layer(tree, where))
        name = _base(tree, where)
    return layers


def _base(tree: Mapping[str, Any], where: str) -> str | None:
    base = tree.get(_BASE)
    if base is not None and not isinstance(base, str):
        raise ParameterError(f"base{where} must be the name of a preset (got {base!r})")
    return base


def _flag_layer(flags: Mapping[str, str]) -> Layer:
    return Layer("", {_full_key(key): value for key, value in flags.items()}, is_text=True)


def _layer(tree: Mapping[str, Any], where: str) -> Layer:
    cases = as_table(tree.get(_FOR, {}), _FOR, where)
    return Layer(
        where,
        _flat({key: value for key, value in tree.items() if key not in (_BASE, _FOR)}, where),
        {env: _flat(as_table(case, f"{_FOR}.{env}", where), where) for env, case in cases.items()},
    )


def _flat(tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Sections of settings -> dotted keys."""
    values: dict[str, Any] = {}
    for section, table in tree.items():
        if section not in _sections():
            first = next(iter(table), "") if isinstance(table, Mapping) else ""
            raise unknown_setting(f"setting{where}", _full_key(f"{section}.{first}".rstrip(".")))
        for name, value in as_table(table, section, where).items():
            key = _full_key(f"{section}.{name}")
            if key == PARAMS:
                values.update({f"{key}.{param}": entry for param, entry in as_table(value, key, where).items()})
            else:
                values[key] = value
    return values


def _full_key(key: str) -> str:
    """A dotted key as the tree has it."""
    key = key.replace("-", "_")
    return f"{PARAMS}.{key.removeprefix('env.')}" if key.startswith("env.") else key


def _applied(config: Config, layers: list[Layer]) -> Config:
    """`config` with the layers on top, the last one uppermost."""
    named = [layer.values["task.env"] for layer in layers if "task.env" in layer.values]
    env = str(named[-1] if named else config.task.env)
    params: dict[str, ParamValue] = dict(config.task.params)
    sections: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for key, value in [*layer.values.items(), *layer.cases.get(env, {}).items()]:
            if key.startswith(f"{PARAMS}."):
                params[key.removeprefix(f"{PARAMS}.")] = _param(key, value, layer)
                continue
            if key not in settings():
                raise unknown_setting(f"setting{layer.where}", key)
            read = settings()[key].parse if layer.is_text else settings()[key].check
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = read(value, layer.where)
    changed = {section: with_values(getattr(config, section), values) for section, values in sections.items()}
    task = replace(changed.get("task", config.task), params=params)
    return replace(config, **{**changed, "task": task})


def _param(key: str, value: Any, layer: Layer) -> ParamValue:
    """A parameter of the environment, whose type only the environment knows."""
    name = key.removeprefix(f"{PARAMS}.")
    if not name.isidentifier():
        raise ParameterError(f"{name!r}{layer.where} is no parameter of an environment; write --env.NAME VALUE")
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


def _python_value(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers, so that they can be written to a file."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
