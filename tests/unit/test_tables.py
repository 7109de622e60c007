"""Tables on a terminal: what a reader of eighty columns sees."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from mulligan import evaluate
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.report.tables import eval_table, footnotes


def printed(result, columns=80) -> str:
    console = Console(width=columns, file=io.StringIO())
    console.print(eval_table(result.to_dict()))
    return console.file.getvalue()


@pytest.mark.parametrize(("env", "last"), [("minesweeper", "p@8"), ("kuhn", "ep. 8")])
def test_eight_episodes_fit_into_eighty_columns(env, last):
    result = evaluate(env, RandomPolicy(), tasks=4, episodes=8)
    text = printed(result)
    assert "…" not in text
    assert re.search(rf"method .* {re.escape(last)} +valid", text)
    assert "perfect" in text
    assert f"{100 * result.main.valid:.0f} %" in text


def test_the_lines_of_a_controls_name_stand_under_each_other():
    text = printed(evaluate("minesweeper", RandomPolicy(), tasks=4, episodes=8))
    assert re.search(r"^ {3}independent .*\n {3}retries ", text, re.MULTILINE)


def test_an_interval_that_lies_on_one_side_is_marked():
    """100 ± 28 would be read as 72 to 100."""
    lopsided = evaluate("bandit", lambda _: "no", tasks=3, room=False)
    assert "inner side" in footnotes(lopsided.to_dict())[0]
    even = evaluate("bandit", RandomPolicy(), tasks=200, episodes=1, controls=(), room=False, params={"arms": 2})
    assert "inner side" not in footnotes(even.to_dict())[0]


@pytest.mark.parametrize("policy", [ExpertPolicy(), ExpertPolicy(omniscient=True), RandomPolicy()])
def test_no_two_rows_have_one_name(policy):
    result = evaluate("minesweeper", policy, tasks=2, episodes=2, memory="both", controls="all")
    table = eval_table(result.to_dict())
    names = [str(getattr(cell, "renderable", cell)) for cell in table.columns[0].cells]
    assert len(names) == len(set(names)) == 1 + len(result.controls) + len(result.room)


def test_rows_are_explained_and_so_is_a_ceiling_below_100():
    result = evaluate("minesweeper", RandomPolicy(), tasks=8, params={"turns": 3})
    assert result.ceiling < 1
    notes = footnotes(result.to_dict())
    (ceiling,) = (note for note in notes if note.startswith("ceiling "))
    assert f"{100 * result.ceiling:.1f}" in ceiling
    assert "turn limit" in ceiling
    assert any(note.startswith("random: ") for note in notes)
    assert any(note.startswith("independent retries: ") for note in notes)
    named = evaluate("minesweeper", ExpertPolicy(), tasks=8, params={"turns": 20}).to_dict()
    assert not [note for note in footnotes(named) if note.startswith(("random: ", "ceiling "))]
