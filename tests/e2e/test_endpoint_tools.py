"""What a model behind HTTP gives beside its text, and tools that an environment offers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import KEY, ask, policy_at
from tests.e2e.chat_server import ChatServer, Messages

import mulligan
from mulligan.app.cli import main
from mulligan.errors import Fault
from mulligan.report.run import trial_to_dict
from mulligan.types import ToolCall

pytestmark = pytest.mark.usefixtures("_bare_environment")


def call_of(name: str, arguments: Any, number: str = "c1") -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def run_command(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


# --- what stands beside the text -------------------------------------------------------------------------------------

SAMPLES = [
    {"content": "<action>1</action>", "reasoning_content": "The first arm, then."},
    {"content": "<action>2</action>", "reasoning": "Now the second."},
    {"content": None, "refusal": "I do not gamble."},
    {"content": None, "tool_calls": [call_of("pull", '{"arm": 3}')]},
]


def taking_turns(samples: list[dict[str, Any]]) -> Any:
    """Answers one after another, by how many replies the conversation has."""

    def answer(messages: Messages) -> dict[str, Any] | str:
        if "Write a short reflection" in (messages[-1]["content"] or ""):
            return {"content": "<reflection>plan: the other arm</reflection>", "reasoning_content": "What next?"}
        return samples[sum(message["role"] == "assistant" for message in messages) % len(samples)]

    return answer


def test_what_stands_beside_the_text_is_read() -> None:
    for sample, expected in zip(
        SAMPLES,
        [
            ("<action>1</action>", "The first arm, then.", "", ()),
            ("<action>2</action>", "Now the second.", "", ()),
            ("", "", "I do not gamble.", ()),
            ("", "", "", (ToolCall("c1", "pull", '{"arm": 3}'),)),
        ],
        strict=True,
    ):
        with ChatServer(answer=lambda _, sample=sample: sample) as server:
            reply = ask(policy_at(server))
        assert (reply.text, reply.reasoning, reply.refusal, reply.tool_calls) == expected


def test_arguments_as_an_object_a_call_without_id_and_a_refusal_in_parts_are_read_too() -> None:
    calls = [{"function": {"name": "pull", "arguments": {"arm": 3}}}, {"function": {}}, "pull"]
    parts = [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": "<action>1</action>"}]
    with ChatServer(answer=lambda _: {"content": parts, "tool_calls": calls}) as server:
        reply = ask(policy_at(server))
    assert (reply.text, reply.refusal) == ("<action>1</action>", "No.")
    assert reply.tool_calls == (ToolCall("call-0", "pull", '{"arm": 3}'),)


def test_they_are_counted_by_name_shown_kept_and_not_paid_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    words = ["eval", "bandit", "--tasks", "3", "--env.turns", "4", "--env.arms", "9", "--episodes", "2", "--no-room"]
    words += ["--controls", "off", "--run", "run", "--policy", "endpoint:m"]
    with ChatServer(answer=taking_turns(SAMPLES)) as server:
        assert run_command(*words, "--base-url", server.base_url) == 0
        printed = capsys.readouterr().out
        result = json.loads(Path("run/result.json").read_text())
        trials = mulligan.load_trials("run")
        Path("run/trials/main.jsonl.gz").unlink()
        asked = len(server.received)
        assert run_command("eval", "--resume", "run", "--base-url", server.base_url) == 0
        assert len(server.received) == asked, "all replies were paid for already"
    assert mulligan.load_trials("run") == trials
    turns = [turn for trial in trials for episode in trial.episodes for turn in episode.turns]
    refused, called = (sum(turn.fault is fault for turn in turns) for fault in (Fault.REFUSED, Fault.UNKNOWN_TOOL))
    assert refused > 0
    assert called > 0
    assert result["faults"] == {"refused": refused, "unknown_tool": called}
    assert result["tool_calls"] == {"pull": called}
    thoughts = sum(bool(turn.reply.reasoning) for turn in turns) + result["reflections"]
    assert result["beside_text"] == {"reasoning": thoughts, "refusal": refused, "tool_calls": called}
    assert f"Faulty replies: refused {refused}, unknown tool {called}" in printed
    assert f"Replies with more than text: reasoning {thoughts}, refusal {refused}, tool calls {called}" in printed
    assert f"Tool calls: pull {called}" in printed
    capsys.readouterr()
    assert run_command("show", "run", "1") == 0
    shown = capsys.readouterr().out
    for part in (
        "[agent thinks]\nThe first arm, then.\n\n[agent]\n<action>1</action>\n",
        "[agent refuses]\nI do not gamble.\n\n[world, refused to answer]\n",
        '[agent calls a tool]\npull {"arm": 3}\n\n[world, unknown tool]\n',
        "[agent thinks]\nWhat next?\n\n[reflection]\nplan: the other arm\n",
    ):
        assert part in shown


def test_files_without_them_are_as_they_always_were() -> None:
    """Earlier versions can read them, and theirs can be read."""
    trial = mulligan.run_trial_sync(mulligan.make_task("bandit"), "<action>1</action>".format, episodes=1)
    reply = trial_to_dict(trial)["episodes"][0]["turns"][0]["reply"]
    assert reply.keys().isdisjoint({"reasoning", "refusal", "tool_calls"})


def test_a_key_in_them_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    message = {"content": KEY, "reasoning": KEY, "refusal": KEY, "tool_calls": [call_of(KEY, KEY, KEY)]}
    with ChatServer(answer=lambda _: message) as server:
        assert KEY not in repr(ask(policy_at(server)))


def test_who_watches_a_game_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["play", "bandit", "--env.turns", "4", "--env.arms", "9", "--episodes", "1", "--policy", "endpoint:m"]
    with ChatServer(answer=taking_turns(SAMPLES)) as server:
        assert run_command(*words, "--base-url", server.base_url) == 0
    printed = capsys.readouterr().out
    for part in ("[agent thinks]\nNow the second.", "I do not gamble.", 'pull {"arm": 3}'):
        assert part in printed
