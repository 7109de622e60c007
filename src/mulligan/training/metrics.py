"""The metrics of each update, one JSON line each in ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import DamagedFile
from mulligan.eval.passk import Summary, summarise
from mulligan.report.files import append, keep_damaged, replace_file
from mulligan.types import Group


class MetricsFile:
    """A file of JSON lines, one an update; a resumed run cuts off what it will play again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self, updates: int) -> None:
        """Keep only the lines of the first `updates` updates; a torn last line goes too."""
        if damaged := self._lines()[1]:
            keep_damaged(self.path, b"".join(damaged))
        kept = [line for line in self.read() if line["update"] <= updates]
        replace_file(self.path, "".join(f"{json.dumps(line)}\n" for line in kept).encode())

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Append a line, without None, NaN and infinities; it is on the disk before the checkpoint of its update."""
        finite = {
            name: value
            for name, value in metrics.items()
            if value is not None and (not isinstance(value, float) or math.isfinite(value))
        }
        append(self.path, json.dumps(finite, allow_nan=False).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        lines, damaged = self._lines()
        if damaged:
            count = len(lines) + len(damaged)
            text = f"{self.path} is damaged: {len(damaged)} of its {count} lines cannot be read, and were left out"
            warnings.warn(text, DamagedFile, stacklevel=2)
        return lines

    def _lines(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The metrics of each line, and the lines that hold none; a torn last line is left out."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines, damaged = [], []
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                metrics = json.loads(line)
                lines.append({**metrics, "update": int(metrics["update"])})
            except (LookupError, TypeError, ValueError, RecursionError):
                damaged.append(line)
        return lines, damaged


def describe_groups(groups: Sequence[Group], episodes: int) -> dict[str, Any]:
    """Rewards, successes, p@k, validity and failures of the trials of an update, and the same for each task class."""
    played = [trial for group in groups for trial in group.trials]
    trials = [trial for trial in played if not trial.failed]
    summary = summarise(trials, episodes)
    metrics = {
        **_shares(summary),
        "valid": summary.valid,
        "reflections/valid": summary.reflections_valid,
        "episodes": sum(summary.played),
        "turns": summary.turns,
        "trials/failed": len(played) - len(trials),
        "groups/short": sum(any(trial.failed for trial in group.trials) for group in groups),
    }
    stops = Counter(episode.stop.value for trial in played for episode in trial.episodes)
    metrics |= {f"stop/{name}": count for name, count in stops.items()}
    classes = sorted({group.task.task_class for group in groups})
    if len(classes) > 1:
        for name in classes:
            of_class = [trial for trial in trials if trial.task.task_class == name]
            if of_class:  # all of a class may have failed
                shares = _shares(summarise(of_class, episodes))
                metrics |= {f"{name}/{key}": value for key, value in shares.items()}
    return metrics


def _shares(summary: Summary) -> dict[str, Any]:
    shares: dict[str, Any] = {f"p@{k}": share for k, share in enumerate(summary.p, 1)}
    for n in range(len(summary.played)):
        shares[f"reward/{n + 1}"] = summary.returns[n]
        shares[f"won/{n + 1}"] = summary.won[n]
        shares[f"played/{n + 1}"] = summary.played[n]
    return shares
