"""What a notebook does: classes as environments, results that show themselves."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
import types
from dataclasses import fields

import pytest

import mulligan
from mulligan import api
from mulligan.envs import registry
from mulligan.envs.bandit import Bandit
from mulligan.errors import MissingExtra, UnknownName, UsageError
from mulligan.report.tables import eval_table, footnotes
from mulligan.training import resolve
from mulligan.trial.settings import TrialSettings


class OfANotebook(Bandit):
    """Known here by its file alone."""


class Lever(Bandit):
    """A bandit that was written in a notebook."""


def test_every_door_takes_a_class_and_params():
    task = mulligan.make_task(Lever, seed=2, params={"arms": 3})
    assert (task.env, task["arms"]) == ("Lever", 3)
    assert isinstance(mulligan.make(task), Lever)
    assert mulligan.make(Lever, 2, {"arms": 3}).task == task
    assert mulligan.check_env(Lever, params={"arms": 3}).env == "Lever"
    result = mulligan.evaluate(Lever, "expert", tasks=3, params={"arms": 3}, room=False)
    assert {trial.task["arms"] for trial in result.trials} == {3}
    with pytest.raises(UnknownName):
        mulligan.make_task(Lever, params={"legs": 3})


def test_a_class_that_was_defined_anew_replaces_the_old_one():
    first = type("Anew", (Bandit,), {})
    second = type("Anew", (Bandit,), {})
    assert type(mulligan.make(first)) is first
    assert type(mulligan.make(second)) is second
    with pytest.raises(UsageError):
        mulligan.make_task(type("bandit", (Bandit,), {}))  # a built-in one is called so


def test_training_takes_a_class(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    configs = []
    monkeypatch.setattr("mulligan.training.loop.train", lambda config, run, **_: configs.append(config) or run)
    run = mulligan.train(Lever, preset="test", params={"arms": 3}, settings={"algo.gamma_traj": 0.5}, run=tmp_path)
    assert (run.path, configs[0].task.env, configs[0].task.params["arms"]) == (tmp_path, "Lever", 3)
    assert configs[0].algo.gamma_traj == 0.5
    assert configs[0] == resolve.resolve("test", None, {"task.env": "Lever", "env.arms": "3", "algo.gamma_traj": "0.5"})


def test_settings_may_stand_in_sections_as_a_file_has_them(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    configs = []
    monkeypatch.setattr("mulligan.training.loop.train", lambda config, run, **_: configs.append(config) or run)
    settings = tomllib.loads("[algo]\ngamma_traj = 0.5\n[task.params]\narms = 3\n[run]\nupdates = 2\n")
    mulligan.train(Lever, preset="test", settings=settings, run=tmp_path)
    assert (configs[0].algo.gamma_traj, configs[0].task.params["arms"], configs[0].run.updates) == (0.5, 3, 2)


def test_a_run_that_was_trained_on_a_class_is_evaluated_by_its_file():
    with pytest.raises(UsageError, match=r"file\.py:OfANotebook"):
        registry.spec("OfANotebook")
    mulligan.trust(__file__)
    registry.spec(f"{__file__}:OfANotebook")  # what the command line names
    assert registry.make("OfANotebook").task.env == "OfANotebook"


def test_a_result_says_what_was_played_and_what_was_left_out():
    result = mulligan.evaluate("bandit", "expert", tasks=4, params={"arms": 3}, memory="none", controls="all")
    assert "bandit (arms=3)" in repr(result)
    data = result.to_dict()
    assert "bandit (arms=3): 4 tasks" in str(eval_table(data).title)
    assert any("no control foreign, independent, other-trial, removed" in line for line in footnotes(data))
    assert "outcomes" not in repr(result.main)


def test_prices_are_given_as_on_the_command_line():
    result = mulligan.evaluate("bandit", lambda messages: "<action>1</action>", tasks=2, price_in=1e6, room=False)
    assert result.cost > 0


def test_results_show_themselves(tmp_path):
    pytest.importorskip("pandas")
    result = mulligan.evaluate("bandit", "expert", tasks=4, episodes=2)
    rows = result.to_frame().to_dict("records")
    assert [row["kind"] for row in rows].count("policy") == 1
    assert rows[0]["p@2"] == result.p[1]
    assert (rows[0]["p@1 low"], rows[0]["p@1 high"]) == result.main.ci[0]
    game = mulligan.evaluate("tictactoe", "random", tasks=2, episodes=1, room=False, controls=())
    assert game.to_frame()["return 1"][0] == game.main.returns[0]
    trial = result.trials[0]
    assert trial.to_frame()["stop"][0] == trial.episodes[0].stop.value
    check = mulligan.check_env("bandit")
    assert check.to_frame()["tasks"][0] == check.tasks
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "p@1": 0.25}\n{"update": 2, "p@1": 0.5}\n')
    run = mulligan.TrainedRun(tmp_path)
    assert list(run.to_frame()["update"]) == [1, 2]
    for shown, figures in ((result, f"{result.p[0]:.3g}"), (trial, "bandit"), (check, "bandit"), (run, "50.0")):
        assert len(repr(shown)) < 400
        assert figures in repr(shown)
        assert "<td>" in shown._repr_html_() or shown is result


def test_a_notebook_shows_the_figures_and_the_heading_of_the_terminal():
    result = mulligan.evaluate("bandit", "expert", tasks=4, episodes=2, params={"arms": 3}, memory="both")
    shown = result._repr_html_()
    assert "bandit (arms=3): 4 tasks, 2 episodes, memory both" in shown
    low, high = result.main.ci[1]
    row = next(line for line in re.sub("<.*?>", "", shown).splitlines() if line.startswith(" expert "))
    assert re.search(rf"{100 * result.p[0]:.1f} ±.* {100 * result.p[1]:.1f} ±{50 * (high - low):.1f} +100 %", row)
    assert "±: half of" in shown


def test_a_notebook_without_widgets_is_not_warned_of_bars():
    """By tqdm, which transformers imports."""
    program = (
        "import sys, types\n"
        "sys.modules |= {name: types.ModuleType(name) for name in ('IPython', 'ipykernel', 'ipykernel.zmqshell')}\n"
        "sys.modules['IPython'].get_ipython = lambda: None\n"
        "sys.modules['ipywidgets'] = None\nimport mulligan\nimport tqdm.auto\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_html_is_escaped():
    class Loud(Bandit):
        def step(self, reply):
            raise ValueError("<script>")

    with pytest.warns(UserWarning, match="script"):
        trial = mulligan.run_trial_sync(mulligan.make(Loud), lambda messages: "1")
    assert "<script>" not in trial._repr_html_()


def test_frames_name_the_extra_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra) as missing:
        mulligan.evaluate("bandit", "expert", tasks=1, room=False).to_frame()
    assert missing.value.extra == "notebook"


def test_signatures_are_real():
    """Every option has a name; those of a trial are fields of `TrialSettings`, of the same type."""
    settings = {field.name: field.type for field in fields(TrialSettings)}
    for name in api.TrialOptions.__annotations__:
        assert name in settings
    for function in (mulligan.evaluate, mulligan.run_trial, mulligan.run_trial_sync, api.train, mulligan.make_task):
        parameters = inspect.signature(function).parameters.values()
        assert [each.name for each in parameters if each.kind is each.VAR_KEYWORD] in (["trial"], ["surplus"], [])


def test_progress_is_shown_where_somebody_looks(capsys, monkeypatch):
    mulligan.evaluate("bandit", "expert", tasks=2, room=False)
    assert capsys.readouterr().err == ""  # a script whose output goes to a file
    monkeypatch.setattr("mulligan.app.progress._EVERY_SECONDS", 0.0)
    mulligan.evaluate("bandit", "expert", tasks=2, room=False, progress=True)
    assert "main: 2 of 2" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))  # without ipywidgets: lines
    mulligan.evaluate("bandit", "expert", tasks=2, room=False)
    assert "main: 2 of 2" in capsys.readouterr().err
    monkeypatch.setattr("mulligan.app.progress.is_live", lambda: True)
    calls = []
    mulligan.evaluate("bandit", "expert", tasks=2, room=False, progress=lambda *given: calls.append(given))
    assert calls[-1][1:] == (2, 2)
    mulligan.evaluate("bandit", "expert", tasks=2, room=False, progress=False)
    assert capsys.readouterr().err == ""
    mulligan.evaluate("bandit", "expert", tasks=2, room=False)
    assert capsys.readouterr().err != ""
