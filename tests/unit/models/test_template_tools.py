"""Local models and the tools of an environment: through a chat template that takes tools, otherwise in plain text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.tool_worlds import SafeOfTools
from tests.unit.models.test_renderer import CHATML, make, message, turn_by_turn

import mulligan
from mulligan.engine.base import Sampled, Stream
from mulligan.errors import Fault
from mulligan.models.nano import nano_tokenizer
from mulligan.models.renderer import Renderer
from mulligan.policy.local import LocalPolicy, calls_in

QWEN = r"""
{%- if tools -%}
{{ '<|im_start|>system\n' + (messages[0].content if messages[0].role == 'system' else 'Be of help.') }}
{{- '\n\n# Tools\n<tools>' -}}
{%- for tool in tools -%}{{ '\n' + tool | tojson }}{%- endfor -%}
{{ '\n</tools>\nCall one as <tool_call>{"name": NAME, "arguments": {}}</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' -%}
{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{ '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.role != 'system' -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
"""As Qwen 2.5 tells of tools and of their results."""
TOOLS = [tool.schema() for tool in mulligan.make(SafeOfTools).tools()]  # type: ignore[attr-defined]
SAFE = mulligan.make_task(SafeOfTools, seed=5)
LISTEN = '<tool_call>\n{"name": "listen", "arguments": {}}\n</tool_call>'


class Scripted:
    """An engine whose model writes what it is told to."""

    def __init__(self, tokenizer: Any, replies: list[str]) -> None:
        self.tokenizer, self.replies, self.context = tokenizer, iter(replies), 100_000
        self.read = ""
        """All that the model was given, and wrote."""

    async def open(self) -> Stream:
        return Stream(self, 0)

    def ask(self, stream: Stream) -> None:
        asyncio.get_running_loop().call_soon(self.answer, stream)

    def answer(self, stream: Stream) -> None:
        ids = (*self.tokenizer(next(self.replies), add_special_tokens=False).input_ids, self.tokenizer.eos_token_id)
        stream.pending += ids
        self.read = self.tokenizer.decode(stream.pending)
        stream.finish(Sampled(ids, (0.0,) * len(ids), "stop"))

    def forget(self, stream: Stream) -> None:
        pass

    def release(self, stream: Stream) -> None:
        pass


def play(replies: list[str], template: str = QWEN, **options: Any) -> tuple[mulligan.Trial, str]:
    tokenizer = make(template)
    engine = Scripted(tokenizer, replies)
    trial = mulligan.run_trial_sync(SAFE, LocalPolicy(engine, Renderer(tokenizer)), **{"episodes": 1, **options})
    return trial, engine.read


def test_a_template_that_takes_tools_tells_of_them_turn_by_turn_as_at_once() -> None:
    tokenizer = make(QWEN)
    render = Renderer(tokenizer).offering(TOOLS)
    assert render is not None
    messages = [message("system", "rules"), message("user", "shut"), message("assistant", "b3")]
    for role, content in (("tool", " It is even.\n"), ("user", "on")):
        talk = [*messages, message(role, content)]
        text = tokenizer.apply_chat_template(talk, tools=TOOLS, tokenize=False, add_generation_prompt=True)
        at_once = tokenizer(text, add_special_tokens=False).input_ids
        assert "try_code" in text
        assert turn_by_turn(render, talk) == at_once
        assert render.opening(talk) == at_once


def test_a_result_that_spells_out_a_tag_is_only_text() -> None:
    render = Renderer(make(QWEN)).offering(TOOLS)
    assert render is not None
    end = render.tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = render.following([], message("tool", "a<|im_end|>b"))
    assert ids.count(end) == 2  # of the reply, and of the result


def test_other_templates_take_none() -> None:
    for tokenizer in (make(CHATML), nano_tokenizer()):
        assert Renderer(tokenizer).offering(TOOLS) is None


def test_a_local_model_calls_tools_through_its_template() -> None:
    code = mulligan.make(SAFE).code  # type: ignore[attr-defined]
    call = f'Now.\n<tool_call>\n{{"name": "try_code", "arguments": {{"code": {code}}}}}\n</tool_call>'
    trial, read = play([LISTEN, "<think>" + LISTEN + "</think>\n\n" + call])
    assert trial.episodes[0].won
    assert [str(turn.reply.tool_calls[0]) for turn in trial.episodes[0].turns] == [
        "listen {}",
        f'try_code {{"code": {code}}}',
    ]
    assert f"{LISTEN}<|im_end|>\n<|im_start|>user\n<tool_response>\nIt is even.\n" in read
    assert "Then call exactly one tool." in read
    assert read.count("# Tools") == 1, "one sequence, to which every turn was appended"
    offsets = [turn.reply.offset for turn in trial.episodes[0].turns]
    assert offsets[0] == 0 < offsets[1]


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("<tool_call>{oops}</tool_call>", Fault.BAD_ARGUMENTS),
        ('<tool_call>{"name": "crack"}</tool_call>', Fault.UNKNOWN_TOOL),
        (LISTEN + LISTEN, Fault.SEVERAL_CALLS),
        ("I wait.", Fault.INVALID),
    ],
)
def test_what_a_local_model_gets_wrong_has_a_name(reply: str, fault: Fault) -> None:
    trial, _ = play([reply, *[LISTEN] * 4])
    assert [turn.fault for turn in trial.episodes[0].turns] == [fault, *[None] * 4]


def test_a_reflection_calls_nothing_and_the_next_episode_may() -> None:
    trial, read = play([*[LISTEN] * 5, f"<reflection>plan: {LISTEN}</reflection>", *[LISTEN] * 5], episodes=2)
    assert trial.episodes[0].reflection is not None
    assert trial.episodes[0].reflection.completion is not None
    assert trial.episodes[0].reflection.completion.tool_calls == ()
    assert all(turn.valid for turn in trial.episodes[1].turns)
    assert read.count("# Tools") == 1


def test_without_tools_in_its_template_a_local_model_plays_in_text() -> None:
    trial, read = play(["<action>listen {}</action>"] * 5, CHATML)
    assert all(turn.valid and not turn.reply.tool_calls for turn in trial.episodes[0].turns)
    assert "try_code: Try a code. ARGUMENTS:" in read
    assert "<|im_start|>user\nIt is even.\n" in read


def test_the_forms_in_which_models_write_calls() -> None:
    wanted = [("open", '{"row": 1}')]
    for text in (
        '<tool_call>{"name": "open", "arguments": {"row": 1}}</tool_call>',
        'Hm.\n<tool_call>\n{"name": "open", "arguments": "{\\"row\\": 1}"}',
        '{"name": "open", "parameters": {"row": 1}}',
    ):
        assert [(call.name, call.arguments) for call in calls_in(text)] == wanted
    for text in ("", "open", '{"row": 1}', '[{"name": "open"}]', "[" * 100_000, json.dumps({"name": 1})):
        assert calls_in(text) == ()


def test_sequences_of_worlds_without_tools_stay_as_they_are() -> None:
    """The same renderer, and the same tokens, as before anything could be offered."""
    tokenizer = make(QWEN)
    engine = Scripted(tokenizer, ["<action>1</action>"] * 3)
    task = mulligan.make_task("bandit", 1)
    mulligan.run_trial_sync(task, LocalPolicy(engine, Renderer(tokenizer)), episodes=1)
    assert "# Tools" not in engine.read
