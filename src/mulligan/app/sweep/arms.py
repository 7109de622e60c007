"""What is compared: arms, each a training run under its own settings, and the order in which they can run.

Arms that would begin with the same warm start share it: it is a run of its own (`run.updates = 0`), and the arms start
from its weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.eval.plan import CONTROLS
from mulligan.players import as_trained
from mulligan.report.run import RunFolder
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import tasks_of
from mulligan.settings import settings_of, with_values
from mulligan.training.config import Config, shown_memories
from mulligan.training.resolve import (
    as_table,
    changed_settings,
    differences,
    flat_settings,
    from_run,
    in_words,
    read_toml,
    resolve,
)
from mulligan.trial.settings import TrialSettings

WARM_START = "warm start"
RESULT = "arm.json"
"""What an arm leaves in its folder when it is done."""


@dataclass(frozen=True)
class Arm:
    """A training run to compare with others."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys, as on the command line, on top of the sweep's own."""
    also: Sequence[str] = ()
    """Further evaluations of the sweep that it takes part in."""


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
    """Further evaluations, by name: settings of trials or parameters of the environment that they change, and
    `controls`."""

    def __post_init__(self) -> None:
        _check_list("seeds", self.seeds, int)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ParameterError(f"seeds must be one or more different numbers (got {list(self.seeds)})")
        self._check_also()
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"a sweep needs one or more arms with different names (got {names})")
        for arm in self.arms:
            self._check_arm(arm)

    def _check_also(self) -> None:
        folders = [further_name(name) for name in self.also]
        for name, folder in zip(self.also, folders, strict=True):
            if not folder or folders.count(folder) > 1:
                raise ParameterError(
                    f"the names of further evaluations must differ in letters or digits (got {name!r})"
                )
        for where, controls in (
            ("controls", self.controls),
            *((f"also.{name}.controls", changes.get("controls", ())) for name, changes in self.also.items()),
        ):
            _check_list(where, controls, str)
            for control in controls:
                if control not in CONTROLS:
                    raise UnknownName("control", control, CONTROLS)

    def _check_arm(self, arm: Arm) -> None:
        if arm.name.startswith(WARM_START):
            raise ParameterError(f"an arm cannot be called {arm.name!r}: warm starts are listed under that name")
        if "run.seed" in {**self.settings, **arm.settings}:
            raise ParameterError(f"arm {arm.name!r} cannot set run.seed: the sweep has seeds = […] for that")
        _check_list(f"arms.{arm.name}.also", arm.also, str)
        for name in arm.also:
            if name not in self.also:
                raise UnknownName("further evaluation", name, self.also)


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
    """Folder of its warm start."""
    evaluation: Mapping[str, Any]
    threads: int = 1

    @property
    def is_warm_start(self) -> bool:
        return self.name.startswith(WARM_START)


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a TOML file: `title`, `preset`, `seeds`, `tasks`, `seed_set`, `[settings]`, and `[arms."NAME"]`.

    Settings are dotted keys, ``"algo.gamma_traj" = 0.9``; ``also = ["NAME"]`` has an arm play a further evaluation,
    ``[also."NAME"]``, too.
    """
    tree, where = read_toml(Path(path), "a sweep"), f" in {path}"
    kinds = {"title": str, "preset": str, "seeds": list, "tasks": int, "seed_set": str, "controls": list}
    for name, value in tree.items():
        if name not in (*kinds, "settings", "also", "arms"):
            raise UnknownName(f"entry{where}", name, [*kinds, "settings", "also", "arms"])
        if name in kinds and type(value) is not kinds[name]:
            raise ParameterError(f"{name}{where} must be a {kinds[name].__name__} (got {value!r})")
    arms = []
    for name, table in as_table(tree.get("arms", {}), "arms", where).items():
        settings = dict(as_table(table, f"arms.{name}", where))
        also = settings.pop("also", ())
        arms.append(Arm(name, _flags(settings, f"arms.{name}", where), also))
    further = as_table(tree.get("also", {}), "also", where)
    return Sweep(
        arms,
        settings=_flags(as_table(tree.get("settings", {}), "settings", where), "settings", where),
        also={name: as_table(changes, f"also.{name}", where) for name, changes in further.items()},
        **{name: tree[name] for name in kinds if name in tree},
    )


def plan_work(
    sweep: Sweep,
    folder: Path,
    *,
    warm_threads: int = 1,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> list[Work]:
    """Everything to run, in an order in which nothing waits for what comes later; all settings are checked here.

    only   names of arms; empty for all.
    seeds  of the sweep's, these; None for all.
    What is chosen is planned as it is among all the others: in the same folder, with the same settings.
    """
    protocol = {"tasks": sweep.tasks, "seed_set": sweep.seed_set, "controls": list(sweep.controls)}
    settings = {arm.name: _settings(sweep, arm) for arm in sweep.arms}
    configs = {name: resolve(sweep.preset, None, flags) for name, flags in settings.items()}
    _check_evaluations(sweep, configs)
    warm_starts = _warm_starts(sweep, configs)
    planned: dict[Path, Work] = {}
    for seed in sweep.seeds:
        for arm_number, arm in enumerate(sweep.arms, 1):
            flags, evaluation = {**settings[arm.name], "run.seed": str(seed)}, {**protocol, "seed": seed}
            start = None
            if configs[arm.name].warmstart.steps:
                number, name = warm_starts[warm_key(configs[arm.name])]
                start = folder / f"00-warm-start-{number}-seed{seed}"
                # Three episodes, as demonstrations have, whichever arm comes first.
                alone = {**flags, "run.updates": "0", "trial.episodes": "3", "run.threads": str(warm_threads)}
                planned.setdefault(start, Work(name, seed, start, alone, sweep.preset, None, evaluation, warm_threads))
                flags |= {"warmstart.steps": "0", "model.name": f"../{start.name}"}
                if configs[arm.name].model.lora_rank:
                    flags["model.lora_rank"] = "0"  # the warm start's adapter is trained on
            if arm.also:
                evaluation = {**evaluation, "also": {name: dict(sweep.also[name]) for name in arm.also}}
            short = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-")
            path = folder / f"{arm_number:02d}-{short}-seed{seed}"
            planned[path] = Work(arm.name, seed, path, flags, sweep.preset, start, evaluation)
    for name in only:
        if name not in settings:
            raise UnknownName("arm", name, settings)
    arms = [each for each in planned.values() if not each.is_warm_start]
    chosen = [each for each in arms if each.name in (only or settings) and each.seed in (seeds or sweep.seeds)]
    needed = {each.folder for each in chosen} | {each.after for each in chosen}
    return [each for each in planned.values() if each.folder in needed]


def refuse_edits(work: Sequence[Work]) -> None:
    """Refuse to go on where the sweep's file has changed since arms of it were run: by arm and setting."""
    planned = {each.folder for each in work}
    for each in sorted(work, key=lambda each: each.is_warm_start):
        name = each.folder.name.partition("-")[2]
        for other in each.folder.parent.glob(f"*-{name}"):
            if other not in planned and other.name.partition("-")[2] == name:
                raise UsageError(
                    f"arm {each.name!r} was run as {other.name}, and is {each.folder.name} now; keep the order of the "
                    "arms, add new ones at the end, or choose another --run"
                )
        if not (each.folder / "config.toml").is_file():
            continue
        before, config = from_run(RunFolder.open(each.folder)), resolve(each.preset, None, each.settings)
        if not config.engine.context:  # left open: the run has fixed it
            config = replace(config, engine=replace(config.engine, context=before.engine.context))
        changes = changed_settings(before, config)
        if (result := read_result(each.folder)) is not None:
            evaluation = json.loads(json.dumps(each.evaluation))  # tuples are lists in a file
            changes |= {
                f"evaluation.{key}": pair for key, pair in differences(result["evaluation"], evaluation).items()
            }
        if changes:
            raise UsageError(
                f"arm {each.name!r} with seed {each.seed} was run with other settings: {'; '.join(in_words(changes))}; "
                "put them back, or choose another --run"
            )


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of the arm in `folder`; None while it is not done."""
    path = folder / RESULT
    result: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return result


def warm_key(config: Config) -> str:
    """What the weights after the warm start depend on, but for the seed."""
    depends = {name: value for name, value in flat_settings(config).items() if name.startswith(_WARM_SETTINGS)}
    for name in ("trial.episodes", "trial.temperature", "trial.memory", "warmstart.processes"):
        depends.pop(name, None)
    return json.dumps({**depends, "warmstart.memory": shown_memories(config)}, sort_keys=True)


_WARM_SETTINGS = ("env.", "task.", "model.", "warmstart.", "trial.", "optim.beta2")


def _warm_starts(sweep: Sweep, configs: Mapping[str, Config]) -> dict[str, tuple[int, str]]:
    """Key of each warm start -> its number and its name, by the first arm that needs it."""
    warm_starts: dict[str, tuple[int, str]] = {}
    for arm in sweep.arms:
        if configs[arm.name].warmstart.steps:
            name = WARM_START if not warm_starts else f"{WARM_START} of {arm.name}"
            warm_starts.setdefault(warm_key(configs[arm.name]), (len(warm_starts) + 1, name))
    return warm_starts


def _settings(sweep: Sweep, arm: Arm) -> dict[str, str]:
    """The settings of an arm, whatever the seed; one environment with a weight is that environment."""
    settings = {"run.threads": "1", **sweep.settings, **arm.settings}
    if env := settings.get("task.env"):
        weights = Mixture.parse(env, {}).weights
        if len(weights) > 1:
            raise ParameterError(f"task.env of arm {arm.name!r} must be one environment, not a mixture (got {env})")
        settings["task.env"] = weights[0][0]
    return settings


def _check_evaluations(sweep: Sweep, configs: Mapping[str, Config]) -> None:
    """Whether every arm trains anything and can be evaluated: better learned before the first warm start."""
    checked: set[str] = set()
    for arm in sweep.arms:
        config = configs[arm.name]
        if config.run.updates < 1:
            raise ParameterError(f"run.updates of arm {arm.name!r} must be >= 1 (got {config.run.updates})")
        settings, params = as_trained(config, config.task.env)
        for changes in ({}, *(sweep.also[name] for name in arm.also)):
            _, more_params = changed_trial(settings, changes)
            worlds = f"{config.task.env} {params} {more_params}"
            if worlds not in checked:
                tasks_of(config.task.env, sweep.tasks, sweep.seed_set, {**params, **more_params})
                checked.add(worlds)


def changed_trial(settings: TrialSettings, changes: Mapping[str, Any]) -> tuple[TrialSettings, dict[str, Any]]:
    """How trials of a further evaluation are played, and the environment's parameters that it changes."""
    trial = settings_of(TrialSettings)
    values = {name: trial[name].check(value) for name, value in changes.items() if name in trial}
    params = {name: value for name, value in changes.items() if name not in (*trial, "controls")}
    return with_values(settings, values), params


def further_name(name: str) -> str:
    """The name of a further evaluation as part of a path."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def _flags(table: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Settings as they would stand on the command line; sections may be tables of their own."""
    flags: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flags |= {f"{key}.{inner}": text for inner, text in _flags(value, f"{name}.{key}", where).items()}
        elif isinstance(value, bool | int | float | str):
            flags[key] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise ParameterError(f"{name}.{key}{where} must be a number or a text (got {value!r})")
    return flags


def _check_list(name: str, entries: object, kind: type) -> None:
    if not isinstance(entries, list | tuple) or any(type(entry) is not kind for entry in entries):
        raise ParameterError(f"{name} must be a list of {'names' if kind is str else 'numbers'} (got {entries!r})")
