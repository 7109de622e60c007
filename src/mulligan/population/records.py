"""What a population writes beside its agents' folders; `docs/population.md` has the forms.

``lineage.jsonl`` is who was copied from whom and why, ``matches.jsonl`` who met whom, ``ratings.json`` how strong
everybody is, ``population.json`` which agent is the best. Both logs are cut back to the checkpoint that a resumed run
goes on from, and all that the population remembers of earlier rounds is read from them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mulligan.population.rating import Rating, after
from mulligan.report.files import append
from mulligan.training.metrics import MetricsFile
from mulligan.types import Group

RECENT = 20
"""Rounds whose games count in a win rate."""
_SCORES = {"won": 1.0, "drawn": 0.5}


class Log(MetricsFile):
    """A file of JSON lines, several an update."""

    def write_all(self, update: int, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps({"update": update, **line}) + "\n" for line in lines)
        if text:
            append(self.path, text.encode())


class Matches:
    """The games of every round."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path / "matches.jsonl")
        self.recent: list[dict[str, Any]] = []
        self.ratings: dict[str, Rating] = {}

    def cut(self, updates: int) -> None:
        """Keep the games of the first `updates` updates, and rate everybody by them anew."""
        self.log.cut(updates)
        lines, self.ratings = self.log.read(), {}
        for _, of_update in groupby(lines, lambda line: int(line["update"])):
            self._rate(list(of_update))
        self.recent = [line for line in lines if line["update"] > updates - RECENT]

    def add(self, update: int, lines: Sequence[Mapping[str, Any]]) -> None:
        self.log.write_all(update, lines)
        if lines:
            self._rate(lines)
        self.recent = [line for line in self.recent if line["update"] > update - RECENT]
        self.recent += [{"update": update, **line} for line in lines]

    def _rate(self, lines: Sequence[Mapping[str, Any]]) -> None:
        games = [(f"agent/{line['agent']}", line["opponent"], line["games"], line["score"]) for line in lines]
        self.ratings = after(self.ratings, games)

    def win_rate(self, agent: int, opponent: str) -> float:
        """The agent's share of points in its recent games with that opponent, a draw being half of one."""
        scores = [(line["games"], line["score"]) for line in self.recent if _is_of(line, agent, opponent)]
        scores += [(line["games"], 1.0 - line["score"]) for line in self.recent if _is_mirrored(line, agent, opponent)]
        games = sum(count for count, _ in scores)
        return sum(count * score for count, score in scores) / games if games else 0.5


def _is_of(line: Mapping[str, Any], agent: int, opponent: str) -> bool:
    return bool(line["agent"] == agent and line["opponent"] == opponent)


def _is_mirrored(line: Mapping[str, Any], agent: int, opponent: str) -> bool:
    return line["opponent"] == f"agent/{agent}" and opponent == f"agent/{line['agent']}"


def matches_of(agent: int, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A line for each opponent: games that were played to their end, the share of points, and returns by episode."""
    by_opponent: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    for group in groups:
        if group.task.opponent is None:
            continue
        for trial in group.trials:
            for episode in trial.episodes:
                if not episode.stop.is_infrastructure:
                    by_opponent[group.task.opponent].append((episode.index, episode.stop.value, episode.reward))
    lines = []
    for opponent, episodes in sorted(by_opponent.items()):
        by_index: dict[int, list[float]] = defaultdict(list)
        for index, _, reward in episodes:
            by_index[index].append(reward)
        points = sum(_SCORES.get(stop, 0.0) for _, stop, _ in episodes)
        returns = [sum(each) / len(each) for _, each in sorted(by_index.items())]
        line = {"agent": agent, "opponent": opponent, "games": len(episodes), "score": points / len(episodes)}
        lines.append({**line, "returns": returns})
    return lines
