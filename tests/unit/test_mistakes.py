"""Plain mistakes of people who use the command line or Python are told in a line, and nothing is silently ignored."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import ClassVar

import pytest

import mulligan
from mulligan.app.cli import main
from mulligan.app.sweep.arms import read_sweep
from mulligan.envs import registry
from mulligan.envs.bandit import Bandit
from mulligan.envs.check import check_env
from mulligan.errors import (
    ContractBroken,
    DamagedFile,
    ParameterError,
    RunFolderError,
    StopReason,
    UnknownName,
    UsageError,
)
from mulligan.players import player_from
from mulligan.policy.endpoint import EndpointPolicy
from mulligan.report.run import RunFolder
from mulligan.report.tables import footnotes
from mulligan.training import checkpoint
from mulligan.training.loop import train
from mulligan.training.metrics import MetricsFile
from mulligan.training.resolve import to_tree
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Completion, Sampling, Step, Task
from scripted_play import ScriptedPolicy
from small_runs import small

mulligan.trust(__file__)


def command(words: list[str]) -> object:
    """How a command ends."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


class Timid(Bandit):
    """A bandit with a player of its own."""

    players: ClassVar[tuple[str, ...]] = ("expert", "omniscient", "timid")


class Named(Bandit):
    """A parameter cannot be called as every task's own are."""

    defaults: ClassVar[dict] = {**Bandit.defaults, "seed": 1}


class Digits(Bandit):
    """``isdigit`` is true of more than ``int`` can read."""

    def step(self, reply: str) -> Step:
        text = reply.removeprefix("<action>").removesuffix("</action>")
        return super().step(f"<action>{int(text)}</action>" if text.isdigit() else reply)


class Endless(Bandit):
    """Pays what cannot be counted."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(reward=float("nan"))


@pytest.mark.parametrize("words", [["--base-url", "http://x"], ["--model", "m"], ["--extra-body", "{}"]])
@pytest.mark.parametrize("name", ["eval", "play"])
def test_options_of_an_endpoint_are_refused_where_another_policy_plays(capsys, name, words):
    assert command([name, "bandit", "--policy", "random", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_parameter_that_is_given_as_an_option_is_named_as_it_is_written(capsys):
    for words in ("eval minesweeper --policy random", "play minesweeper", "train", "train kuhn:1,minesweeper:2"):
        assert command([*words.split(), "--mines", "5"]) == 2
        assert "did you mean '--env.mines'?" in capsys.readouterr().err


def test_a_run_of_another_game_is_evaluated_with_a_note(capsys, tmp_path):
    run = RunFolder.create(tmp_path / "mine", {"kind": "train", **to_tree(small())}).path
    for env in ("sokoban", "bandit"):
        assert command(["eval", env, "--policy", str(run)]) == 2  # it has no checkpoint yet
        was_noted = f"note: {run} was trained on bandit, not on sokoban\n" in capsys.readouterr().err
        assert was_noted == (env == "sokoban")


@pytest.mark.parametrize("name", ["seed", "env", "tasks", "seed_set", "or_fewer"])
def test_parameters_that_an_environment_does_not_have_are_unknown_whatever_they_are_called(capsys, name):
    for words in ("eval bandit --policy random", "play bandit --policy random", "train bandit --preset test --dry-run"):
        assert command([*words.split(), f"--env.{name}", "4"]) == 2
        assert f"'{name}'" in capsys.readouterr().err
    with pytest.raises(UnknownName):
        mulligan.evaluate("bandit", "expert", tasks=2, params={name: 3})


def test_a_parameter_of_a_name_that_tasks_have_is_refused():
    with pytest.raises(UsageError, match="'seed'"):
        registry.make_task(f"{__file__}:Named")


@pytest.mark.parametrize("settings", [{"defaults": {"n": [1, 2]}}, {"turns": "5"}])
def test_settings_of_a_class_that_no_task_could_hold_are_refused(settings):
    with pytest.raises(UsageError, match="must be"):
        mulligan.make(type("Odd", (Bandit,), settings))


def test_an_environments_own_players_can_be_named():
    assert player_from("player:timid:0.5").kind == "timid"
    registry.check_player(f"{__file__}:Timid", "timid")
    with pytest.raises(UnknownName, match="timid"):
        mulligan.evaluate("bandit", "player:timid", tasks=1)
    with pytest.raises(UsageError, match="player:NAME"):
        player_from("player:")


def test_a_policy_needs_no_name():
    class Mine:
        def start(self, task, seed):
            return self

        async def reply(self, messages, sampling):
            return Completion("<action>1</action>")

        def close(self):
            pass

    assert mulligan.evaluate("bandit", Mine(), tasks=2, room=False).policy == "Mine"


def test_an_endpoint_can_be_named_in_python():
    with pytest.raises(UsageError, match="EndpointPolicy"):
        mulligan.evaluate("bandit", "endpoint:m", tasks=1)
    found = player_from("endpoint:m", base_url="http://x", extra_body='{"max_tokens": null, "top_k": 3}')
    assert isinstance(found, EndpointPolicy)
    body = found.body([], Sampling(), 0)
    assert body["top_k"] == 3
    assert "max_tokens" not in body
    with pytest.raises(ParameterError, match="extra_body"):
        player_from("endpoint:m", base_url="http://x", extra_body="[1]")


def test_an_agent_that_never_answers_is_warned_of():
    def boom(messages):
        raise ValueError("boom")

    with pytest.warns(UserWarning, match="ValueError: boom"):
        mulligan.evaluate("bandit", boom, tasks=2, room=False)


def test_after_the_money_has_run_out_it_is_told_that_it_takes_more():
    told = {**mulligan.evaluate("bandit", "random", tasks=2, room=False).to_dict(), "complete": False, "run": "r"}
    assert footnotes({**told, "max_cost": 0.0})[-1].endswith("continue with: mulligan eval --resume r --max-cost MORE")
    assert footnotes({**told, "max_cost": 1.0})[-1].endswith("continue with: mulligan eval --resume r")


@pytest.mark.parametrize("file", ["weights.safetensors", "optimiser.pt", "state.json"])
def test_a_damaged_checkpoint_is_named(tmp_path, file):
    train(small(), tmp_path / "run")
    newest = checkpoint.newest(tmp_path / "run")
    (newest / file).write_bytes(b"")
    with pytest.raises(RunFolderError, match=newest.name):
        train(None, tmp_path / "run", resume=True)


def test_a_damaged_checkpoint_is_told_with_one_that_can_be_used(tmp_path):
    """And what is advised is so: of three checkpoints two are damaged, then all of them."""
    config = small()
    run = train(replace(config, run=replace(config.run, updates=3, keep=3)), tmp_path / "run")
    first, second, third = checkpoint.kept(run)
    (third / "weights.safetensors").write_bytes(b"")
    with pytest.raises(RunFolderError, match=rf"{third.name} cannot be read .* {second.name} can: .*{run}@2 uses it"):
        player_from(str(run))
    player_from(f"{run}@2")
    (second / "optimiser.pt").write_bytes(b"")
    with pytest.raises(RunFolderError, match=f"goes on from it if you remove {second.name} and {third.name}$"):
        train(None, run, resume=True)
    (first / "weights.safetensors").rename(tmp_path / "weights")
    with pytest.raises(RunFolderError, match=r"no other that can be read; .* training would begin anew$"):
        train(None, run, resume=True)
    (tmp_path / "weights").rename(first / "weights.safetensors")
    shutil.rmtree(second)
    shutil.rmtree(third)
    train(None, run, resume=True)
    assert checkpoint.newest(run) == third


def test_a_damaged_line_of_metrics_is_named(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"update": 1}\nwhat?\n{"update": 2}\n')
    with pytest.warns(DamagedFile, match=r"metrics.jsonl is damaged: 1 of its 3 lines"):
        assert [line["update"] for line in MetricsFile(file).read()] == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[arms.a]\n'run.seed' = 3\n", r"'a' .*run\.seed"),
        ("[settings]\n'run.seed' = 3\n[arms.a]\n", r"'a' .*run\.seed"),
    ],
)
def test_what_a_sweep_would_ignore_is_refused(tmp_path, text, said):
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_sweep(tmp_path / "sweep.toml")


def test_settings_that_would_do_nothing_are_refused(capsys):
    start = ["train", "bandit", "--preset", "test", "--dry-run"]
    assert command([*start, "--seed", "3", "--run.seed", "4"]) == 2
    assert "--run.seed" in capsys.readouterr().err


def test_digits_that_are_no_numbers_are_among_what_is_checked():
    with pytest.raises(ContractBroken, match="²"):
        check_env(f"{__file__}:Digits")


def test_a_reward_that_cannot_be_counted_is_the_environments_failure():
    trial = run_trial_sync(registry.make_task(f"{__file__}:Endless"), ScriptedPolicy(["<action>1</action>"]))
    assert trial.episodes[0].stop is StopReason.ENV_RAISED
    assert "reward nan" in trial.episodes[0].error
    json.dumps(trial.episodes[0].reward, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", float("inf")), ("temperature", "0.7"), ("top_p", None), ("max_tokens", 1.5)]
)
def test_a_reply_is_drawn_with_numbers_that_can_be(name, value):
    with pytest.raises(ParameterError, match=f"{name} .*{value!r}"):
        Sampling(**{name: value})


def test_mistakes_in_python_are_told_in_its_words():
    with pytest.raises(UsageError):
        mulligan.evaluate(Task, "random", tasks=1)
    with pytest.raises(UsageError, match="make_task"):
        run_trial_sync("bandit", ScriptedPolicy(["1"]))
    with pytest.raises(UnknownName, match=r"params={'arms': 4}"):
        mulligan.evaluate("bandit", "random", tasks=1, arms=4)
    for maker in (mulligan.make_task, mulligan.make):
        with pytest.raises(UsageError, match=r"params={'arms': 4}"):
            maker("bandit", arms=4)
    with pytest.raises(UnknownName, match="known: all, foreign, independent, off"):
        mulligan.evaluate("bandit", "random", tasks=1, controls="none")
    with pytest.raises(ParameterError, match=r"seed .*1\.5"):
        registry.make_task("bandit", 1.5)
    assert set(mulligan.evaluate("bandit", "random", tasks=2, controls="all", memory="reflection").controls) == {
        "independent", "removed", "foreign", "other-trial",
    }  # fmt: skip
    assert isinstance(registry.make_task("bandit", 1), Task)


def test_a_command_is_named_once(capsys):
    assert command(["eval", "bandit", "--env.arms"]) == 2
    assert capsys.readouterr().err.count("eval: --env.arms") == 1
