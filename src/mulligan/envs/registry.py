"""Finds environments by name: built in, from other packages (entry-point group ``mulligan.envs``), or in a file.

Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from mulligan.envs.base import Env
from mulligan.errors import ContractBroken, ParameterError, UnknownName, UsageError
from mulligan.seeding import derive
from mulligan.types import PLAYERS, Kind, ParamValue, Restart, Stop, Task, whole

Value = TypeVar("Value")
BUILTIN = {
    "minesweeper": "mulligan.envs.minesweeper.env:MineSweeper",
    "sokoban": "mulligan.envs.sokoban.env:Sokoban",
    "tictactoe": "mulligan.envs.tictactoe:TicTacToe",
    "kuhn": "mulligan.envs.kuhn:KuhnPoker",
    "alfworld": "mulligan.envs.alfworld.env:ALFWorld",
    "webshop": "mulligan.envs.webshop.env:WebShop",
    "bandit": "mulligan.envs.bandit:Bandit",
}
ENTRY_POINTS = "mulligan.envs"
ADAPTERS = ("gymnasium", "textarena", "openspiel")
"""``gymnasium:ID`` and so on: environments of other libraries."""


@dataclass(frozen=True)
class EnvSpec:
    """An environment class and what it says about itself in class attributes."""

    name: str
    build: type[Env]
    summary: str
    """First line of the class's docstring."""
    defaults: Mapping[str, ParamValue]
    """``defaults``: every parameter with its default, whose type is the parameter's type."""
    turns: int
    """``turns``: how many turns an episode may take unless the task says otherwise."""
    kind: Kind
    """``kind``: "solve" (won or not) or "versus" (a return per episode against an opponent)."""
    timeout_reward: float
    """``timeout_reward``: added to the last turn when the turn limit ends an episode. In a game against somebody,
    not moving must not be better than losing."""
    glyphs: Mapping[str, str]
    """``glyphs``: character of the observation -> colour, for people."""

    @property
    def stop(self) -> Stop:
        """When a trial ends by default."""
        return "success" if self.kind == "solve" else "never"

    @property
    def restart(self) -> Restart:
        """What the next episode repeats by default."""
        return "replay" if self.kind == "solve" else "fresh"


def names() -> list[str]:
    """Every registered name, built in or installed."""
    return sorted({*BUILTIN, *(point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS))})


def spec(name: str) -> EnvSpec:
    """The environment called `name`."""
    if not isinstance(name, str):
        raise UsageError(f"{name!r} is no name of an environment; give one, or path/to/file.py:ClassName")
    return spec_of(_load(name), name)


@lru_cache(maxsize=256)
def spec_of(found: object, name: str) -> EnvSpec:
    """What the class `found` says about itself, under the name it goes by."""
    if not _is_env(found):
        raise UsageError(f"{name!r} is not an environment: it needs rules(), reset() and step()")
    defaults: dict[str, ParamValue] = _attribute(found, name, "defaults", {}, dict)
    reserved = [key for key in ("name", "seed", "turns") if key in defaults]
    if reserved:
        raise UsageError(f"{name!r} cannot have a parameter {reserved[0]!r}: every task has one of that name")
    kind = getattr(found, "kind", "solve")
    if kind not in ("solve", "versus"):
        raise UsageError(f"{name!r} says kind={kind!r}; it must be 'solve' or 'versus'")
    return EnvSpec(
        name=name,
        build=cast(type[Env], found),
        summary=(found.__doc__ or "").strip().partition("\n")[0],
        defaults=defaults,
        turns=_attribute(found, name, "turns", 10, int),
        kind=cast(Kind, kind),
        timeout_reward=_attribute(found, name, "timeout_reward", 0.0, float),
        glyphs=_attribute(found, name, "glyphs", {}, dict),
    )


def _attribute(found: object, name: str, key: str, default: Value, kind: Callable[[Any], Value]) -> Value:
    """What the class `found` says as `key`, in the type that it must have."""
    said = getattr(found, key, default)
    try:
        return kind(said)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name!r} says {key}={said!r}; it must be {_TYPES[type(default)]}") from None


_TYPES = {int: "a whole number", float: "a number", dict: "a dict"}


def make_task(name: str, seed: int = 0, **params: Any) -> Task:
    """A task of environment `name`, with every parameter that is not given at its default."""
    return task_of(name, seed, params)


def task_of(name: str, seed: int, given: Mapping[str, Any]) -> Task:
    """As `make_task`, whatever the parameters are called."""
    about, params = spec(name), dict(given)
    seed = whole(f"{name}: seed", seed)
    turns = _coerce(name, "turns", params.pop("turns", about.turns), about.turns)
    if int(turns) < 1:
        raise ParameterError(f"{name}: turns={turns} leaves nothing to play; give at least 1")
    filled = dict(about.defaults)
    for key, value in params.items():
        if key not in filled:
            raise UnknownName(f"parameter of {name}", key, [*filled, "turns"])
        filled[key] = _coerce(name, key, value, filled[key])
    settle = getattr(about.build, "settle", None)
    if settle is not None:  # lets an environment check its parameters and fix those that depend on the seed
        filled = settle(filled, seed)
    check_turns = getattr(about.build, "check_turns", None)
    if check_turns is not None:
        check_turns(filled, int(turns))
    classify = getattr(about.build, "task_class", None)
    task_class = classify(filled) if classify is not None else _class_of(name)
    return Task(env=name, seed=seed, turns=int(turns), task_class=task_class, params=tuple(sorted(filled.items())))


def _class_of(name: str) -> str:
    """The task class of an environment that names none: of one in a file, the name of file and class, no folders."""
    if ":" not in name:
        return name
    file, _, attribute = name.rpartition(":")
    return f"{Path(file).stem}:{attribute}" if file.endswith(".py") else Path(name).stem


def build(task: Task) -> Env:
    """The live world of a task; parameters that are newer than the task are at their defaults."""
    about, known = spec(task.env), {name for name, _ in task.params}
    newer = [(name, value) for name, value in about.defaults.items() if name not in known]
    env = about.build(replace(task, params=tuple(sorted((*task.params, *newer)))) if newer else task)
    if getattr(env, "task", None) is None:
        raise ContractBroken(f"{task.env} does not keep its task; say self.task = task in __init__")
    return env


def check_player(name: str, kind: str) -> None:
    """Raise unless environment `name` has a scripted player of this kind."""
    maker = spec(name).build
    if not hasattr(maker, "player"):
        raise UsageError(f"{name} offers no player(), which the {kind} player needs")
    known = getattr(maker, "players", PLAYERS)
    if kind not in known:
        raise UnknownName(f"player of {name}", kind, known)


def make(name: str, seed: int = 0, **params: Any) -> Env:
    """A live environment: ``mulligan.make("minesweeper", seed=3, mines=4)``."""
    return build(make_task(name, seed, **params))


REGISTERED: dict[str, type[Env]] = {}


def register(env: type[Env]) -> str:
    """Make a class an environment of this process, under its own name."""
    if not _is_env(env):
        raise UsageError(f"{env!r} is not an environment: it needs rules(), reset() and step()")
    name = env.__name__
    if name in names() and REGISTERED.get(name) is not env:
        raise UsageError(f"an environment called {name!r} exists already; give the class another name")
    REGISTERED[name] = env
    _load.cache_clear()  # a notebook may have defined the class anew
    return name


@lru_cache(maxsize=256)
def _load(name: str) -> object:
    if name in REGISTERED:
        return REGISTERED[name]
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        return point.load()
    library, _, ident = name.partition(":")
    if library in ADAPTERS and ident:
        return importlib.import_module(f"mulligan.envs.adapters.{library}").adapt(ident)
    file, colon, attribute = name.rpartition(":")
    if colon and file.endswith(".py"):
        return load_from_file(Path(file), attribute)
    if name.endswith(".py"):
        raise UsageError(_without_class(name))
    raise UnknownName("environment", name, names())


def load_from_file(path: Path, attribute: str) -> object:
    """What a Python file calls `attribute`."""
    if not path.is_file():
        raise UsageError(f"no file {str(path)!r} to take the environment {attribute!r} from")
    module = import_file(path)
    if not hasattr(module, attribute):
        raise UnknownName(f"class in {str(path)!r}", attribute, _classes(module))
    return getattr(module, attribute)


def _without_class(file: str) -> str:
    """What to say where a file is named and no class of it."""
    if not Path(file).is_file():
        return f"no file {file!r} to take an environment from"
    found = [f"{file}:{name}" for name in _classes(import_file(Path(file)))]
    if not found:
        return f"{file!r} has no environment: a class with rules(), reset() and step(); see docs/own-env.md"
    return f"{file!r} is a file; name the environment in it: {' or '.join(found)}"


def _classes(module: ModuleType) -> list[str]:
    """The environments that a module defines; where it defines none itself, those that it imports."""
    found = {key: value for key, value in vars(module).items() if _is_env(value)}
    return [key for key, value in found.items() if value.__module__ == module.__name__] or list(found)


def _is_env(found: object) -> bool:
    return isinstance(found, type) and all(callable(getattr(found, name, None)) for name in ("rules", "reset", "step"))


def import_file(path: Path) -> ModuleType:
    """The module that a Python file defines."""
    module_name = f"mulligan_env_{path.stem}_{derive(str(path.resolve())):x}"
    found = importlib.util.spec_from_file_location(module_name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f"{str(path)!r} cannot be imported: {type(error).__name__}: {said}") from error
    return module


def _coerce(env: str, key: str, value: Any, like: ParamValue) -> ParamValue:
    """`value` in the type of the parameter's default; strings come from the command line."""
    kind = type(like)
    try:
        if kind is bool:
            return _BOOLEANS[str(value).lower()]
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        raise ParameterError(f"{env}: {key}={value!r} is not of type {kind.__name__} (default {like!r})") from None


_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
