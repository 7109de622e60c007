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
        ("spiel:game(a=1,b=2)", {"spiel:game(a=1,b=2)": 1}),
        ("spiel:game(a=1,b=2):3", {"spiel:game(a=1,b=2)": 3}),
        ("x:2,spiel:game(a=1,b=2):3,y", {"x": 2, "spiel:game(a=1,b=2)": 3, "y": 1}),
        ("spiel:outer(game=inner(a=1,b=2),c=3):4,y", {"spiel:outer(game=inner(a=1,b=2),c=3)": 4, "y": 1}),
        ("spiel:game(at=1:2),y:2", {"spiel:game(at=1:2)": 1, "y": 2}),
        ("games (new).py:Class:2", {"games (new).py:Class": 2}),
    ],
)
def test_commas_and_colons_in_brackets_belong_to_the_name(any_name, text, weights):
    assert dict(Mixture.parse(text, {}).weights) == weights


@pytest.mark.parametrize(
    "text",
    [
        "spiel:game(a=1,b=2",
        "x:2,spiel:game(a=1:3,y",
        "spiel:game(a=1,b=2):0",
        "spiel:game(a=1,b=2):2,spiel:game(a=1,b=2)",
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
