"""What is known of each update, one JSON line each in ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from mulligan.errors import RunFolderError
from mulligan.eval.passk import Summary, summarise
from mulligan.types import Group


class MetricsFile:
    """A file of JSON lines, one an update; a resumed run cuts off what it will play again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self, updates: int) -> None:
        """Keep only the lines of the first `updates` updates; a torn last line goes too."""
        kept = [line for line in self._lines() if self._read(line)["update"] <= updates]
        beside = self.path.with_name(self.path.name + ".tmp")
        with beside.open("w", encoding="utf-8") as file:
            _write_out(file, "".join(f"{line}\n" for line in kept))
        os.replace(beside, self.path)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Append a line; it is on the disk before any checkpoint that counts on it.

        What is not known is left out, and so is what JSON has no word for: the loss of a step that was skipped.
        """
        line = json.dumps({name: value for name, value in metrics.items() if _is_known(value)}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            _write_out(file, line + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        return [self._read(line) for line in self._lines()]

    def _read(self, line: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise RunFolderError(f"{self.path} has a line that is no JSON: {line[:60]!r}") from error
        return found

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        return text[: text.rfind("\n") + 1].splitlines()


def _is_known(value: object) -> bool:
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def _write_out(file: TextIO, text: str) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def describe_groups(groups: Sequence[Group], episodes: int) -> dict[str, Any]:
    """Rewards, successes, p@k, validity and failures of the trials of an update, and the same for each task class."""
    trials = [trial for group in groups for trial in group.trials if not trial.failed]
    whole = summarise(trials, episodes)
    found: dict[str, Any] = _shares(whole)
    found |= {
        "valid": whole.valid,
        "reflections/valid": whole.reflections_valid,
        "episodes": sum(whole.played),
        "turns": whole.turns,
        "trials/failed": sum(trial.failed for group in groups for trial in group.trials),
        "groups/short": sum(any(trial.failed for trial in group.trials) for group in groups),
    }
    found |= {f"stop/{name}": count for name, count in _all_stops(groups).items()}
    classes = sorted({group.task.task_class for group in groups})
    if len(classes) > 1:
        for name in classes:
            own = [trial for trial in trials if trial.task.task_class == name]
            if own:  # all of a class may have failed
                found |= {f"{name}/{key}": value for key, value in _shares(summarise(own, episodes)).items()}
    return found


def _shares(summary: Summary) -> dict[str, Any]:
    found: dict[str, Any] = {f"p@{k}": share for k, share in enumerate(summary.p, 1)}
    for n in range(len(summary.played)):
        found[f"reward/{n + 1}"] = summary.returns[n]
        found[f"won/{n + 1}"] = summary.won[n]
        found[f"played/{n + 1}"] = summary.played[n]
    return found


def _all_stops(groups: Sequence[Group]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for group in groups:
        for trial in group.trials:
            for episode in trial.episodes:
                counts[episode.stop.value] = counts.get(episode.stop.value, 0) + 1
    return counts
