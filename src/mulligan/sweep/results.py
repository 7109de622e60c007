"""What the arms of a sweep found, over seeds: plain data, and the table that people read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.eval.intervals import over_seeds
from mulligan.eval.passk import wilson
from mulligan.report.tables import CONTROL_NAMES, pays_in_part, what_failed

Found = Mapping[str, Any]


def combine(found: Sequence[Found]) -> list[dict[str, Any]]:
    """One row an arm, and one for each of its controls and further evaluations, in the order of `found`.

    p@k is the mean over seeds; its interval is over seeds and worlds (`eval.intervals`). `seeds` has p@k of each or, of
    games against somebody, the returns.
    """
    rows = []
    for name in dict.fromkeys(result["name"] for result in found):
        own = [result for result in found if result["name"] == name]
        rows += _rows(name, own, own, {})
        for further in own[0].get("also", ()):
            rows += _rows(f"{name}, {further}", own, [result["also"][further] for result in own], {"also": further})
    return rows


def _rows(name: str, own: Sequence[Found], parts: Sequence[Found], more: Found) -> list[dict[str, Any]]:
    """An evaluation of an arm, and its controls."""
    versus = parts[0].get("kind") == "versus"  # runs of earlier versions do not say
    rows = [{**_row(name, own, [part["main"] for part in parts], versus), **more, "by_class": _classes(parts)}]
    for control in parts[0]["controls"]:
        label = f"{name}, {CONTROL_NAMES.get(control, control)}"
        row = _row(label, own, [part["controls"][control] for part in parts], versus)
        rows.append({**row, **more, "control": control})
    return rows


def _classes(parts: Sequence[Found]) -> dict[str, list[float]]:
    """Task class -> p@k, the mean over seeds: each plays the same tasks. Empty where all tasks are of one class."""
    classes = set.intersection(*(set(part.get("by_class", ())) for part in parts))  # none in runs of earlier versions
    shares = {name: zip(*(part["by_class"][name]["p"] for part in parts), strict=True) for name in classes}
    found = {name: [sum(each) / len(each) for each in shares[name]] for name in sorted(classes)}
    return found if len(classes) > 1 else {}


def _row(name: str, own: Sequence[Found], summaries: Sequence[Found], versus: bool) -> dict[str, Any]:
    episodes = len(summaries[0]["p"])
    shares = [sum(summary["p"][k] for summary in summaries) / len(summaries) for k in range(episodes)]
    measure = "returns" if versus else "p"
    return {
        "method": name,
        "p": shares,
        "ci": [list(bounds) for bounds in _intervals(shares, summaries, versus)],
        "best": [sum(s.get("best", s["p"])[k] for s in summaries) / len(summaries) for k in range(episodes)],
        **({"games": _games(summaries)} if versus else {}),
        "tasks": summaries[0]["trials"],
        "valid": sum(summary["valid"] for summary in summaries) / len(summaries),
        "failed": sum(summary.get("failed", 0) for summary in summaries),
        "failure": next((summary["failure"] for summary in summaries if summary.get("failure")), ""),
        "seeds": {str(result["seed"]): summary[measure] for result, summary in zip(own, summaries, strict=True)},
        "updates": own[0]["updates"],
        "minutes": sum(result["seconds"] for result in own) / len(own) / 60,
    }


def _intervals(shares: Sequence[float], summaries: Sequence[Found], versus: bool) -> list[tuple[float, float]]:
    """Of p@1 … p@N. Without outcomes (results of earlier versions), as if all seeds had solved the same tasks."""
    intervals = None if versus else over_seeds(summaries)
    if intervals is not None:
        return intervals
    worth = [summary.get("effective") or [summary["trials"]] * len(shares) for summary in summaries]
    return [wilson(share * min(each), min(each)) for share, each in zip(shares, zip(*worth, strict=True), strict=True)]


def _games(summaries: Sequence[Found]) -> list[dict[str, float] | None]:
    """Of games against somebody, for each episode: the mean return over seeds, half its interval, and the share won."""
    over_all = over_seeds(summaries, versus=True)
    games: list[dict[str, float] | None] = []
    for n in range(len(summaries[0]["p"])):
        played = [summary for summary in summaries if summary["returns"][n] is not None]
        if not played:
            games.append(None)
            continue
        intervals = [summary["returns_ci"][n] or (math.nan, math.nan) for summary in played]
        half = math.hypot(*((high - low) / 2 for low, high in intervals)) / len(played)  # each seed on its own
        mean = sum(summary["returns"][n] for summary in played) / len(played)
        won = sum(summary["won"][n] for summary in played) / len(played)
        games.append({"return": mean, "half": (over_all[n][1] - over_all[n][0]) / 2 if over_all else half, "won": won})
    return games


def markdown(rows: Sequence[Found]) -> str:
    """The rows as a Markdown table: p@k in percent with half-intervals, and the last p@k of each seed; of games the
    return in each episode, and the share won. Below it what failed for reasons outside the agents."""
    episodes, most = len(rows[0]["p"]), max(len(row["p"]) for row in rows)
    versus = "games" in rows[0]
    named = "episode " if versus else "p@"
    titles = ["arm", *(f"{named}{k}" for k in range(1, most + 1)), f"{named}{episodes} by seed", "updates", "minutes"]
    scored = not versus and any(map(pays_in_part, rows))
    titles += ["score@1", f"score@{episodes}"] if scored else []
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        shares = _shares(row)
        shares += [""] * (most - len(shares))
        seeds = " / ".join(_last(own, episodes, versus) for own in row["seeds"].values() if len(own) >= episodes)
        is_again = "control" in row or "also" in row
        spent = "" if is_again else f"{row['minutes']:.1f}"
        updates = "" if is_again else str(row["updates"])
        best = [f"{100 * row['best'][0]:.1f}", f"{100 * row['best'][:episodes][-1]:.1f}"] if scored else []
        lines.append("| " + " | ".join([row["method"], *shares, seeds, updates, spent, *best]) + " |")
    return "\n".join([*lines, *_by_class(rows), *_failures(rows)]) + "\n"


def _shares(row: Found) -> list[str]:
    """What an arm reached in each episode, or within the first k."""
    if "games" in row:
        return ["" if game is None else _game(game) for game in row["games"]]
    return [f"{100 * p:.1f} ± {50 * (ci[1] - ci[0]):.1f}" for p, ci in zip(row["p"], row["ci"], strict=True)]


def _game(game: Found) -> str:
    half = f" ± {game['half']:.2f}" if math.isfinite(game["half"]) else ""
    return f"{game['return']:+.2f}{half}, won {100 * game['won']:.0f} %"


def _last(own: Sequence[float | None], episodes: int, versus: bool) -> str:
    value = own[episodes - 1]
    return "–" if value is None else f"{value:+.2f}" if versus else f"{100 * value:.1f}"


def _failures(rows: Sequence[Found]) -> list[str]:
    """What the table alone would hide."""
    said = [
        f"{row['method']}: {row['failed']} trials failed for reasons outside the agent, "
        f"{what_failed(row, versus='games' in row)}"
        for row in rows
        if row.get("failed")
    ]
    return ["", *said] if said else []


def _by_class(rows: Sequence[Found]) -> list[str]:
    """A second table where tasks are of several classes: p@1 / p@2 / … for each."""
    mixed = [row for row in rows if row.get("by_class")]
    if not mixed:
        return []
    classes = sorted({name for row in mixed for name in row["by_class"]})
    lines = ["", "| arm, p@k by task class | " + " | ".join(classes) + " |", "|" + "---|" * (len(classes) + 1)]
    for row in mixed:
        shares = [" / ".join(f"{100 * p:.1f}" for p in row["by_class"].get(name, ())) for name in classes]
        lines.append("| " + " | ".join([row["method"], *shares]) + " |")
    return lines
