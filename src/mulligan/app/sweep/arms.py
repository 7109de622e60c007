"""What is compared: arms, each a training run under its own settings, and the order in which they can run.

Arms that would begin with the same warm start share it: it is a run of its own (`run.updates = 0`), and the arms start
from its weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, RunFolderError, UnknownName, UsageError
from mulligan.eval.plan import CONTROLS
from mulligan.players import as_trained
from mulligan.report.files import read_json
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import tasks_of
from mulligan.settings import settings_of, with_values
from mulligan.training.config import Config, shown_memories
from mulligan.training.resolve import differences, flat, flat_settings, in_words, read_toml, resolve
from mulligan.trial.memory import shows_reflection
from mulligan.trial.settings import TrialSettings, evaluated_episodes

WARM_START, UNTRAINED = "warm start", "untrained"
ORDER, RESULT = "order.json", "arm.json"
"""What an arm has in its folder when it is begun, and when it is done."""


@dataclass(frozen=True)
class Arm:
    """A training run to compare with others."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys, as on the command line, on top of the sweep's own."""
    also: Sequence[str] = ()
    """Further evaluations of the sweep that it takes part in."""
    player: str = ""
    """An earlier arm, or "warm start", that plays in this one, frozen: the arm trains who writes its notes."""


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
    env: str = ""
    """The game that all arms are compared on, whether they trained on it or not; empty: the one that each trains on."""
    controls: Sequence[str] = ("independent",)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all arms."""
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further evaluations, by name: settings of trials or parameters of the environment that they change, `controls`,
    `env`, another game, which the warm starts play too, and `writer`, who writes the notes: any policy, or "untrained",
    the weights that the arm starts from."""

    def __post_init__(self) -> None:
        if {type(seed) for seed in self.seeds} != {int} or len(set(self.seeds)) < len(self.seeds):
            raise ParameterError(f"seeds must be one or more different numbers (got {list(self.seeds)})")
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"a sweep needs one or more arms with different names (got {names})")
        folders = [further_name(name) for name in self.also]
        if "" in folders or len(set(folders)) < len(folders):
            raise ParameterError(
                f"the names of further evaluations must differ in letters or digits (got {list(self.also)})"
            )
        for name, changes in self.also.items():
            if not isinstance(env := changes.get("env", ""), str):
                raise ParameterError(f"env of the further evaluation {name!r} must name a game (got {env!r})")
        for controls in (self.controls, *(changes.get("controls", ()) for changes in self.also.values())):
            for control in controls:
                if control not in CONTROLS:
                    raise UnknownName("control", control, CONTROLS)
        for arm in self.arms:
            if arm.name.startswith(WARM_START):
                raise ParameterError(f"the name of an arm must not begin with {WARM_START!r} (got {arm.name!r})")
            if "run.seed" in {**self.settings, **arm.settings}:
                raise ParameterError(f"arm {arm.name!r} must not set run.seed: the sweep has seeds = […] for that")
            for name in arm.also:
                if name not in self.also:
                    raise UnknownName("further evaluation", name, self.also)
            earlier = [WARM_START, *names[: names.index(arm.name)]]
            if arm.player and arm.player not in earlier:
                raise UnknownName(f"player (an earlier arm) of arm {arm.name!r}", arm.player, earlier)


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
    player: Path | None = None
    """Folder of the run that plays, where this one trains who writes its notes."""

    @property
    def needs(self) -> list[Path]:
        """Folders whose weights must be there first."""
        return [folder for folder in (self.after, self.player) if folder is not None]

    @property
    def order(self) -> dict[str, Any]:
        """What the process is told, as plain data."""
        order = {name: getattr(self, name) for name in ("name", "preset", "settings", "evaluation")}
        plain: dict[str, Any] = json.loads(json.dumps({**order, "folder": str(self.folder)}))
        return plain


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a TOML file: `title`, `preset`, `seeds`, `tasks`, `seed_set`, `[settings]`, and `[arms."NAME"]`.

    Settings are dotted keys, ``"algo.gamma_traj" = 0.9``; ``also = ["NAME"]`` has an arm play a further evaluation,
    ``[also."NAME"]``, too.
    """
    tree, where = read_toml(Path(path), "a sweep"), f" in {path}"
    kinds = {"title": str, "preset": str, "seeds": list, "tasks": int, "seed_set": str, "env": str, "controls": list}
    kinds |= {"settings": dict, "also": dict, "arms": dict}
    for name, value in tree.items():
        if name not in kinds:
            raise UnknownName(f"entry{where}", name, kinds)
        if type(value) is not kinds[name]:
            raise ParameterError(f"{name}{where} must be a {kinds[name].__name__} (got {value!r})")
    arms = []
    for name, table in tree.pop("arms", {}).items():
        if not isinstance(table, dict):
            raise ParameterError(f"arms.{name}{where} must be a table, [arms.{name}] (got {table!r})")
        also, player = table.pop("also", ()), table.pop("player", "")
        if not isinstance(player, str):
            raise ParameterError(f"arms.{name}.player{where} must be a text (got {player!r})")
        arms.append(Arm(name, _flags(table, f"arms.{name}", where), also, player))
    return Sweep(arms, **{**tree, "settings": _flags(tree.get("settings", {}), "settings", where)})


def plan_work(sweep: Sweep, folder: Path, *, warm_threads: int = 1) -> list[Work]:
    """Everything to run, in an order in which nothing waits for what comes later; all settings are checked here."""
    protocol = {"tasks": sweep.tasks, "seed_set": sweep.seed_set, "controls": list(sweep.controls)}
    protocol |= {"env": sweep.env} if sweep.env else {}
    settings = {arm.name: {"run.threads": "1", **sweep.settings, **arm.settings} for arm in sweep.arms}
    players = {arm.name: {"run.player": arm.player} if arm.player else {} for arm in sweep.arms}
    configs = {name: resolve(sweep.preset, None, flags | players[name]) for name, flags in settings.items()}
    longest = max(config.trial.episodes for config in configs.values())
    if evaluated_episodes(longest) > evaluated_episodes(1):
        protocol["episodes"] = longest  # RL's arms too: all are compared on the same trials
    _check_evaluations(sweep, configs)
    warm_starts = _warm_starts(sweep, configs)
    planned: dict[Path, Work] = {}
    folders: dict[tuple[str, int], Path] = {}
    for seed in sweep.seeds:
        for arm_number, arm in enumerate(sweep.arms, 1):
            flags, evaluation = {**settings[arm.name], "run.seed": str(seed)}, {**protocol, "seed": seed}
            start = None
            if configs[arm.name].warmstart.steps:
                number, name = warm_starts[warm_key(configs[arm.name])]
                start = folder / f"00-warm-start-{number}-seed{seed}"
                # Three episodes, as demonstrations have, whichever arm comes first.
                alone = {**flags, "run.updates": "0", "trial.episodes": "3", "run.threads": str(warm_threads)}
                games = _games_after(sweep, configs, warm_key(configs[arm.name]))
                on_games = {**evaluation, **({"also": games} if games else {})}
                planned.setdefault(start, Work(name, seed, start, alone, sweep.preset, None, on_games, warm_threads))
                flags |= {"warmstart.steps": "0", "model.name": f"../{start.name}"}
                if configs[arm.name].model.lora_rank:
                    flags["model.lora_rank"] = "0"  # the warm start's adapter is trained on
            if arm.also:
                evaluation = {**evaluation, "also": {name: dict(sweep.also[name]) for name in arm.also}}
            player = start if arm.player == WARM_START else folders.get((arm.player, seed))
            if player is not None:
                flags["run.player"] = f"../{player.name}"
            short = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-")
            path = folder / f"{arm_number:02d}-{short}-seed{seed}"
            folders[arm.name, seed] = path
            planned[path] = Work(arm.name, seed, path, flags, sweep.preset, start, evaluation, player=player)
    return list(planned.values())


def chosen(work: Sequence[Work], only: Sequence[str], seeds: Sequence[int]) -> list[Work]:
    """Of a plan, the arms of these names (all, where none is given) with these seeds, and what they start from."""
    arms = [each for each in work if not each.name.startswith(WARM_START)]
    names = dict.fromkeys(each.name for each in arms)
    for name in only:
        if name not in names:
            raise UnknownName("arm", name, names)
    picked = [each for each in arms if each.name in (only or names) and each.seed in seeds]
    needed = {each.folder for each in picked}
    for each in reversed(work):  # whoever is needed comes earlier
        needed |= {*each.needs} if each.folder in needed else set()
    return [each for each in work if each.folder in needed]


def refuse_edits(work: Sequence[Work]) -> None:
    """Refuse to go on where the sweep's file has changed since arms of it were begun: by arm and setting."""
    for each in work:
        path = each.folder / ORDER
        advice = "without it, whether the sweep's file was edited since is not checked"
        before = read_json(path.read_bytes(), path, advice) if path.is_file() else each.order
        try:
            old, new = ({"preset": o["preset"], **o["settings"], **o["evaluation"]} for o in (before, each.order))
        except (LookupError, TypeError) as error:
            raise RunFolderError(f"{path} is no order of an arm ({error!r}); {advice}") from error
        if changes := in_words(differences(old, new)):
            raise UsageError(
                f"arm {each.name!r} with seed {each.seed} was begun with other settings: {'; '.join(changes)}; "
                "put them back, or choose another --run"
            )


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of the arm in `folder`; None while it is not done."""
    path = folder / RESULT
    if not path.is_file():
        return None
    result: dict[str, Any] = read_json(path.read_bytes(), path, "delete it, and the arm is evaluated again")
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


def _games_after(sweep: Sweep, configs: Mapping[str, Config], key: str) -> dict[str, dict[str, Any]]:
    """The further evaluations on other games of all arms that begin with this warm start, by name."""
    names = [name for arm in sweep.arms if warm_key(configs[arm.name]) == key for name in arm.also]
    return {name: dict(sweep.also[name]) for name in dict.fromkeys(names) if "env" in sweep.also[name]}


def _check_evaluations(sweep: Sweep, configs: Mapping[str, Config]) -> None:
    """Whether every arm trains anything and can be evaluated: better learned before the first warm start."""
    checked: set[str] = set()
    for arm in sweep.arms:
        config = configs[arm.name]
        if len(Mixture.parse(config.task.env, {}).weights) > 1 and not sweep.env:
            raise ParameterError(
                f'arm {arm.name!r} trains on a mixture; say what arms are compared on: env = "GAME" at the top of the '
                "sweep's file"
            )
        if arm.player == WARM_START and not config.warmstart.steps:
            raise ParameterError(f"warmstart.steps of arm {arm.name!r} must be >= 1: its warm start is to play (got 0)")
        if config.run.updates < 1:
            raise ParameterError(f"run.updates of arm {arm.name!r} must be >= 1 (got {config.run.updates})")
        for changes in ({}, *(sweep.also[name] for name in arm.also)):
            env = played_env(config, changes, sweep.env)
            settings, params = as_trained(config, env)
            changed, more_params = changed_trial(settings, changes)
            writer = changes.get("writer", UNTRAINED)
            if not isinstance(writer, str) or ("writer" in changes and not shows_reflection(changed.memory_mode)):
                raise ParameterError(
                    f"a further evaluation of arm {arm.name!r} with a writer needs its name, and a memory that shows "
                    f"reflections (got {writer!r} and {changed.memory_mode})"
                )
            worlds = f"{env} {params} {more_params}"
            if worlds not in checked:
                tasks_of(env, sweep.tasks, sweep.seed_set, {**params, **more_params})
                checked.add(worlds)


def played_env(config: Config, changes: Mapping[str, Any], of_sweep: str) -> str:
    """What an evaluation with these changes plays: a game of its own, the sweep's, or what the arm trains on."""
    env: str = changes.get("env") or of_sweep or config.task.env
    return env


def changed_trial(settings: TrialSettings, changes: Mapping[str, Any]) -> tuple[TrialSettings, dict[str, Any]]:
    """How trials of a further evaluation are played, and the environment's parameters that it changes."""
    trial = settings_of(TrialSettings)
    values = {name: trial[name].check(value) for name, value in changes.items() if name in trial}
    params = {name: value for name, value in changes.items() if name not in (*trial, "env", "controls", "writer")}
    return with_values(settings, values), params


def further_name(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def _flags(table: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Settings as they would stand on the command line; sections may be tables of their own."""
    flags = flat(table)
    for key, value in flags.items():
        if not isinstance(value, bool | int | float | str):
            raise ParameterError(f"{name}.{key}{where} must be a number or a text (got {value!r})")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in flags.items()}
