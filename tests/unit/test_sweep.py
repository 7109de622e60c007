"""Which arms share a warm start, and what a sweep file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.app.sweep.arms import Arm, Sweep, chosen, further_name, plan_work, read_sweep
from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.rollout import tasksets
from mulligan.training.resolve import resolve

RL = {"trial.episodes": "1", "run.group": "24"}
TINY_BOARD = {"env.rows": "3", "env.cols": "3", "env.mines": "2"}  # 36 of them


def _plan(*arms: Arm, seeds=(0,)):
    return plan_work(Sweep(arms, seeds=seeds, tasks=4), Path("/sweep"))


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
    work = _plan(Arm("RL", RL), Arm("meta-RL"), seeds=(3, 4))
    assert len({each.folder for each in work}) == len(work) == 6
    for place, each in enumerate(work):
        assert each.after is None or each.after in [before.folder for before in work[:place]]
        assert each.settings["run.seed"] == str(each.evaluation["seed"]) == str(each.seed)


def test_some_arms_and_some_seeds_can_be_chosen():
    sweep = Sweep([Arm("RL", RL), Arm("meta-RL")], seeds=(0, 1), tasks=4)
    work = plan_work(sweep, Path("/sweep"))
    part = chosen(work, ["meta-RL"], [0])  # its warm start comes along
    assert [(each.name, each.seed) for each in part] == [("warm start", 0), ("meta-RL", 0)]
    assert chosen(work, [], [0, 1]) == work
    with pytest.raises(UnknownName, match="did you mean 'meta-RL'"):
        chosen(work, ["metaRL"], [0])


NOTED = {"trial.memory": "reflection"}


def test_the_player_of_a_writer_is_an_earlier_arm_or_the_warm_start_and_is_named_as_seen_from_the_arm():
    first, second = Arm("first", NOTED, player="meta-RL"), Arm("second", NOTED, player="warm start")
    work = _plan(Arm("meta-RL", NOTED), first, second, seeds=(0, 1))
    by_name = {(each.name, each.seed): each for each in work}
    for seed in (0, 1):
        warm, player = by_name["warm start", seed].folder, by_name["meta-RL", seed].folder
        assert by_name["first", seed].needs == [warm, player]
        assert by_name["second", seed].needs == [warm, warm]
        assert by_name["first", seed].settings["run.player"] == f"../{player.name}"
        assert by_name["second", seed].settings["run.player"] == f"../{warm.name}"
    assert "run.player" not in by_name["warm start", 0].settings
    part = chosen(work, ["first"], [1])  # what its player starts from comes along
    assert [(each.name, each.seed) for each in part] == [("warm start", 1), ("meta-RL", 1), ("first", 1)]


def test_all_arms_are_evaluated_on_trials_as_long_as_the_longest_that_one_trains_on():
    work = _plan(Arm("RL", {"trial.episodes": "1"}), Arm("meta-RL", {"trial.episodes": "4"}))
    assert [each.evaluation["episodes"] for each in work] == [4, 4, 4]  # the warm start, RL, meta-RL
    # Three is the least, so that a sweep whose arms train on two or one is as it always was.
    assert all("episodes" not in each.evaluation for each in _plan(Arm("RL", {"trial.episodes": "1"}), Arm("meta-RL")))


MIXTURE = {"task.env": "bandit(arms=2),bandit(arms=3)", "warmstart.player": "expert"}


def test_arms_that_train_on_a_mixture_are_compared_on_a_game_and_so_is_their_warm_start():
    also = {"new": {"env": "bandit(arms=5)"}, "longer": {"episodes": 4}, "newer": {"env": "bandit(arms=6)"}}
    arms = [Arm("RL", {**MIXTURE, **RL}, ["new", "longer"]), Arm("meta-RL", MIXTURE, ["newer"])]
    start, rl, meta = plan_work(Sweep(arms, tasks=4, env="bandit", also=also), Path("/sweep"))
    assert {each.evaluation["env"] for each in (start, rl, meta)} == {"bandit"}
    # What a game that nobody trained on shows before training; how the arms differ otherwise is nothing of its own.
    assert start.evaluation["also"] == {name: also[name] for name in ("new", "newer")}
    assert rl.evaluation["also"] == {name: also[name] for name in ("new", "longer")}
    wrong = Sweep([Arm("meta-RL", MIXTURE, ["new"])], tasks=4, env="bandit", also={"new": {"env": "bandit(arm=5)"}})
    with pytest.raises(UnknownName, match="did you mean 'arms'"):
        plan_work(wrong, Path("/sweep"))


def test_without_a_warm_start_an_arm_starts_by_itself():
    (only,) = _plan(Arm("bare", {"warmstart.steps": "0"}))
    assert only.after is None
    assert "model.name" not in only.settings


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("seeds = [0]", ParameterError, "arms"),
        ("title = 3\n[arms.a]", ParameterError, "title"),
        ("sedes = [0]\n[arms.a]", UnknownName, "did you mean 'seeds'"),
        ("seeds = []\n[arms.a]", ParameterError, "seeds"),
        ("seeds = [1, 1]\n[arms.a]", ParameterError, "seeds"),
        ("controls = ['alone']\n[arms.a]", UnknownName, "'alone'"),
        ("arms = 3", ParameterError, "dict"),
        ("[arms]\na = 3", ParameterError, "table"),
        ("[arms.a]\n'algo.gamma_traj' = [1]", ParameterError, "algo.gamma_traj"),
        ("[arms.'warm start']", ParameterError, "warm start"),
        ("[arms.a]\nalso = ['harder']", UnknownName, "further evaluation 'harder'"),
        ("[also.'x y']\n[also.'x-y']\n[arms.a]", ParameterError, "x"),
        ("[also.'']\n[arms.a]", ParameterError, "further"),
        ("also = 3\n[arms.a]", ParameterError, "also"),
        ("env = 3\n[arms.a]", ParameterError, "env"),
        ("[also.b]\nenv = 3\n[arms.a]", ParameterError, "'b' must name a game"),
        ("[also.b]\ncontrols = ['alone']\n[arms.a]", UnknownName, "'alone'"),
        ("[arms.a", UsageError, "sweep.toml"),
        ("seeds = [true]\n[arms.a]", ParameterError, "seeds"),
        ("tasks = true\n[arms.a]", ParameterError, "tasks"),
        ("[also.'!']\n[arms.a]", ParameterError, "further"),
        ("[arms.a]\nplayer = 3", ParameterError, "player"),
        ("[arms.a]\nplayer = 'b'\n[arms.b]", UnknownName, "player .an earlier arm. of arm 'a' 'b'"),
        ("[arms.a]\nplayer = 'a'", UnknownName, "known: warm start"),
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
        (Sweep([Arm("a", {"run.updates": "0"})]), r"run\.updates"),
        (Sweep([Arm("a")], tasks=0), "tasks"),
        (Sweep([Arm("a", TINY_BOARD)], tasks=50, seed_set="eval"), "only about"),
        (Sweep([Arm("a")], seed_set="tests"), "seed set"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"mine": 4}}), "did you mean 'mines'"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"episodes": 0}}), "episodes"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"episodes": 4.5}}), "episodes"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"episodes": True}}), "episodes"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"temperature": -1}}), "temperature"),
        (Sweep([Arm("a", player="warm start")]), r"run\.player needs .* trial\.memory = reflection"),
        (Sweep([Arm("a", NOTED | {"warmstart.steps": "0"}, player="warm start")]), r"its warm start is to play"),
        (Sweep([Arm("a", also=["b"])], tasks=4, also={"b": {"writer": "expert"}}), r"\(got 'expert' and history\)"),
        (Sweep([Arm("a", NOTED, also=["b"])], tasks=4, also={"b": {"writer": 3}}), r"\(got 3 and reflection\)"),
        (Sweep([Arm("a", {"task.env": "minesweeper:2,sokoban:1"})]), r"'a' trains on a mixture"),
    ],
)
def test_what_could_not_be_evaluated_is_not_trained_first(sweep, said, monkeypatch):
    monkeypatch.setattr(tasksets, "_PATIENCE", 500)
    with pytest.raises(MulliganError, match=said):
        plan_work(sweep, Path("/sweep"))


def test_what_starts_from_a_warm_start_with_an_adapter_trains_that_adapter_on():
    """A second adapter cannot be put on it."""
    work = plan_work(Sweep([Arm("a")], tasks=4, settings={"model.lora_rank": "4"}), Path("/sweep"))
    ranks = {each.name: resolve("cpu", None, each.settings).model.lora_rank for each in work}
    assert ranks == {"warm start": 4, "a": 0}
    (alone,) = _plan(Arm("bare", {"warmstart.steps": "0", "model.lora_rank": "4"}))
    assert alone.settings["model.lora_rank"] == "4"


def test_names_in_other_letters_have_folders_of_their_own():
    also = {"четыре": {"mines": 4}, "пять": {"mines": 5}, "4 mines": {"mines": 4}, "γ_traj 0": {}}
    Sweep([Arm("a")], also=also)
    assert [further_name(name) for name in also] == ["четыре", "пять", "4-mines", "γ-traj-0"]


def test_settings_may_be_tables_too(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text("[settings.run]\nupdates = 3\n[arms.a.algo]\ngamma_traj = 0.5\n[arms.a]\n'env.mines' = 4\n")
    sweep = read_sweep(file)
    assert sweep.settings == {"run.updates": "3"}
    assert sweep.arms[0].settings == {"algo.gamma_traj": "0.5", "env.mines": "4"}
