"""Players of poker that know the chances of their replies, for the tests of what evaluations compute from them."""

from __future__ import annotations

import random
import re
from typing import Any

from mulligan.types import Completion

MAGE = "conservative,intermediate,aggressive"
BETS = {"J": 0.2, "Q": 0.5, "K": 0.9}


class Gambler:
    """Bets (in Leduc: raises) by its card, and once it remembers something always; it knows its chances."""

    name = "gambler"

    def __init__(self, bets=BETS, adapts=True, other=0.0):
        self.bets, self.adapts, self.other = bets, adapts, other
        self.asked: list[Any] = []
        self.weighed: list[Any] = []

    def bet(self, messages) -> float:
        text = messages[1]["content"] if len(messages) > 1 else messages[0]["content"]
        has_memory = self.adapts and "You acted" in text
        (card,) = re.findall(r"^Your card: (.)$", messages[-1]["content"], re.MULTILINE)
        return 1.0 if has_memory else self.bets[card]

    def chances(self, messages, replies) -> list[float]:
        bold = [any(word in reply for word in ("bet", "raise")) for reply in replies]
        bet = self.bet(messages) if any(bold) else 0.0
        shy = len(replies) - sum(bold)
        return [(1 - self.other) * (bet if each else (1 - bet) / shy) for each in bold]

    def reply_chances(self, prompts, replies, sampling):
        self.weighed += map(list, prompts)
        return [self.chances(*each) for each in zip(prompts, replies, strict=True)]

    def start(self, task, seed):
        return Beside(self, random.Random(seed), task)


class Beside:
    """Samples a gambler's replies."""

    def __init__(self, gambler, rng, task):
        self.gambler, self.rng, self.task = gambler, rng, task

    async def reply(self, messages, sampling):
        if "Write a short reflection" in messages[-1]["content"] or messages[-1]["content"].endswith("reflect"):
            return Completion("<reflection>it is there</reflection>")
        self.gambler.asked.append(list(messages))
        last = messages[-1]["content"]
        words = ("pass", "bet") if self.task.env == "kuhn" else re.findall(r"Your turn: (.*)\.", last)[0].split(" or ")
        bare = "<action>" not in "".join(message["content"] for message in messages)
        replies = [word if bare else f"<action>{word}</action>" for word in words]
        chances = self.gambler.chances(messages, replies)
        return Completion(self.rng.choices([*replies, "what?"], [*chances, 1 - sum(chances)])[0])

    def close(self):
        pass
