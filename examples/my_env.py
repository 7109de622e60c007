"""A complete environment of your own: guess a hidden number, with "higher" and "lower" as the only hints.

One attempt is too short for it, two are enough for who remembers: mulligan check examples/my_env.py:GuessNumber
"""

from mulligan.envs.base import action_text
from mulligan.seeding import derive
from mulligan.types import Step, Task


class GuessNumber:
    """Guess a number from 1 to `top`; each wrong guess says whether to go higher or lower."""

    defaults = {"top": 2000}  # noqa: RUF012
    turns = 6

    def __init__(self, task: Task) -> None:
        self.task, self.top = task, task.integer("top")
        self.secret = 1 + derive(task.seed, "secret") % self.top

    def rules(self) -> str:
        return f"I think of a number from 1 to {self.top}. Answer with your guess: <action>7</action>"

    def reset(self, chance: int = 0) -> str:
        self.shown = "No guess yet."
        return self.shown

    def step(self, reply: str) -> Step:
        guess = action_text(reply) or ""
        if not guess.isascii() or not guess.isdecimal() or len(guess) > 9 or not 1 <= int(guess) <= self.top:
            return Step(self.shown, valid=False, state_key=self.shown, feedback=f"Name a number from 1 to {self.top}.")
        won = int(guess) == self.secret
        self.shown = f"{guess} is it." if won else f"{guess}: go {'higher' if int(guess) < self.secret else 'lower'}."
        return Step(self.shown, reward=float(won), done=won, won=won, state_key=self.shown)

    def world_key(self) -> str:
        return str(self.secret)

    def legal(self) -> list[str]:
        return [f"<action>{number}</action>" for number in range(1, self.top + 1)]
