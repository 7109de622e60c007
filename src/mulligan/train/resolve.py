"""A training configuration from its layers: defaults, preset, file, command line; each says only what it changes.

Every layer is a tree of sections: ``[algo] gamma_traj = 0.9``, or ``{"algo.gamma-traj": "0.9"}`` on the command line.
Two words stand at the top of a preset or a file: ``base = "cpu"`` names the preset it builds on, and
``[for.sokoban.algo]`` holds only where that environment, and no mixture, is played. A layer's ``for`` comes right after
the layer itself. Where a setting may be left open, "none" leaves it open; "default" where "none" is one of its values.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mulligan.errors import ParameterError, RunFolderError, UnknownName, UsageError
from mulligan.report.run import RunFolder
from mulligan.train import config as config_module
from mulligan.train.config import Config, shown_memories, shown_params
from mulligan.types import ParamValue

PARAMS = "task.params"
"""The one setting that is a table itself: parameters of the environment, ``task.params.mines`` or ``env.mines``."""
_BASE, _FOR = "base", "for"
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text on one line"}


@dataclass(frozen=True)
class Setting:
    """One leaf of the configuration tree."""

    key: str
    """Dotted, with underscores: ``algo.gamma_traj``."""
    kind: type
    """int, float, bool or str."""
    default: object
    choices: tuple[str, ...] = ()
    """The values it may have, where they are named; empty otherwise."""
    optional: bool = False
    """Whether it may be left open."""

    @property
    def open_word(self) -> str:
        """How None is written where it has to be."""
        return "default" if "none" in self.choices else "none"

    @property
    def shown(self) -> str:
        """Its default, as one would type it."""
        if self.default is None:
            return self.open_word
        return str(self.default).lower() if self.kind is bool else str(self.default)

    @property
    def allowed(self) -> str:
        """What it takes, in words."""
        words = f"one of {', '.join(self.choices)}" if self.choices else _KINDS[self.kind]
        return f"{words}, or {self.open_word!r}" if self.optional else words


@dataclass(frozen=True)
class Layer:
    """One source of settings."""

    name: str
    """For messages: ``in run.toml``; empty for the command line."""
    values: Mapping[str, object]
    """Dotted key -> value as it was written."""
    cases: Mapping[str, Mapping[str, object]]
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
    given = Layer("", {_normal(key): value for key, value in (flags or {}).items()}, {}, is_text=True)
    layers = [given]
    if file is not None:
        tree = read_toml(Path(file), "settings")
        layers.insert(0, _layer(tree, f" in {file}"))
        preset = preset if preset is not None else _base(tree, f" in {file}")
    layers = [*_preset_layers(preset), *layers]
    env = next(
        (layer.values["task.env"] for layer in reversed(layers) if "task.env" in layer.values), Config().task.env
    )
    values: dict[str, object] = {}
    for layer in layers:
        for part in (layer.values, layer.cases.get(str(env), {})):
            values.update({key: _value(key, value, layer) for key, value in part.items()})
    config = _build(values)
    check(config)
    return config


def to_tree(config: Config) -> dict[str, Any]:
    """The configuration as nested plain data, section by section; what is None is left out."""
    tree: dict[str, Any] = {}
    for part in fields(config):
        section = getattr(config, part.name)
        pairs = {entry.name: getattr(section, entry.name) for entry in fields(section)}
        tree[part.name] = {key: _plain(value) for key, value in pairs.items() if value is not None}
    return tree


def from_tree(tree: Mapping[str, Any]) -> Config:
    """The configuration that `to_tree` wrote, exactly; single values at the top (a schema version) are passed over."""
    layer = _layer({key: value for key, value in tree.items() if isinstance(value, Mapping)}, "")
    return _build({key: _value(key, value, layer) for key, value in layer.values.items()})


def checked(config: Config) -> Config:
    """A configuration made in Python, as a run folder will keep it; what cannot be is said here, and not after hours.

    Numbers of numpy become Python's own, which files can hold and which randomness is derived from.
    """
    config = from_tree(to_tree(config))
    check(config)
    return config


def from_run(folder: RunFolder) -> Config:
    """The configuration a training run was started with."""
    tree = folder.config()
    if tree.get("kind") != "train":
        raise RunFolderError(f"{folder.path} is not a training run")
    return from_tree(tree)


def presets() -> dict[str, str]:
    """Name of every preset -> what it is for."""
    files = [file for file in resources.files("mulligan.presets").iterdir() if file.name.endswith(".toml")]
    summaries = {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for file in files
    }
    return dict(sorted(summaries.items()))


@lru_cache(maxsize=1)
def settings() -> Mapping[str, Setting]:
    """Every setting but the environment's parameters, by dotted key, in the order of the tree."""
    found: dict[str, Setting] = {}
    sections = get_type_hints(Config)
    for section in fields(Config):
        hints = get_type_hints(sections[section.name])
        for entry in fields(sections[section.name]):
            key = f"{section.name}.{entry.name}"
            if key != PARAMS:
                assert entry.default is not MISSING, f"{key} has no default"
                found[key] = _setting(key, hints[entry.name], entry.default)
    return found


@lru_cache(maxsize=1)
def explanations() -> Mapping[str, str]:
    """Section or dotted key -> what its docstring says, in one line; read from the source, for people who ask."""
    parsed = ast.parse(inspect.getsource(config_module)).body
    classes = {node.name: node for node in parsed if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}
    for section, kind in get_type_hints(Config).items():
        node = classes[kind.__name__]
        found[section] = _one_line(ast.get_docstring(node) or "")
        for entry, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name) and isinstance(after, ast.Expr):
                found[f"{section}.{entry.target.id}"] = _one_line(str(ast.literal_eval(after.value)))
    return found


def check(config: Config) -> None:
    """Whether everything the configuration names exists: environments and their parameters, estimator, form, style."""
    from mulligan.algo.advantage import ESTIMATORS
    from mulligan.algo.credit import FORMS
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture
    from mulligan.rollout.tasksets import FIRST_SEED
    from mulligan.trial.prompts import STYLES

    for key, name, known in (
        ("algo.estimator", config.algo.estimator, ESTIMATORS),
        ("algo.form", config.algo.form, FORMS),
        ("trial.style", config.trial.style, STYLES),
        ("task.seed_set", config.task.seed_set, FIRST_SEED),
    ):
        if name not in known:
            raise UnknownName(key, name, known)
    algo = config.algo
    if algo.dynamic_sampling and (algo.estimator == "ppo" or algo.baseline == "agent"):
        beyond = "algo.estimator=ppo" if algo.estimator == "ppo" else "algo.baseline=agent"
        raise ParameterError(
            f"algo.dynamic_sampling replaces groups without differences; {beyond} learns from them: leave it out"
        )
    shown_memories(config)
    for env, _ in Mixture.parse(config.task.env, {}).weights:
        if config.warmstart.steps and not hasattr(registry.spec(env).build, "player"):
            raise ParameterError(
                f"warmstart.steps={config.warmstart.steps} needs somebody to imitate, and {env} has no player(); "
                "write one, or give --warmstart.steps 0"
            )
        if config.warmstart.steps:
            registry.check_player(env, config.warmstart.player)
    for params in (config.task.params, shown_params(config)):
        mixture = Mixture.parse(config.task.env, params)
        for env, _ in mixture.weights:
            registry.task_of(env, 0, mixture.own_params(env))
    most = max(Mixture.parse(config.task.env, config.task.params).turns())
    if config.task.turns_from > most:
        raise ParameterError(f"task.turns_from={config.task.turns_from} cannot be: an episode has at most {most} turns")


def unknown_setting(kind: str, key: str) -> UnknownName:
    """The error for a key that nothing answers to: names the nearest one, or lists the section's."""
    keys = list(settings())
    section, _, name = key.rpartition(".")
    namesakes = [known for known in keys if known.rpartition(".")[2] == name]
    if namesakes or difflib.get_close_matches(key, keys, n=1, cutoff=0.5):
        return UnknownName(kind, key, namesakes or keys)
    return UnknownName(kind, key, [known for known in keys if known.startswith(f"{section}.")] or _sections())


def _sections() -> list[str]:
    return [section.name for section in fields(Config)]


def _setting(key: str, hint: Any, default: object) -> Setting:
    """Takes apart ``int``, ``Literal["a", "b"]`` and ``… | None``."""
    parts = [part for part in (get_args(hint) if get_origin(hint) is not Literal else ()) if part is not type(None)]
    optional = bool(parts)
    (kind,) = parts or [hint]
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Setting(key, str if choices else kind, default, choices, optional)


def _preset_layers(name: str | None) -> list[Layer]:
    """The preset and those it builds on, the deepest first."""
    layers: list[Layer] = []
    chain: list[str] = []
    while name is not None:
        if name not in presets():
            raise UnknownName("preset", name, presets())
        if name in chain:
            raise UsageError(f"presets build on each other in a circle: {' -> '.join([*chain, name])}")
        chain.append(name)
        tree = tomllib.loads((resources.files("mulligan.presets") / f"{name}.toml").read_text(encoding="utf-8"))
        where = f" in preset {name!r}"
        layers.insert(0, _layer(tree, where))
        name = _base(tree, where)
    return layers


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tree of a TOML file that should hold `what`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r} to take {what} from") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}") from None


def _base(tree: Mapping[str, Any], where: str) -> str | None:
    base = tree.get(_BASE)
    if base is not None and not isinstance(base, str):
        raise ParameterError(f"base={base!r}{where} cannot be; give the name of a preset")
    return base


def _layer(tree: Mapping[str, Any], where: str) -> Layer:
    cases = as_table(tree.get(_FOR, {}), _FOR, where)
    return Layer(
        where,
        _flat({key: value for key, value in tree.items() if key not in (_BASE, _FOR)}, where),
        {env: _flat(as_table(case, f"{_FOR}.{env}", where), where) for env, case in cases.items()},
    )


def _flat(tree: Mapping[str, Any], where: str) -> dict[str, object]:
    """Sections of settings -> dotted keys."""
    values: dict[str, object] = {}
    for section, table in tree.items():
        if section not in _sections():
            inside = next(iter(table), "") if isinstance(table, Mapping) else ""
            raise unknown_setting(f"setting{where}", _normal(f"{section}.{inside}".rstrip(".")))
        for name, value in as_table(table, section, where).items():
            key = _normal(f"{section}.{name}")
            if key == PARAMS:
                values.update({f"{key}.{param}": entry for param, entry in as_table(value, key, where).items()})
            else:
                values[key] = value
    return values


def as_table(value: object, name: str, where: str) -> Mapping[str, Any]:
    """`value` as the table that it has to be."""
    if not isinstance(value, Mapping):
        raise ParameterError(f"{name}={value!r}{where} cannot be; it is a table: [{name}]")
    return value


def _normal(key: str) -> str:
    """A dotted key as the tree has it."""
    key = key.replace("-", "_")
    return f"{PARAMS}.{key.removeprefix('env.')}" if key.startswith("env.") else key


def _value(key: str, value: object, layer: Layer) -> object:
    """What `key` is set to, in the setting's own type."""
    if key.startswith(f"{PARAMS}."):
        return _param(key, value, layer)
    if key not in settings():
        raise unknown_setting(f"setting{layer.name}", key)
    setting = settings()[key]
    if setting.optional and str(value).lower() == setting.open_word:
        return None
    found = _parse(setting, value) if layer.is_text and isinstance(value, str) else _typed(setting, value)
    if found is None or (setting.choices and found not in setting.choices):
        raise ParameterError(
            f"{key}={value!r}{layer.name} cannot be; give {setting.allowed} (default: {setting.shown})"
        )
    return found


def _parse(setting: Setting, text: str) -> object | None:
    """`text` in the setting's type; None where it is none of that type."""
    if setting.kind is bool:
        return _BOOLEANS.get(text.lower())
    if setting.kind is float:
        return _number(text)
    if setting.kind is int:
        try:
            return int(text)
        except ValueError:
            return None
    return _typed(setting, text)


def _typed(setting: Setting, value: object) -> object | None:
    """`value` of a file in the setting's type: a whole number is a number too, and nothing else is two things."""
    if setting.kind is float and type(value) is int:
        return _number(str(value))
    if type(value) is not setting.kind or value != value:
        return None
    return None if isinstance(value, str) and not _is_one_line(value) else value


def _param(key: str, value: object, layer: Layer) -> ParamValue:
    """A parameter of the environment, whose type only the environment knows."""
    name = key.removeprefix(f"{PARAMS}.")
    if not name.isidentifier():
        raise ParameterError(f"{name!r}{layer.name} is no parameter of an environment; write --env.NAME VALUE")
    if not isinstance(value, bool | int | float | str) or (isinstance(value, str) and not _is_one_line(value)):
        raise ParameterError(f"{key}={value!r}{layer.name} cannot be; give a number, text on one line, true or false")
    if not layer.is_text or not isinstance(value, str):
        return value
    for number in (_whole(value), _number(value)):
        # What would be written differently stays as it was given: the parameter may be a text like '007'.
        if number is not None and math.isfinite(number) and repr(number) == value:
            return number
    return value


def _whole(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 100 else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _is_one_line(text: str) -> bool:
    """Whether a TOML string in UTF-8 can hold it as it is: no control characters, no broken encoding."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def _build(values: Mapping[str, object]) -> Config:
    tables: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        table = tables.setdefault(section, {})
        if key.startswith(f"{PARAMS}."):
            table.setdefault("params", {})[name.partition(".")[2]] = value
        else:
            table[name] = value
    kinds = get_type_hints(Config)
    return Config(**{section: kinds[section](**table) for section, table in tables.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value  # numpy's numbers


def _one_line(text: str) -> str:
    return " ".join(text.split())
