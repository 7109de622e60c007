"""What docs/results.md says of ALFWorld and WebShop is what was kept of their runs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from mulligan.eval.passk import wilson
from mulligan.sweep.results import combine

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["warm start", "RL", "meta-RL"])
def test_alfworld_with_a_tiny_model_is_told_as_it_was(name):
    folder = ROOT / "results" / "alfworld-cpu"
    found = json.loads((folder / "arms.json").read_text())["arms"]
    own = sorted((result for result in found if result["name"] == name), key=lambda result: result["seed"])
    assert len(own) == 2
    p = [f"{50 * sum(each):.1f}" for each in zip(*(result["p"] for result in own), strict=True)]
    seeds = " / ".join(f"{100 * result['p'][-1]:.1f}" for result in own)
    alone = f"{50 * sum(result['independent'][-1] for result in own):.1f}"
    said = (folder / "README.md").read_text().replace("*", "")
    low, high = wilson(round(sum(512 * result["p"][-1] for result in own)), 1024)
    assert f"| {name} | {p[0]} | {p[1]} | {p[2]} ± {50 * (high - low):.1f} | {seeds} | {alone} |" in said
    if name != "warm start":
        document = (ROOT / "docs" / "results.md").read_text()
        assert f"{name} {p[2]}" in document
        assert alone in document


@pytest.mark.parametrize("folder", ["alfworld-cpu", "h200-alfworld"])
def test_alfworlds_tables_are_those_of_the_rows(folder):
    own = ROOT / "results" / folder
    found = json.loads((own / "arms.json").read_text())
    table = runpy.run_path(str(ROOT / "results" / "alfworld-cpu" / "collect.py"))["table"]
    assert table(found["arms"], found["scripted"]) == (own / "table.md").read_text()


@pytest.mark.parametrize("name", ["warm start", "RL, GiGPO", "meta-RL, reflection", "meta-RL, history"])
def test_alfworld_with_a_language_model_is_told_as_it_was(name):
    found = json.loads((ROOT / "results" / "h200-alfworld" / "arms.json").read_text())["arms"]
    own = [result for result in found if result["name"] == name]

    assert len(own) == 2

    def mean(values):
        values = list(values)
        return f"{100 * sum(values) / len(values):.1f}"

    p = [mean(each) for each in zip(*(result["p"] for result in own), strict=True)]
    low, high = wilson(round(sum(512 * result["p"][-1] for result in own)), 512 * len(own))
    cells = [name, *p[:-1], f"{p[-1]} ± {50 * (high - low):.1f}", mean(result["independent"][-1] for result in own)]
    for further in ("cool", "pick2", "unseen rooms", "valid_seen"):
        known = [result["also"][further]["p"][-1] for result in own if further in result["also"]]
        cells.append(mean(known) if known else "")
    said = (ROOT / "docs" / "results.md").read_text().replace("*", "")
    assert f"| {' | '.join(cells)} |".replace("  ", " ") in said


@pytest.mark.parametrize("name", ["warm start", "RL", "meta-RL"])
def test_webshop_with_a_tiny_model_is_told_as_it_was(name):
    folder = ROOT / "results" / "webshop-cpu"
    own = [result for result in json.loads((folder / "arms.json").read_text()) if result["name"] == name]
    assert len(own) == 2
    row, control = combine(own)[:2]
    p = [f"{100 * each:.1f}" for each in row["p"]]
    half = 50 * (row["ci"][-1][1] - row["ci"][-1][0])
    alone = f"{100 * control['p'][-1]:.1f}"
    said = (folder / "README.md").read_text().replace("*", "")
    assert f"| {name} | {p[0]} | {p[1]} | {p[2]} ± {half:.1f} | {alone} |" in said
    if name != "warm start":
        document = (ROOT / "docs" / "results.md").read_text()
        assert f"{name} {p[2]}" in document
        assert alone in document


@pytest.mark.parametrize("name", ["warm start", "RL, GiGPO", "meta-RL, reflection"])
def test_webshop_with_a_language_model_is_told_as_it_was(name):
    found = json.loads((ROOT / "results" / "h200-webshop" / "arms.json").read_text())
    own = [result for result in found if result["name"] == name]
    assert len(own) == 2
    row, control = combine(own)[:2]
    half = 50 * (row["ci"][-1][1] - row["ci"][-1][0])
    cells = [f"{100 * each:.1f}" for each in (*row["p"], control["p"][-1])]
    cells[2] += f" ± {half:.1f}"
    scores = [[result["score"][key] for result in own] for key in ("first", "best", "bought_again")]
    cells += [f"{50 * sum(each):.1f}" for each in scores[:2]] + [f"{50 * sum(scores[2]):.0f} %"]
    said = (ROOT / "docs" / "results.md").read_text().replace("*", "")
    assert f"| {name} | {' | '.join(cells)} |" in said


def test_webshops_tables_are_those_of_the_rows():
    table = runpy.run_path(str(ROOT / "results" / "webshop-cpu" / "collect.py"))["table"]
    for folder in (ROOT / "results" / "webshop-cpu", ROOT / "results" / "h200-webshop"):
        assert table(json.loads((folder / "arms.json").read_text())) == (folder / "table.md").read_text()


def test_webshop_against_the_original_is_told_as_it_was():
    said = (ROOT / "docs" / "adapters.md").read_text()
    record = (ROOT / "results" / "environments" / "webshop-reward.txt").read_text()
    rows = [re.split(" {2,}", line.strip().replace(",", "")) for line in record.split("\n")]
    goals, *made = [[int(cell) for cell in row[1:]] for row in rows if row[-1].isdigit()]
    assert f"{goals[0]:,} goals" in said
    plainly, tagged = made[:10], made[10:20]
    assert not any(sum(row[1:6]) for row in plainly), "nothing differs but on purpose"
    assert f"{plainly[-1][0]:,} purchases" in said
    assert f"For {plainly[0][6]} of its {plainly[0][0]:,} template goals" in said
    others = [sum(row[column] for row in tagged[5:9]) for column in range(7)]
    decided, differs, small, middle = (others[column] / others[0] for column in (1, 2, 5, 6))
    assert f"in {decided:.0%} of purchases".replace("%", " %") in said
    assert f"it differs in {100 * differs:.1f} %" in said
    assert f"small tagger: {100 * small:.1f} %, the small one and the middle one: {100 * middle:.1f} %" in said
