"""Tools of an environment: the one rule between a call and a reply, and what `check_env` holds them to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tool_worlds import SafeOfTools

import mulligan
from mulligan.envs.tools import action_of, tool_call
from mulligan.errors import ContractBroken
from mulligan.types import Tool, ToolCall

ANYTHING = Tool("say", "Say something.")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_the_rule_is_as_documented() -> None:
    assert action_of([ToolCall("1", "say", '{"row":1}')], [ANYTHING]) == '<action>say {"row": 1}</action>'


@given(st.dictionaries(st.text(), values, max_size=3))
def test_what_is_called_is_what_the_environment_reads(arguments: dict[str, Any]) -> None:
    """Tags, line breaks and quotes in an argument included."""
    reply = action_of([ToolCall("1", "say", json.dumps(arguments))], [ANYTHING])
    assert tool_call(reply, [ANYTHING]) == ("say", arguments)


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"type": "integer"}, [0, -3], [True, 1.5, "1", None]),
        ({"type": "number"}, [0, 1.5], [True, "1"]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"anyOf": []}, [1, "x", None], []),
    ],
)
def test_arguments_are_held_to_names_and_plain_types(schema: Any, fitting: list[Any], others: list[Any]) -> None:
    tool = Tool("t", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    for value in (*fitting, *others):
        reply = f"<action>t {json.dumps({'x': value})}</action>"
        assert (tool_call(reply, [tool]) is not None) == any(value is each for each in fitting), value


@pytest.mark.parametrize("reply", ["", "say {}", "<action>say {</action>", "<action>shout {}</action>", "<action/>"])
def test_what_is_no_call_is_none(reply: str) -> None:
    assert tool_call(reply, [ANYTHING]) is None


def test_a_world_with_tools_keeps_the_contract() -> None:
    mulligan.check_env(SafeOfTools)


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        (["listen"], "a list of mulligan.Tool"),
        ([ANYTHING, ANYTHING], "two tools one name"),
        ([Tool("two words", "")], "'two words'"),
        ([Tool("a", "", {"properties": {}})], "JSON schema of type object"),
        ([Tool("a", "", {"type": "object", "properties": {"x": {1, 2}}})], "JSON schema of type object"),
    ],
)
def test_tools_that_cannot_be_sent_break_the_contract_and_end_the_trial_as_such(tools: list[Any], named: str) -> None:
    class Odd(SafeOfTools):
        def tools(self) -> list[Tool]:
            return tools

        def step(self, reply: str) -> mulligan.Step:
            return mulligan.Step("", valid=False)

    with pytest.raises(ContractBroken, match=named):
        mulligan.check_env(Odd)
    with pytest.warns(UserWarning, match=named):
        trial = mulligan.run_trial_sync(mulligan.make_task(Odd), lambda messages: "")
    assert trial.failed


def test_a_step_that_trusts_a_model_breaks_the_contract() -> None:
    class Trusting(SafeOfTools):
        def step(self, reply: str) -> mulligan.Step:
            name, _, arguments = (reply.removeprefix("<action>").removesuffix("</action>")).partition(" ")
            if name not in ("listen", "try_code"):
                return mulligan.Step("", valid=False)
            return mulligan.Step(str(json.loads(arguments)["code"]))

    with pytest.raises(ContractBroken, match=r"try_code .*raised JSONDecodeError"):
        mulligan.check_env(Trusting)


def test_tools_that_change_break_the_contract() -> None:
    made: list[int] = []

    class Changing(SafeOfTools):
        def tools(self) -> list[Tool]:
            made.append(1)
            return [Tool(f"t{len(made)}", "")]

    with pytest.raises(ContractBroken, match="two different lists of tools"):
        mulligan.check_env(Changing)
