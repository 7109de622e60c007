"""A population's page: who was copied from whom, how strong everybody is, and who wins against whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import UsageError
from mulligan.view.folder import inside, is_folder, json_lines, json_of, sub_path, toml_of

RECENT = 20
"""Updates whose games stand in the table of agents and opponents."""
_MOST_AGENTS = 256
_MOST_EVENTS = 500
_MOST_OPPONENTS = 40
Lines = Sequence[Mapping[str, Any]]


def population(root: Path, name: str) -> dict[str, Any]:
    """The agents of a run with their ratings, games and events, from its logs."""
    path = inside(root, name)
    if toml_of(path / "config.toml").get("kind") != "population":
        raise UsageError(f"{name} is no population; populations have kind = 'population'")
    standing = json_of(path / "population.json") or {}
    rated = (json_of(path / "ratings.json") or {}).get("ratings", {})
    lineage = [line for line in json_lines(path / "lineage.jsonl") if isinstance(line.get("agent"), int)]
    matches = [line for line in json_lines(path / "matches.jsonl") if _is_match(line)]
    count = int(standing.get("agents", 0)) or 1 + max((line["agent"] for line in lineage), default=-1)
    count = min(count, _MOST_AGENTS)
    return {
        "agents": [_agent(path, name, number, standing, lineage) for number in range(count)],
        "best": standing.get("best"),
        "ratings": sorted(
            ([key, each["value"], each["deviation"]] for key, each in rated.items()), key=lambda each: -each[1]
        ),
        "games": table_of_games(matches, count),
        "scores": [
            [
                [line["update"], line["value"]]
                for line in lineage
                if line["agent"] == number and line["event"] == "scored"
            ]
            for number in range(count)
        ],
        "events": [_event(line) for line in lineage if line["event"] in ("copied", "replaced")][-_MOST_EVENTS:],
        "updates": max((line["update"] for line in (*lineage, *matches)), default=0),
    }


def _is_match(line: Mapping[str, Any]) -> bool:
    numbers = all(isinstance(line.get(key), int | float) for key in ("update", "agent", "games", "score"))
    return numbers and isinstance(line.get("opponent"), str)


def _agent(path: Path, name: str, number: int, standing: Mapping[str, Any], lineage: Lines) -> dict[str, Any]:
    own_lines = [line for line in lineage if line["agent"] == number and isinstance(line.get("settings"), Mapping)]
    standings = standing.get("standings") or []
    settings = own_lines[-1]["settings"] if own_lines else {}
    return {
        "number": number,
        "run": sub_path(name, f"agent-{number}") if is_folder(path / f"agent-{number}") else None,
        "standing": standings[number] if number < len(standings) else None,
        "settings": [
            [key, f"{value:.4g}" if isinstance(value, float) else str(value)[:60]] for key, value in settings.items()
        ],
    }


def _event(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "update": line["update"],
        "agent": line["agent"],
        "event": line["event"],
        "from": line.get("from"),
        "why": str(line.get("why", ""))[:300],
    }


def table_of_games(matches: Lines, agents: int) -> dict[str, Any]:
    """Agent against opponent: the share of points in the games of the last updates, and how many those were.

    A game between two agents stands once in the log, and counts for both: 30 games with 60 % for agent 0 against
    agent 1 are 30 games with 40 % for agent 1 against agent 0.
    """
    last = max((line["update"] for line in matches), default=0)
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in matches:
        if line["update"] <= last - RECENT:
            continue
        games, points = float(line["games"]), float(line["games"]) * float(line["score"])
        opponent = line["opponent"].partition("@")[0] if line["opponent"].startswith("past/") else line["opponent"]
        sides = [(int(line["agent"]), opponent, points)]
        if opponent.startswith("agent/") and opponent[6:].isdecimal():
            sides.append((int(opponent[6:]), f"agent/{line['agent']}", games - points))
        for agent, other, won in sides:
            of_pair = sums[agent, other]
            of_pair[0] += games
            of_pair[1] += won
    names = sorted(
        {other for _, other in sums}, key=lambda other: (other.partition("/")[0] in ("agent", "past"), other)
    )
    opponents = names[:_MOST_OPPONENTS]
    rows = [
        [[sums[agent, other][1] / sums[agent, other][0], int(sums[agent, other][0])] if sums[agent, other][0] else None
         for other in opponents]
        for agent in range(agents)
    ]  # fmt: skip
    return {"opponents": opponents, "rows": rows, "first": max(1, last - RECENT + 1), "last": last}
