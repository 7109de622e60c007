"""The committed results are consistent: shares come from outcomes, tables from rows, and the README from tables."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.app.sweep.arms import plan_work, read_sweep
from mulligan.app.sweep.compare import compare
from mulligan.app.sweep.rows import read_rows
from mulligan.report.comparison import markdown
from mulligan.rollout.tasksets import tasks_of, world_key

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "results").rglob("table.json"))
OTHERS = ("exploration", "opponents", "population")  # of another kind: test_exploration.py, and below
TABLES = [path for path in TABLES if path.parent.name not in OTHERS]
SWEEPS = sorted((ROOT / "results").glob("*/*.toml"))


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT / "results")) for path in paths]


@pytest.mark.parametrize("table", TABLES, ids=named(TABLES))
def test_shares_are_those_of_the_outcomes(table: Path) -> None:
    for row in json.loads(table.read_text()):
        for part in (row, *row.get("also", {}).values()):
            outcomes = part["outcomes"]
            assert len(outcomes) == part["tasks"]
            shares = [sum(any(task[:k]) for task in outcomes) / len(outcomes) for k in range(1, len(part["p"]) + 1)]
            assert shares == pytest.approx(part["p"])


@pytest.mark.parametrize("table", TABLES, ids=named(TABLES))
def test_a_table_is_what_compare_makes_of_its_rows(table: Path) -> None:
    assert markdown(compare(read_rows([table]))) == (table.parent / "table.md").read_text()


@pytest.mark.parametrize("study", ["opponents", "population"])
def test_the_table_of_opponents_is_what_its_script_makes_of_its_rows(study: str) -> None:
    folder = ROOT / "results" / study
    script = runpy.run_path(str(ROOT / "results" / "opponents" / "collect.py"))
    rows = script["read"]([folder / "table.json"])
    assert script["text"](rows) == (folder / "table.md").read_text()
    for row in rows:
        if row["share"] is not None:
            room = row["optimal"] - row["static"]
            assert row["share"] == pytest.approx((row["value"] - row["static"]) / room)


@pytest.mark.parametrize("table", TABLES, ids=named(TABLES))
def test_rows_were_played_on_the_evaluation_set_as_it_is_now(table: Path) -> None:
    """A change of the split, of seeds or of worlds makes published figures those of other tasks."""
    rows = [row for row in json.loads(table.read_text()) if "settings" in row]
    assert {row["seed_set"] for row in rows} == {"eval"}
    for env in {row["env"] for row in rows}:
        row = next(row for row in rows if row["env"] == env)
        keys = [world_key(task) for task in tasks_of(env, 128, "eval", _params(row))]
        first = {key: index for index, key in reversed([*enumerate(keys)])}
        assert row.get("worlds", [*range(128)])[:128] == [first[key] for key in keys]


def _params(row: dict[str, Any]) -> dict[str, Any]:
    from mulligan.players import as_trained
    from mulligan.training.resolve import resolve

    changes = {name: value for name, value in row["settings"].items() if name != "preset"}
    return as_trained(resolve(row["settings"]["preset"], None, changes), row["env"])[1]


@pytest.mark.parametrize("sweep", SWEEPS, ids=named(SWEEPS))
def test_every_sweep_can_be_run(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # whose examples they name
    mulligan.trust("examples/i_spy.py")
    planned = read_sweep(sweep)
    if "expedition" not in planned.preset:  # whose worlds are few, and quickly drawn
        planned = replace(planned, tasks=8)
    assert plan_work(planned, tmp_path)


@pytest.mark.parametrize("document", ["README.md", "docs/results.md", "docs/ablations.md", "docs/exploration.md"])
def test_tables_of_the_documents_repeat_those_of_the_results(document: str) -> None:
    """Rows whose first cell names a row of a table, and whose shares are p@k with ±, are in a results table."""
    shown = [line for line in (ROOT / document).read_text().splitlines() if re.match(r"\|.*\d ± \d", line)]
    kept = {cells for table in (ROOT / "results").rglob("table.md") for cells in _rows(table.read_text())}
    assert shown
    assert [line for line in shown if _cells(line) not in kept] == []


def test_the_first_screen_is_what_the_demonstration_printed() -> None:
    printed = {line.strip() for line in (ROOT / "results" / "demo" / "seed-0.txt").read_text().splitlines()}
    shown = [line.strip() for line in (ROOT / "README.md").read_text().splitlines() if re.search(r"\d ±\d", line)]
    assert len(shown) == 7 + 4  # the demonstrator and six agents; in the second act, four agents
    assert [line for line in shown if line not in printed] == []


def _rows(text: str) -> list[tuple[str, ...]]:
    return [_cells(line) for line in text.splitlines() if " ± " in line]


def _cells(line: str) -> tuple[str, ...]:
    """A row's name and its shares, without emphasis."""
    cells = [cell.strip().replace("**", "") for cell in line.strip("| ").split("|")]
    return (cells[0], *(cell for cell in cells if " ± " in cell))


def test_the_table_of_bots_is_what_its_script_makes_of_its_rows_and_stands_in_the_docs() -> None:
    pytest.importorskip("pyspiel")
    folder = ROOT / "results" / "opponents"
    script = runpy.run_path(str(folder / "bots_rps.py"))
    rows = json.loads((folder / "bots.json").read_text())
    assert script["text"](rows) == (folder / "bots.md").read_text()
    figures, _, _ = script["text"](rows).partition("\n\n")
    assert figures in (ROOT / "docs" / "opponents.md").read_text()
