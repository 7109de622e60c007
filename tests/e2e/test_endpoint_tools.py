"""What a model behind HTTP gives beside its text, and tools that an environment offers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.asking import KEY, ask, policy_at
from tests.e2e.chat_server import ChatServer, Messages
from tests.tool_worlds import SafeOfTools

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


# --- tools of the environment ----------------------------------------------------------------------------------------

SAFE = mulligan.make_task(SafeOfTools, seed=5)
CODE = mulligan.make(SAFE).code  # type: ignore[attr-defined]


def searching(messages: Messages) -> dict[str, Any]:
    """Listens, then tries 1, 2, 3, …; writes a reflection in words."""
    if "Write a short reflection" in (messages[-1]["content"] or ""):
        return {"content": "<reflection>plan: go on</reflection>"}
    tried = sum(message["role"] == "assistant" for message in messages)
    call = call_of("try_code", json.dumps({"code": tried}), f"c{tried}") if tried else call_of("listen", "{}", "c0")
    return {"content": f"Step {tried}." if tried % 2 else None, "tool_calls": [call]}


def play_safe(server: ChatServer, **options: Any) -> mulligan.Trial:
    policy = policy_at(server, **options.pop("policy", {}))
    return mulligan.run_trial_sync(SAFE, policy, **{"episodes": 1, **options})


def test_tools_are_sent_and_a_call_is_the_move() -> None:
    assert CODE > 5, "the code must not be found too soon"
    with ChatServer(answer=searching) as server:
        trial = play_safe(server)
    first = server.bodies[0]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["try_code", "listen"]
    assert first["tools"][0]["function"]["parameters"]["required"] == ["code"]
    assert "tool_choice" not in first
    assert first["messages"][0]["content"].endswith("Then call exactly one tool.")
    assert "try_code" not in first["messages"][0]["content"]  # the server tells the model
    turns = trial.episodes[0].turns
    assert all(turn.valid for turn in turns)
    assert [turn.observation for turn in turns[1:3]] == [f"It is {'odd' if CODE % 2 else 'even'}.", "Higher."]


def test_calls_and_their_results_are_sent_again_as_the_interface_wants_them() -> None:
    with ChatServer(answer=searching) as server:
        play_safe(server)
    call, result, second = server.bodies[2]["messages"][2:5]
    assert call == {"role": "assistant", "content": None, "tool_calls": [call_of("listen", "{}", "c0")]}
    assert (result["role"], result["tool_call_id"]) == ("tool", "c0")
    assert result["content"].startswith("It is ")
    assert "4 turns left" in result["content"]
    assert second["content"] == "Step 1."
    for body in server.bodies:
        check_answered(body["messages"])


def check_answered(messages: Messages) -> None:
    """Servers refuse a request in which a call is not answered by the very next messages, one each."""
    for number, message in enumerate(messages):
        ids = [call["id"] for call in message.get("tool_calls", ())]
        following = messages[number + 1 : number + 1 + len(ids)]
        assert [(each["role"], each.get("tool_call_id")) for each in following] == [("tool", each) for each in ids]
        assert message["role"] != "tool" or messages[number - 1]["role"] in ("assistant", "tool")


@pytest.mark.parametrize(
    ("calls", "fault", "told"),
    [
        ([call_of("listen", "{}"), call_of("try_code", '{"code": 1}', "c2")], Fault.SEVERAL_CALLS, "you called 2"),
        ([call_of("crack", "{}")], Fault.UNKNOWN_TOOL, "There is no tool 'crack'; there are try_code, listen."),
        ([call_of("try_code", '{"code": ')], Fault.BAD_ARGUMENTS, "must be a JSON object"),
        ([call_of("try_code", "[1]")], Fault.BAD_ARGUMENTS, "must be a JSON object"),
        ([call_of("try_code", "{}")], Fault.BAD_ARGUMENTS, "try_code needs the argument 'code'"),
        ([call_of("try_code", '{"code": "two"}')], Fault.BAD_ARGUMENTS, "'code' of try_code must fit"),
        ([call_of("try_code", '{"code": true}')], Fault.BAD_ARGUMENTS, "'code' of try_code must fit"),
    ],
)
def test_a_call_that_is_none_is_an_invalid_move_with_a_name(calls: list[Any], fault: Fault, told: str) -> None:
    answers = iter([{"content": None, "tool_calls": calls}])
    with ChatServer(answer=lambda messages: next(answers, None) or searching(messages)) as server:
        trial = play_safe(server)
    first, second = trial.episodes[0].turns[:2]
    assert (first.valid, first.fault) == (False, fault)
    assert told in first.feedback
    assert second.valid, "the game goes on"
    assert second.observation == first.observation, "the world has not changed"
    check_answered(server.bodies[1]["messages"])
    for call in server.bodies[1]["messages"][2]["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)  # some servers read them again


def test_a_move_in_plain_text_is_taken_too() -> None:
    with ChatServer(answer=lambda _: f'<action>try_code {{"code": {CODE}}}</action>') as server:
        trial = play_safe(server)
    assert trial.episodes[0].won


def test_reflections_are_asked_for_in_words_and_the_next_episode_may_call_again() -> None:
    with ChatServer(answer=searching) as server:
        trial = play_safe(server, episodes=2, memory="both")
    assert trial.episodes[0].reflection is not None
    assert trial.episodes[0].reflection.text == "plan: go on"
    choices = [body.get("tool_choice") for body in server.bodies]
    assert choices.count("none") == 1
    asked = server.bodies[choices.index("none")]
    assert asked["tools"] == server.bodies[0]["tools"]
    assert (asked["messages"][-2]["role"], asked["messages"][-1]["role"]) == ("tool", "user")
    assert choices[-1] is None
    for body in server.bodies:
        check_answered(body["messages"])


def test_memory_shows_what_was_called() -> None:
    with ChatServer(answer=searching) as server:
        play_safe(server, episodes=2, memory="history", memory_tokens=90)
    openings = [body["messages"][1]["content"] for body in server.bodies]
    assert any('You answered: Step 3.\ntry_code {"code": 3}' in opening for opening in openings)


def test_a_window_of_turns_cuts_no_call_from_its_result() -> None:
    with ChatServer(answer=searching) as server:
        play_safe(server, window=2)
    assert max(len(body["messages"]) for body in server.bodies) == 4
    for body in server.bodies:
        check_answered(body["messages"])


def test_a_server_without_tools_is_told_of_them_in_words() -> None:
    answer = f'<action>try_code {{"code": {CODE}}}</action>'
    with ChatServer(answer=lambda _: answer) as server:
        trial = play_safe(server, policy={"extra_body": {"tools": None}})
    assert trial.episodes[0].won
    assert "tools" not in server.bodies[0]
    system = server.bodies[0]["messages"][0]["content"]
    assert "<action>NAME ARGUMENTS</action>" in system
    assert 'try_code: Try a code. ARGUMENTS: {"type": "object"' in system


def test_an_evaluation_with_tools_goes_on_without_paying_twice(tmp_path: Path) -> None:
    options: dict[str, Any] = {"tasks": 6, "episodes": 2, "controls": (), "concurrency": 1, "run": tmp_path / "run"}
    with ChatServer(answer=searching) as server:
        first = mulligan.evaluate(SafeOfTools, policy_at(server), **options)
        asked = len(server.received)
        (tmp_path / "run" / "trials" / "main.jsonl.gz").unlink()
        again = mulligan.evaluate(SafeOfTools, policy_at(server), **options, resume=True)
        assert len(server.received) == asked
    assert again.trials == first.trials
    assert set(first.main.tool_calls) == {"listen", "try_code"}
    assert first.main.tool_calls["listen"] == sum(first.main.played)


def test_a_reply_to_other_tools_is_not_taken_for_one_that_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"tasks": 1, "episodes": 1, "controls": (), "run": tmp_path / "run"}
    with ChatServer(answer=searching) as server:
        mulligan.evaluate(SafeOfTools, policy_at(server), **options)
        asked = len(server.received)
        (tmp_path / "run" / "trials" / "main.jsonl.gz").unlink()
        before = SafeOfTools.tools
        monkeypatch.setattr(SafeOfTools, "tools", lambda self: [*before(self), mulligan.Tool("wait", "Wait.")])
        mulligan.evaluate(SafeOfTools, policy_at(server), **options, resume=True)
        assert len(server.received) == 2 * asked


def test_programs_and_functions_play_it_in_text() -> None:
    def first_legal(messages: list[mulligan.Message]) -> str:
        assert "try_code: Try a code." in messages[0]["content"]
        return "<action>listen {}</action>"

    assert all(turn.valid for turn in mulligan.run_trial_sync(SAFE, first_legal, episodes=1).episodes[0].turns)
    assert mulligan.evaluate(SafeOfTools, "random", tasks=20, room=False).main.valid == 1.0
