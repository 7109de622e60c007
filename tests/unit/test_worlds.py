"""Whether training and evaluation share worlds: what can be known of an environment, and where it is said."""

from __future__ import annotations

from typing import ClassVar

import pytest

import mulligan
from mulligan.app.cli import main
from mulligan.envs import registry
from mulligan.report.tables import eval_table
from mulligan.rollout.tasksets import Survey, separation, survey
from mulligan.types import Step, Task


class Corridor:
    """Two doors, one of which wins. What is written over them depends on the seed."""

    turns: ClassVar[int] = 2
    signs: ClassVar[int] = 1_000_003

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sign = task.seed * 7919 % self.signs

    def rules(self) -> str:
        return "Choose a door."

    def reset(self, chance: int = 0) -> str:
        return f"Over the doors is written {self.sign}."

    def step(self, reply: str) -> Step:
        won = reply == "<action>left</action>"
        return Step("You are through.", float(won), True, won)

    def legal(self) -> list[str]:
        return ["<action>left</action>", "<action>right</action>"]


class SameSign(Corridor):
    """One world."""

    signs: ClassVar[int] = 1


class SignInRules(Corridor):
    """Worlds that the rules tell apart."""

    def rules(self) -> str:
        return f"Choose a door. Over them is written {self.sign}."

    def reset(self, chance: int = 0) -> str:
        return "You stand before the doors."


class FewNames(Corridor):
    """Worlds with names, and there are three of them."""

    def world_key(self) -> str:
        return str(self.task.seed % 3)


class ManyNames(Corridor):
    """Worlds with names, all of which begin alike."""

    signs: ClassVar[int] = 1

    def world_key(self) -> str:
        return str(self.task.seed)


@pytest.fixture
def as_bandit(monkeypatch: pytest.MonkeyPatch):
    """Register another class under a known name."""
    return lambda kind: monkeypatch.setattr(registry, "_load", lambda name: kind)


@pytest.mark.parametrize(
    ("kind", "expected", "few"),
    [
        (Corridor, Survey("seeds", 64, 64), False),
        (SignInRules, Survey("seeds", 64, 64), False),
        (SameSign, Survey("shared", 64, 1), True),
        (FewNames, Survey("split", 64, 3), True),
        (ManyNames, Survey("split", 64, 64), False),
    ],
)
def test_what_some_tasks_tell_of_an_environment(as_bandit, kind, expected, few):
    as_bandit(kind)
    assert survey("bandit", {}) == expected
    assert expected.few == few


def test_worlds_are_shared_when_most_tasks_begin_as_another_does(as_bandit):
    as_bandit(Corridor)
    assert separation("bandit", ["a", "a", "b", "c"], named=False) == "shared"
    assert separation("bandit", ["a", "a", "b", "c", "d"], named=False) == "seeds"
    assert separation("bandit", ["a"], named=False) == separation("bandit", [], named=False) == "seeds"


def test_built_in_environments_keep_their_worlds_apart():
    assert {survey(name, {}).separation for name in ("minesweeper", "sokoban", "alfworld", "webshop")} == {"split"}


@pytest.mark.parametrize(
    ("kind", "heading"),
    [
        (Corridor, "seeds"),
        (SignInRules, "seeds"),
        (SameSign, "share"),
        (ManyNames, ""),
    ],
)
def test_the_tables_heading_says_so(as_bandit, kind, heading):
    as_bandit(kind)
    result = mulligan.evaluate("bandit", lambda messages: "<action>left</action>", tasks=8, room=False)
    _, _, second = str(eval_table(result.to_dict()).title).partition("\n")
    assert (heading in second) if heading else (second == "")


def test_check_warns_and_does_not_fail(as_bandit, capsys):
    for kind, warns in ((SameSign, True), (FewNames, True), (Corridor, True), (ManyNames, False)):
        as_bandit(kind)
        with pytest.raises(SystemExit) as stopped:
            main(["check", "bandit"])
        assert not stopped.value.code
        printed = capsys.readouterr().out
        assert ("Warning" in printed) == warns
        assert "canonical" in printed


def test_the_one_map_of_an_adapted_environment_is_shared():
    pytest.importorskip("gymnasium")
    name = "gymnasium:FrozenLake-v1"
    assert survey(name, {}) == Survey("shared", 64, 1)
    result = mulligan.evaluate(name, "random", tasks=6, episodes=1, params={"turns": 5})
    assert result.separation == "shared"
    assert "share worlds" in str(eval_table(result.to_dict()).title)


def test_where_all_tasks_have_the_same_names_training_and_evaluation_share_them():
    assert survey("expedition", {"words": "same"}).separation == "shared"
    assert survey("expedition", {}).separation == "split"
