"""What the viewer finds beside a run: its evaluations, its tasks at a glance, one of them over training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_view import indexed, run_of, trial

from mulligan.app.cli import main
from mulligan.report.run import RunFolder
from mulligan.types import Completion
from mulligan.view.evaluations import evaluations_beside, evaluations_inside
from mulligan.view.library import Library
from mulligan.view.query import followed, glance
from mulligan.view.runs import as_tree, run_cards
from mulligan.view.trials import as_page

TRAINED = {
    "kind": "train",
    "run": {"updates": 8, "seed": 0},
    "task": {"env": "bandit"},
    "trial": {"episodes": 3},
    "model": {"name": "nano"},
    "algo": {"estimator": "rloo"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))


def trained(folder: Path) -> RunFolder:
    run = RunFolder.create(folder, TRAINED)
    run.write_trials("update-00008", [trial(8, "lll")])
    return run


def evaluated(folder: Path, policy: object, seed: int = 0) -> RunFolder:
    run = RunFolder.create(folder, {"kind": "eval", "policy": str(policy), "env": "bandit", "tasks": 1})
    run.write_trials("main", [trial(seed, "lw")])
    return run


@pytest.fixture
def runs(tmp_path) -> Path:
    """Two training runs; the first has an evaluation in its folder and two beside it, the second none."""
    folder = tmp_path / "runs"
    mine = trained(folder / "mine")
    trained(folder / "other")
    for number, (name, policy) in enumerate(
        (("mine/evaluation", mine.path), ("early", f"{mine.path}@best"), ("late", mine.path), ("expert", "expert"))
    ):
        run = evaluated(folder / name, policy, seed=20 + number)
        os.utime(run.path / "config.toml", ns=(0, 10**9 * (number + 1)))
    return folder


def test_evaluations_are_found_inside_a_run_and_beside_it(runs):
    assert evaluations_inside(runs / "mine") == [runs / "mine" / "evaluation"]
    assert evaluations_beside(runs / "mine") == [runs / "late", runs / "early"]
    assert evaluations_beside(runs / "other") == evaluations_inside(runs / "other") == []
    moved = runs.rename(runs.parent / "moved")  # the policies' paths lead nowhere now
    assert evaluations_beside(moved / "mine") == [moved / "late", moved / "early"]


def test_pages_lead_from_a_run_to_its_evaluations_and_back(runs):
    library = Library(runs)
    about = library.answer("run", {"run": "mine"})
    assert [card["id"] for card in about["evaluations"]] == ["mine/evaluation", "late", "early"]
    assert [card["id"] for card in library.answer("run", {"run": "late"})["measured"]] == ["mine"]
    assert library.answer("run", {"run": "expert"})["measured"] == []
    alone = Library(runs / "mine").answer("run", {"run": "."})  # what lies beside this folder is not read
    assert [card["id"] for card in alone["evaluations"]] == ["evaluation"]


def test_show_reads_a_runs_evaluation_and_says_so(runs, monkeypatch, capsys):
    def shown(*words: str) -> tuple[str, str]:
        with pytest.raises(SystemExit):
            main(["show", *words])
        return tuple(capsys.readouterr())

    monkeypatch.chdir(runs)
    out, err = shown("mine")
    assert "seed 20," in out
    assert "note: its evaluation, mine/evaluation" in err
    (runs / "mine" / "evaluation" / "config.toml").unlink()
    out, err = shown("mine", "--json")
    assert json.loads(out)["task"]["seed"] == 22
    assert "note: its evaluation, late" in err
    out, err = shown("mine", "--arm", "update-00008")
    assert "seed 8," in out
    out, err = shown("other")
    assert ("seed 8," in out, err) == (True, "")


def test_a_glance_has_every_task_in_order(tmp_path):
    index = indexed(run_of(tmp_path / "r", [trial(0, "lw"), trial(1, "w"), trial(2, "lll")]).path)
    tasks = [[0, "lw"], [1, "w"], [2, "lll"]]
    assert glance(index, "main") == {"arm": "main", "total": 3, "areGames": False, "tasks": tasks}
    assert glance(index, "none")["tasks"] == []
    games = indexed(run_of(tmp_path / "games", [trial(0, "wlw", opponent="fair")]).path)
    assert glance(games, "main")["areGames"]


def test_the_task_to_follow_is_one_that_training_changed(tmp_path):
    """Solved at the end and not at the start; of several, the one that is solved at the earliest attempt."""
    run = trained(tmp_path / "r")
    run.write_trials(
        "validation-00000", [trial(seed, outcomes) for seed, outcomes in enumerate(("w", "ll", "ll", "ll"))]
    )
    run.write_trials(
        "validation-00008", [trial(seed, outcomes) for seed, outcomes in enumerate(("w", "lw", "w", "ll"))]
    )
    assert followed(indexed(run.path), "validation-00000", "validation-00008") == 2
    assert followed(indexed(run.path), "validation-00008", "validation-00000") == 0  # none: the first one
    answer = Library(tmp_path).answer("run", {"run": "r"})
    assert answer["followed"] == {"arm": "validation-00000", "place": 2, "validations": 2}
    assert Library(tmp_path).answer("run", {"run": "r"})["glance"]["arm"] == "validation-00008"


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<action>click[< prev]</action>", "click[< prev]"),
        ("I think <b>so</b> & <action>a<b>c & d</action>", "a<b>c & d"),
        ("<think><action>1</action></think><ACTION> 2 </ACTION>", "2"),
        ("no <action> here", "no <action> here"),
        ("<action><action>1</action>", "1"),
    ],
)
def test_an_action_is_shown_as_it_was_written(reply, action):
    page = as_page(trial(0, "w", reply=Completion(reply)))
    assert page["episodes"][0]["turns"][0]["action"] == action
    assert page["episodes"][0]["turns"][0]["wrote"] == reply


def test_a_run_is_listed_under_the_one_whose_folder_it_lies_in(runs, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    evaluated(runs / "mine" / "deep" / "down", "expert")
    depths = {card["name"]: depth for depth, card in as_tree(run_cards(runs))}
    assert depths.pop("mine/evaluation") == depths.pop("mine/deep/down") == 1
    assert set(depths.values()) == {0}
    (inside_itself, *others) = as_tree(run_cards(runs / "mine"))  # the folder that is listed is a run, too
    assert inside_itself[1]["id"] == "."
    assert [depth for depth, _ in (inside_itself, *others)] == [0, 1, 1]
    with pytest.raises(SystemExit):
        main(["runs", str(runs)])
    lines = capsys.readouterr().out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(" mine "))
    assert {line.split()[0] for line in lines[place + 1 : place + 3]} == {"mine/evaluation", "mine/deep/down"}
    assert all(line.startswith("   mine/") for line in lines[place + 1 : place + 3])


def test_both_acts_of_the_demonstration_lead_to_their_own_runs(tmp_path):
    """The second act's runs lie in a folder of their own, under the same names."""
    names = ("RL", "meta-RL, gamma_traj 0", "meta-RL")
    for act in ("", "signpost/"):
        for number, name in enumerate(names, 1):
            run = trained(tmp_path / "demo" / f"{act}{number:02}")
            run.write_text("order.json", json.dumps({"name": name}))
            evaluated(run.path / "evaluation", run.path)
    rows = [{"method": name, "p": [0.1, 0.5], "ci": [[0, 0.2], [0.4, 0.6]]} for name in names]
    curves = {name: [{"update": 0, "p": [0.1, 0.2]}, {"update": 8, "p": [0.3, 0.4]}] for name in names}
    pairs = [{"place": 0, "runs": ["02/evaluation", "03/evaluation"], "text": "a task"}]
    act: dict[str, Any] = {"title": "T", "tasks": 1, "episodes": 2, "rows": rows, "curves": curves, "pairs": pairs}
    act["gap"] = {"points": 9.0, "ci": [1.0, 17.0]}
    doors = {**act, "reads_first": {"meta-RL": 1.0}, "sentence": "S.", "about": "A."}
    demo = {**act, "about": ["B."], "command": "mulligan demo", "minutes": 1, "signpost": doors}
    (tmp_path / "demo" / "demo.json").write_text(json.dumps(demo))
    library = Library(tmp_path)
    first, second = library.answer("run", {"run": "demo"})["sections"]
    for section, folder in ((first, "demo"), (second, "demo/signpost")):
        assert [agent["run"] for agent in section["agents"]] == [f"{folder}/01", f"{folder}/02", f"{folder}/03"]
        runs = [*section["watch"][0]["runs"], section["agents"][0]["evaluation"]]
        assert all(library.answer("run", {"run": run})["card"]["kind"] == "eval" for run in runs)
    assert [chart["title"] for chart in first["charts"]] != [chart["title"] for chart in second["charts"]]
