"""The run folder: ``config.toml``, ``trials/*.jsonl.gz``, ``result.json``; written and read here and nowhere else.

Trials are appended as gzip members, so that a killed run loses at most what was not flushed yet. A later line replaces
an earlier one of the same task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import Fault, RunFolderError, StopReason, UnknownName
from mulligan.report.files import (
    append,
    compressed,
    keep_damaged,
    locked,
    own_paths,
    read_json,
    read_lines,
    refuse_links,
    replace_file,
    split_members,
    sync,
)
from mulligan.types import Completion, Episode, Reflection, Task, ToolCall, Trial, Turn, plain

SCHEMA_VERSION = 1
_FLUSH_SECONDS = 0.5
_HELD = ".held"
POPULATION = "population.json"
"""Of a population: how many agents it has, and which is the best."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        """As it was given."""
        self.path = Path(path).absolute()  # an environment may change the working directory
        self.holds_run = False
        """Whether a run was found or made here, rather than a folder of runs."""

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> RunFolder:
        """A new run; refuses a folder that already holds one."""
        run = cls(path)
        Path(path).mkdir(parents=True, exist_ok=True)
        with run.held():
            if (run.path / "config.toml").exists():
                way_on = "choose another folder, or continue it with --resume (in Python resume=True)"
                raise RunFolderError(f"{run.name} already holds a run; {way_on}")
            (run.path / "trials").mkdir(exist_ok=True)
            run.write_text("config.toml", to_toml({"schema_version": SCHEMA_VERSION, **config}))
            sync(run.path.parent)
        run.holds_run = True
        return run

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder for writing; raises where another process, which has not ended, holds the lock."""
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / _HELD):
            refuse_links(self.path)
            if self.holds_run and not (self.path / "config.toml").is_file():
                raise RunFolderError(f"the run in {self.name} was removed by another process")
            before = os.getcwd()
            try:
                yield
            finally:
                os.chdir(before)  # whoever called still means it by relative paths

    def discard(self) -> None:
        """Remove a run that is held and has no trials yet; other files stay."""
        if not self.arms():
            with contextlib.suppress(OSError):
                (self.path / "config.toml").unlink(missing_ok=True)
                (self.path / "tasks.json").unlink(missing_ok=True)
                (self.path / _HELD).unlink(missing_ok=True)
                (self.path / "trials").rmdir()
                self.path.rmdir()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """A run that exists, with the schema of this version."""
        run = cls(path)
        if not (run.path / "config.toml").is_file():
            runs = ", ".join(sorted(config.parent.name for config in run.path.glob("*/config.toml"))[:3])
            hint = f"; it holds {runs}" if runs else ""
            raise RunFolderError(f"there is no run folder {path}: config.toml is missing{hint}")
        for file in own_paths(run.path):
            if file.is_fifo():  # who opens it would wait for ever
                raise RunFolderError(f"{file} is a pipe; a run has files alone")
        version = run.config().get("schema_version")
        if version != SCHEMA_VERSION:
            raise RunFolderError(f"{run.name} has schema_version {version}; this version reads {SCHEMA_VERSION}")
        run.holds_run = True
        return run

    def config(self) -> dict[str, Any]:
        try:
            return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise RunFolderError(f"{self.path / 'config.toml'} cannot be read: {error}") from error

    def write_text(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())

    def trials(self, arm: str) -> dict[int, Trial]:
        """Index in the task list -> trial, of one arm; empty when it has none yet."""
        return dict(_read_trials(self._file(arm)))

    def arms(self) -> list[str]:
        return sorted(file.name.removesuffix(".jsonl.gz") for file in (self.path / "trials").glob("*.jsonl.gz"))

    def arm(self, name: str | None) -> str:
        """The name of an arm that has trials; None is main, or the last update that training kept."""
        arms = self.arms()
        if not arms:
            hint = "; training keeps those of every run.save_trials_every updates"
            raise RunFolderError(f"{self.name} has no trials yet{hint if self.config().get('kind') == 'train' else ''}")
        updates = [arm for arm in arms if not arm.startswith("validation-")]
        name = name or ("main" if "main" in arms else (updates or arms)[-1])
        if name not in arms:
            raise UnknownName(f"arm of {self.name}", name, arms)
        return name

    def writer(self, arm: str) -> TrialWriter:
        return TrialWriter(self._file(arm))

    def write_trials(self, arm: str, trials: Sequence[Trial]) -> None:
        self._file(arm).parent.mkdir(exist_ok=True)
        replace_file(self._file(arm), compressed(_trial_line(index, trial) for index, trial in enumerate(trials)))

    def _file(self, arm: str) -> Path:
        return self.path / "trials" / f"{arm}.jsonl.gz"


def _trial_line(index: int, trial: Trial) -> str:
    return json.dumps({"place": index, **trial_to_dict(trial)}, separators=(",", ":"))


def policy_folder(path: str | os.PathLike[str]) -> str:
    """The training run that a run folder's policy is from: of a population the best agent's, else itself."""
    name, file = os.fspath(path), Path(path) / POPULATION
    if not file.is_file():
        return name
    advice = "name one of the population's agents, such as RUN/agent-0"
    try:
        return f"{name.rstrip('/')}/agent-{int(read_json(file.read_bytes(), file, advice)['best'])}"
    except (LookupError, TypeError, ValueError) as error:
        raise RunFolderError(f"{file} names no best agent; {advice}") from error


class TrialWriter:
    """Appends trials to one file; those of the last moment when it is told to `flush`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unwritten: list[str] = []
        self._flushed = time.monotonic()
        _mend(path)

    def write(self, index: int, trial: Trial) -> None:
        self._unwritten.append(_trial_line(index, trial))
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._unwritten:
            append(self.path, compressed(self._unwritten))
            self._unwritten.clear()
        self._flushed = time.monotonic()


def load_trials(path: str | os.PathLike[str], arm: str | None = None) -> list[Trial]:
    """The trials of a run folder, in the order of its tasks: ``mulligan.load_trials("runs/x")``.

    `arm` is main or a control; of a training run an update such as ``"update-00010"`` (by default the last one kept).

    >>> result = mulligan.evaluate("bandit", "random", tasks=4, room=False, controls="off", run="runs/random")
    >>> len(mulligan.load_trials("runs/random"))
    4
    """
    run = RunFolder.open(path)
    return [trial for _, trial in sorted(run.trials(run.arm(arm)).items())]


def _read_trials(path: Path) -> Iterator[tuple[int, Trial]]:
    """Every trial of a file with its index, as far as the file is undamaged; what is left out is told."""
    for line in read_lines(path):
        data = read_json(line, path)
        try:
            yield data["place"], trial_from_dict(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunFolderError(f"{path} has a line that is no trial: {type(error).__name__}: {error}") from error


def _mend(path: Path) -> None:
    """Leave only the undamaged members in a file, so that what is appended can be read back."""
    members, damaged = split_members(path)
    if damaged:
        keep_damaged(path, damaged)
        replace_file(path, b"".join(members))


_NUMBERS = re.compile(r"\[\n([-+.,\s\deEnul]*?)\n *\]")
"""A list of numbers and nulls in indented JSON. JSON strings hold no line breaks, so that none of them matches."""


def to_json(data: Any) -> str:
    """Indented JSON; NaN and infinities become null. A list of numbers takes one line, since results hold an outcome
    for every attempt."""
    text = json.dumps(finite(data), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def finite(data: Any) -> Any:
    """Plain data without NaN and infinities, which JSON does not have: None instead."""
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


_ONLY_WHERE_GIVEN = ("reasoning", "refusal", "tool_calls")
"""Fields of a reply that few have, and that earlier versions did not write."""


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    return dataclasses.asdict(trial, dict_factory=_written)


def completion_to_dict(reply: Completion) -> dict[str, Any]:
    return dataclasses.asdict(reply, dict_factory=_written)


def _written(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value or name not in _ONLY_WHERE_GIVEN}


def trial_from_dict(data: Mapping[str, Any]) -> Trial:
    episodes = tuple(map(_episode, data["episodes"]))
    related = tuple(map(_task, data["related"]))
    return Trial(_task(data["task"]), episodes, data["memory"], data["seed"], data["index"], related)


def _task(data: Mapping[str, Any]) -> Task:
    return Task(**{**data, "params": tuple((key, value) for key, value in data["params"])})


def _episode(data: Mapping[str, Any]) -> Episode:
    turns, opening, stop = tuple(map(_turn, data["turns"])), tuple(data["opening"]), StopReason(data["stop"])
    reflection = data["reflection"]
    if reflection:
        completion = reflection["completion"]
        reflection = Reflection(
            **{**reflection, "completion": completion_from_dict(completion) if completion else None}
        )
    return Episode(**{**data, "turns": turns, "opening": opening, "stop": stop, "reflection": reflection})


def _turn(data: Mapping[str, Any]) -> Turn:
    fault = Fault(data["fault"]) if data["fault"] else None
    return Turn(**{**data, "reply": completion_from_dict(data["reply"]), "fault": fault})


def completion_from_dict(data: Mapping[str, Any]) -> Completion:
    lists = ("ids", "logprobs", "prompt_ids")
    tuples = {name: None if data[name] is None else tuple(data[name]) for name in lists}
    calls = tuple(ToolCall(**call) for call in data.get("tool_calls", ()))
    return Completion(**{**data, **tuples, "tool_calls": calls})


def to_toml(tree: Mapping[str, Any], prefix: str = "") -> str:
    """A nested mapping of scalars and lists of scalars as TOML; None is left out."""
    lines, tables = [], []
    for key, value in tree.items():
        name = key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
        if isinstance(value, Mapping):
            tables += ["", f"[{prefix}{name}]", to_toml(value, f"{prefix}{name}.").rstrip("\n")]
        elif value is not None:
            lines.append(f"{name} = {_toml_value(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _toml_value(value: object) -> str:
    value = plain(value)
    if isinstance(value, (bool, int, float)):
        return repr(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(str(value), ensure_ascii=False)
