"""The published room of Sokoban in the dark is the one that its command has printed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_results_page_repeats_the_room() -> None:
    rows = [line for line in (ROOT / "results/sokoban-dark/room.md").read_text().splitlines() if " → " in line]
    page = (ROOT / "docs/results.md").read_text().splitlines()
    assert [line for line in page if " → " in line and line.startswith("|")] == [row for row in rows if row[0] == "|"]
