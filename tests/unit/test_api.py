"""Training and evaluating from Python: where the settings come from."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import mulligan
from mulligan import api
from mulligan.errors import UsageError
from mulligan.training.resolve import resolve
from notebooks import interrupt, run_interrupted
from small_runs import metrics, small


def test_training_takes_its_settings_from_one_place(tmp_path):
    with pytest.raises(UsageError, match="env, settings"):
        mulligan.train("bandit", run=tmp_path / "run", resume=True, settings={"run.seed": 1})
    with pytest.raises(UsageError, match="config"):  # it would count for nothing
        mulligan.train(config=resolve("test", None, {}), run=tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_training_begins_with_the_preset_for_any_machine(tmp_path, monkeypatch):
    begun = []
    loop = SimpleNamespace(train=lambda config, run, **_: begun.append(config))
    monkeypatch.setitem(sys.modules, "mulligan.training.loop", loop)  # which needs torch
    mulligan.train("bandit", run=tmp_path / "run")
    mulligan.train("bandit", preset="cpu", run=tmp_path / "run")
    assert begun[0] == begun[1]


def test_an_interrupt_in_a_notebook_saves_the_update_and_says_how_to_go_on(tmp_path):
    run, config = tmp_path / "run", small()
    config = replace(config, run=replace(config.run, updates=4, checkpoint_every=4))
    config = replace(config, warmstart=replace(config.warmstart, steps=0))

    async def cell() -> None:
        mulligan.train(config=config, run=run, on_update=lambda update: interrupt() if update["update"] == 1 else None)

    assert run_interrupted(cell()).endswith(f"continue with: mulligan.train(run={str(run)!r}, resume=True)")
    assert (run / "checkpoints" / "update-00002").is_dir()
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
