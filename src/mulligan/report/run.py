"""The run folder: ``config.toml``, ``trials/*.jsonl.gz``, ``result.json``; written and read here and nowhere else.

Trials are appended as gzip members, so that a killed run loses at most what was not flushed yet. A torn tail is cut
off before the file is appended to. A later line replaces an earlier one of the same task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import math
import os
import re
import time
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import Fault, RunFolderError, StopReason, UnknownName
from mulligan.types import Completion, Episode, Reflection, Task, Trial, Turn, plain

SCHEMA_VERSION = 1
_FLUSH_SECONDS = 0.5
_HELD = ".held"
_TORN = (EOFError, zlib.error, gzip.BadGzipFile)


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> RunFolder:
        """A new run; refuses a folder that already holds one."""
        run = cls(path)
        if (run.path / "config.toml").exists():
            way_on = "choose another folder, or continue it with --resume (in Python resume=True)"
            raise RunFolderError(f"{run.path} already holds a run; {way_on}")
        (run.path / "trials").mkdir(parents=True, exist_ok=True)
        run.write_text("config.toml", to_toml({"schema_version": SCHEMA_VERSION, **config}))
        return run

    @contextlib.contextmanager
    def held(self, *, is_new: bool = False) -> Iterator[None]:
        """Lock the folder for writing; raises where another process, which has not ended, holds the lock.

        `is_new`: the run has just been created, and is discarded where the lock is refused.
        """
        try:
            import fcntl
        except ImportError:  # a system without such locks
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _HELD).open("a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if is_new:
                    self.discard(held=False)
                raise RunFolderError(f"another process is at work in {self.path}; choose another folder") from None
            except OSError:
                pass  # a file system without locks
            yield

    def discard(self, *, held: bool = True) -> None:
        """Remove a run that holds no trials yet; other files stay, and the lock, where another process has it."""
        if not self.arms():
            with contextlib.suppress(OSError):
                (self.path / "config.toml").unlink(missing_ok=True)
                if held:
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
        version = run.config().get("schema_version")
        if version != SCHEMA_VERSION:
            raise RunFolderError(f"{run.path} has schema_version {version}; this version reads {SCHEMA_VERSION}")
        return run

    def config(self) -> dict[str, Any]:
        try:
            return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RunFolderError(f"{self.path / 'config.toml'} cannot be read: {error}") from error

    def write_text(self, name: str, text: str) -> None:
        _replace(self.path / name, text.encode())

    def trials(self, arm: str) -> dict[int, Trial]:
        """Index in the task list -> trial, of one arm; empty when it has none yet."""
        return {line["place"]: trial_from_dict(line) for line in read_lines(self._file(arm))}

    def arms(self) -> list[str]:
        return sorted(file.name.removesuffix(".jsonl.gz") for file in (self.path / "trials").glob("*.jsonl.gz"))

    def arm(self, name: str | None) -> str:
        """The name of an arm that has trials; None is main, or the last update that training kept."""
        arms = self.arms()
        if not arms:
            hint = "; training keeps those of every run.save_trials_every updates"
            raise RunFolderError(f"{self.path} has no trials yet{hint if self.config().get('kind') == 'train' else ''}")
        name = name or ("main" if "main" in arms else arms[-1])
        if name not in arms:
            raise UnknownName(f"arm of {self.path}", name, arms)
        return name

    def writer(self, arm: str) -> TrialWriter:
        return TrialWriter(self._file(arm))

    def write_trials(self, arm: str, trials: Sequence[Trial]) -> None:
        self._file(arm).parent.mkdir(exist_ok=True)
        _replace(self._file(arm), _compressed(_trial_line(index, trial) for index, trial in enumerate(trials)))

    def _file(self, arm: str) -> Path:
        return self.path / "trials" / f"{arm}.jsonl.gz"


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _trial_line(index: int, trial: Trial) -> str:
    return json.dumps({"place": index, **trial_to_dict(trial)}, separators=(",", ":"))


def _compressed(lines: Iterable[str]) -> bytes:
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=5, mtime=0)


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
            with self.path.open("ab") as file:
                file.write(_compressed(self._unwritten))
            self._unwritten.clear()
        self._flushed = time.monotonic()


def load_trials(path: str | os.PathLike[str], arm: str | None = None) -> list[Trial]:
    """The trials of a run folder, in the order of its tasks: ``mulligan.load_trials("runs/x")``.

    `arm` is main or a control; of a training run an update such as ``"update-00010"`` (by default the last one kept).
    """
    run = RunFolder.open(path)
    return [trial for _, trial in sorted(run.trials(run.arm(arm)).items())]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every complete line of a trial file; stops quietly at a torn tail."""
    if not path.exists():
        return
    with gzip.open(path, "rb") as file, contextlib.suppress(*_TORN):
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _mend(path: Path) -> None:
    """Cut off a torn tail, so that what is appended can be read back."""
    try:
        if path.exists():
            with gzip.open(path, "rb") as file:
                for _ in file:
                    pass
    except _TORN:
        _replace(path, _compressed(json.dumps(line, separators=(",", ":")) for line in read_lines(path)))


_NUMBERS = re.compile(r"\[\n([-+.,\s\deEnul]*?)\n *\]")
"""A list of numbers and nulls in indented JSON. JSON strings hold no line breaks, so that none of them matches."""


def to_json(data: Any) -> str:
    """Indented JSON; NaN and infinities become null. A list of numbers takes one line, since results hold an outcome
    for every attempt."""
    text = json.dumps(_finite(data), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    return dataclasses.asdict(trial)


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
        reflection = Reflection(**{**reflection, "completion": _completion(completion) if completion else None})
    return Episode(**{**data, "turns": turns, "opening": opening, "stop": stop, "reflection": reflection})


def _turn(data: Mapping[str, Any]) -> Turn:
    fault = Fault(data["fault"]) if data["fault"] else None
    return Turn(**{**data, "reply": _completion(data["reply"]), "fault": fault})


def _completion(data: Mapping[str, Any]) -> Completion:
    lists = ("ids", "logprobs", "prompt_ids")
    return Completion(**{**data, **{name: None if data[name] is None else tuple(data[name]) for name in lists}})


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
