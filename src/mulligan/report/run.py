"""The run folder: ``config.toml``, ``trials/*.jsonl.gz``, ``result.json``; written and read here and nowhere else.

Trials are appended as gzip members, so that a killed run loses at most the last unwritten moment. A torn tail is cut
off when the folder is opened again. A line may supersede an earlier one with the same place.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mulligan.errors import Fault, RunFolderError, StopReason
from mulligan.types import Completion, Episode, Reflection, Task, Trial, Turn, plain

SCHEMA_VERSION = 1
_FLUSH_SECONDS = 0.5
_FLUSH_LINES = 256
_HELD = ".held"


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any]) -> RunFolder:
        """A new run; refuses a folder that already holds one."""
        run = cls(path)
        try:
            if (run.path / "config.toml").exists():
                raise RunFolderError(
                    f"{run.path} already holds a run; choose another folder, or continue it with --resume"
                )
            (run.path / "trials").mkdir(parents=True, exist_ok=True)
            run.write_text("config.toml", to_toml({"schema_version": SCHEMA_VERSION, **config}))
        except OSError as error:
            raise RunFolderError(f"{run.path} cannot be made a run folder: {error.strerror or error}") from error
        return run

    @contextlib.contextmanager
    def held(self, *, is_new: bool = False) -> Iterator[None]:
        """Inside, nobody else may write to the folder; refuses where another process does.

        It ends with the process, however that ends. Where the system knows no such locks, nothing is held. `is_new`:
        the run has just been created here, and is taken back where it is refused.
        """
        try:
            import fcntl
        except ImportError:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _HELD).open("a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if is_new:
                    self.discard(held=False)
                raise RunFolderError(
                    f"another process is at work in {self.path}; wait for it to end, or choose another folder"
                ) from None
            except OSError:
                pass  # a file system without locks
            yield

    def discard(self, *, held: bool = True) -> None:
        """Take back a run that was created but holds nothing yet; what else lies in the folder stays.

        held: whether it is this process that holds the folder.
        """
        if not self.arms():
            with contextlib.suppress(OSError):
                (self.path / "config.toml").unlink(missing_ok=True)
                if held:
                    (self.path / _HELD).unlink(missing_ok=True)
                (self.path / "trials").rmdir()
                self.path.rmdir()

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """A run that exists, in a schema this version reads."""
        run = cls(path)
        if not (run.path / "config.toml").is_file():
            raise RunFolderError(_why_no_run(run.path))
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
        """Write a file whole or not at all."""
        target = self.path / name
        beside = target.with_name(target.name + ".tmp")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, target)

    def trials(self, arm: str) -> dict[int, Trial]:
        """Place in the task list -> trial, of one arm; empty when it has none yet."""
        return {line["place"]: trial_from_dict(line) for line in read_lines(self._file(arm))}

    def arms(self) -> list[str]:
        """Names of the trial files."""
        return sorted(file.name.removesuffix(".jsonl.gz") for file in (self.path / "trials").glob("*.jsonl.gz"))

    def writer(self, arm: str) -> TrialWriter:
        return TrialWriter(self._file(arm))

    def write_trials(self, arm: str, trials: Sequence[Trial]) -> None:
        """All trials of a file at once, whole or not at all."""
        lines = (
            json.dumps({"place": place, **trial_to_dict(trial)}, separators=(",", ":"))
            for place, trial in enumerate(trials)
        )
        self._file(arm).parent.mkdir(exist_ok=True)
        beside = self._file(arm).with_suffix(".tmp")
        beside.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), compresslevel=5, mtime=0))
        os.replace(beside, self._file(arm))

    def _file(self, arm: str) -> Path:
        return self.path / "trials" / f"{arm}.jsonl.gz"


class TrialWriter:
    """Appends trials to one file; use it in a ``with`` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[str] = []
        self._flushed = time.monotonic()
        mend(path)

    def __enter__(self) -> TrialWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def write(self, place: int, trial: Trial) -> None:
        self._waiting.append(json.dumps({"place": place, **trial_to_dict(trial)}, separators=(",", ":")))
        if len(self._waiting) >= _FLUSH_LINES or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            member = gzip.compress(("\n".join(self._waiting) + "\n").encode(), compresslevel=5, mtime=0)
            with self.path.open("ab") as file:
                file.write(member)
            self._waiting.clear()
        self._flushed = time.monotonic()


def load_trials(path: str | Path, arm: str = "main") -> list[Trial]:
    """The trials of a run folder, in the order of its tasks: ``mulligan.load_trials("runs/x")``."""
    run = RunFolder.open(path)
    if arm not in run.arms():
        raise RunFolderError(f"{run.path} has no trials of {arm!r}; it has: {', '.join(run.arms()) or 'none'}")
    found = run.trials(arm)
    return [found[place] for place in sorted(found)]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of a trial file; stops quietly at a torn tail."""
    if not path.exists():
        return
    with gzip.open(path, "rb") as file:
        yield from _whole_lines(file)


def _whole_lines(file: gzip.GzipFile | IO[bytes]) -> Iterator[dict[str, Any]]:
    while True:
        try:
            line = file.readline()
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return
        if not line.endswith(b"\n"):
            return
        yield json.loads(line)


def mend(path: Path) -> None:
    """Cut off a torn tail, so that what is appended can be read back."""
    if not path.exists():
        return
    try:
        with gzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
        return
    except (EOFError, zlib.error, gzip.BadGzipFile):
        whole = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in read_lines(path))
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(gzip.compress(whole.encode(), mtime=0))
    os.replace(beside, path)


_NUMBERS = re.compile(r"\[\n([-+.,\s\deEnul]*?)\n *\]")
"""A list of numbers and nulls in indented JSON; no string can hold a line break there."""


def to_json(data: Any) -> str:
    """Indented JSON that every reader takes: numbers that JSON does not know become null. A list of numbers takes one
    line: results hold an outcome for every attempt."""
    text = json.dumps(_finite(data), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """A trial as plain JSON data."""
    return dataclasses.asdict(trial)


def trial_from_dict(data: Mapping[str, Any]) -> Trial:
    """The trial that `trial_to_dict` wrote."""
    episodes = tuple(_episode(episode) for episode in data["episodes"])
    related = tuple(_task(other) for other in data.get("related", ()))
    return Trial(_task(data["task"]), episodes, data["memory"], data["seed"], data["index"], related)


def _task(data: Mapping[str, Any]) -> Task:
    return Task(**{**data, "params": tuple((key, value) for key, value in data["params"])})


def _episode(data: Mapping[str, Any]) -> Episode:
    reflection = data["reflection"]
    return Episode(
        index=data["index"],
        turns=tuple(_turn(turn) for turn in data["turns"]),
        final=data["final"],
        stop=StopReason(data["stop"]),
        opening=tuple(data["opening"]),
        continues=data["continues"],
        reflection=Reflection(**{**reflection, "completion": _completion(reflection["completion"])})
        if reflection
        else None,
        error=data["error"],
        unreflected=data.get("unreflected", False),  # runs of earlier versions do not say
        forfeit=data.get("forfeit", 0.0),
    )


def _turn(data: Mapping[str, Any]) -> Turn:
    fault = Fault(data["fault"]) if data["fault"] else None
    reply = _completion(data["reply"])
    assert reply is not None, "a turn has a reply"
    return Turn(**{**data, "reply": reply, "fault": fault})


def _completion(data: Mapping[str, Any] | None) -> Completion | None:
    if data is None:
        return None
    lists = ("ids", "logprobs", "prompt_ids")
    return Completion(**{**data, **{name: None if data[name] is None else tuple(data[name]) for name in lists}})


def to_toml(tree: Mapping[str, Any], prefix: str = "") -> str:
    """A nested mapping of scalars and lists of scalars as TOML; None is left out."""
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in tree.items() if _is_leaf(value)]
    for key, value in tree.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{_toml_key(key)}"
            lines += ["", f"[{name}]", to_toml(value, f"{name}.").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _is_leaf(value: object) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    value = plain(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)


def _why_no_run(path: Path) -> str:
    if not path.exists():
        return f"there is no run folder {path}"
    if not path.is_dir():
        return f"{path} is a file, not a run folder"
    runs = sorted(each.parent.name for each in path.glob("*/config.toml"))
    inside = f"; it holds {', '.join(runs[:3])}{' and others' if len(runs) > 3 else ''}" if runs else ""
    return f"{path} is not a run folder: it has no config.toml{inside}"
