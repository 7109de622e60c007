"""What docs/results.md says of Sokoban is what was kept of its runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mulligan.sweep.arms import plan_work, read_sweep
from mulligan.train.resolve import resolve

ROOT = Path(__file__).parents[2]
PILOT = ROOT / "results" / "h200-smollm2" / "pilot"
MANY = "as many episodes, meta-RL, reflection"


@pytest.mark.parametrize("view", ["boards", "cells", "hopeless"])
def test_the_first_runs_of_sokoban_are_told_as_they_were(view):
    said = (ROOT / "docs" / "results.md").read_text()
    rows = json.loads((PILOT.parent / f"sokoban-{view}" / "table.json").read_text())
    trained = [row for row in rows if row["updates"] or row["name"] == "warm start"]
    for row in trained:
        low, high = row["ci"][2]
        cells = [f"{100 * p:.1f}" for p in row["p"]]
        cells[2] += f" ± {50 * (high - low):.1f}"
        assert f"| {view} | {row['name']} | {' | '.join(cells)} | {100 * row['retry']:.1f} |" in said
    assert said.count(f"\n| {view} |") == len(trained)


def sokoban_frozen() -> dict[str, list[str]]:
    """Of the run on validation levels, arm -> p@1, p@2, p@3 and its half interval on the frozen ones, retries' p@3."""
    names = ("warm start", "meta-RL, reflection", "meta-RL, reflection, shaped", "RL, GiGPO")
    shown = (PILOT.parent / "sokoban-longer" / "frozen.txt").read_text().split("\n$ ")[1:]
    found = [re.findall(r"([\d.]+) ±([\d.]+)", text) for text in shown]
    assert all(len(each) == 6 for each in found)
    own = [[*(p for p, _ in each[:3]), each[2][1], each[5][0]] for each in found]
    return dict(zip(names, own, strict=True))


@pytest.mark.parametrize("name", sokoban_frozen())
def test_sokobans_agents_on_frozen_levels_are_told_as_they_were(name):
    said = (ROOT / "docs" / "results.md").read_text().replace("*", "")
    one, two, three, half, retries = sokoban_frozen()[name]
    assert f"| longer | {name} | {one} | {two} | {three} ± {half} | {retries} |" in said


def test_what_sokobans_settings_were_chosen_by_is_told_as_it_was():
    said, folder = (ROOT / "docs" / "results.md").read_text(), PILOT.parent / "sokoban-longer"
    rows = {row["name"]: row for row in json.loads((folder / "table.json").read_text())}
    meta, shaped, rl = (100 * rows[name]["p"][2] for name in list(sokoban_frozen())[1:])
    removed = 100 * rows["meta-RL, reflection"]["also"]["notes"]["controls"]["removed"][2]
    assert f"removed meta-RL is at {removed:.1f} there, with it at {meta:.1f}" in said
    assert f"{shaped:.1f} with it, {meta:.1f} without" in said
    assert f"(RL {rl:.1f} there)" in said
    heeds, _, repeats = [
        re.findall(r"(?<!-)\b\d+(?= )", line) for line in (folder / "notes.txt").read_text().splitlines()
    ][1:]
    assert f"{heeds[0]} of {heeds[1]}." in said
    assert f"{heeds[3]} of {heeds[2]} episodes, RL in {repeats[3]} of {repeats[2]}. Of the {heeds[4]}" in said
    assert f"of the {heeds[7]} notes' advice {heeds[8]} pieces" in said


def _together(name, arm):
    """The numbers of all seeds' notes of an arm."""
    lines = [line for line in (PILOT.parent / name).read_text().splitlines() if arm in line]
    own = [[int(number) for number in re.findall(r"\b\d+(?= )", line)] for line in lines]
    assert len(own) > 1
    return [sum(both) for both in zip(*own, strict=True)]


def test_what_doubt_changed_in_sokobans_notes_is_told_as_it_was():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    before = _together("sokoban-sure/notes.txt", "meta-rl-reflection")
    after = _together("sokoban-notes.txt", "01-meta-rl-reflection")
    assert f"of {after[9]} second notes on the same place {after[10]} say" in said
    assert f"of {before[9]} such notes {before[10]} say" in said
    assert f"{after[5]} of {after[4]} episodes were won with it, {before[5]} of {before[4]} without" in said


def test_what_sokobans_notes_are_worth_on_frozen_levels_is_told_as_it_is():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    many, meta, rl = (
        _together("sokoban-notes.txt", arm) for arm in ("as-many-episodes", "01-meta-rl-reflection", "rl-gigpo")
    )
    assert f"same moves in {rl[3]} of {rl[2]} episodes, meta-RL with as many episodes in {many[3]} of {many[2]}" in said
    assert f"Of the {many[4]} in which it played otherwise it won {many[5]}" in said
    assert f"{many[7] - many[8]} of its {many[7]} pieces of advice lose" in said
    sure = _together("sokoban-sure/notes.txt", "meta-rl-reflection")
    assert f"{many[0]} of {many[1]} rather than {sure[0]} of {sure[1]}" in said
    front = (ROOT / "README.md").read_text()
    assert f"in {rl[3]} of {rl[2]} attempts, meta-RL in {meta[3]} of {meta[2]}" in front


def test_what_sokobans_notes_were_worth_without_doubt_is_told_as_it_was():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    meta, rl = (_together("sokoban-sure/notes.txt", arm) for arm in ("meta-rl-reflection", "rl-gigpo"))
    assert meta[1] - meta[0] == 3
    assert f"All but three of {meta[1]} were true" in said
    assert f"in {meta[3]} of {meta[2]} episodes, RL in {rl[3]} of {rl[2]}" in said
    assert f"of {meta[7]} pieces of advice {meta[7] - meta[8]} lose the level" in said


@pytest.mark.parametrize(
    ("folder", "arm", "words"),
    [
        (".", MANY, "meta-RL is {} points above it at the third attempt"),
        (".", "meta-RL, reflection", "many it is {} points above"),
        (".", "meta-RL, history", "for which nothing is written, {}."),
        ("sokoban-sure", "meta-RL, reflection", "Meta-RL was {} points above RL"),
    ],
)
def test_how_far_meta_rl_is_above_rl_on_sokoban_is_told_as_it_is(folder, arm, words):
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    apart = _apart_on_sokoban(folder, arm, "RL, GiGPO")
    assert words.format(f"{sum(apart) / len(apart):.1f}") in said
    if arm != "meta-RL, history":
        assert _by_seed(apart) in said


def test_what_as_many_episodes_are_worth_on_sokoban_is_told_as_it_is():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    apart = _apart_on_sokoban(".", MANY, "meta-RL, reflection")
    assert f"add {sum(apart) / len(apart):.1f} points here {_by_seed(apart)})" in said


def _apart_on_sokoban(folder, one, other):
    """Points between two arms at p@3, by seed."""
    rows = [row for row in json.loads((PILOT.parent / folder / "table.json").read_text()) if row["env"] == "sokoban"]
    p3 = {name: {row["seed"]: 100 * row["p"][2] for row in rows if row["name"] == name} for name in (one, other)}
    return [share - p3[other][seed] for seed, share in sorted(p3[one].items())]


def _by_seed(apart):
    *first, last = (f"{points:+.1f}" for points in apart)
    return f"(by seed {', '.join(first)} and {last}"


def test_two_runs_of_rloo_on_sokoban_are_told_as_they_were():
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    before, after = (
        {
            line["update"]: f"{100 * line['validation/p@3']:.1f}"
            for line in map(
                json.loads, (PILOT.parent / kept / "sokoban-06-rl-rloo-seed0.jsonl").read_text().splitlines()
            )
            if "validation/p@3" in line
        }
        for kept in ("unfinished/first", "metrics")
    )
    assert f"RLOO at {before[75]} on 128 validation levels after 75 updates" in said
    assert f"this one had {after[75]} then and {after[100]} at the end" in said


def test_as_many_episodes_as_rl_are_as_many():
    said, kept = (ROOT / "docs" / "results.md").read_text(), PILOT.parent / "metrics"
    for arm, episodes in (("01-meta-rl-reflection", "826"), ("02-rl-gigpo", "1,536"), ("04-as-many-episodes", "1,610")):
        lines = [line for path in kept.glob(f"sokoban-{arm}*") for line in path.read_text().splitlines()]
        counts = [line["episodes"] for line in map(json.loads, lines) if "episodes" in line]
        assert f"{sum(counts) / len(counts):,.0f}" == episodes
        assert f"{episodes} episodes" in said


def test_what_sokobans_notes_were_worth_is_told_as_it_was():
    said, folder = (ROOT / "docs" / "results.md").read_text(), PILOT.parent / "sokoban-cells"
    warm, meta, rl, _ = (
        re.findall(r"(?<!-)\b\d+(?= )", line) for line in (folder / "notes.txt").read_text().splitlines()
    )
    assert f"{warm[0]} of {warm[1]} after the warm start and {meta[0]} of {meta[1]} after meta-RL" in said
    assert f"{meta[3]} of {meta[2]} episodes, and lost (RL: {rl[3]} of {rl[2]}). Of the {meta[4]}" in said
    better = json.loads((folder / "better-warm-start.json").read_text())
    assert " / ".join(f"{100 * p:.1f}" for p in better["main"]["p"]) in said
    assert f"independent retries {100 * better['controls']['independent']['p'][2]:.1f}" in said


def test_what_was_tried_on_sokoban_is_told_as_it_was():
    folder = ROOT / "results" / "sokoban-cpu"
    said = (folder / "README.md").read_text()
    rows = json.loads((folder / "tried.json").read_text())
    for row in rows:
        p = " / ".join(f"{100 * share:.1f}" for share in row["p"])
        told = (
            f"| {row['run']} | {row['skill']} | {row['note']} | {row['method']} | {p} | {100 * row['retries'][2]:.1f} |"
        )
        assert told in said
    assert len(re.findall(r"^\| (?:one|two) box", said, re.MULTILINE)) == len(rows)


TINY = [f"sokoban-cpu/{name}" for name in ("one-box", "two-boxes", "hasty", "short")]


@pytest.mark.parametrize("name", [*TINY, "h200-smollm2/sokoban-longer/sweep"])
def test_the_sweeps_of_sokobans_tries_can_be_planned(name, tmp_path):
    sweep = read_sweep(ROOT / "results" / f"{name}.toml")
    for each in plan_work(sweep, tmp_path):
        resolve(each.preset, None, {key: value for key, value in each.settings.items() if key != "model.name"})
