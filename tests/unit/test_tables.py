"""Tables on a terminal: what a reader of eighty columns sees."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from mulligan import evaluate
from mulligan.policy.scripted import RandomPolicy
from mulligan.report.tables import eval_table, footnotes


def printed(result, columns=80) -> str:
    console = Console(width=columns, file=io.StringIO())
    console.print(eval_table(result.to_dict()))
    return console.file.getvalue()


@pytest.mark.parametrize(("env", "last"), [("minesweeper", "p@8"), ("kuhn", "ep. 8")])
def test_eight_episodes_fit_into_eighty_columns(env, last):
    result = evaluate(env, RandomPolicy(), tasks=4, episodes=8)
    said = printed(result)
    assert "…" not in said
    assert re.search(rf"method .* {re.escape(last)} +valid", said)
    assert "perfect" in said
    assert f"{100 * result.main.valid:.0f} %" in said


def test_the_lines_of_a_controls_name_stand_under_each_other():
    said = printed(evaluate("minesweeper", RandomPolicy(), tasks=4, episodes=8))
    assert re.search(r"^ {3}independent .*\n {3}retries ", said, re.MULTILINE)


def test_an_interval_that_lies_on_one_side_is_said_to():
    """100 ± 28 would be read as 72 to 100."""
    told = "±: half of the 95 % interval; near 0 and 100 it lies on the inner side only"
    assert told in footnotes(evaluate("bandit", lambda _: "no", tasks=3, room=False).to_dict())
    half = evaluate("bandit", RandomPolicy(), tasks=200, episodes=1, controls=(), room=False, params={"arms": 2})
    assert told not in footnotes(half.to_dict())
