"""What prompts begin with in common, the rules above all: read once, and copied into the slots of all that follow.

Its keys and values lie in a slot of their own. They are those of the weights as they were when it was read, and are
forgotten when these change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.models.shared_prefix import common_prefix_length

LEAST = 32
"""Tokens; less is not worth a copy."""


class SharedPrompt:
    """The tokens that the shared prompt's slot holds: `ids`."""

    def __init__(self, model: Any) -> None:
        self.weights = list(model.parameters())
        self.ids: list[int] = []
        self.version = -1

    def fit(self, prompts: Sequence[list[int]]) -> list[int]:
        """Choose what prompts that begin a sequence share; returns what must be read into its slot, if anything.

        The present choice is kept as long as it serves, and cut where half of it serves everybody.
        """
        version = sum(weight._version for weight in self.weights)  # counts whatever was written into a weight
        if version != self.version:
            self.ids, self.version = [], version
        if not prompts:
            return []
        if self.ids:
            common = min(common_prefix_length([*prompts, self.ids]), shared(prompts))
            if common >= max(LEAST, len(self.ids) // 2):
                self.ids = self.ids[:common]
                return []
            if any(map(self.begins, prompts)):
                return []
        common = shared(prompts) if len(prompts) > 1 else 0
        self.ids = prompts[0][:common] if common >= LEAST else []
        return self.ids

    def begins(self, prompt: list[int]) -> bool:
        """Whether a prompt begins with the shared one, and goes on."""
        return bool(self.ids) and len(prompt) > len(self.ids) and prompt[: len(self.ids)] == self.ids


def shared(prompts: Sequence[list[int]]) -> int:
    """How many first tokens all prompts have in common; of each, one at least must be left to go on with."""
    return min(common_prefix_length(prompts), min(map(len, prompts)) - 1)
