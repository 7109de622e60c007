"""Gathers evaluations against opponents into table.json, and makes table.md and the pictures of it.

    python results/opponents/collect.py runs/kuhn runs/rps runs/leduc        # folders of sweeps, or of evaluations
    python results/opponents/collect.py results/opponents/table.json runs/more
    python results/opponents/collect.py                                      # table.md and pictures anew

A row is an episode of an evaluation: `hand` counts from 1, and `value` weighs opponents and seats as they are drawn, as
`static`, `optimal`, `clairvoyant` and `share` do (`mulligan.eval.ceilings`). `opponents` is "unseen" where the
evaluation's name says so (``[also.unseen]`` of a sweep, a folder ``…unseen…``), or its parameters do (opponent=unseen,
or a pool of others that the agent is to expect); otherwise "seen". An arm's own evaluation, against the opponents of
its training, has no rows where the sweep evaluates it against ``seen`` too. Controls are methods of their own:
"meta-RL, history, memory of another opponent". Later rows replace earlier ones of the same game, method, opponents,
seed and hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mulligan.app.sweep.arms import RESULT, WARM_START
from mulligan.app.sweep.rows import EVALUATION, as_table
from mulligan.report.files import replace_file
from mulligan.report.run import RunFolder
from mulligan.text import markdown_row

HERE = Path(__file__).parent
CEILINGS = ("static", "optimal", "clairvoyant")
IDENTITY = ("game", "method", "opponents", "seed", "hand")
CONTROLS = {
    "independent": "without memory",
    "removed": "reflections removed",
    "foreign": "memory of another opponent",
    "told": "opponent told",
}
Row = dict[str, Any]


def main(paths: list[Path]) -> None:
    rows = read(paths or [HERE / "table.json"])
    replace_file(HERE / "table.json", as_table(rows).encode())
    replace_file(HERE / "table.md", text(rows).encode())
    sys.stdout.write(text(rows))
    import pictures  # beside this file; matplotlib takes a second

    pictures.draw(rows, HERE)


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of tables, and of the evaluations below folders, in a fixed order."""
    rows: dict[tuple[Any, ...], Row] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else rows_below(path):
            rows[tuple(row[name] for name in IDENTITY)] = row
    return [rows[key] for key in sorted(rows)]


def rows_below(folder: Path) -> Iterator[Row]:
    files = sorted((*folder.rglob(RESULT), *folder.rglob(EVALUATION)))
    if not files:
        sys.exit(
            f"{folder} holds no results: give a sweep's folder ({RESULT} in its arms) or an evaluation's ({EVALUATION})"
        )
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        yield from arm_rows(data, file.parent) if file.name == RESULT else result_rows(data, file.parent)


def arm_rows(arm: Mapping[str, Any], folder: Path) -> Iterator[Row]:
    """The rows of an arm of a sweep: its own evaluation, and the further ones."""
    if arm["name"].startswith(WARM_START):
        return
    task, further = RunFolder.open(folder).config()["task"], arm.get("also", {})
    evaluations = further if any(name.startswith("seen") for name in further) else {"": arm, **further}
    for name, evaluation in evaluations.items():
        opponents = "unseen" if "unseen" in name or is_unseen(task.get("params", {})) else "seen"
        method = ", ".join([arm["name"], *(word for word in name.split(", ") if word not in ("", "seen", "unseen"))])
        named = {"game": task["env"], "method": method, "opponents": opponents, "seed": arm["seed"]}
        yield from evaluation_rows(evaluation["main"], evaluation["controls"], named)


def result_rows(result: Mapping[str, Any], folder: Path) -> Iterator[Row]:
    """The rows of ``mulligan eval``."""
    is_stranger = "unseen" in folder.name or is_unseen(result["params"])
    seed = RunFolder.open(folder).config()["seed"]
    named = {"game": result["env"], "method": result["policy"], "opponents": "unseen" if is_stranger else "seen"}
    yield from evaluation_rows(result, result["controls"], {**named, "seed": seed})


def is_unseen(params: Mapping[str, Any]) -> bool:
    opponent, pool = params.get("opponent"), params.get("pool")
    return opponent == "unseen" or bool(pool and pool != opponent)


def evaluation_rows(main: Mapping[str, Any], controls: Mapping[str, Any], named: Row) -> Iterator[Row]:
    """The rows of an evaluation, then those of its controls."""
    ceilings = main.get("ceilings") or {}
    yield from episode_rows(main, ceilings, named)
    for name, summary in controls.items():
        if name in CONTROLS and summary["trials"]:
            shares = ceilings.get("controls", {}).get(name, {})
            exact = {each: ceilings[each] for each in CEILINGS if each in ceilings}
            yield from episode_rows(
                summary, {**exact, **shares}, {**named, "method": f"{named['method']}, {CONTROLS[name]}"}
            )


def episode_rows(summary: Mapping[str, Any], ceilings: Mapping[str, Any], named: Row) -> Iterator[Row]:
    """A row for each episode; without ceilings the value is the mean return, and there is no share."""
    for number, mean in enumerate(summary["returns"]):
        share = ceilings["share"][number] if "share" in ceilings else None
        value = ceilings["value"][number] if "value" in ceilings else None
        if value is None and share is not None:  # of a control the share alone is kept
            value = ceilings["static"][number] + share * (ceilings["optimal"][number] - ceilings["static"][number])
        yield {
            **named,
            "hand": number + 1,
            "value": mean if value is None else value,
            **{name: ceilings[name][number] if name in ceilings else None for name in CEILINGS},
            "share": share,
            "share_ci": ceilings["share_ci"][number] if "share_ci" in ceilings else None,
            "won": summary["won"][number],
            "is_exact": bool(summary["exact"][number]) if summary.get("exact") else False,
            "tasks": summary["trials"],
        }


def text(rows: Iterable[Row]) -> str:
    """A line for each game, method and opponents: value and share of the room at the last hand, the mean over seeds."""
    last: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:  # hands in order: the last one stays
        last.setdefault((row["game"], row["opponents"], row["method"]), {})[row["seed"]] = row
    columns = ("game", "opponents", "method", "hand", "value", *CEILINGS, "share of the room", "by seed")
    lines = [markdown_row(columns), "|---" * len(columns) + "|"]
    for (game, opponents, method), seeds in sorted(last.items()):
        figures = [mean_of(seeds, name) for name in ("value", *CEILINGS, "share")]
        cells = ["" if each is None else f"{each:.3f}" for each in figures[:-1]]
        cells += ["" if figures[-1] is None else f"{100 * figures[-1]:.0f} %"]
        by_seed = ["–" if row["share"] is None else f"{100 * row['share']:.0f}" for _, row in sorted(seeds.items())]
        hand = str(max(row["hand"] for row in seeds.values()))
        lines.append(markdown_row([game, opponents, method, hand, *cells, " / ".join(by_seed)]))
    return "\n".join(lines) + "\n"


def mean_of(seeds: Mapping[int, Row], name: str) -> float | None:
    values = [row[name] for row in seeds.values() if row[name] is not None]
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
