"""The comparison of memories in results/journal: what its player reads, and that every memory keeps to the budget."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mulligan.policy.base import estimate_tokens

FOLDER = Path(__file__).parents[2] / "results" / "journal"
OPTIONS = ("ask", "look")


@pytest.fixture
def memories(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import memories

    return memories


@pytest.mark.parametrize(
    ("text", "place", "wanted"),
    [
        ("1. plan: use look [no record yet]", "", "look"),
        ("task: refund 1 | ask was bad | reward 0", "", "look"),
        ("use ask\nnot look [noted 3 times; no record yet]\nuse look\nuse look", "", "ask"),  # 1 against 2 - 3
        ("use ask (helpful 1, harmful 2)\nuse look (helpful 0, harmful 0)", "", "look"),
        ("use ask [mean reward 0.2 in 9 with it; 0.5 without]\nuse look", "", "look"),
        ("use ask | applies: board 3\nuse ask | applies: board 3\nuse look | applies: board 4", "board 4", "look"),
    ],
)
def test_the_player_counts_votes(memories, text, place, wanted):
    rng = np.random.default_rng(0)
    picked = [memories.picked(text, "", place, OPTIONS, rng) for _ in range(200)]
    # A slip takes the other one in 2.5 % of the choices; a boundary that is overlooked changes a few more.
    assert picked.count(wanted) > 170


def test_every_memory_learns_within_its_budget(memories, tmp_path):
    """One of two strategies always pays: after 30 episodes all but "nothing" have led to it, and none is too long."""
    for name, form in memories.FORMS.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        memory, rng, right = form(folder), np.random.default_rng(1), 0
        for episode in range(30):
            text, told = memory.read(f"refund {episode}", "refund", OPTIONS)
            assert not text or estimate_tokens(text) <= 300, name
            choice = memories.picked(text, told, "", OPTIONS, rng)
            right += episode >= 10 and choice == "look"
            pays = choice == "look"
            advice, word = ("use", "good") if pays else ("not", "bad")
            lesson = memories.Lesson(f"{advice} {choice}", f"{choice} was {word}", "", float(pays))
            memory.write(f"refund {episode}", "refund", lesson)
        memories._close(memory)
        assert (right >= 15) == (name != "nothing"), (name, right)


@pytest.mark.parametrize("env", ["bandit", "minesweeper", "alfworld", "webshop"])
def test_a_lesson_about_the_same_world_makes_the_player_win_more_often(memories, env):
    """Eight attempts at each of four worlds, by a player that is shown all earlier lessons about it, or none."""

    class All(memories.Nothing):
        def __init__(self) -> None:
            self.lines: dict[str, list[str]] = {}

        def read(self, task, kind, options):
            return "\n".join(self.lines.get(task, [])), ""

        def write(self, task, kind, lesson):
            self.lines.setdefault(task, []).append(lesson.advice)

    def wins(memory) -> float:
        total = 0.0
        for attempt in range(8):
            for world in range(4):
                rng = np.random.default_rng([attempt, world])
                place = f"board {world}"
                choose = memories.partial(memories._chosen, place, rng)
                total += memories.play(memory, env, world, place, choose)
        return total

    assert wins(All()) > wins(memories.Nothing()) + 3
