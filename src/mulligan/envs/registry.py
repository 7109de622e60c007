"""Finds environments by name: built in, registered, from other packages (entry points ``mulligan.envs``), or in a file.

Nothing is imported before it is asked for. Parameters that are strings are converted to the type of their default.

A game is an environment with parameters of its own: ``expedition(world=camp,turns=3)`` is one wherever an environment
is named. Its tasks are the environment's, as if the parameters had been given. OpenSpiel's games are named likewise,
and know their brackets themselves.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import re
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, get_args

from mulligan.calls import call, described, text_of
from mulligan.envs.base import Env
from mulligan.errors import ContractBroken, MulliganError, ParameterError, UnknownName, UsageError
from mulligan.seeding import derive
from mulligan.trusted import check_trusted
from mulligan.types import PLAYERS, Kind, ParamValue, Restart, Stop, Task, whole

EnvClass = TypeVar("EnvClass", bound=type)
BUILTIN = {
    "minesweeper": "mulligan.envs.minesweeper.env:MineSweeper",
    "sokoban": "mulligan.envs.sokoban.env:Sokoban",
    "tictactoe": "mulligan.envs.tictactoe:TicTacToe",
    "kuhn": "mulligan.envs.kuhn.env:KuhnPoker",
    "leduc": "mulligan.envs.leduc:LeducPoker",
    "alfworld": "mulligan.envs.alfworld.env:ALFWorld",
    "webshop": "mulligan.envs.webshop.env:WebShop",
    "bandit": "mulligan.envs.bandit:Bandit",
    "expedition": "mulligan.envs.expedition.env:Expedition",
    "rps": "mulligan.envs.rps.env:RockPaperScissors",
    "dilemma": "mulligan.envs.dilemma:Dilemma",
}
ENTRY_POINTS = "mulligan.envs"
ADAPTERS = ("gymnasium", "textarena", "openspiel")
"""``gymnasium:ID`` and so on: environments of other libraries."""
_GAME = re.compile(r"([^()]+)\(([^()]*)\)")
"""An environment, and parameters of its own."""
REGISTERED: dict[str, type] = {}
"""Classes that only this process can find."""
_FROM_FILES: dict[str, object] = {}
"""Classes that were named as ``file.py:Class``, for runs that were trained on the class in a notebook."""


@dataclass(frozen=True)
class EnvSpec:
    """An environment class and its settings, which are class attributes of the same names."""

    name: str
    build: type[Env]
    summary: str
    """First line of the class's docstring."""
    stop: Stop
    """When a trial ends by default: "success" for "solve", "never" for "versus"."""
    restart: Restart
    """What the next episode repeats by default: "replay" for "solve", "fresh" for "versus"."""
    kind: Kind = "solve"
    """"solve" (won or not) or "versus" (a return per episode against an opponent)."""
    defaults: Mapping[str, ParamValue] = field(default_factory=dict)
    """Every parameter with its default, whose type is the parameter's type."""
    turns: int = 10
    """How many turns an episode may take unless the task says otherwise."""
    timeout_reward: float = 0.0
    """Added to the last turn when the turn limit ends an episode: stalling must not be better than losing."""
    glyphs: Mapping[str, str] = field(default_factory=dict)
    """Character of the observation -> colour, for people."""
    players: tuple[str, ...] = PLAYERS
    """Kinds of scripted players that `player` can make."""
    room_players: tuple[str, ...] = ()
    """Those that an evaluation shows beside the expert."""


_SETTINGS = set(EnvSpec.__dataclass_fields__) - {"name", "build", "summary"}
_TYPES: Mapping[str, type] = {"defaults": dict, "turns": int, "timeout_reward": float, "glyphs": dict}
_CHOICES = {"kind": get_args(Kind), "stop": get_args(Stop), "restart": get_args(Restart)}
_ELSEWHERE = {"max_turns": "turns", "max_steps": "turns", "params": "defaults", "title": "the docstring's first line"}
"""What people call settings elsewhere -> what they are here."""


def names() -> list[str]:
    """Every name, built in, registered or installed."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return sorted({*BUILTIN, *REGISTERED, *(point.name for point in points)})


def register(env_class: EnvClass) -> EnvClass:
    """Make a class an environment of its own name, in this process: ``@mulligan.register``.

    >>> @mulligan.register
    ... class Coin:
    ...     defaults, turns = {}, 1
    ...     def __init__(self, task): self.task = task
    ...     def rules(self): return "Say heads or tails."
    ...     def reset(self, chance=0): return "The coin is thrown."
    ...     def step(self, reply): return mulligan.Step("heads", float("heads" in reply), True, "heads" in reply)
    >>> mulligan.run_trial_sync(mulligan.make_task("Coin"), lambda messages: "heads").solved_at
    0
    """
    name = env_class.__name__
    if name in BUILTIN:
        raise UsageError(f"{name!r} is the name of a built-in environment; call the class something else")
    spec_of(env_class, name)
    REGISTERED[name] = env_class
    _load.cache_clear()
    return env_class


def environment_named(env: str | type) -> str:
    """The name of an environment that is given as a name or as a class, which is registered if need be."""
    if isinstance(env, str):
        return env
    if not isinstance(env, type):
        raise UsageError(f"env must be a name, path/to/file.py:ClassName, or a class (got {env!r})")
    location = f"{env.__module__}:{env.__qualname__}"
    if location in BUILTIN.values():
        return next(name for name, builtin in BUILTIN.items() if builtin == location)
    if REGISTERED.get(env.__name__) is not env:
        register(env)
    return env.__name__


def spec(env: str | type) -> EnvSpec:
    """The environment of that name or class; of a game, with its parameters as the defaults."""
    name = environment_named(env)
    base, params = game_of(name)
    return _spec_of_game(name) if params else spec_of(_load(base), base)


def game_of(name: str) -> tuple[str, dict[str, str]]:
    """The environment of a game, and the parameters in its brackets.

    >>> game_of("expedition(world=camp, turns=3)")
    ('expedition', {'world': 'camp', 'turns': '3'})
    """
    brackets = _GAME.fullmatch(name)
    if brackets is None or brackets[1].partition(":")[0] in ADAPTERS:
        return name, {}
    return brackets[1].strip(), {key: str(value) for key, value in named_params(brackets[2], name).items()}


@lru_cache(maxsize=256)
def _spec_of_game(name: str) -> EnvSpec:
    base, params = game_of(name)
    env_spec = spec(base)
    turns = int(_coerce(name, "turns", params.pop("turns"), env_spec.turns)) if "turns" in params else env_spec.turns
    return replace(env_spec, defaults=_with_values(env_spec, params), turns=turns)


def named_params(text: str, name: str) -> dict[str, ParamValue]:
    """Parameters as NAME=VALUE,NAME=VALUE; a value may have commas: opponent=copies,beats:2,throws=6.

    `name` is what an error calls the text.
    """
    params: dict[str, ParamValue] = {}
    for part in filter(None, map(str.strip, re.split(r",(?=\s*\w+\s*=)", text))):
        key, equals, value = part.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise ParameterError(f"{name} must be NAME=VALUE,NAME=VALUE (got {text!r})")
        params[key.strip()] = value.strip()
    return params


@lru_cache(maxsize=256)
def spec_of(env_class: object, name: str) -> EnvSpec:
    """The settings of a class, under the name it goes by."""
    if not isinstance(env_class, type) or (missing := _missing(env_class)):
        needed = ", ".join(missing) if isinstance(env_class, type) else "to be a class"
        raise UsageError(f"{name!r} is not an environment: it needs {needed}")
    _refuse_misspelt(env_class, name)
    given: dict[str, Any] = {key: getattr(env_class, key) for key in _SETTINGS if hasattr(env_class, key)}
    for key in _TYPES.keys() & given:
        try:
            if isinstance(given[key], str):
                raise TypeError
            given[key] = _TYPES[key](given[key])
        except (TypeError, ValueError, OverflowError):
            kind = _TYPES[key].__name__
            raise UsageError(f"{name!r}: {key} must be of type {kind} (got {given[key]!r})") from None
    stop, restart = ("success", "replay") if given.get("kind", "solve") == "solve" else ("never", "fresh")
    given = {"stop": stop, "restart": restart, **given}
    for key in _CHOICES.keys() & given:
        if given[key] not in _CHOICES[key]:
            choices = " or ".join(map(repr, _CHOICES[key]))
            raise UsageError(f"{name!r}: {key} must be {choices} (got {given[key]!r})")
    for key, value in given.get("defaults", {}).items():
        if not isinstance(value, str | int | float):
            raise UsageError(f"{name!r}: the default of {key} must be text, a number or a truth value (got {value!r})")
    if reserved := given.get("defaults", {}).keys() & {"seed", "turns"}:
        raise UsageError(f"{name!r} cannot have a parameter {min(reserved)!r}: every task has one of that name")
    summary = (env_class.__doc__ or "").strip().partition("\n")[0]
    return EnvSpec(name, cast(type[Env], env_class), summary, **given)


def _refuse_misspelt(env_class: type, name: str) -> None:
    """Refuse class attributes that are nearly called like a setting: they would be ignored."""
    for key in dir(env_class):
        near = difflib.get_close_matches(key, [*_SETTINGS, *_ELSEWHERE], n=1, cutoff=0.8)
        is_method = hasattr(getattr(env_class, key, None), "__get__")
        if near and key not in _SETTINGS and not key.startswith("_") and not is_method:
            meant = _ELSEWHERE.get(near[0], near[0])
            raise UsageError(f"{name!r} has an attribute {key!r}, which is no setting; did you mean {meant!r}?")


def make_task(env: str | type, /, seed: int = 0, **params: Any) -> Task:
    """A task of an environment, with every parameter that is not given at its default."""
    return task_of(environment_named(env), seed, params)


def task_of(name: str, seed: int, given: Mapping[str, Any]) -> Task:
    """As `make_task`, of an environment's name."""
    (base, own), env_spec = game_of(name), spec(name)
    params = {**({"turns": env_spec.turns} if "turns" in own else {}), **given}
    seed = whole(f"{name}: seed", seed)
    turns = int(_coerce(name, "turns", params.pop("turns"), env_spec.turns)) if "turns" in params else None
    settled, turns, task_class = _settled(env_spec, _with_values(env_spec, params), seed, turns)
    return Task(env=base, seed=seed, turns=turns, task_class=task_class, params=tuple(sorted(settled.items())))


def _with_values(env_spec: EnvSpec, params: Mapping[str, Any]) -> dict[str, ParamValue]:
    """Every parameter of an environment: those of `params`, in the type of their default, and the defaults."""
    values = dict(env_spec.defaults)
    for key, value in params.items():
        if key not in values:
            raise UnknownName(f"parameter of {env_spec.name}", key, [*values, "turns"])
        values[key] = _coerce(env_spec.name, key, value, values[key])
    return values


def _settled(
    env_spec: EnvSpec, params: dict[str, ParamValue], seed: int, given_turns: int | None
) -> tuple[dict[str, ParamValue], int, str]:
    """The parameters as the environment checks and completes them, the turns, and the class of the task."""
    world: Any = env_spec.build
    try:
        if hasattr(world, "settle"):  # checks the parameters and fixes those that depend on the seed
            params = call(world.settle, params, seed)
        if not isinstance(params, dict) or not all(isinstance(value, str | int | float) for value in params.values()):
            raise TypeError(f"settle() must return parameters by name (got {reprlib.repr(params)})")
        turns = env_spec.turns if given_turns is None else given_turns
        turns = whole(f"{env_spec.name}: turns", params.pop("turns", turns))  # where others decide them, or the seed
        if turns < 1:
            raise ParameterError(f"{env_spec.name}: turns must be >= 1 (got {turns})")
        if hasattr(world, "check_turns"):
            call(world.check_turns, params, turns if given_turns is None else given_turns)
        has_class = getattr(world, "task_class", None)
        task_class = text_of("task_class()", call(world.task_class, params)) if has_class else _class_of(env_spec.name)
        return params, turns, task_class
    except MulliganError:
        raise
    except Exception as error:
        raise UsageError(f"{env_spec.name}, seed {seed}: no task can be made: {described(error)}") from error


def _class_of(name: str) -> str:
    """The task class of an environment that names none: of one in a file, the name of file and class, no folders."""
    if ":" not in name:
        return name
    file, _, attribute = name.rpartition(":")
    return f"{Path(file).stem}:{attribute}" if file.endswith(".py") else Path(name).stem


def build(task: Task) -> Env:
    """The live world of a task; parameters that are newer than the task are at their defaults."""
    env_spec, given = spec(task.env), dict(task.params)
    if not env_spec.defaults.keys() <= given.keys():
        task = replace(task, params=tuple(sorted({**env_spec.defaults, **given}.items())))
    env = call(env_spec.build, task)
    if getattr(env, "task", None) != task:
        raise ContractBroken(f"{task.env} does not keep its task; say self.task = task in __init__")
    return env


def check_player(name: str, kind: str) -> None:
    """Raise unless environment `name` has a scripted player of this kind, or of one of several: ``mixed,expert``."""
    env_spec = spec(name)
    if not hasattr(env_spec.build, "player"):
        raise UsageError(f"{name} offers no player(), which the {kind} player needs")
    if not {*kind.split(",")} & {*env_spec.players}:
        raise UnknownName(f"player of {name}", kind, env_spec.players)


def make(env: str | type, /, seed: int = 0, **params: Any) -> Env:
    return build(make_task(env, seed, **params))


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
        _FROM_FILES[attribute] = load_from_file(Path(file), attribute)
        return _FROM_FILES[attribute]
    if name.endswith(".py"):
        choices = [f"{name}:{each}" for each in _classes(import_file(Path(name)))]
        way_out = f"name the environment in it: {' or '.join(choices)}" if choices else "it has no environment"
        raise UsageError(f"{name!r} is a file; {way_out}")
    if name in _FROM_FILES:
        return _FROM_FILES[name]
    if name[:1].isupper():
        raise UsageError(f"no environment {name!r}: register its class in Python, or name its file: file.py:{name}")
    raise UnknownName("environment", name, names())


def load_from_file(path: Path, attribute: str) -> object:
    """What a Python file calls `attribute`."""
    module = import_file(path)
    if not hasattr(module, attribute):
        raise UnknownName(f"class in {str(path)!r}", attribute, _classes(module))
    return getattr(module, attribute)


def _classes(module: ModuleType) -> list[str]:
    """The environments that a module defines; where it defines none itself, those that it imports."""
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type) and not _missing(value)}
    return [key for key, value in classes.items() if value.__module__ == module.__name__] or list(classes)


def _missing(value: type) -> list[str]:
    return [f"{name}()" for name in ("rules", "reset", "step") if not callable(getattr(value, name, None))]


def import_file(path: Path) -> ModuleType:
    """The module that a Python file defines."""
    if not path.is_file():
        raise UsageError(f"no file {str(path)!r}")
    check_trusted(path)
    module_name = f"mulligan_env_{path.stem}_{derive(str(path.resolve())):x}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    assert module_spec is not None and module_spec.loader is not None, "a .py file has a loader"  # noqa: PT018
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        call(module_spec.loader.exec_module, module)
    except Exception as error:
        reason = described(error).partition("\n")[0]
        raise UsageError(f"{str(path)!r} cannot be imported: {reason}") from error
    return module


_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _coerce(env: str, key: str, value: Any, default: ParamValue) -> ParamValue:
    """`value` in the type of the parameter's default; strings come from the command line."""
    kind = type(default)
    try:
        if kind is bool:
            return _BOOLEANS[str(value).lower()]
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        raise ParameterError(f"{env}: {key} must be of type {kind.__name__} (got {value!r})") from None
