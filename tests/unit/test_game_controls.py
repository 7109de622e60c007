"""Controls of games: the memory of a trial against another opponent, and the opponent told in words."""

from __future__ import annotations

import re

import pytest

import mulligan
from gamblers import MAGE, Gambler
from mulligan.envs.kuhn.env import KuhnPoker
from mulligan.report.tables import eval_table, footnotes

ALWAYS = "always-defect,always-cooperate"


def cooperate(messages) -> str:
    """Writes down what the opponent played."""
    last = messages[-1]["content"]
    if "Write a short reflection" not in last:
        return "<action>cooperate</action>"
    played = re.findall(r"cooperate/(\w+)", last)
    return f"<reflection>it played {' '.join(played)}</reflection>"


def evaluate(policy, env="dilemma", **options):
    given = {"params": {"opponent": ALWAYS, "rounds": 2}, "tasks": 8, "controls": "foreign", "room": False}
    return mulligan.evaluate(env, policy, **{**given, **options})


@pytest.mark.parametrize("memory", ["history", "reflection", "both"])
def test_foreign_memory_is_that_of_another_opponent(memory, tmp_path):
    """Where the opponent always defects, memory shows one that cooperates, and the other way round."""
    evaluate(cooperate, memory=memory, run=tmp_path / "run")
    for arm, is_foreign in (("main", False), ("foreign", True)):
        for trial in mulligan.load_trials(tmp_path / "run", arm):
            habit = trial.task.opponent.removeprefix("always-")
            other = {"defect": "cooperate", "cooperate": "defect"}[habit]
            for episode in trial.episodes[1:]:
                memory_text = episode.opening[-1]["content"].partition("begins.")[0]
                shown = re.findall(r"cooperate/(\w+)", memory_text)
                shown += [word for note in re.findall(r"it played (.*)", memory_text) for word in note.split()]
                assert set(shown) & {"defect", "cooperate"} >= {other if is_foreign else habit}
                assert f"cooperate/{habit if is_foreign else other}" not in memory_text
            assert trial.episodes[0].turns[0].reply.text


def test_foreign_memory_is_of_the_same_seat(tmp_path):
    def bets(messages):
        return "<action>bet</action>"

    params = {"opponent": "always-bet,always-pass"}
    evaluate(bets, "kuhn", params=params, memory="history", tasks=16, run=tmp_path / "run")
    for trial in mulligan.load_trials(tmp_path / "run", "foreign"):
        order = ("first", "second")[trial.task.seat - 1]
        assert f"You acted {order}." in trial.episodes[1].opening[-1]["content"]


def test_one_opponent_has_no_foreign_memory():
    result = evaluate(cooperate, params={"opponent": "always-defect"}, memory="history", tasks=2).to_dict()
    assert result["controls"] == {}
    assert result["complete"]
    assert "No control foreign: all tasks have the same opponent" in footnotes(result)


def test_tables_name_the_controls_of_games():
    data = evaluate(cooperate, memory="history").to_dict()
    names = [str(getattr(cell, "renderable", cell)) for cell in eval_table(data).columns[0].cells]
    assert "memory of another opponent" in names


class Reader(Gambler):
    """Bets if it is told that the opponent folds."""

    name = "reader"

    def bet(self, messages):
        return float("The opponent folds." in messages[0]["content"])


def test_who_the_opponent_is_can_be_told(monkeypatch):
    pytest.importorskip("pyspiel")
    words = {"always-pass": "folds", "always-bet": "calls"}
    monkeypatch.setattr(KuhnPoker, "opponent_words", words, raising=False)
    reader = Reader()
    params = {"opponent": "always-pass,always-bet", "seat": 1}
    result = evaluate(reader, "kuhn", params=params, controls="told", memory="history", tasks=12)
    told = result.controls["told"]
    assert told.exact == [12, 12, 12]
    folds = sum(trial.task.opponent == "always-pass" for trial in result.trials) / 12
    # Told, it bets against one that always folds, and wins the ante; otherwise it folds to a bet, and loses it.
    assert told.returns == pytest.approx([folds - (1 - folds)] * 3)
    assert result.main.returns == pytest.approx([-(1 - folds)] * 3)  # two passes: better cards win as often as worse
    assert all(messages in reader.weighed for messages in reader.asked)
    words.pop("always-bet")
    from mulligan.eval.opponents import opponent_in_words

    opponent_in_words.cache_clear()
    wordless = evaluate(reader, "kuhn", params=params, controls="told", tasks=12, memory="history").to_dict()
    assert "No control told: the environment has no words for the opponent" in footnotes(wordless)
    opponent_in_words.cache_clear()


def test_one_that_changes_is_told_with_the_episode(monkeypatch):
    from mulligan.eval.opponents import opponent_in_words

    monkeypatch.setattr(KuhnPoker, "opponent_words", {"always-pass": "folds", "always-bet": "calls"}, raising=False)
    task = mulligan.make_task("kuhn", params={"opponent": "always-pass>always-bet@3"})
    assert opponent_in_words(task) == "The opponent folds; from episode 3 on it calls."
    opponent_in_words.cache_clear()


def test_told_is_for_games_with_words():
    assert "told" not in mulligan.evaluate("bandit", "random", tasks=2, controls="all", memory="both").controls
    pytest.importorskip("pyspiel")
    bare = evaluate(Gambler(), "kuhn", params={"opponent": MAGE}, controls="told", tasks=2, style="bare").to_dict()
    assert "No control told: style bare has no words" in footnotes(bare)
