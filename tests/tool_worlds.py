"""A world that offers tools: a safe, whose lock says whether its code is higher or lower than what was tried."""

from __future__ import annotations

from mulligan.envs.tools import tool_call
from mulligan.seeding import generator
from mulligan.types import Step, Task, Tool


class SafeOfTools:
    """Find the code of a safe, from 1 to 8, with two tools."""

    turns = 5

    def __init__(self, task: Task) -> None:
        self.task, self.code = task, generator(task.seed, "safe").randint(1, 8)

    def rules(self) -> str:
        return "A safe has a code from 1 to 8."

    def tools(self) -> list[Tool]:
        number = {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]}
        return [Tool("try_code", "Try a code.", number), Tool("listen", "Listen to the lock.")]

    def reset(self, chance: int = 0) -> str:
        self.seen = "The safe is shut."
        return self.seen

    def step(self, reply: str) -> Step:
        call = tool_call(reply, self.tools())
        if call is None:
            return Step(self.seen, valid=False, state_key=self.seen, feedback="Use a tool.")
        name, arguments = call
        if name == "listen":
            self.seen = "It is even." if self.code % 2 == 0 else "It is odd."
            return Step(self.seen, state_key=self.seen)
        won = arguments["code"] == self.code
        self.seen = "It opens." if won else "Higher." if self.code > arguments["code"] else "Lower."
        return Step(self.seen, float(won), done=won, won=won, state_key=self.seen)

    def legal(self) -> list[str]:
        return ["<action>listen {}</action>", *(f'<action>try_code {{"code": {n}}}</action>' for n in range(1, 9))]
