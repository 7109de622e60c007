"""Writes the tables of a script here: NAME.json for programs, NAME.md for people, beside the script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def write(script: str, command: str, tables: dict[str, Rows]) -> None:
    """Write the tables, by title, under the script's own name."""
    path = Path(script)
    path.with_suffix(".json").write_text(json.dumps({"command": command, "tables": tables}, indent=1) + "\n")
    lines = [f"Made by `{command}`.", ""]
    for title, rows in tables.items():
        lines += [f"**{title}**", "", _line(rows[0]), _line("---" for _ in rows[0])]
        lines += [*(_line(row.values()) for row in rows), ""]
    path.with_suffix(".md").write_text("\n".join(lines))


def _line(cells: Any) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    if isinstance(value, list):  # mean, low, high
        return f"{value[0]:.0f} ({value[1]:.0f} – {value[2]:.0f})"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 90 else _whole(value)


def _whole(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
