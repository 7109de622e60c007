"""Frozen transcripts, one an environment: a diff is a decision, since it changes what agents see and numbers mean.

After a deliberate change: UPDATE_GOLDEN=1 pytest tests/golden, and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mulligan
from mulligan.app.cli.show import transcript
from mulligan.policy.scripted import ExpertPolicy

HERE = Path(__file__).parent
CASES = {
    "minesweeper": ("minesweeper", 2, {}, "both"),
    "minesweeper-compact": ("minesweeper", 3, {"view": "compact", "rows": 4, "cols": 5}, "history"),
    "sokoban": ("sokoban", 1, {}, "reflection"),
    "sokoban-cells": ("sokoban", 1, {"view": "cells", "lost": "ends"}, "reflection"),
    "sokoban-dark": ("sokoban", 2, {"sight": 1}, "both"),
    "sokoban-dark-cells": ("sokoban", 2, {"sight": 1, "view": "cells", "lost": "hopeless"}, "both"),
    "tictactoe": ("tictactoe", 1, {"opponent": "random"}, "both"),
    "alfworld": ("alfworld", 4, {}, "both"),
    "webshop": ("webshop", 1, {"products": 300}, "both"),
    "kuhn": ("kuhn", 4, {"opponent": "soft-aggressive"}, "history"),
    "leduc": ("leduc", 3, {"opponent": "caller,maniac,rock,bluffer,random"}, "both"),
    "leduc-compact": ("leduc", 3, {"view": "compact", "opponent": "seen"}, "history"),
    "bandit": ("bandit", 5, {}, "reflection"),
    "expedition": ("expedition", 2, {"world": "camp", "drift": 0.1}, "both"),
    "expedition-compact": ("expedition", 2, {"world": "lookout", "view": "compact"}, "history"),
}


@pytest.mark.parametrize("name", CASES)
def test_transcript_is_as_frozen(name):
    env, seed, params, memory = CASES[name]
    task = mulligan.make_task(env, seed, params=params)
    trial = mulligan.run_trial_sync(task, ExpertPolicy(0.5, 0.5), memory=memory, episodes=3)
    text = transcript(trial).replace("/vs-soft-", "/vs-")  # the soft habit was frozen under its old name
    file = HERE / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
