"""Replies that were paid for, kept as they come: a resumed evaluation asks for none of them again.

The run folder keeps whole trials; this file keeps the replies of those under way, one JSON line each. A reply is given
back only to the very same messages at the same place of the same conversation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mulligan.policy.base import Conversation, Policy
from mulligan.seeding import derive
from mulligan.types import Completion, Message, Sampling, Task


class PaidReplies:
    """The file of paid replies of one arm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[tuple[int, int], tuple[int, Completion]] = {}
        """(seed of the conversation, number of the request) -> what was asked, and the reply."""
        if path.exists():
            lines = path.read_bytes()
            whole = lines.rfind(b"\n") + 1
            for line in lines[:whole].splitlines():
                seed, number, asked, reply = json.loads(line)
                self.kept[seed, number] = (asked, Completion(**reply))
            if whole < len(lines):  # a torn last line is no reply; the others are not written again, and stay
                os.truncate(path, whole)

    def keep(self, seed: int, number: int, asked: int, reply: Completion) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([seed, number, asked, asdict(reply)]) + "\n")

    def forget(self) -> None:
        """All trials are whole and in the run folder."""
        self.path.unlink(missing_ok=True)


class Remembering:
    """A policy that is asked only for what was not paid for yet."""

    def __init__(self, policy: Policy, paid: PaidReplies) -> None:
        self.policy, self.paid, self.name = policy, paid, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _RememberingConversation(self.policy.start(task, seed), self.paid, seed)


class _RememberingConversation:
    def __init__(self, conversation: Conversation, paid: PaidReplies, seed: int) -> None:
        self.conversation, self.paid, self.seed = conversation, paid, seed
        self.number = 0

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        number, asked = self.number, derive(json.dumps(list(messages)))
        self.number += 1
        known = self.paid.kept.get((self.seed, number))
        if known is not None and known[0] == asked:
            if hasattr(self.conversation, "asked"):  # the endpoint numbers its requests: it goes on where it was
                self.conversation.asked += 1
            return known[1]
        reply = await self.conversation.reply(messages, sampling)
        self.paid.keep(self.seed, number, asked, reply)
        return reply

    def close(self) -> None:
        self.conversation.close()
