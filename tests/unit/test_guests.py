"""Policies as opponents: what they are shown, what they play, and what goes wrong with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.chat_server import ChatServer

import mulligan
from mulligan import guests
from mulligan.app.cli import main
from mulligan.envs import registry
from mulligan.errors import MulliganError, StopReason, UsageError
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.trial.runner import run_trial_sync

SPY = """
import json, re
from pathlib import Path
LOG = Path(__file__).with_suffix(".jsonl")
def note(messages):
    with LOG.open("a") as log:
        log.write(json.dumps([message["content"] for message in messages]) + "\\n")
def bets(messages):
    note(messages)
    return "I bet. <action>bet</action>"
def copies(messages):
    note(messages)
    last = re.findall(r"/(rock|paper|scissors)", messages[-1]["content"])
    return f"<action>{last[-1] if last else 'rock'}</action>"
def first_cell(messages):
    note(messages)
    rows = messages[-1]["content"].split("\\n")
    free = [(y, x) for y, row in enumerate(rows[:3], 1) for x, mark in enumerate(row.split(), 1) if mark == "."]
    return f"<action>{free[0]}</action>" if free else "?"
def mumbles(messages):
    note(messages)
    return "hm"
def breaks(messages):
    raise RuntimeError("no idea")
def learns(messages):
    note(messages)
    return "hm" if len(messages) < 4 else "<action>pass</action>"
"""


@pytest.fixture
def spy(tmp_path):
    (tmp_path / "spy.py").write_text(SPY)
    mulligan.trust(tmp_path / "spy.py")
    return tmp_path / "spy.py"


def told(spy: Path) -> list[list[str]]:
    """The messages of each question that the guest was asked."""
    log = spy.with_suffix(".jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("env", ["kuhn", "leduc"])
def test_the_other_player_sees_its_own_card_and_not_the_agents(spy, env):
    """All that it is told is the same whatever the agent holds."""
    reply = {"kuhn": "bet", "leduc": "call"}[env]
    spy.write_text(SPY.replace("<action>bet</action>", f"<action>{reply}</action>"))
    seen: dict[tuple, set] = {}
    for seat in (1, 2):
        world = registry.make(env, 3, opponent=f"{spy}:bets", seat=seat)
        for chance in range(25):
            spy.with_suffix(".jsonl").unlink(missing_ok=True)
            world.reset(chance)
            if seat == 1:
                world.step(f"<action>{reply}</action>")
            if env == "kuhn":
                mine, theirs = "JQK"[world.card], "JQK"[world.hidden]
            else:
                cards = world.state.history()[:2]
                mine, theirs = "JQK"[cards[seat - 1]], "JQK"[cards[2 - seat]]
            for messages in told(spy)[:1]:  # before any card is laid open
                assert f"You act {('', 'second', 'first')[seat]}" in messages[0]
                assert f"Your card: {theirs}\n" in messages[1]
                seen.setdefault((seat, theirs), set()).add((mine, tuple(messages)))
    assert len(seen) == 6
    for shown in seen.values():
        assert len({mine for mine, _ in shown}) > 1
        assert len({messages for _, messages in shown}) == 1


def test_a_match_of_several_hands_is_told_from_the_other_side(spy):
    world = registry.make("kuhn", 2, opponent=f"{spy}:bets", seat=1, hands=2)
    world.reset()
    first, theirs = world.card, world.hidden
    world.step("<action>bet</action>")  # and it calls: a showdown
    world.step("<action>pass</action>")
    text = told(spy)[-1][-1]
    won = "lose" if first > theirs else "win"
    opponents = f"Showdown: the opponent holds {'JQK'[first]}. You {won} 2 chips."
    assert f"Hand 1: Your card: {'JQK'[theirs]}. Betting: opponent bet, you bet. {opponents}" in text


def test_a_throw_is_chosen_without_knowing_the_agents(spy):
    world = registry.make("rps", 0, opponent=f"{spy}:copies", throws=4)
    for reply in ("paper", "scissors", "rock", "paper"):
        world.step(f"<action>{reply}</action>")
    assert world.played == [(1, 0), (2, 1), (0, 2), (1, 0)]
    last = told(spy)[-1]
    assert "So far (you/opponent): rock/paper, paper/scissors, scissors/rock\nWon 0, lost 3, drawn 0." in last[-1]
    assert len(last) == 8  # rules, three throws with their answers, and the question


def test_a_board_is_the_other_sides(spy):
    world = registry.make("tictactoe", 0, opponent=f"{spy}:first_cell", seat=2)
    world.step("<action>(2, 2)</action>")
    assert world.history == [0, 4, 1]
    rules, opening = told(spy)[0]
    assert "You are X and move first" in rules
    assert opening == ". . .\n. . .\n. . .\nYou are X, to move."
    assert told(spy)[-1][-1].startswith("X . .\n. O .\n. . .\nThe opponent played (2, 2). You are X, to move.")


def test_games_of_openspiel_take_policies_too(spy):
    spy.write_text(SPY.replace("<action>bet</action>", "<action>o2</action>"))
    world = registry.make("openspiel:connect_four", 0, opponent=f"{spy}:bets", seat=1)
    step = world.step("<action>x0</action>")
    assert world.state.history() == [0, 2]
    assert step.valid
    assert "<action>o0</action>" in told(spy)[0][0]  # the example of its rules is a move of its own


def test_one_that_names_no_move_is_told_why_and_forfeits_in_the_end(spy):
    task = mulligan.make_task("kuhn", 1, {"opponent": f"{spy}:mumbles", "seat": 2})
    trial = run_trial_sync(task, RandomPolicy())
    assert [episode.stop for episode in trial.episodes] == [StopReason.OPPONENT_FAILED]
    assert "named no move in 3 replies; the last one: 'hm'" in trial.episodes[0].error
    assert "The reply names no single action." in told(spy)[1][-1]
    patient = mulligan.make_task("kuhn", 1, {"opponent": f"{spy}:learns", "seat": 2})
    assert not run_trial_sync(patient, RandomPolicy()).failed


def test_one_that_raises_forfeits(spy):
    task = mulligan.make_task("rps", params={"opponent": f"{spy}:breaks"})
    trial = run_trial_sync(task, RandomPolicy())
    assert trial.episodes[0].stop is StopReason.OPPONENT_FAILED
    assert "raised RuntimeError: no idea" in trial.episodes[0].error


def test_the_same_luck_gets_the_same_replies(spy):
    """Replies of a policy are not drawn again: G trials of a group, and an episode that is repeated, meet the same."""
    task = mulligan.make_task("kuhn", 1, {"opponent": f"{spy}:bets", "seat": 2})
    for _ in range(3):
        run_trial_sync(task, lambda messages: "<action>pass</action>", restart="replay")
    assert len(told(spy)) == 1


def test_a_file_that_only_a_folder_names_is_not_run(spy, monkeypatch):
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    other = spy.rename(spy.with_name("theirs.py"))
    with pytest.raises(UsageError, match=r"theirs\.py is Python code that a run folder names.*--trust"):
        registry.task_of("rps", 0, {"opponent": f"{other}:copies"})


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on compact rock-paper-scissors, in the bare style."""
    pytest.importorskip("torch")
    from mulligan.training.config import TaskConfig
    from mulligan.training.loop import train
    from small_runs import small

    base = small()
    params = {"throws": 3, "view": "compact", "opponent": "mostly-rock"}
    config = replace(
        base,
        task=TaskConfig(env="rps", params=params),
        run=replace(base.run, updates=1, tasks=2),
    )
    return train(config, tmp_path_factory.mktemp("guests") / "runs" / "rps")


def test_a_snapshot_plays_as_it_was_trained_whatever_the_agent_sees(run):
    task = mulligan.make_task("rps", 3, {"opponent": f"{run}@1", "throws": 3})
    trials = [run_trial_sync(task, ExpertPolicy(1.0, 1.0), episodes=2, memory="history") for _ in range(2)]
    assert {episode.stop for episode in trials[0].episodes} <= {StopReason.WON, StopReason.LOST, StopReason.DRAWN}
    assert trials[0] == trials[1]
    seated = guests.Seated(registry.make("rps", 3, opponent="copies", throws=3), f"{run}@1", 5)
    seated.world.step("<action>rock</action>")
    assert seated.move() in range(3)
    assert seated.messages[0]["content"] == f"{'abc'[seated.world.played[0][1]]}1"  # compact, bare, from its own side
    mixed = {"opponent": f"copies:2,{run}@1", "throws": 3}
    result = mulligan.evaluate("rps", "random", params=mixed, tasks=12, controls=(), room=False)
    assert set(result.by_class) == {"rps/vs-copies", f"rps/vs-{run}@1"}


def test_a_run_on_a_game_sees_it_with_the_parameters_in_its_brackets(run, tmp_path):
    from mulligan.report.run import RunFolder, to_toml

    config = RunFolder.open(run).config()
    shutil.copytree(run, tmp_path / "run")
    config["task"] = {**config["task"], "env": "kuhn,rps(view=compact,opponent=mostly-rock)", "params": {"throws": 3}}
    (tmp_path / "run" / "config.toml").write_text(to_toml(config))
    mulligan.make_task("rps", 3, {"opponent": str(tmp_path / "run")})
    seated = guests.Seated(registry.make("rps", 3, opponent="copies", throws=3), str(tmp_path / "run"), 5)
    seated.world.step("<action>rock</action>")
    seated.move()
    assert seated.messages[0]["content"] == f"{'abc'[seated.world.played[0][1]]}1"


@pytest.mark.parametrize(
    ("env", "opponent", "complaint"),
    [
        ("kuhn", "{run}", "kuhn: the opponent {run} was trained on rps; name a run on kuhn"),
        ("rps", "{run}@7", "has no checkpoint after update 7; kept: 0, 1"),
        ("rps", "{run}@soon", "checkpoint must be a number of updates or 'best'"),
        ("rps", "{run}/nowhere", "is not a run folder (it has no config.toml)"),
        ("rps", "{run}:0", "one opponent must have a weight above 0"),
        ("rps", "endpoint:m", "the opponent endpoint:m needs a URL: --base-url"),
        ("rps", "nowhere.py:f", "no file 'nowhere.py'"),
        ("rps", "copies>{run}/nowhere@2", "is not a run folder"),
    ],
)
def test_what_cannot_be_an_opponent_is_one_line(run, monkeypatch, env, opponent, complaint):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MulliganError) as raised:
        mulligan.make_task(env, 0, {"opponent": opponent.format(run=run)})
    assert complaint.format(run=run) in str(raised.value)
    assert "\n" not in str(raised.value)


# Endpoints


def test_an_endpoint_plays_the_other_side(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with ChatServer(answer=lambda messages: "<action>scissors</action>") as server:
        words = ["--env.opponent", "endpoint:m", "--base-url", server.base_url, "--policy", "expert", "--episodes", "1"]
        with pytest.raises(SystemExit) as ended:
            main(["play", "rps", "--env.throws", "3", "--env.pool", "seen", *words])
        assert ended.value.code == 0
    assert "/scissors, " in capsys.readouterr().out
    assert {request.body["model"] for request in server.received} == {"m"}
    assert len(server.received) == 3
    asked = server.received[0].body["messages"]
    assert asked[0]["content"].startswith("Rock-paper-scissors, a match of 3 throws.")


def test_a_model_that_only_a_folder_names_is_not_asked(monkeypatch):
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match=r"endpoint:theirs is a server's model that a run folder names.*--trust"):
        registry.task_of("rps", 0, {"opponent": "copies,endpoint:theirs"})
    mulligan.trust({"opponent": "copies,endpoint:theirs"})
    assert registry.task_of("rps", 0, {"opponent": "copies:0,endpoint:theirs"}).opponent == "endpoint:theirs"


def test_switches_and_updates_are_told_apart():
    from mulligan.envs.opponents import at_episode, is_hidden, split_switch

    assert split_switch("runs/x@40") == ("runs/x@40", "", None)
    assert split_switch("rock>runs/x@40@3") == ("rock", "runs/x@40", "3")
    assert [at_episode("runs/x@40>rock@2", n) for n in (0, 1)] == ["runs/x@40", "rock"]
    assert [is_hidden(name) for name in ("runs/x@40>rock", "runs/x@40", "rock>runs/x@40")] == [True, False, False]
