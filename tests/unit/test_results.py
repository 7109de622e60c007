"""What docs/results.md and the README say of a real language model is what was kept of its runs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from mulligan.sweep.arms import plan_work, read_sweep
from mulligan.train.resolve import resolve

ROOT = Path(__file__).parents[2]
PILOT = ROOT / "results" / "h200-smollm2" / "pilot"
MANY = "as many episodes, meta-RL, reflection"


@pytest.mark.parametrize(
    "folder", [".", "sokoban-boards", "sokoban-cells", "sokoban-hopeless", "sokoban-longer", "sokoban-sure"]
)
def test_the_tables_are_those_of_the_rows(folder):
    """table.md is what collect.py makes of table.json."""
    found, own = runpy.run_path(str(PILOT.parent / "collect.py")), PILOT.parent / folder
    rows = json.loads((own / "table.json").read_text())
    tables = [
        f"# {game}\n\n{found['table'](these)}\n{found['further_table'](these)}"
        for game, these in found["by_game"](rows).items()
    ]
    assert "\n".join(tables) == (own / "table.md").read_text()


def test_rows_of_another_machine_join_those_that_are_kept():
    """A seed made later stands beside the earlier ones of its arm; one that was made again replaces what was there."""
    together = runpy.run_path(str(PILOT.parent / "collect.py"))["together"]
    kept = [{"env": "a", "name": name, "seed": seed, "p": 0} for name in ("RL", "meta-RL") for seed in (0, 2)]
    new = [{"env": "a", "name": "meta-RL", "seed": 1, "p": 1}, {"env": "a", "name": "RL", "seed": 2, "p": 1}]
    rows = [(row["name"], row["seed"], row["p"]) for row in together(kept, new)]
    assert rows == [("RL", 0, 0), ("RL", 2, 1), ("meta-RL", 0, 0), ("meta-RL", 1, 1), ("meta-RL", 2, 0)]


@pytest.mark.parametrize("first", [0, 1])
def test_an_evaluation_that_only_some_seeds_have_is_told_of_those(first):
    further_table = runpy.run_path(str(PILOT.parent / "collect.py"))["further_table"]
    rows = [{"name": "RL", "also": {}}, {"name": "RL", "also": {"notes": {"p": [0.25, 0.5], "controls": {}}}}]
    assert further_table([rows[first], rows[1 - first]]).endswith("| RL | notes | 1 | 25.0 / 50.0 |\n")


@pytest.mark.parametrize(
    ("game", "meta", "best", "place"),
    [
        ("minesweeper", "meta-RL, reflection", "RL, PPO", "here"),
        ("sokoban", MANY, "RL, RLOO", "on Sokoban"),
    ],
)
def test_what_the_best_estimator_leaves_is_told_as_it_is(game, meta, best, place):
    """The best of all estimators, with whichever memory, or none."""
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    rows = [row for row in json.loads((PILOT.parent / "table.json").read_text()) if row["env"] == game]
    trained = [100 * row["p"][2] for row in rows if row["name"] == meta]
    rl = [row for row in rows if row["name"].startswith("RL, ")]  # on the same tasks, from the same demonstrator
    reached = {name: [row for row in rl if row["name"] == name] for name in {row["name"] for row in rl}}
    shares = {
        name: max(
            sum(100 * of(row) for row in own) / len(own)
            for of in (lambda row: row["p"][2], lambda row: row["retry"], lambda row: row["also"]["history"]["p"][2])
        )
        for name, own in reached.items()
    }
    assert max(shares, key=shares.__getitem__) == best
    assert f"RL's best p@3 {place}: {shares[best]:.1f}" in said
    assert f"{sum(trained) / len(trained) - shares[best]:.1f} points above th" in said


def test_how_diverse_the_estimators_leave_first_attempts_is_told_as_it_is():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    rows = json.loads((PILOT.parent / "table.json").read_text())
    rl = [row for row in rows if row["env"] == "minesweeper" and row["name"].startswith("RL, ")]
    final = sorted(row["diversity"][-1] for row in rl if row["seed"] == 0)
    assert f"with {final[-1]:.2f} and {final[-2]:.2f} nats" in said
    assert f"with {final[0]:.2f} to {final[-3]:.2f}" in said
    meta, ours, rloo, grpo = (
        next(row["diversity"][-1] for row in rows if row["env"] == "sokoban" and row["name"] == name)
        for name in (f"{MANY}, RLOO", MANY, "RL, RLOO", "RL, GRPO")
    )
    assert f"({meta:.2f} nats and {ours:.2f})" in said
    assert f"({rloo:.2f} against {grpo:.2f} with GRPO" in said


@pytest.mark.parametrize(
    ("game", "words"), [("minesweeper", "seed's main runs together took {}"), ("sokoban", "seed's runs together {}")]
)
def test_what_a_seed_of_a_game_took_is_told_as_it_is(game, words):
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    rows = [row for row in json.loads((PILOT.parent / "table.json").read_text()) if row["env"] == game and row["main"]]
    took = []
    for seed in range(3):
        warm, trained = ([r["minutes"] for r in rows if r["seed"] == seed and (r["updates"] > 0) == t] for t in (0, 1))
        took.append(max(warm) + max(trained))
    assert words.format(f"{min(took):.0f} to {max(took):.0f} minutes") in said


@pytest.mark.parametrize("name", ["18-demonstrator", "19-demonstrator"])
def test_how_far_unfinished_runs_came_is_told_as_it_was(name):
    said = (ROOT / "docs" / "results.md").read_text()
    (path,) = (
        path for each in ("metrics", "unfinished") for path in (PILOT.parent / each).glob(f"minesweeper-{name}*seed0*")
    )
    lines = map(json.loads, path.read_text().splitlines())
    found = {line["update"]: line["validation/p@3"] for line in lines if "validation/p@3" in line}
    cells = [f"{100 * found[update]:.1f}" if update in found else "" for update in (0, 10, 20, 30, 40, 80)]
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in said.splitlines()]
    assert cells in [line[1:] for line in told]


def test_after_the_same_time_is_told_as_it_was():
    table = runpy.run_path(str(PILOT.parent / "wall_time.py"))["table"]()
    assert table == (PILOT.parent / "wall-time.md").read_text()
    assert table in (ROOT / "docs" / "results.md").read_text()


def test_the_room_is_what_scripted_players_reach():
    found = (PILOT.parent / "room.md").read_text().splitlines(keepends=True)[2:]
    said = (ROOT / "docs" / "results.md").read_text()
    assert all(line in said for line in found)
    assert found[:5] == runpy.run_path(str(PILOT.parent / "room.py"))["rows"]("minesweeper")
    reached = {line.split("|")[2].strip(): float(line.split("|")[6].split("±")[0]) for line in found[:5]}
    gain = reached["expert with perfect memory"] - reached["expert without memory"]
    assert f"adds to three attempts is {gain:.1f} points" in said
    assert "from {demonstrator without memory} to {demonstrator with perfect memory}".format_map(reached) in said


TABLES = [
    line
    for folder in (".", "sokoban-sure")
    for line in (PILOT.parent / folder / "table.md").read_text().splitlines()
    if re.match(r"\|.*\d", line)
]


@pytest.mark.parametrize("line", TABLES)
def test_every_row_made_on_the_gpu_is_in_the_document(line):
    assert line in (ROOT / "docs" / "results.md").read_text()


def test_the_rows_of_the_readme_are_those_of_the_document():
    readme = (ROOT / "README.md").read_text().replace("*", "")
    section = readme.partition("## With a real language model")[2].partition("## A frozen model")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if " ± " in line]
    made = [[cell.strip() for cell in line.strip("| ").split("|")] for line in TABLES]
    assert len(rows) >= 3
    assert all(row in [[*cells[:5], cells[6]] for cells in made if len(cells) == 8] for row in rows)


@pytest.mark.parametrize("row", json.loads((PILOT / "table.json").read_text()), ids=lambda row: row["name"])
def test_the_pilot_is_told_as_it_was(row):
    low, high = row["ci"][-1]
    cells = [f"{100 * p:.1f}" for p in row["p"]]
    cells[-1] += f" ± {50 * (high - low):.1f}"
    cells += [f"{100 * row['retry']:.1f}", f"{100 * row['again_on_a_known_mine']:.0f} %"]
    assert f"| {' | '.join(cells)} |" in (ROOT / "docs" / "results.md").read_text().replace("*", "")


def test_the_front_page_has_the_other_games_as_they_came_out():
    """p@3 of RL and meta-RL, each with the better memory."""
    kept = {
        "ALFWorld": json.loads((ROOT / "results" / "h200-alfworld" / "arms.json").read_text())["arms"],
        "WebShop": [
            {**row, "p": row["main"]["p"]}
            for row in json.loads((ROOT / "results" / "h200-webshop" / "arms.json").read_text())
        ],
        "Sokoban": [row for row in json.loads((PILOT.parent / "table.json").read_text()) if row["env"] == "sokoban"],
    }
    front = (ROOT / "README.md").read_text().replace("*", "")
    for game, rows in kept.items():
        found: dict[str, list[list[float]]] = {}
        for row in rows:
            also = row.get("also", {}).get("history", {})
            found.setdefault(row["name"], []).append(row["p"])
            if row["name"] == "RL, GiGPO" and also:
                found.setdefault("RL, history", []).append(also.get("main", also)["p"])
        mean = {name: 100 * sum(p[-1] for p in own) / len(own) for name, own in found.items()}
        rl = max(mean[name] for name in mean if name in ("RL, GiGPO", "RL, history"))
        meta = {name: share for name, share in mean.items() if name in ("meta-RL, reflection", "meta-RL, history")}
        best = max(meta, key=meta.__getitem__)
        line = next(line for line in front.splitlines() if line.startswith(f"| [{game}]"))
        assert f"| {len(found['RL, GiGPO'])} | {rl:.1f} | {meta[best]:.1f} ({best.partition(', ')[2]}) |" in line
        others = max(share for name, share in mean.items() if name.startswith("RL"))
        assert f"{others:.1f}" in line


@pytest.mark.parametrize(
    "game",
    ["minesweeper", "sokoban", *(f"sokoban-{name}/sweep" for name in ("boards", "cells", "hopeless", "sure"))],
)
def test_the_sweeps_of_the_results_can_be_planned(game, tmp_path):
    sweep = read_sweep(ROOT / "results" / "h200-smollm2" / f"{game}.toml")
    work = plan_work(sweep, tmp_path)
    main = [each for each in work if each.name in ("RL, GiGPO", "meta-RL, reflection", "meta-RL, history")]
    assert len({each.after for each in main}) == len(sweep.seeds) == 3  # one warm start for all of a seed
    configs = [resolve(each.preset, None, each.settings) for each in main]
    assert len({config.run.updates for config in configs}) == 1
    assert len({config.run.group * config.trial.episodes for config in configs}) == 1
