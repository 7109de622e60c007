"""A policy that knows what its memory tells and no more, for the tests of evaluation."""

from __future__ import annotations

from mulligan.types import Message


class Reader:
    """A bandit player that only knows what its memory tells: it pulls the first arm not said to have failed.

    Its reflections name the arms it has seen fail, so controls that change reflections change what it does.
    """

    name = "reader"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: list[Message]) -> str:
        self.calls += 1
        said = messages[-1]["content"]
        if "Write a short reflection" in said:
            failed = [line for line in said.splitlines() if line.startswith("Arm ")]
            earlier = [line for line in messages[1]["content"].splitlines() if line.startswith("Arm ")]
            return "<reflection>\nenv_answer:\n" + "\n".join([*earlier, *failed]) + "\n</reflection>"
        for arm in range(1, 9):
            if f"Arm {arm} paid 0" not in said:
                return f"<action>{arm}</action>"
        return "<action>1</action>"
