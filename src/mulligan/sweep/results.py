"""What the arms of a sweep found, over seeds: plain data, and the table that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.eval.passk import wilson
from mulligan.report.tables import CONTROL_NAMES, pays_in_part

Found = Mapping[str, Any]


def combine(found: Sequence[Found]) -> list[dict[str, Any]]:
    """One row an arm, and one for each of its controls and further evaluations, in the order of `found`.

    p@k is the mean over seeds; its interval is Wilson's over the trials of all seeds, as if all were independent. All
    seeds play the same tasks, and training differs from seed to seed: look at `seeds` for how far they are apart.
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
    rows = [{**_row(name, own, [part["main"] for part in parts]), **more, "by_class": _classes(parts)}]
    for control in parts[0]["controls"]:
        label = f"{name}, {CONTROL_NAMES.get(control, control)}"
        row = _row(label, own, [part["controls"][control] for part in parts])
        rows.append({**row, **more, "control": control})
    return rows


def _classes(parts: Sequence[Found]) -> dict[str, list[float]]:
    """Task class -> p@k, the mean over seeds: each plays the same tasks. Empty where all tasks are of one class."""
    classes = set.intersection(*(set(part.get("by_class", ())) for part in parts))  # none in runs of earlier versions
    shares = {name: zip(*(part["by_class"][name]["p"] for part in parts), strict=True) for name in classes}
    found = {name: [sum(each) / len(each) for each in shares[name]] for name in sorted(classes)}
    return found if len(classes) > 1 else {}


def _row(name: str, own: Sequence[Found], summaries: Sequence[Found]) -> dict[str, Any]:
    trials = sum(summary["trials"] for summary in summaries)
    episodes = len(summaries[0]["p"])
    solved = [sum(round(summary["p"][k] * summary["trials"]) for summary in summaries) for k in range(episodes)]
    return {
        "method": name,
        "p": [count / trials for count in solved],
        "ci": [list(wilson(count, trials)) for count in solved],
        "best": [sum(s.get("best", s["p"])[k] for s in summaries) / len(summaries) for k in range(episodes)],
        "tasks": summaries[0]["trials"],
        "valid": sum(summary["valid"] for summary in summaries) / len(summaries),
        "seeds": {str(result["seed"]): summary["p"] for result, summary in zip(own, summaries, strict=True)},
        "updates": own[0]["updates"],
        "minutes": sum(result["seconds"] for result in own) / len(own) / 60,
    }


def markdown(rows: Sequence[Found]) -> str:
    """The rows as a Markdown table, p@k in percent with half-intervals, and the last p@k of each seed."""
    episodes, most = len(rows[0]["p"]), max(len(row["p"]) for row in rows)
    titles = ["arm", *(f"p@{k}" for k in range(1, most + 1)), f"p@{episodes} by seed", "updates", "minutes"]
    scored = any(map(pays_in_part, rows))
    titles += ["score@1", f"score@{episodes}"] if scored else []
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        shares = [f"{100 * p:.1f} ± {50 * (ci[1] - ci[0]):.1f}" for p, ci in zip(row["p"], row["ci"], strict=True)]
        shares += [""] * (most - len(shares))
        seeds = " / ".join(f"{100 * own[episodes - 1]:.1f}" for own in row["seeds"].values() if len(own) >= episodes)
        is_again = "control" in row or "also" in row
        spent = "" if is_again else f"{row['minutes']:.1f}"
        updates = "" if is_again else str(row["updates"])
        best = [f"{100 * row['best'][0]:.1f}", f"{100 * row['best'][:episodes][-1]:.1f}"] if scored else []
        lines.append("| " + " | ".join([row["method"], *shares, seeds, updates, spent, *best]) + " |")
    return "\n".join([*lines, *_by_class(rows)]) + "\n"


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
