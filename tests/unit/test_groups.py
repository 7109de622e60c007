"""Mixtures of environments as they are typed: names, weights, and brackets that belong to names."""

from __future__ import annotations

import pytest

from mulligan.envs import registry
from mulligan.envs.bandit import Bandit
from mulligan.errors import ParameterError, UnknownName
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.trusted import trust


@pytest.fixture
def any_name(monkeypatch):
    """Every name is an environment: what is tested is which names are read."""
    monkeypatch.setattr(registry, "_load", lambda name: Bandit)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("a", {"a": 1}),
        ("a:2,b:1", {"a": 2, "b": 1}),
        (" a:0.5 , b ", {"a": 0.5, "b": 1}),
        ("path/to/file.py:Class:3,other.py:Class", {"path/to/file.py:Class": 3, "other.py:Class": 1}),
        ("openspiel:game(a=1,b=2)", {"openspiel:game(a=1,b=2)": 1}),
        ("openspiel:game(a=1,b=2):3", {"openspiel:game(a=1,b=2)": 3}),
        ("x:2,openspiel:game(a=1,b=2):3,y", {"x": 2, "openspiel:game(a=1,b=2)": 3, "y": 1}),
        ("openspiel:outer(game=inner(a=1,b=2),c=3):4,y", {"openspiel:outer(game=inner(a=1,b=2),c=3)": 4, "y": 1}),
        ("openspiel:game(at=1:2),y:2", {"openspiel:game(at=1:2)": 1, "y": 2}),
        ("games (new).py:Class:2", {"games (new).py:Class": 2}),
    ],
)
def test_commas_and_colons_in_brackets_belong_to_the_name(any_name, text, weights):
    assert dict(Mixture.parse(text, {}).weights) == weights


@pytest.mark.parametrize(
    "text",
    [
        "openspiel:game(a=1,b=2",
        "x:2,openspiel:game(a=1:3,y",
        "openspiel:game(a=1,b=2):0",
        "openspiel:game(a=1,b=2):2,openspiel:game(a=1,b=2)",
        "x,,y",
        "x:2,",
        ":2",
        "",
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(any_name, text):
    with pytest.raises(ParameterError) as caught:
        Mixture.parse(text, {})
    assert "\n" not in str(caught.value)


def test_a_game_with_several_parameters_is_drawn_from_a_mixture():
    pytest.importorskip("pyspiel")
    name = "openspiel:hex(num_cols=3,num_rows=4)"
    mixture = Mixture.parse(f"{name}:2,kuhn:1", {})
    assert dict(mixture.weights) == {name: 2, "kuhn": 1}
    # 3 x 4 cells, of which a player fills every other one at most.
    assert registry.make_task(name).turns == 6
    with pytest.raises(UnknownName, match=r"did you mean|known:"):
        Mixture.parse("openspiel:hexx(num_cols=3,num_rows=4),kuhn", {})


def test_two_environments_of_one_file_are_two_classes(tmp_path):
    file = tmp_path / "games.py"
    trust(file)
    file.write_text(
        "from mulligan.envs.bandit import Bandit\nclass Own(Bandit):\n    task_class = None\n"
        + "class Other(Own): ...\n"
    )
    names = [f"{file}:Own", f"{file}:Other"]
    assert [registry.make_task(name).task_class for name in names] == ["games:Own", "games:Other"]
    draws = draw_tasks(Mixture.parse(",".join(names), {}), 20, seed=0, update=0, related=2)
    assert {draw.task.env for draw in draws} == set(names)
    assert all(other.env == draw.task.env for draw in draws for other in draw.related)


def test_a_mixture_holds_several_games_of_one_environment_each_with_parameters_of_its_own():
    camp, toolbox = "expedition(world=camp, turns=3)", "expedition(world=toolbox)"
    mixture = Mixture.parse(f"{camp}:2,{toolbox}", {"view": "compact", "turns": 1, "world": "signpost"})
    assert dict(mixture.weights) == {camp: 2, toolbox: 1}
    drawn = {draw.task for draw in draw_tasks(mixture, 40, seed=0, update=0)}
    assert {(task.env, task["world"], task.turns, task["view"]) for task in drawn} == {
        ("expedition", "camp", 3, "compact"),
        ("expedition", "toolbox", 1, "compact"),
    }


def test_a_game_has_the_tasks_of_its_environment_with_these_parameters():
    plain = registry.make_task("minesweeper", 7, rows=4, cols=5, mines=2, turns=9)
    assert registry.make_task("minesweeper(rows=4,cols=5,turns=9)", 7, mines=2) == plain
    assert registry.make_task("minesweeper(mines=9,turns=3)", 7, rows=4, cols=5, mines=2, turns=9) == plain
    assert registry.build(plain).task == plain


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("minesweeper(mine=4)", UnknownName, "mines"),
        ("minesweeper(mines=many)", ParameterError, "mines must be of type int"),
        ("minesweeper(mines)", ParameterError, "NAME=VALUE"),
        ("mynesweeper(mines=4)", UnknownName, "minesweeper"),
    ],
)
def test_a_game_that_cannot_be_is_refused_by_name(name, error, message):
    with pytest.raises(error, match=message):
        Mixture.parse(f"{name},kuhn", {})
