"""What an evaluation is, as data: the plan that decides its numbers, its prices, and how a run folder keeps them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mulligan.envs import registry
from mulligan.errors import ParameterError, RunFolderError, UnknownName
from mulligan.report.run import RunFolder, to_toml
from mulligan.trial.memory import shows_reflection
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling, whole

CONTROLS = ("independent", "removed", "foreign", "other-trial", "told")


@dataclass(frozen=True)
class Prices:
    """What tokens cost, per million."""

    prompt: float = 0.0
    completion: float = 0.0

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            if not price >= 0:
                raise ParameterError(f"the price of {name} tokens must be >= 0 (got {price})")

    def of(self, prompt: int, completion: int) -> float:
        return (prompt * self.prompt + completion * self.completion) / 1e6


@dataclass(frozen=True)
class EvalPlan:
    """Everything that decides an evaluation's numbers; the run folder keeps it."""

    env: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 512
    seed_set: str = "eval"
    seed: int = 0
    """Root of the policy's sampling; the tasks do not depend on it."""
    settings: TrialSettings = TrialSettings()
    controls: tuple[str, ...] = ("independent",)
    room: bool = True
    related: bool = False
    """Whether later episodes of a trial are the next tasks of its class, and not the same one again."""

    def __post_init__(self) -> None:
        for name in ("tasks", "seed"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for name in self.controls:
            if name not in CONTROLS:
                raise UnknownName("control", name, [*CONTROLS, "all", "off"])

    def arms(self) -> list[str]:
        """The arms to play, main first. Controls that would repeat main are left out."""
        wanted = ["main"]
        memory = self.settings.memory_mode if self.settings.episodes > 1 else "none"
        versus = registry.spec(self.env).kind == "versus"
        for control in dict.fromkeys(self.controls):
            # Of games the whole memory can be another trial's, and who plays can be told.
            needs_any_memory = control == "independent" or (control == "foreign" and versus)
            if control == "told":
                wanted += ["told"] if versus else []
            elif shows_reflection(memory) or (needs_any_memory and memory != "none"):
                wanted += ["donors", control] if control == "other-trial" else [control]
        return wanted


def named_controls(text: str) -> tuple[str, ...]:
    """``independent,removed``, or "all", or "off" for none."""
    groups = {"all": CONTROLS, "off": (), "": ()}
    return tuple(name for word in text.split(",") for name in groups.get(word, (word,)))


def _to_config(plan: EvalPlan, policy: str) -> dict[str, Any]:
    config = asdict(plan)
    return {"kind": "eval", "policy": policy, **config, "trial": config.pop("settings")}


def plan_from_config(config: Mapping[str, Any]) -> EvalPlan:
    """The plan a run folder was made for."""
    try:
        trial = dict(config["trial"])
        settings = TrialSettings(**{**trial, "sampling": Sampling(**trial["sampling"])})
        same = {item.name: config[item.name] for item in fields(EvalPlan) if item.name not in ("settings", "controls")}
        return EvalPlan(**same, settings=settings, controls=tuple(config["controls"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"config.toml is not that of an evaluation: {error!r}") from error


def create_folder(plan: EvalPlan, policy: str, path: str | os.PathLike[str], **more: Any) -> RunFolder:
    """A new run folder for the plan; `more` goes into its config."""
    return RunFolder.create(path, {**_to_config(plan, policy), **more})


def open_folder(plan: EvalPlan, policy: str, path: str | os.PathLike[str]) -> RunFolder:
    """The run folder of an interrupted evaluation, refused if it was made for another one."""
    folder = RunFolder.open(path)
    config = folder.config()
    for key, value in tomllib.loads(to_toml(_to_config(plan, policy))).items():
        # An evaluation inside the run that it evaluates may have been moved with it.
        run, before = folder.path.resolve().parent, str(config.get(key))
        moved = key == "policy" and run == Path(policy).resolve() and run.name == Path(before).name
        if config.get(key) != value and not moved:
            raise RunFolderError(f"{path} was made with {key} = {config.get(key)!r}, not {value!r}")
    return folder
