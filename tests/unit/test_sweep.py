"""Which arms share a warm start, what a sweep file may say, and how results are put together over seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.eval.intervals import share_interval
from mulligan.sweep.arms import Arm, Sweep, further_name, plan_work, read_sweep
from mulligan.sweep.results import combine, markdown
from mulligan.train.resolve import resolve

RL = {"trial.episodes": "1", "run.group": "24"}


def _plan(*arms: Arm, seeds=(0,)):
    return plan_work(Sweep(arms, seeds=seeds), Path("/sweep"))


def test_arms_share_a_warm_start_exactly_where_it_would_be_the_same():
    work = _plan(
        Arm("RL", RL),
        Arm("meta-RL"),
        Arm("far", {"algo.gamma_traj": "0.9", "optim.lr": "1e-4", "run.updates": "7"}),
        Arm("reflection", {"trial.memory": "reflection"}),
        Arm("strangers", {"warmstart.recall": "0"}),
    )
    start = {each.name: each.after for each in work}
    assert start["RL"] == start["meta-RL"] == start["far"] != start["reflection"] != start["strangers"] != start["RL"]
    warm = [each for each in work if each.after is None]
    assert [each.name for each in warm] == ["warm start", "warm start of reflection", "warm start of strangers"]
    assert all(each.settings["run.updates"] == "0" for each in warm)
    by_name = {each.name: each for each in work}
    assert by_name["meta-RL"].settings["model.name"] == f"../{start['meta-RL'].name}"
    assert by_name["meta-RL"].settings["warmstart.steps"] == "0"
    assert resolve("cpu", None, by_name["far"].settings).run.updates == 7


def test_one_warm_start_with_both_memories_serves_agents_with_either():
    both = {"warmstart.memory": "history,reflection"}
    work = _plan(Arm("a", {**both, "trial.memory": "history"}), Arm("b", {**both, "trial.memory": "reflection"}))
    assert len({each.after for each in work if each.after}) == 1


def test_every_seed_has_its_own_runs_and_nothing_waits_for_what_comes_later():
    work = _plan(Arm("RL", RL), Arm("RL, more", RL, start="RL"), seeds=(3, 4))
    assert len({each.folder for each in work}) == len(work) == 6
    for place, each in enumerate(work):
        assert each.after is None or each.after in [before.folder for before in work[:place]]
        assert each.settings["run.seed"] == str(each.evaluation["seed"]) == str(each.seed)
    more = next(each for each in work if each.name == "RL, more" and each.seed == 4)
    assert more.after == next(each.folder for each in work if each.name == "RL" and each.seed == 4)


def test_some_arms_and_some_seeds_can_be_chosen():
    sweep = Sweep([Arm("RL", RL), Arm("more", RL, start="RL"), Arm("meta-RL", seeds=[1])], seeds=(0, 1))
    names = [(each.name, each.seed) for each in plan_work(sweep, Path("/sweep"))]
    assert ("meta-RL", 1) in names
    assert ("meta-RL", 0) not in names
    # an arm that goes on from another one brings it along
    chosen = plan_work(sweep, Path("/sweep"), only=["more"], seeds=[0])
    assert [(each.name, each.seed) for each in chosen] == [("warm start", 0), ("RL", 0), ("more", 0)]
    with pytest.raises(UnknownName, match="did you mean 'meta-RL'"):
        plan_work(sweep, Path("/sweep"), only=["metaRL"])


@pytest.mark.parametrize("name", ["RL", "recalls", "meta-RL", "recalls too"])
def test_what_is_chosen_is_planned_as_among_all_the_others(name):
    """Otherwise a part of a sweep could not be made in the folder of the whole, or the other way round."""
    arms = [Arm("RL", RL), Arm("recalls", {"warmstart.recall": "1"}, seeds=[1]), Arm("meta-RL"),
            Arm("recalls too", {"warmstart.recall": "1"})]  # fmt: skip
    sweep = Sweep(arms, seeds=(0, 1))
    whole = plan_work(sweep, Path("/sweep"))
    part = plan_work(sweep, Path("/sweep"), only=[name])
    assert part == [each for each in whole if each in part]
    assert {each.name for each in whole if each.after is None} == {"warm start", "warm start of recalls"}
    assert {each.after.name for each in whole if each.name.startswith("recalls")} == {
        "00-warm-start-2-seed0", "00-warm-start-2-seed1"
    }  # fmt: skip


def test_without_a_warm_start_an_arm_starts_by_itself():
    (only,) = _plan(Arm("bare", {"warmstart.steps": "0"}))
    assert only.after is None
    assert "model.name" not in only.settings


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("seeds = [0]", ParameterError, "without arms"),
        ("[arms.a]\n[arms.b]\nfrom = 'c'", UnknownName, "'c'"),
        ("[arms.a]\nfrom = 'a'", UnknownName, "'a'"),
        ("title = 3\n[arms.a]", ParameterError, "title=3"),
        ("sedes = [0]\n[arms.a]", UnknownName, "did you mean 'seeds'"),
        ("seeds = []\n[arms.a]", ParameterError, "at least one"),
        ("seeds = [1, 1]\n[arms.a]", ParameterError, "each once"),
        ("controls = ['alone']\n[arms.a]", UnknownName, "'alone'"),
        ("[arms.a]\nfrom = 3", ParameterError, "from=3"),
        ("arms = 3", ParameterError, "table"),
        ("[arms.a]\n'algo.gamma_traj' = [1]", ParameterError, "algo.gamma_traj"),
        ("[arms.'warm start']", ParameterError, "warm start"),
        ("[arms.a]\nalso = ['harder']", UnknownName, "further evaluation 'harder'"),
        ("[arms.a]\nalso = 'harder'", ParameterError, "list of names"),
        ("[arms.a]\nseeds = [4]", ParameterError, "has seed 4"),
        ("[arms.a]\nseeds = 4", ParameterError, "list of numbers"),
        ("[arms.a]\nseeds = []", ParameterError, "no seeds"),
        ("seeds = [0, 1]\n[arms.a]\nseeds = [0]\n[arms.b]\nfrom = 'a'", ParameterError, "which 'a', where it starts"),
        ("[also.'x y']\n[also.'x-y']\n[arms.a]", ParameterError, "as short"),
        ("[also.'']\n[arms.a]", ParameterError, "cannot be called so"),
        ("[also.b]\nepisodes = 4.5\n[arms.a]", ParameterError, "episodes=4.5"),
        ("[also.b]\nsampling = 3\n[arms.a]", ParameterError, "sampling=3"),
        ("[also.b]\ntasks = 0\n[arms.a]", ParameterError, "tasks"),
        ("[also.b]\ntasks = 'all'\n[arms.a]", ParameterError, "tasks='all'"),
        ("[also.b]\ncontrols = 'independent'\n[arms.a]", ParameterError, "list of names"),
        ("also = 3\n[arms.a]", ParameterError, "also"),
        ("[also.b]\ncontrols = ['alone']\n[arms.a]", UnknownName, "'alone'"),
        ("[arms.a", UsageError, "TOML"),
        ("seeds = [[0]]\n[arms.a]", ParameterError, "whole numbers"),
        ("seeds = [true]\n[arms.a]", ParameterError, "whole numbers"),
        ("tasks = true\n[arms.a]", ParameterError, "tasks=True"),
        ("controls = [1]\n[arms.a]", ParameterError, "list of names"),
        ("[arms.a]\nalso = [['x']]", ParameterError, "list of names"),
        ("[arms.a]\nseeds = [[0]]", ParameterError, "whole numbers"),
        ("[also.b]\ncontrols = [2]\n[arms.a]", ParameterError, "list of names"),
        ("[also.b]\nepisodes = true\n[arms.a]", ParameterError, "episodes=True"),
        ("[also.'!']\n[arms.a]", ParameterError, "letters or digits"),
        ("[arms.'x, y']\n[arms.z]\n[arms.b]\nfrom = 'q'", UnknownName, "known: 'x, y', 'z'"),
        ("[also.'x, y']\n[also.z]\n[arms.a]\nalso = ['q']", UnknownName, "known: 'x, y', 'z'"),
    ],
)
def test_a_wrong_sweep_file_is_explained_in_one_line(tmp_path, text, error, said):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(error, match=said) as caught:
        read_sweep(file)
    assert "\n" not in str(caught.value)


def test_a_wrong_setting_is_found_before_anything_runs(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text("[arms.a]\n[arms.b]\n'algo.gama_traj' = 1\n")
    with pytest.raises(MulliganError, match=r"algo\.gamma_traj"):
        plan_work(read_sweep(file), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        (Sweep([Arm("a", {"run.updates": "0"})]), "trains nothing"),
        (Sweep([Arm("a")], tasks=0), "tasks"),
        (Sweep([Arm("a")], tasks=2000, seed_set="eval"), "only about"),
        (Sweep([Arm("a")], seed_set="tests"), "seed set"),
        (Sweep([Arm("a", also=["b"])], also={"b": {"mine": 4}}), "did you mean 'mines'"),
        (Sweep([Arm("a", also=["b"])], also={"b": {"episodes": 0}}), "episodes=0"),
        (Sweep([Arm("a", {"task.env": "minesweeper:2,sokoban:1"})]), "on one environment each, not on a mixture"),
        (Sweep([Arm("a"), Arm("b", {"model.lora_rank": "4"}, start="a")]), "'a' .none: it trains all weights"),
        (
            Sweep([Arm("a", {"model.lora_rank": "8"}), Arm("b", {"model.lora_rank": "4"}, start="a")]),
            r"\(rank 4, alpha 8\), but goes on with that of 'a' \(rank 8, alpha 16\)",
        ),
    ],
)
def test_what_could_not_be_evaluated_is_not_trained_first(sweep, said):
    with pytest.raises(MulliganError, match=said):
        plan_work(sweep, Path("/sweep"))


def test_what_starts_from_a_run_with_an_adapter_trains_that_adapter_on():
    """A second adapter cannot be put on it, and a warm start should not be paid for to learn that."""
    work = plan_work(
        Sweep([Arm("a"), Arm("b", start="a"), Arm("c", start="b")], settings={"model.lora_rank": "4"}), Path("/sweep")
    )
    ranks = {each.name: resolve("cpu", None, each.settings).model.lora_rank for each in work}
    assert ranks == {"warm start": 4, "a": 0, "b": 0, "c": 0}
    (alone,) = _plan(Arm("bare", {"warmstart.steps": "0", "model.lora_rank": "4"}))
    assert alone.settings["model.lora_rank"] == "4"


def test_an_environment_with_a_weight_is_that_environment():
    weighted, plain = _plan(Arm("a", {"task.env": "minesweeper:1"})), _plan(Arm("a", {"task.env": "minesweeper"}))
    assert weighted == plain


def test_names_in_other_letters_have_folders_of_their_own():
    also = {"четыре": {"mines": 4}, "пять": {"mines": 5}, "4 mines": {"mines": 4}, "γ_traj 0": {}}
    Sweep([Arm("a")], also=also)
    assert [further_name(name) for name in also] == ["четыре", "пять", "4-mines", "traj-0"]


def test_settings_may_be_tables_too(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text("[settings.run]\nupdates = 3\n[arms.a.algo]\ngamma_traj = 0.5\n[arms.a]\n'env.mines' = 4\n")
    sweep = read_sweep(file)
    assert sweep.settings == {"run.updates": "3"}
    assert sweep.arms[0].settings == {"algo.gamma_traj": "0.5", "env.mines": "4"}


def _found(name: str, seed: int, p: list[float], trials: int = 100):
    summary = {"p": p, "trials": trials, "valid": 1.0}
    alone = {"independent": {**summary, "p": [0.1] * len(p)}}
    return {"name": name, "seed": seed, "main": summary, "controls": alone, "updates": 5, "seconds": 60.0}


def test_seeds_are_averaged():
    rows = combine([_found("a", 0, [0.2, 0.4]), _found("a", 1, [0.4, 0.8]), _found("b", 0, [0.1, 0.1])])
    assert [row["method"] for row in rows] == ["a", "a, independent retries", "b", "b, independent retries"]
    first = rows[0]
    assert first["p"] == pytest.approx([0.3, 0.6])
    assert first["seeds"] == {"0": [0.2, 0.4], "1": [0.4, 0.8]}
    # Without outcomes two seeds are worth one. Wilson for 30 of 100: centre (0.3 + 1.9207/100) / (1 + 3.8415/100) =
    # 0.3074, half 1.96 / 1.0384 × sqrt(0.21/100 + 3.8415/40000) = 0.0884
    assert first["ci"][0] == pytest.approx([0.2190, 0.3958], abs=2e-4)


def test_outcomes_make_the_interval_one_over_seeds_and_tasks():
    first, second = ([float(won) for won in word] for word in ("11110000" * 8, "11100000" * 8))

    def found(seed, wins):
        evidence = {"outcomes": [[win] for win in wins], "worlds": [*range(64)], "tasks_digest": "x", "effective": [64]}
        arm = _found("a", seed, [sum(wins) / 64], 64)
        return {**arm, "main": {**arm["main"], **evidence}}

    row = combine([found(0, first), found(1, second)])[0]
    assert row["ci"][0] == pytest.approx(share_interval(np.array([first, second])))


def test_the_table_shows_every_arm_with_its_seeds():
    text = markdown(combine([_found("a", 0, [0.2, 0.4]), _found("a", 1, [0.4, 0.8])]))
    lines = text.splitlines()
    assert lines[0] == "| arm | p@1 | p@2 | p@2 by seed | updates | minutes |"
    assert "| a | 30.0 ± 8.8 | 60.0 ± 9.4 | 40.0 / 80.0 | 5 | 1.0 |" in lines
    assert lines[3].startswith("| a, independent retries | 10.0")


def test_further_evaluations_have_rows_of_their_own():
    longer = {**_found("a", 0, [0.1, 0.2, 0.3, 0.4]), "controls": {}}
    rows = combine([{**_found("a", 0, [0.2, 0.4]), "also": {"4 episodes": longer}}])
    assert [row["method"] for row in rows] == ["a", "a, independent retries", "a, 4 episodes"]
    lines = markdown(rows).splitlines()
    assert lines[0] == "| arm | p@1 | p@2 | p@3 | p@4 | p@2 by seed | updates | minutes |"
    assert lines[2] == "| a | 20.0 ± 7.8 | 40.0 ± 9.4 |  |  | 40.0 | 5 | 1.0 |"
    assert lines[-1].endswith("| 40.0 ± 9.4 | 20.0 |  |  |")


def test_an_arm_that_is_put_before_others_leaves_their_runs_where_they_are(tmp_path):
    """Or everything would be trained again, without a word."""
    file = tmp_path / "sweep.toml"
    file.write_text("[settings.run]\nupdates = 3\n[arms.RL]\n[arms.meta-RL]\n")
    runs = tmp_path / "runs"
    planned = [each.folder for each in plan_work(read_sweep(file), runs)]
    for path in planned:
        path.mkdir(parents=True)
    file.write_text("[settings.run]\nupdates = 3\n[arms.RL]\n[arms.new]\n[arms.meta-RL]\n")
    now = [each.folder for each in plan_work(read_sweep(file), runs)]
    assert set(planned) < set(now)
    assert [path.name for path in now if path not in planned] == ["02-new-seed0"]


def test_games_are_told_by_their_returns():
    """Of two seeds: the mean of −0.2 and 0.4; half of its interval is half of the root of 0.3² + 0.4²."""

    def found(seed, value, half, won):
        arm = {**_found("a", seed, [0.5, 0.8]), "kind": "versus"}
        game = {"returns": [-1.0, value], "returns_ci": [None, [value - half, value + half]], "won": [0.0, won]}
        return {**arm, "controls": {}, "main": {**arm["main"], **game, "best": [-1.0, 0.9]}}

    lines = markdown(combine([found(0, -0.2, 0.3, 0.1), found(1, 0.4, 0.4, 0.5)])).splitlines()
    assert lines[0] == "| arm | episode 1 | episode 2 | episode 2 by seed | updates | minutes |"
    assert lines[2] == "| a | -1.00, won 0 % | +0.10 ± 0.25, won 30 % | -0.20 / +0.40 | 5 | 1.0 |"


def test_trials_that_failed_are_told_below_the_table():
    arm = _found("a", 0, [0.2, 0.4])
    arm["controls"]["independent"] |= {"failed": 3, "failure": "RuntimeError: apart"}
    said = markdown(combine([arm, _found("a", 1, [0.2, 0.4])]))
    assert said.endswith(
        "\n\na, independent retries: 3 trials failed for reasons outside the agent, what failed of them counted as not "
        "solved; the first: RuntimeError: apart\n"
    )
    assert "failed" not in markdown(combine([_found("a", 0, [0.2, 0.4])]))


def test_classes_of_tasks_have_a_table_of_their_own():
    """Means over seeds; none where all tasks are of one class."""

    def found(seed, first, second):
        classes = {"w/clean": {"p": [first, 0.5]}, "w/heat": {"p": [second, 1.0]}}
        return {**_found("a", seed, [0.2, 0.4]), "by_class": classes}

    rows = combine([found(0, 0.1, 0.2), found(1, 0.3, 0.6)])
    assert rows[0]["by_class"] == {"w/clean": pytest.approx([0.2, 0.5]), "w/heat": pytest.approx([0.4, 1.0])}
    lines = markdown(rows).splitlines()
    assert lines[-3] == "| arm, p@k by task class | w/clean | w/heat |"
    assert lines[-1] == "| a | 20.0 / 50.0 | 40.0 / 100.0 |"
    assert "class" not in markdown(combine([{**_found("a", 0, [0.2]), "by_class": {"w": {"p": [0.2]}}}]))


def test_where_parts_are_paid_the_score_stands_beside_success():
    def found(seed, best):
        arm = _found("a", seed, [0.2, 0.4])
        return {**arm, "main": {**arm["main"], "best": best}}

    lines = markdown(combine([found(0, [0.5, 0.7]), found(1, [0.7, 0.9])])).splitlines()
    assert lines[0].endswith("| score@1 | score@2 |")
    assert lines[2].endswith("| 60.0 | 80.0 |")
    assert "score" not in markdown(combine([found(0, [0.2, 0.4])]))  # success alone is paid
