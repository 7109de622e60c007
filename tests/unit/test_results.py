"""The figures in the documents are those of the files they name."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from mulligan.eval.passk import wilson
from mulligan.sweep.arms import plan_work, read_sweep
from mulligan.sweep.results import combine
from mulligan.train.resolve import resolve

ROOT = Path(__file__).parents[2]
PILOT = ROOT / "results" / "h200-smollm2" / "pilot"
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
        (".", "as many episodes, meta-RL, reflection", "meta-RL is {} points above it at the third attempt"),
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
    apart = _apart_on_sokoban(".", "as many episodes, meta-RL, reflection", "meta-RL, reflection")
    assert f"add {sum(apart) / len(apart):.1f} points here {_by_seed(apart)})" in said


def _apart_on_sokoban(folder, one, other):
    """Points between two arms at p@3, by seed."""
    rows = [row for row in json.loads((PILOT.parent / folder / "table.json").read_text()) if row["env"] == "sokoban"]
    p3 = {name: {row["seed"]: 100 * row["p"][2] for row in rows if row["name"] == name} for name in (one, other)}
    return [share - p3[other][seed] for seed, share in sorted(p3[one].items())]


def _by_seed(apart):
    *first, last = (f"{points:+.1f}" for points in apart)
    return f"(by seed {', '.join(first)} and {last}"


def test_what_the_best_estimator_leaves_on_minesweeper_is_told_as_it_is():
    """The best of all estimators, with whichever memory, or none."""
    said = " ".join((ROOT / "docs" / "results.md").read_text().split())
    rows = [row for row in json.loads((PILOT.parent / "table.json").read_text()) if row["env"] == "minesweeper"]
    meta = [100 * row["p"][2] for row in rows if row["name"] == "meta-RL, reflection"]
    rl = [row for row in rows if row["name"].startswith("RL, ")]  # on the same boards, from the same demonstrator
    reached = {name: [row for row in rl if row["name"] == name] for name in {row["name"] for row in rl}}
    best = {
        name: max(
            sum(100 * of(row) for row in own) / len(own)
            for of in (lambda row: row["p"][2], lambda row: row["retry"], lambda row: row["also"]["history"]["p"][2])
        )
        for name, own in reached.items()
    }
    assert max(best, key=best.__getitem__) == "RL, PPO"
    assert f"RL's best p@3 here: {best['RL, PPO']:.1f}" in said
    assert f"{sum(meta) / len(meta) - best['RL, PPO']:.1f} points above the best" in said
    final = sorted(row["diversity"][-1] for row in rl if row["seed"] == 0)
    assert f"with {final[-1]:.2f} and {final[-2]:.2f} nats" in said
    assert f"with {final[0]:.2f} to {final[-3]:.2f}" in said


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


@pytest.mark.parametrize(
    ("game", "name"),
    [("sokoban", name) for name in ("05-rl-ppo", "06-rl-rloo", "07-rl-grpo", "02-rl-gigpo", "04-as-many-episodes")]
    + [("minesweeper", name) for name in ("16-board-view", "17-board-view", "18-demonstrator", "19-demonstrator")],
)
def test_how_far_unfinished_runs_came_is_told_as_it_was(game, name):
    said = (ROOT / "docs" / "results.md").read_text()
    (path,) = (
        path for each in ("metrics", "unfinished") for path in (PILOT.parent / each).glob(f"{game}-{name}*seed0*")
    )
    lines = map(json.loads, path.read_text().splitlines())
    found = {line["update"]: line["validation/p@3"] for line in lines if "validation/p@3" in line}
    updates = (0, 25, 50, 75, 100) if game == "sokoban" else (0, 10, 20, 30, 40, 80)
    cells = [f"{100 * found[update]:.1f}" if update in found else "" for update in updates]
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in said.splitlines()]
    assert cells in [line[1:] for line in told]


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
        rl = max(share for name, share in mean.items() if name.startswith("RL"))
        meta = {name: share for name, share in mean.items() if name in ("meta-RL, reflection", "meta-RL, history")}
        best = max(meta, key=meta.__getitem__)
        line = next(line for line in front.splitlines() if line.startswith(f"| [{game}]"))
        assert f"| {len(found['RL, GiGPO'])} | {rl:.1f} | {meta[best]:.1f} ({best.partition(', ')[2]}) |" in line


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
