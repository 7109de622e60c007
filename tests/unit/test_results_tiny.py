"""What the documents say of tiny models, the demonstration and the benchmarks is what was kept of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mulligan.sweep.arms import read_sweep
from mulligan.sweep.results import combine

ROOT = Path(__file__).parents[2]
ABLATIONS = json.loads((ROOT / "results" / "ablations" / "arms.json").read_text())


def _cells(own):
    """The figures of an ablation's row."""
    row, control = combine(own)
    cells = [f"{100 * p:.1f} ± {50 * (high - low):.1f}" for p, (low, high) in zip(row["p"], row["ci"], strict=True)]
    cells += [f"{100 * control['p'][-1]:.1f}", " / ".join(f"{100 * p[-1]:.1f}" for p in row["seeds"].values())]
    return " | ".join(cells)


@pytest.mark.parametrize(
    "arm", read_sweep(ROOT / "results" / "ablations" / "sweep.toml").arms, ids=lambda arm: arm.name
)
def test_every_ablation_is_in_the_document_with_the_figures_of_its_runs(arm):
    own = sorted((result for result in ABLATIONS if result["name"] == arm.name), key=lambda result: result["seed"])
    assert f"| {_cells(own)} |" in (ROOT / "docs" / "ablations.md").read_text()
    # The runs were made with the arm's settings.
    for key, value in arm.settings.items():
        assert all(result["settings"][key] == value for result in own)


DEMO = {path.stem: json.loads(path.read_text()) for path in (ROOT / "results" / "demo").glob("*seed-*.json")}
EPISODES = json.loads((ROOT / "results" / "ablations" / "episodes.json").read_text())


@pytest.mark.parametrize("name", sorted({result["name"] for result in EPISODES}))
def test_what_more_trials_bring_is_told_as_it_was(name):
    said = (ROOT / "docs" / "ablations.md").read_text()
    own = sorted((result for result in EPISODES if result["name"] == name), key=lambda result: result["seed"])
    episodes = sum(result["episodes"] for result in own) / len(own)
    assert f"| {name} | {episodes:.0f} | {_cells(own)} |" in said
    arm = next(each for each in read_sweep(ROOT / "results" / "ablations" / "episodes.toml").arms if each.name == name)
    assert all(result["settings"][key] == value for result in own for key, value in arm.settings.items())


def test_the_gain_of_more_trials_is_that_of_the_runs():
    p3 = {(result["name"], result["seed"]): 100 * result["main"]["p"][2] for result in EPISODES}
    name = "meta-RL, reflection"
    apart = [p3[f"{name}, 12 trials", seed] - p3[name, seed] for seed in range(3)]
    said = f"{sum(apart) / 3:+.1f} points (by seed {', '.join(f'{points:+.1f}' for points in apart)})"
    assert said in (ROOT / "docs" / "ablations.md").read_text()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("meta-RL", "RL"),
        ("γ_traj 0", "RL"),
        ("meta-RL", "γ_traj 0"),
        ("meta-RL, reflection", "RL, reflection"),
        ("meta-RL, demonstrator without memory", "RL, demonstrator without memory"),
    ],
)
def test_the_differences_by_seed_are_those_of_the_runs(one, other):
    p3 = {name: {r["seed"]: r["main"]["p"][2] for r in ABLATIONS if r["name"] == name} for name in (one, other)}
    apart = [100 * (p3[one][seed] - p3[other][seed]) for seed in sorted(p3[one].keys() & p3[other].keys())]
    said = f"{sum(apart) / len(apart):+.1f} points (by seed {', '.join(f'{points:+.1f}' for points in apart)})"
    assert said in (ROOT / "docs" / "ablations.md").read_text()


def test_the_figures_of_performance_are_those_of_the_benchmarks():
    kept = " ".join(path.read_text() for path in (ROOT / "results" / "h200-engine").glob("*.txt"))
    said = (ROOT / "docs" / "performance.md").read_text()
    numbers = set(re.findall(r"\d{1,3}(?:,\d{3})+", said))
    assert len(numbers) > 10
    assert not [number for number in numbers if number not in kept]


def test_the_demonstration_is_told_as_it_was_on_every_processor():
    said = " ".join((ROOT / "README.md").read_text().split())
    points = {name: f"{run['gap']['points']:.1f}" for name, run in DEMO.items()}
    for kind in ("", "other-x86-"):
        first, second, third = (points.pop(f"{kind}seed-{seed}") for seed in range(3))
        assert f"{first}, {second} and {third}" in said
    assert f"the first to {points.pop('arm-seed-0')} on Arm" in said
    assert not points
    gaps = [run["gap"] for run in DEMO.values()]
    assert f"{sum(gap['points'] for gap in gaps) / len(gaps):.1f} is the mean of all seven" in said
    assert f"the smallest interval begins at {min(gap['ci'][0] for gap in gaps):.1f}" in said
