"""Sokoban: the rules against a simulator of its own, and the parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.registry import make
from mulligan.envs.sokoban.env import NAMES, Sokoban, say
from sokoban_worlds import Simulator, world_of

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "sokoban-steps.txt"


# --- Rules


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 300), st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=30))
def test_every_reply_does_what_the_rules_say(seed: int, replies: list[list[str]]) -> None:
    env = make("sokoban", seed)
    world = Simulator(env.reset())
    for names in replies:
        before, blocked = world.home, []
        for number, name in enumerate(names, start=1):
            if not world.won and not world.move(name):
                blocked.append(f"move {number} ({name})")
        step = env.step(say(names))
        assert step.observation == world.draw()
        assert step.state_key == world.draw().replace(" ", "").replace("\n", "")
        assert (step.reward, step.done, step.won) == (float(world.won), world.won, world.won)
        assert step.shaping == (world.home - before) / 2
        assert step.feedback == (f"Blocked: {', '.join(blocked)}." if blocked else "")
        if step.done:
            break


def test_a_win_in_the_middle_of_a_reply_counts_and_ends_it(tmp_path: Path) -> None:
    env = world_of(tmp_path, "######", "#@$ .#", "######")
    # right: the box goes to column 4; right: onto the goal in column 5. The third move would step back: not played
    step = env.step("<action>right, right, left</action>")
    assert step.observation == "# # # # # #\n# _ _ P * #\n# # # # # #"
    assert (step.reward, step.done, step.won, step.valid, step.shaping) == (1.0, True, True, True, 1.0)
    after = env.step("<action>left</action>")
    assert (after.valid, after.reward, after.done) == (False, 0.0, False)
    assert after.observation == step.observation
    assert list(env.legal()) == []
    assert env.reset() == "# # # # # #\n# P X _ O #\n# # # # # #"


def test_pushing_a_box_off_its_goal_costs_progress(tmp_path: Path) -> None:
    env = world_of(tmp_path, "########", "#@*  . #", "#   $  #", "#      #", "########")
    step = env.step("<action>right</action>")  # one of two boxes leaves its goal: (0 - 1) / 2
    assert step.shaping == -0.5
    assert step.observation.split("\n")[1] == "# _ + X _ O _ #"


def test_two_boxes_in_a_row_do_not_move(tmp_path: Path) -> None:
    env = world_of(tmp_path, "########", *2 * ("#      #",), "#@$$ ..#", *2 * ("#      #",), "########")
    first = env.reset()
    step = env.step("<action>right, left, right</action>")
    assert step.observation == first
    assert step.valid
    assert step.feedback == "Blocked: move 1 (right), move 2 (left), move 3 (right)."


@pytest.mark.parametrize(
    "reply",
    [
        "<action>up,left,down</action>",
        "<action> U l  D </action>",
        "I go.\n<ACTION>Up,\nLEFT, d,</ACTION> done",
        "<think><action>right</action></think><action>up left down</action>",
    ],
)
def test_ways_to_say_the_same_moves(reply: str) -> None:
    plain, other = make("sokoban", 4), make("sokoban", 4)
    assert other.step(reply) == plain.step("<action>up, left, down</action>")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("", "No moves could be read"),
        ("up, left", "No moves could be read"),
        ("<action></action>", "0 moves are not allowed; give 1 to 3 moves"),
        ("<action> , , </action>", "0 moves are not allowed"),
        ("<action>up, up, up, up</action>", "4 moves are not allowed; give 1 to 3 moves"),
        ("<action>up, jump</action>", "'jump' is not a move; use up, down, left or right"),
        ("<action>uld</action>", "'uld' is not a move"),
        ("<action>up</action><action>down</action>", "No moves could be read"),
        ("<action><action>up</action></action>", "No moves could be read"),
        ("<action>up", "No moves could be read"),
        ("\x00\xff\ud800" * 99, "No moves could be read"),
        ("<action>\ud800\x00</action>", "is not a move"),
        ("<action>" + "up " * 30_000 + "</action>", "30000 moves are not allowed"),
        ("<action>up</action>" + "x" * 1_000_000, "No moves could be read"),
    ],
)
def test_a_reply_that_is_no_move_changes_nothing_and_says_why(reply: str, says: str) -> None:
    env = make("sokoban", 1)
    env.reset()
    before = env.step("<action>up, left, down</action>")
    step = env.step(reply)
    assert (step.observation, step.state_key) == (before.observation, before.state_key)
    assert (step.valid, step.reward, step.shaping, step.done) == (False, 0.0, 0.0, False)
    assert says in step.feedback
    assert len(step.feedback) < 120


def test_rules_explain_every_glyph_and_the_number_of_moves() -> None:
    rules = make("sokoban", moves=4).rules()
    for said in ("# wall", "_ floor", "O goal", "X box", "* box on a goal", "P you", "+ you on a goal", "1 to 4 moves"):
        assert said in rules
    single = make("sokoban", moves=1, turns=15)
    assert "1 move, played in order: <action>up</action>" in single.rules()
    assert not single.step("<action>up, up</action>").valid
    assert set("".join(make("sokoban", 7).reset().split())) <= set(Sokoban.glyphs)


def test_legal_replies_are_all_legal_and_distinct() -> None:
    env = make("sokoban", 5)
    assert isinstance(env, Sokoban)
    replies = env.legal()
    assert len(replies) == len(set(replies)) == 4 + 16 + 64
    assert list(replies[:4]) == [say([name]) for name in NAMES]
    assert all(make("sokoban", 5).step(reply).valid for reply in replies)


def test_a_frozen_transcript() -> None:
    """A difference here means that levels, rules or wording changed for everybody: make it a decision."""
    env = make("sokoban", seed=2024)
    lines = [env.rules(), "", env.reset()]
    for action in ("jump", "right, down", "left, right, up", "up, up, left", "l, u"):
        reply = f"<action>{action}</action>"
        step = env.step(reply)
        lines += [f"> {reply}", step.observation]
        lines += [f"valid {step.valid} reward {step.reward:g} shaping {step.shaping:g} {step.feedback}".strip()]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(encoding="utf-8")
