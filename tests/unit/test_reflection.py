"""Reflections as models write them: lines, JSON, free text, and everything that goes wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.trial.reflection import FIELDS, parse_reflection
from mulligan.types import Completion, Reflection


def parse(text: str) -> Reflection:
    return parse_reflection(Completion(text))


def test_lines_are_told_apart():
    found = parse(
        "Sure!\n<reflection>\nstrategy: corners first\nfailed_at: turn 3, (2, 2)\nplan: avoid (2, 2)\n</reflection>"
    )
    assert found.valid
    assert found.fields == {"strategy": "corners first", "failed_at": "turn 3, (2, 2)", "plan": "avoid (2, 2)"}


def test_markdown_names_and_continued_lines():
    found = parse(
        "<reflection>\n- **Where it failed**: at turn 2\n  because I guessed\n- **Plan:** count first\n</reflection>"
    )
    assert found.fields["failed_at"] == "at turn 2 because I guessed"
    assert "count first" in found.fields["plan"]


def test_json_is_read():
    fields = {name: f"about {name}" for name in FIELDS} | {"error_category": "bad luck"}
    found = parse(f"<reflection>{json.dumps(fields)}</reflection>")
    assert found.valid
    assert found.fields == fields | {"error_category": "bad-luck"}


def test_fenced_json_and_non_text_values():
    found = parse('<reflection>```json\n{"reward": 0.5, "plan": ["a", "b"]}\n```</reflection>')
    assert found.fields == {"reward": "0.5", "plan": '["a", "b"]'}


def test_free_text_between_tags_is_fine():
    found = parse("<reflection>The mine was in the corner.</reflection>")
    assert found.valid
    assert found.text == "The mine was in the corner."
    assert found.fields == {}


@pytest.mark.parametrize(
    "text",
    ["no tags at all", "<reflection>never closed", "closed only</reflection>", '<reflection>{"plan": </reflection>',
     "<reflection></reflection>", "", "x" * 200_000],
)  # fmt: skip
def test_what_does_not_parse_is_kept_and_marked(text):
    found = parse(text)
    assert not found.valid
    if "no tags" in text:
        assert found.text == text


def test_the_last_tagged_part_counts():
    found = parse("I write <reflection>plan: a</reflection> or better <reflection>plan: b</reflection>")
    assert found.fields == {"plan": "b"}


@pytest.mark.parametrize(("said", "kept"), [("Wrong Move", "wrong-move"), ("none", "none"), ("cosmic rays", "other")])
def test_error_categories_are_a_closed_list(said, kept):
    assert parse(f"<reflection>error_category: {said}</reflection>").fields["error_category"] == kept


@given(st.text(max_size=300))
def test_never_raises(text):
    parse(text)
    parse(f"<reflection>{text}</reflection>")
