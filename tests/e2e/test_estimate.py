"""What an evaluation will cost is said before it costs anything, and what it has cost is told arm by arm."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import policy_at
from tests.e2e.chat_server import ChatServer
from tests.tool_worlds import SafeOfTools

import mulligan
from mulligan.app.cli import main
from mulligan.eval.estimate import ASK_ABOVE_TOKENS, Amount, Estimate, estimate
from mulligan.eval.plan import EvalPlan, Prices
from mulligan.policy.endpoint import EndpointPolicy
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling

pytestmark = pytest.mark.usefixtures("_bare_environment")
GAME = ["eval", "minesweeper", "--tasks", "3", "--episodes", "2", "--env.turns", "3", "--no-room", "--run", "run"]
DEAR = ["--price-in", "1000", "--price-out", "1000"]


def run_command(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


def arms(plan: EvalPlan) -> dict[str, int]:
    return dict.fromkeys(plan.arms(), plan.tasks)


@pytest.mark.parametrize("memory", ["none", "history", "reflection", "both"])
def test_a_model_that_never_wins_and_writes_all_it_may_takes_the_most(memory: Any) -> None:
    """Every request that can be sent is sent; as many tokens as said at most are not reached, but nearly."""
    settings = TrialSettings(episodes=3, memory=memory, sampling=Sampling(max_tokens=50), reflection_tokens=50)
    registered = mulligan.make_task(SafeOfTools).env
    plan = EvalPlan(registered, tasks=3, settings=settings, controls=("independent", "removed"), room=False)
    with ChatServer(answer=lambda _: {"content": "x" * 200}, faults=lambda _: "no-usage") as server:
        policy = policy_at(server, extra_body={"tools": None})
        result = mulligan.evaluate(
            SafeOfTools, policy, tasks=3, settings=settings, controls=("independent", "removed"), room=False
        )
    most = estimate(plan, arms(plan)).most
    assert most.requests == len(server.received)
    assert most.completion == result.tokens[1]
    assert 0.5 * most.prompt < result.tokens[0] <= most.prompt


def test_what_is_likely_lies_between() -> None:
    plan = EvalPlan("minesweeper", tasks=20, controls=())
    amount = estimate(plan, arms(plan))
    assert 20 * 2 < amount.likely.requests < amount.most.requests / 2
    assert amount.likely.prompt < amount.most.prompt
    assert amount.likely.completion == pytest.approx(150 * amount.likely.requests)


def test_a_window_and_fewer_trials_take_less() -> None:
    plan = EvalPlan("sokoban", tasks=8, controls=())
    short = EvalPlan("sokoban", tasks=8, controls=(), settings=TrialSettings(window=2))
    assert estimate(short, arms(short)).most.prompt < 0.7 * estimate(plan, arms(plan)).most.prompt
    assert estimate(plan, {"main": 2}).most.requests == estimate(plan, {"main": 8}).most.requests / 4


def test_what_much_is_depends_on_the_prices() -> None:
    some = Estimate(Amount(), Amount(10, ASK_ABOVE_TOKENS, 10), "random")
    assert some.is_much(Prices())
    assert not some.is_much(Prices(0.1, 0.1))
    assert some.is_much(Prices(2.0, 0.0))
    assert "10 requests with 1.0 M + 10 tokens, cost 2.00" in some.in_words(Prices(2.0, 0.0))


@pytest.mark.parametrize(
    ("url", "nearby"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://192.168.1.7", True),
        ("http://vllm:8000", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8/v1", False),
    ],
)
def test_who_sends_no_bill(url: str, nearby: bool) -> None:
    assert EndpointPolicy("m", url).is_nearby == nearby


# --- on the command line ---------------------------------------------------------------------------------------------


def test_a_script_is_told_in_one_line_how_to_allow_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ChatServer() as server:
        words = [*GAME, *DEAR, "--policy", "endpoint:m", "--base-url", server.base_url]
        assert run_command(*words) == 2
        told = capsys.readouterr().err
        assert told.startswith("mulligan: eval: this may cost money: about ")
        assert told.endswith("; allow it with --yes, or limit it with --max-cost X\n")
        assert told.count("\n") == 1
        assert not server.received
        assert not Path("run").exists()
        assert run_command(*words, "--max-cost", "0.001") == 0
        assert "estimate: about " in capsys.readouterr().err
        asked = len(server.received)
        assert asked > 0
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url, "--max-cost", "1e9") == 0
        assert len(server.received) > asked


def test_what_costs_nothing_or_little_is_not_asked_about(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ChatServer() as server:
        words = [*GAME, "--policy", "endpoint:m", "--base-url", server.base_url]
        assert run_command(*words, "--price-in", "0.1") == 0
        assert ", cost 0.00 (as many turns as expert and random players" in capsys.readouterr().err
    assert run_command("eval", "bandit", "--tasks", "2", "--policy", "random", *DEAR) == 0
    assert "estimate" not in capsys.readouterr().err
    with ChatServer() as server:  # what is complete costs nothing more
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url, *DEAR) == 0
        assert not server.received
    assert "estimate" not in capsys.readouterr().err


def test_a_person_is_asked_and_may_say_no(folder: Path) -> None:
    with ChatServer() as server:
        words = [sys.executable, "-m", "mulligan", *GAME, *DEAR, "--policy", "endpoint:m", "--base-url"]
        for answer, code in (("\n", 1), ("y\n", 0)):
            assert not server.received
            ours, theirs = pty.openpty()
            with subprocess.Popen(
                [*words, server.base_url], stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL
            ) as command:
                os.close(theirs)
                shown = b""
                while b"[y/N]" not in shown:
                    shown += os.read(ours, 1000)
                os.write(ours, answer.encode())
                while command.poll() is None:
                    try:
                        shown += os.read(ours, 1000)
                    except OSError:
                        break
            os.close(ours)
            assert (command.returncode, b"nothing was sent" in shown) == (code, bool(code))
            assert b"estimate: about " in shown
            assert Path("run").exists() == (not code)
        assert server.received


def test_what_was_spent_is_told_arm_by_arm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*GAME, "--policy", "endpoint:m", "--price-in", "3", "--price-out", "15", "--controls", "all", "--yes"]
    with ChatServer(faults=[503, "ok", 429], headers={"Retry-After": "0.01"}) as server:
        assert run_command(*words, "--base-url", server.base_url, "--concurrency", "1") == 0
        printed = capsys.readouterr().out
        result = json.loads(Path("run/result.json").read_text())
        spent = result["spent"]
        assert list(spent) == ["main", "independent", "removed", "foreign", "donors", "other-trial"]
        assert sum(arm["requests"] for arm in spent.values()) == len(server.received) == server.answered + 2
        prompts = sum(used["prompt_tokens"] for used in server.usage)
        assert sum(arm["prompt_tokens"] for arm in spent.values()) == prompts == result["tokens"][0]
        assert sum(arm["cost"] for arm in spent.values()) == pytest.approx(result["cost"])
        of_main = sum(
            len(trial.episodes) - 1 + sum(len(episode.turns) for episode in trial.episodes)
            for trial in mulligan.load_trials("run")
        )
        assert spent["main"]["requests"] == of_main + 2
        assert f"main: {of_main + 2} requests, {spent['main']['prompt_tokens']:,} + " in printed
        asked = len(server.received)
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url) == 0
        assert len(server.received) == asked
    assert json.loads(Path("run/result.json").read_text())["spent"] == spent


def test_a_function_is_counted_by_its_replies() -> None:
    result = mulligan.evaluate("bandit", lambda messages: "<action>1</action>", tasks=6, room=False, price_in=1.0)
    played = {"main": result.main, "independent": result.controls["independent"]}
    for arm, summary in played.items():
        assert result.spent[arm]["requests"] == summary.turns + (summary.reflections if arm == "main" else 0)
    assert sum(spent["cost"] for spent in result.spent.values()) == pytest.approx(result.cost)


def test_it_needs_no_more_than_the_core() -> None:
    code = "import mulligan.eval.estimate, sys; sys.exit(any(name in sys.modules for name in ('torch', 'tokenizers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
