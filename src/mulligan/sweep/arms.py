"""What is compared: arms, each a training run under its own settings, and the order in which they can run.

Arms that would begin with the same warm start share it: it is a run of its own (`run.updates = 0`), and the arms start
from its weights. An arm may also go on from where another one ended (`start`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, UnknownName
from mulligan.eval.plan import CONTROLS
from mulligan.players import as_trained
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import tasks_of
from mulligan.sweep.warm import warm_key
from mulligan.train.config import Config
from mulligan.train.resolve import as_table, read_toml, resolve
from mulligan.trial.settings import TrialSettings

WARM_START = "warm start"
_ENV, _SEED = "task.env", "run.seed"
_START, _ALSO, _SEEDS = "from", "also", "seeds"
"""Entries of an arm that are no settings."""
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "episodes": int, "announced": int, "memory": str, "style": str, "stop": str, "restart": str, "memory_tokens": int,
    "max_reflections": int, "window": int, "reflection_tokens": int, "env_timeout": (int, float), "sampling": (),
}  # fmt: skip
"""What a further evaluation may change of `TrialSettings`, and its type; sampling is the same for all."""
CHECKS = "controls"
"""The entry of a further evaluation that lists its controls."""
TASKS = "tasks"
"""The entry of a further evaluation that says on how many tasks it is made, where not on as many as the others."""


@dataclass(frozen=True)
class Arm:
    """A training run to compare with others."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys, as on the command line, on top of the sweep's own."""
    start: str | None = None
    """The arm whose last weights it starts from; None: its warm start."""
    also: Sequence[str] = ()
    """Further evaluations of the sweep that it takes part in."""
    seeds: Sequence[int] | None = None
    """Those of the sweep's seeds that it is trained with; None: all."""


@dataclass(frozen=True)
class Sweep:
    """Arms to compare, and how."""

    arms: Sequence[Arm]
    title: str = "Sweep"
    preset: str | None = "cpu"
    seeds: Sequence[int] = (0,)
    tasks: int = 512
    seed_set: str = "validation"
    """Tasks the arms are compared on. Settings are chosen on "validation"; "eval" is for the last run of all, once."""
    controls: Sequence[str] = ("independent",)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all arms."""
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further evaluations, by name: what is changed, of how trials are played or of the environment's parameters."""

    def __post_init__(self) -> None:
        self._check_lists()
        names = [arm.name for arm in self.arms]
        if not names:
            raise ParameterError("a sweep without arms compares nothing")
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"two arms of the sweep are called {name!r}; each needs a name of its own")
            if name.startswith(WARM_START):
                raise ParameterError(f"an arm cannot be called {name!r}: warm starts are listed under that name")
        for arm in self.arms:
            if arm.start is not None and arm.start not in names[: names.index(arm.name)]:
                if arm.start in names and arm.start != arm.name:
                    raise ParameterError(f"arm {arm.name!r} starts from {arm.start!r}, which must stand before it")
                raise UnknownName(f"arm that {arm.name!r} starts from", arm.start, names[: names.index(arm.name)])
        for arm in self.arms:
            self._check_arm(arm)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ParameterError(f"seeds={list(self.seeds)} cannot be; give at least one, and each once")
        self._check_also()
        for control in (*self.controls, *(c for changes in self.also.values() for c in changes.get(CHECKS, ()))):
            if control not in CONTROLS:
                raise UnknownName("control", control, CONTROLS)

    def _check_lists(self) -> None:
        """Whether everything listed is of its kind."""
        lists: list[tuple[str, Sequence[object], type]] = [("seeds", self.seeds, int), (CHECKS, self.controls, str)]
        for name, changes in self.also.items():
            if not isinstance(changes.get(CHECKS, []), list | tuple):
                raise ParameterError(f"{CHECKS}={changes[CHECKS]!r} in [also.{name}] cannot be; give a list of names")
            lists.append((f"also.{name}.{CHECKS}", changes.get(CHECKS, ()), str))
        for arm in self.arms:
            lists += [(f"arms.{arm.name}.seeds", arm.seeds or (), int), (f"arms.{arm.name}.also", arm.also, str)]
        for name, entries, kind in lists:
            if any(type(entry) is not kind for entry in entries):
                raise ParameterError(
                    f"{name}={list(entries)} cannot be; give a list of {'names' if kind is str else 'whole numbers'}"
                )

    def _check_arm(self, arm: Arm) -> None:
        if _SEED in {**self.settings, **arm.settings}:
            raise ParameterError(f"{_SEED} in arm {arm.name!r} cannot be: the sweep has seeds = […] for that")
        for name in arm.also:
            if name not in self.also:
                raise UnknownName("further evaluation", name, self.also)
        if arm.seeds is not None and not arm.seeds:
            raise ParameterError(f"arm {arm.name!r} has no seeds; leave them out for all")
        unknown = [seed for seed in arm.seeds or () if seed not in self.seeds]
        if unknown:
            raise ParameterError(f"arm {arm.name!r} has seed {unknown[0]!r}, which the sweep has not")
        before = next((other for other in self.arms if other.name == arm.start), None)
        if before is not None and before.seeds is not None:
            missing = [seed for seed in (arm.seeds or self.seeds) if seed not in before.seeds]
            if missing:
                raise ParameterError(
                    f"arm {arm.name!r} has seed {missing[0]!r}, which {before.name!r}, where it starts from, has not"
                )

    def _check_also(self) -> None:
        short: dict[str, str] = {}
        for name, changes in self.also.items():
            own = further_name(name)
            if not own:
                raise ParameterError(f"the further evaluation {name!r} cannot be called so: it needs letters or digits")
            other = short.setdefault(own, name)
            if other != name:
                raise ParameterError(
                    f"the further evaluation {name!r} cannot be called so: {other!r} is as short ({own}), and both "
                    "would lie in one folder; have them differ in Latin letters or digits"
                )
            tasks = changes.get(TASKS, 1)
            if type(tasks) is not int or tasks < 1:
                raise ParameterError(f"{TASKS}={tasks!r} in [also.{name}] cannot be; give a number, at least 1")
            for key, value in changes.items():
                if key in _FIELDS and (isinstance(value, bool) or not isinstance(value, _FIELDS[key])):
                    raise ParameterError(f"{key}={value!r} in [also.{name}] cannot be; see how a trial is played")


@dataclass(frozen=True)
class Work:
    """One process' work: a training run, then its evaluation."""

    name: str
    seed: int
    folder: Path
    settings: Mapping[str, str]
    """Everything that differs from the preset."""
    preset: str | None
    after: Path | None
    """Folder of the work it starts from."""
    evaluation: Mapping[str, Any]
    threads: int = 1

    @property
    def is_warm_start(self) -> bool:
        return self.name.startswith(WARM_START)


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a TOML file: `title`, `preset`, `seeds`, `tasks`, `seed_set`, `[settings]`, and `[arms."NAME"]`.

    Settings are dotted keys, ``"algo.gamma_traj" = 0.9``; ``from = "NAME"`` lets an arm start where another one ended,
    ``also = ["NAME"]`` has it play a further evaluation, ``[also."NAME"]``, too.
    """
    tree, where = read_toml(Path(path), "a sweep"), f" in {path}"
    known = ("title", "preset", "seeds", "tasks", "seed_set", "controls", "settings", "also", "arms")
    for name in tree:
        if name not in known:
            raise UnknownName(f"entry in {path}", name, known)
    kinds = {"title": str, "preset": str, "seeds": list, "tasks": int, "seed_set": str, "controls": list}
    for name, kind in kinds.items():
        if name in tree and type(tree[name]) is not kind:
            raise ParameterError(f"{name}={tree[name]!r} in {path} cannot be; give a {kind.__name__}")
    arms = []
    for name, table in as_table(tree.get("arms", {}), "arms", where).items():
        settings = dict(as_table(table, f"arms.{name}", where))
        start = settings.pop(_START, None)
        if not isinstance(start, str | None):
            raise ParameterError(f"{_START}={start!r} in [arms.{name}] of {path} cannot be; give the name of an arm")
        also = settings.pop(_ALSO, [])
        if not isinstance(also, list):
            raise ParameterError(f"{_ALSO}={also!r} in [arms.{name}] of {path} cannot be; give a list of names")
        seeds = settings.pop(_SEEDS, None)
        if not isinstance(seeds, list | None):
            raise ParameterError(f"{_SEEDS}={seeds!r} in [arms.{name}] of {path} cannot be; give a list of numbers")
        arms.append(Arm(name, _flags(settings, f"arms.{name}", path), start, tuple(also), seeds))
    rest = {name: value for name, value in tree.items() if name not in ("arms", "settings", "also")}
    further = as_table(tree.get("also", {}), "also", where)
    rest["also"] = {name: as_table(changes, f"also.{name}", where) for name, changes in further.items()}
    common = as_table(tree.get("settings", {}), "settings", where)
    return Sweep(arms, settings=_flags(common, "settings", path), **rest)


def plan_work(
    sweep: Sweep,
    folder: Path,
    *,
    warm_threads: int = 1,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> list[Work]:
    """Everything to run, in an order in which nothing waits for what comes later; all settings are checked here.

    only   names of arms: these, and those they start from; empty for all.
    seeds  of the sweep's, these; None for all.
    What is chosen is planned as it is among all the others: in the same folder, with the same settings.
    """
    wanted = _wanted(sweep, only)
    work: list[Work] = []
    checked: set[str] = set()
    adapters: dict[str, tuple[int, int]] = {}
    folders = _Folders(sweep, folder)
    warm = _WarmStarts(sweep, folder, warm_threads)
    for seed in sweep.seeds:
        for arm in sweep.arms:
            if seed not in (sweep.seeds if arm.seeds is None else arm.seeds):
                continue
            settings = {"run.threads": "1", **_settings(sweep, arm), "run.seed": str(seed)}
            config = resolve(sweep.preset, None, settings)
            _check(config, sweep, arm, checked)
            start: Path | None = None
            adapters[arm.name] = own_adapter = _adapter(config)
            if arm.start is not None:
                _check_adapter(arm, own_adapter, adapters[arm.start])
                adapters[arm.name] = adapters[arm.start]
                start = folders.of(arm.start, seed)
            elif config.warmstart.steps:
                start = warm.of(arm, config, settings, work)
            if start is not None:
                settings |= {"warmstart.steps": "0", "model.name": start_name(start)}
                settings |= {"model.lora_rank": "0"} if own_adapter[0] else {}  # the start's adapter is trained on
            own = folders.of(arm.name, seed)
            more = {_ALSO: {name: _as_kept(sweep.also[name]) for name in arm.also}} if arm.also else {}
            work.append(Work(arm.name, seed, own, settings, sweep.preset, start, {**_protocol(sweep), **more}))
    chosen = {each.folder for each in work if each.name in wanted and (seeds is None or each.seed in seeds)}
    needed = chosen | {each.after for each in work if each.folder in chosen}
    return [replace(each, evaluation={**each.evaluation, "seed": each.seed}) for each in work if each.folder in needed]


def _settings(sweep: Sweep, arm: Arm) -> dict[str, str]:
    """What an arm is told, whatever the seed; one environment with a weight is that environment."""
    settings = {**sweep.settings, **arm.settings}
    if _ENV in settings:
        weights = Mixture.parse(settings[_ENV], {}).weights
        if len(weights) > 1:
            raise ParameterError(
                f"{_ENV}={settings[_ENV]} in arm {arm.name!r} cannot be: a sweep evaluates its arms on one environment "
                "each, not on a mixture; give one name"
            )
        settings[_ENV] = weights[0][0]
    return settings


def _adapter(config: Config) -> tuple[int, int]:
    """Rank and alpha of what a run trains; (0, 0) for all weights."""
    rank = config.model.lora_rank
    return (rank, config.model.lora_alpha or 2 * rank) if rank else (0, 0)


def _check_adapter(arm: Arm, own: tuple[int, int], before: tuple[int, int]) -> None:
    """An arm goes on training the adapter of the arm it starts from, if that has one, and cannot have another."""
    if own[0] and own != before:
        has = "rank {}, alpha {}".format(*before) if before[0] else "none: it trains all weights"
        raise ParameterError(
            f"arm {arm.name!r} asks for an adapter (rank {own[0]}, alpha {own[1]}), but goes on with that of "
            f"{arm.start!r} ({has}); give it model.lora_rank = 0, or let it start by itself"
        )


def _protocol(sweep: Sweep) -> dict[str, Any]:
    """How all arms are evaluated."""
    return {"tasks": sweep.tasks, "seed_set": sweep.seed_set, CHECKS: list(sweep.controls)}


def _as_kept(changes: Mapping[str, Any]) -> dict[str, Any]:
    """What a further evaluation changes, as the file of a result gives it back: tuples are lists there."""
    kept: dict[str, Any] = json.loads(json.dumps(dict(changes)))
    return kept


class _WarmStarts:
    """The warm starts of a sweep, numbered by the first arm of the file that needs each."""

    def __init__(self, sweep: Sweep, folder: Path, threads: int) -> None:
        self.sweep, self.folder, self.threads = sweep, folder, threads
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.planned: set[Path] = set()
        for arm in sweep.arms:
            config = resolve(sweep.preset, None, _settings(sweep, arm))
            if arm.start is None and config.warmstart.steps and (key := warm_key(config)) not in self.numbers:
                self.numbers[key] = number = len(self.numbers) + 1
                self.names[number] = WARM_START if number == 1 else f"{WARM_START} of {arm.name}"

    def of(self, arm: Arm, config: Config, settings: Mapping[str, str], work: list[Work]) -> Path:
        """Folder of the arm's warm start, which is added to the work where it is not yet part of it."""
        number = self.numbers[warm_key(config)]
        path = self.folder / f"00-warm-start-{number}-seed{config.run.seed}"
        if path not in self.planned:
            self.planned.add(path)
            alone = {**settings, "run.updates": "0", "trial.episodes": str(config.warmstart.episodes)}
            alone["run.threads"] = str(self.threads)
            name, seed, preset = self.names[number], config.run.seed, self.sweep.preset
            work.append(Work(name, seed, path, alone, preset, None, _protocol(self.sweep), self.threads))
        return path


def _wanted(sweep: Sweep, only: Sequence[str]) -> set[str]:
    by_name = {arm.name: arm for arm in sweep.arms}
    found: set[str] = set()
    waiting = list(only or by_name)
    while waiting:
        name = waiting.pop()
        if name not in by_name:
            raise UnknownName("arm", name, by_name)
        found.add(name)
        start = by_name[name].start
        waiting += [start] if start is not None and start not in found else []
    return found


def split_changes(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """What a further evaluation changes: fields of `TrialSettings`, parameters of the environment, and its controls."""
    known = {field.name for field in fields(TrialSettings)}
    rest = {name: value for name, value in changes.items() if name not in (*known, CHECKS, TASKS)}
    own = {name: value for name, value in changes.items() if name in known}
    return own, rest, tuple(changes.get(CHECKS, ()))


def _check(config: Config, sweep: Sweep, arm: Arm, known: set[str]) -> None:
    """Whether an arm trains anything and can be evaluated: better known before the first warm start than after it."""
    if config.run.updates < 1:
        raise ParameterError(f"run.updates={config.run.updates} trains nothing; give at least 1")
    settings, params = as_trained(config, config.task.env)
    for changes in ({}, *(sweep.also[name] for name in arm.also)):
        own, more, _ = split_changes(changes)
        replace(settings, **own)
        tasks = changes.get(TASKS, sweep.tasks)
        worlds = f"{config.task.env} {params} {more} {tasks}"
        if worlds not in known:
            tasks_of(config.task.env, tasks, sweep.seed_set, {**params, **more})
            known.add(worlds)


class _Folders:
    """Where the runs of arms lie: numbered as in the file, or as they were when the file had fewer arms before them."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        self.folder = folder
        self.numbers = {arm.name: number for number, arm in enumerate(sweep.arms, 1)}
        self.short = Counter(short_name(arm.name) for arm in sweep.arms)

    def of(self, name: str, seed: int) -> Path:
        short = short_name(name)
        planned = self.folder / f"{self.numbers[name]:02d}-{short}-seed{seed}"
        there = [
            path
            for path in self.folder.glob(f"*-seed{seed}")
            if path.name.lstrip("0123456789") == f"-{short}-seed{seed}"
        ]
        return there[0] if len(there) == 1 and self.short[short] == 1 else planned


def start_name(start: Path) -> str:
    """What an arm calls the folder it starts from: as it is seen from its own, so that both can be moved."""
    return f"../{start.name}"


def start_name_now(name: str, start: Path | None) -> str:
    """What an arm that once called its start `name` calls it now: earlier versions wrote where it lay at the time."""
    return start_name(start) if start is not None and Path(name).name == start.name else name


def short_name(name: str) -> str:
    """A name as part of a path."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def further_name(name: str) -> str:
    """The name of a further evaluation as part of a path; where it has no Latin letter and no digit, in its own."""
    return short_name(name) or re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def _flags(table: Mapping[str, Any], name: str, path: str | Path) -> dict[str, str]:
    """Settings as they would stand on the command line; sections may be tables of their own."""
    flags: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flags |= {f"{key}.{inner}": text for inner, text in _flags(value, f"{name}.{key}", path).items()}
        elif isinstance(value, bool):
            flags[key] = str(value).lower()
        elif isinstance(value, int | float | str):
            flags[key] = str(value)
        else:
            raise ParameterError(f"{key}={value!r} in [{name}] of {path} cannot be; give a number or a text")
    return flags
