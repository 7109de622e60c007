"""Who should write a frozen player's notes: each player's writers in FOLDER/table.json, side by side, as writers.md.

The rows of a player are paired by task and by seed; differences are to the untrained writer, which is what the trained
one was before its updates. "own notes" are those that the player writes itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mulligan.app.sweep.compare import compare
from mulligan.app.sweep.rows import WRITER, read_rows

ROWS = {
    "no notes": ", reflection removed",
    "notes of another task": ", foreign reflection",
    "plain model": ", plain model",
    "untrained writer": ", untrained writer",
    "scripted writer": ", scripted writer",
    "trained writer": "",
}
"""What each writer's row is called after the arm's name."""


def main() -> None:
    folder = Path(sys.argv[1])
    rows = read_rows([folder / "table.json"])
    parts = [f"Made by `python results/learned-notes/who_writes.py {sys.argv[1]}` from [`table.json`](table.json).\n"]
    for arm in dict.fromkeys(row["name"] for row in rows if row["method"] == WRITER):
        sections = compare(rows, f"{arm}, untrained writer")["sections"]
        parts += [_table(section, arm) for section in sections if arm in _by_name(section)]
    (folder / "writers.md").write_text("\n".join(parts), encoding="utf-8")


def _table(section: dict[str, Any], arm: str) -> str:
    found = _by_name(section)
    player = arm.removeprefix("writer for ").partition(",")[0]
    wanted = {name: found.get(arm + ending) for name, ending in ROWS.items()}
    wanted["own notes"] = found.get(player.removeprefix("the "))
    count, episodes = len(found[arm]["seeds"]), section["episodes"]
    shares = [f"p@{k}" for k in range(1, episodes + 1)]
    lines = [
        f"**{section['env']}, {arm}: {section['tasks']} tasks, {count} seed{'s' * (count > 1)}**\n",
        _line(["notes by", *shares, f"p@{episodes} by seed", f"p@{episodes} − untrained"]),
        _line(["---"] * (episodes + 3)),
    ]
    for name, row in wanted.items():
        if row is not None:
            figures = [
                f"{100 * p:.1f} ± {50 * (high - low):.1f}" for p, (low, high) in zip(row["p"], row["ci"], strict=True)
            ]
            by_seed = " / ".join(f"{100 * share:.1f}" for share in row["by_seed"])
            lines.append(_line([name, *figures, by_seed, _difference(row["difference"])]))
    return "\n".join(lines) + "\n"


def _difference(difference: dict[str, Any] | None) -> str:
    if difference is None or difference["ci"] is None:
        return ""
    low, high = difference["ci"]
    return f"{100 * difference['mean']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _by_name(section: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in section["rows"]}


if __name__ == "__main__":
    main()
