"""Replies that were paid for, kept as they come: a resumed evaluation asks for none of them again.

The run folder keeps whole trials; this file keeps the replies of those under way, one JSON line each. A reply is given
back only to the very same messages at the same place of the same conversation. What all replies came to is counted
here, since not each of them ends up in a trial that counts: some belong to trials that are played again. When all
trials are whole, one line with that sum takes the place of the replies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from mulligan.errors import RunFolderError
from mulligan.policy.base import Conversation, Policy
from mulligan.seeding import derive
from mulligan.types import Completion, Message, Sampling, Task


class PaidReplies:
    """The file of paid replies of one arm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[tuple[int, int], tuple[int, Completion]] = {}
        """(seed of the conversation, number of the request) -> what was asked, and the reply."""
        self.tokens: tuple[int, int] = (0, 0)
        """Read and written by all replies that were ever paid for in this arm."""
        # Where earlier versions kept the sum; beside one that is torn are its replies still.
        with suppress(OSError, ValueError):
            self._sum_up(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
        if path.exists():
            lines = path.read_bytes()
            whole = lines.rfind(b"\n") + 1
            for line in lines[:whole].splitlines():
                with suppress(ValueError, TypeError):  # a line that was torn by a full disk is no reply
                    found = json.loads(line)
                    if isinstance(found, dict):
                        self._sum_up(found)
                        continue
                    seed, number, asked, told = found
                    reply = Completion(**told)
                    self.kept[seed, number] = (asked, reply)
                    self._count(reply)
            if whole < len(lines):  # a torn last line; the others are not written again, and stay
                os.truncate(path, whole)

    def keep(self, seed: int, number: int, asked: int, reply: Completion) -> None:
        self._count(reply)
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([seed, number, asked, asdict(reply)]) + "\n")
        except OSError as error:
            with suppress(OSError):  # half a line would spoil the next one
                os.truncate(self.path, before)
            raise RunFolderError(f"{self.path} cannot be written: {error}") from error

    def forget(self) -> None:
        """All trials are whole and in the run folder; what they took stays. In one step: a kill loses nothing, and
        nothing is counted twice."""
        if self.path.exists():
            counted = dict(zip(("prompt_tokens", "completion_tokens"), self.tokens, strict=True))
            beside = self.path.with_suffix(".tmp")
            beside.write_text(json.dumps(counted) + "\n", encoding="utf-8")
            os.replace(beside, self.path)

    def _sum_up(self, counted: dict[str, int]) -> None:
        self.tokens = (counted["prompt_tokens"], counted["completion_tokens"])

    def _count(self, reply: Completion) -> None:
        read, wrote = self.tokens
        self.tokens = (read + reply.prompt_tokens, wrote + reply.completion_tokens)


class Remembering:
    """A policy that is asked only for what was not paid for yet; `on_reply` gets the tokens that a reply read and
    wrote."""

    def __init__(self, policy: Policy, paid: PaidReplies | None, on_reply: Callable[[int, int], None]) -> None:
        self.policy, self.paid, self.on_reply, self.name = policy, paid, on_reply, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _RememberingConversation(self.policy.start(task, seed), self, seed)


class _RememberingConversation:
    def __init__(self, conversation: Conversation, owner: Remembering, seed: int) -> None:
        self.conversation, self.owner, self.seed = conversation, owner, seed
        self.number = 0

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        paid, number, asked = self.owner.paid, self.number, derive(json.dumps(list(messages)))
        self.number += 1
        known = paid.kept.get((self.seed, number)) if paid is not None else None
        if known is not None and known[0] == asked:
            if hasattr(self.conversation, "asked"):  # the endpoint numbers its requests: it goes on where it was
                self.conversation.asked += 1
            return known[1]
        reply = await self.conversation.reply(messages, sampling)
        self.owner.on_reply(reply.prompt_tokens, reply.completion_tokens)
        if paid is not None:
            paid.keep(self.seed, number, asked, reply)
        return reply

    def close(self) -> None:
        self.conversation.close()
