"""I spy: an environment that a tiny model learns in seconds, with and without a demonstrator (docs/own-env.md)."""

import random
from string import ascii_lowercase

from mulligan.envs.base import action_text
from mulligan.seeding import generator
from mulligan.types import Episode, Step, Task


class ISpy:
    """Guess what a thing begins with, one thing a turn; the letters are told in the end."""

    defaults = {"letters": 8}  # noqa: RUF012
    turns = 1

    def __init__(self, task: Task) -> None:
        self.task, self.letters = task, ascii_lowercase[: task.integer("letters")]
        rng = generator(task.seed, "i spy")
        self.secret = [rng.choice(self.letters) for _ in range(task.turns)]

    def rules(self) -> str:
        return (
            f"I spy {len(self.secret)} thing(s), each beginning with a letter from a to {self.letters[-1]}. I say a "
            "thing's number, you a word that begins with its letter: <action>apple</action>. All must be right. In the "
            "end I tell the letters: a1 means that thing 1 begins with a."
        )

    def reset(self, chance: int = 0) -> str:
        self.guesses = ""  # the first letter of each word so far
        return self.observe()

    def step(self, reply: str) -> Step:
        letter = (action_text(reply) or "").lower()[:1]
        if not letter or letter not in self.letters or len(self.guesses) == len(self.secret):
            why = f"Begin with a to {self.letters[-1]}."
            return Step(self.observe(), valid=False, state_key=self.guesses, feedback=why)
        progress = (letter == self.secret[len(self.guesses)]) / len(self.secret)
        self.guesses += letter
        done, won = len(self.guesses) == len(self.secret), self.guesses == "".join(self.secret)
        return Step(self.observe(), reward=float(won), done=done, won=won, state_key=self.guesses, shaping=progress)

    def observe(self) -> str:
        return self.facts() if len(self.guesses) == len(self.secret) else str(len(self.guesses) + 1)

    def facts(self) -> str:
        return " ".join(f"{letter}{number}" for number, letter in enumerate(self.secret[: len(self.guesses)], 1))

    def legal(self) -> list[str]:
        return [f"<action>{letter}</action>" for letter in self.letters]

    def digest(self, episode: Episode) -> str:
        return self.facts()


class ISpyThree(ISpy):
    """Three things, and all must be right: 512 worlds, and a demonstrator."""

    turns = 3

    def world_key(self) -> str:
        return "".join(self.secret)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> "Player":
        return Player(self, kind, rng, skill, recall)


class Player:
    """Says the letters that it was told in an earlier episode; before it was told any, random ones."""

    def __init__(self, world: ISpy, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        self.remembered: list[str] = []

    def act(self) -> str:
        number, letters = len(self.world.guesses), list(self.world.letters)
        if self.rng.random() < self.skill:
            if self.kind == "omniscient":
                letters = [self.world.secret[number]]
            elif self.remembered and self.rng.random() < self.recall:
                letters = [self.remembered[number]]
        return f"<action>{self.rng.choice(letters)}</action>"

    def see(self, step: Step) -> None:
        if step.done:
            self.remembered = self.world.secret
