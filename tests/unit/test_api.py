"""Training and evaluating from Python: where the settings come from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import mulligan
from mulligan import api
from mulligan.envs.bandit import Bandit
from mulligan.errors import UsageError
from mulligan.report.run import RunFolder
from mulligan.training.loop import Trainer
from mulligan.training.resolve import resolve, to_tree
from mulligan.training.step import Learner
from notebooks import interrupt, run_interrupted
from small_runs import metrics, small


def test_training_takes_its_settings_from_one_place(tmp_path):
    config = resolve("test", None, {})
    with pytest.raises(UsageError, match="env, settings"):
        mulligan.train("bandit", config=config, run=tmp_path / "run", settings={"run.seed": 1})
    with pytest.raises(UsageError, match="config"):  # it would count for nothing
        mulligan.train(config=config, run=tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_training_begins_with_the_preset_for_any_machine(tmp_path, monkeypatch):
    begun = []
    loop = SimpleNamespace(train=lambda config, run, **_: begun.append(config))
    monkeypatch.setitem(sys.modules, "mulligan.training.loop", loop)  # which needs torch
    mulligan.train("bandit", run=tmp_path / "run")
    mulligan.train("bandit", preset="cpu", run=tmp_path / "run")
    assert begun[0] == begun[1]


def test_a_resumed_run_takes_what_the_command_line_lets_it_change(tmp_path, monkeypatch):
    class Pull(Bandit):
        """Written in a notebook: it is not known before it is given."""

    given = []
    loop = SimpleNamespace(train=lambda config, run, **_: given.append(config))
    monkeypatch.setitem(sys.modules, "mulligan.training.loop", loop)  # which needs torch
    config = resolve("test", None, {"task.env": "bandit", "env.arms": "3"})
    config = replace(config, task=replace(config.task, env="Pull"))
    RunFolder.create(tmp_path / "run", {"kind": "train", **to_tree(config)})
    mulligan.train(Pull, params={"arms": 3}, settings={"run": {"updates": 22}}, run=tmp_path / "run", resume=True)
    assert given == [replace(config, run=replace(config.run, updates=22))]
    with pytest.raises(UsageError, match=r"task\.env was Pull, is bandit"):
        mulligan.train("bandit", run=tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match=r"run\.seed was 0, is 1"):
        mulligan.train(settings={"run.seed": 1}, run=tmp_path / "run", resume=True)


def test_an_interrupt_in_a_notebook_saves_the_first_step_or_update_too_and_says_how_to_go_on(tmp_path, monkeypatch):
    run, config = tmp_path / "run", small()
    config = replace(config, run=replace(config.run, updates=4, checkpoint_every=4))

    def interrupted(method: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted_method(*given: Any, **more: Any) -> Any:
            interrupt()
            return method(*given, **more)

        return interrupted_method

    async def cell(**given: Any) -> None:
        mulligan.train(run=run, **given)

    given: dict[str, Any] = {"config": config}
    rounds = ((Learner, "supervised", "warmstart-00001"), (Trainer, "_update", "update-00001"))
    for kind, name, saved in (*rounds, (Trainer, "_update", "update-00002")):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, interrupted(getattr(kind, name)))
            message = run_interrupted(cell(**given))
        assert message.endswith(f"continue with: mulligan.train(run={str(run)!r}, resume=True)")
        assert (run / "checkpoints" / saved).is_dir()
        given = {"resume": True}
    mulligan.train(run=run, resume=True)
    assert metrics(run) == metrics(mulligan.train(config=config, run=tmp_path / "other").path)


def test_a_trained_policy_is_evaluated_as_it_was_trained_unless_told_otherwise(monkeypatch):
    given = {"task.env": "minesweeper", "env.rows": "4", "env.mines": "2", "task.related": "true"}
    monkeypatch.setattr(api, "trained_with", lambda policy: resolve("test", None, given))
    result = mulligan.evaluate("minesweeper", "random", params={"mines": 3}, tasks=3, room=False)
    params = dict(result.trials[0].task.params)
    assert (params["rows"], params["mines"]) == (4, 3)
    assert [len(trial.related) for trial in result.trials] == [2, 2, 2]
    result = mulligan.evaluate("minesweeper", "random", tasks=3, room=False, related=False)
    assert [len(trial.related) for trial in result.trials] == [0, 0, 0]
