"""A player whose reflections somebody else writes: a frozen model plays, and another one is trained to advise it."""

from __future__ import annotations

from typing import Any

from mulligan.policy.base import Conversation, Policy
from mulligan.types import Task


class Advised:
    """The policy `player`, with reflections by `writer`.

    The writer reads what the player saw and answered, as the player's own reflection would; the player is shown what it
    wrote as its own memory. All else, such as the count of an endpoint's requests, is the player's.
    """

    def __init__(self, player: Policy, writer: Policy) -> None:
        self.player, self.writer = player, writer
        self.name = f"{player.name}, advised by {writer.name}"

    def start(self, task: Task, seed: int) -> Conversation:
        return self.player.start(task, seed)

    def __getattr__(self, name: str) -> Any:
        if name in ("player", "writer"):  # not set yet, while it is copied
            raise AttributeError(name)
        return getattr(self.player, name)
