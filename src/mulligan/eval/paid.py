"""Replies that were paid for, kept as they come: a resumed evaluation asks for none of them again.

One line each: a checksum, which earlier versions did not write, and JSON. They stay when their trials are complete:
where a file of trials is damaged, it is made again from them. Their tokens are what all has cost, also of trials that
were played again.
"""

from __future__ import annotations

import json
import os
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from mulligan.errors import DamagedFile
from mulligan.policy.base import Conversation, Policy, ToolUser
from mulligan.report.files import append, keep_damaged
from mulligan.report.run import completion_from_dict, completion_to_dict
from mulligan.seeding import derive
from mulligan.types import Completion, Message, Sampling, Task, Tool

_SYNC_SECONDS = 0.5
"""A power cut loses the replies of no more than this; a kill loses none."""


class PaidReplies:
    """The file of paid replies of one arm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[tuple[int, int], tuple[int, Completion]] = {}
        """(seed of the conversation, number of the request) -> digest of the messages, and the reply."""
        self.tokens: tuple[int, int] = (0, 0)
        """Prompt and completion tokens of all replies that were ever paid for in this arm."""
        self.replies = 0
        self._synced = 0.0
        content = path.read_bytes() if path.exists() else b""
        lines = list(dict.fromkeys(content.splitlines(keepends=True)))  # one that stands there twice was paid for once
        damaged = sum(not self._read(line) for line in lines)
        if torn := content[content.rfind(b"\n") + 1 :]:  # it would spoil the next line
            keep_damaged(path, torn + b"\n")
            os.truncate(path, len(content) - len(torn))
        if damaged:
            text = f"{path} is damaged: {damaged} of its {len(lines)} paid replies cannot be read"
            warnings.warn(f"{text}, and are asked for again where a trial needs them", DamagedFile, stacklevel=2)

    def _read(self, line: bytes) -> bool:
        """Take the entry of a line; False where it is not as it was written."""
        text = line[:-1] if line[:1] in (b"[", b"{") else line[9:-1]
        if line not in (_signed(text), text + b"\n"):
            return False
        try:
            entry = json.loads(text)
            if isinstance(entry, dict):  # the tokens of replies that an earlier version did not keep
                self._count(Completion("", **entry))
                return True
            seed, number, digest, fields = entry
            kept = {(seed, number): (digest, completion_from_dict(fields))}
            self._count(kept[seed, number][1])
            self.kept |= kept
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            return False
        return True

    def keep(self, seed: int, number: int, digest: int, reply: Completion) -> None:
        self._count(reply)
        self.path.parent.mkdir(exist_ok=True)
        now = time.monotonic()
        is_synced = now - self._synced > _SYNC_SECONDS
        self._synced = now if is_synced else self._synced
        append(
            self.path,
            _signed(json.dumps([seed, number, digest, completion_to_dict(reply)]).encode()),
            is_synced=is_synced,
        )

    def _count(self, reply: Completion) -> None:
        self.replies += 1
        self.tokens = (self.tokens[0] + reply.prompt_tokens, self.tokens[1] + reply.completion_tokens)


def _signed(text: bytes) -> bytes:
    """A line with a checksum before the text."""
    return b"%08x %b\n" % (zlib.crc32(text), text)


class Remembering:
    """A policy that is asked only for what was not paid for yet; `on_reply` gets the tokens of each new reply."""

    def __init__(self, policy: Policy, paid: PaidReplies | None, on_reply: Callable[[int, int], None]) -> None:
        self.policy, self.paid, self.on_reply, self.name = policy, paid, on_reply, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _RememberingConversation(self.policy.start(task, seed), self, seed)


class _RememberingConversation:
    def __init__(self, conversation: Conversation, owner: Remembering, seed: int) -> None:
        self.conversation, self.owner, self.seed = conversation, owner, seed
        self.number = 0
        self.tools: Sequence[Tool] = ()
        self.close = conversation.close

    def offer(self, tools: Sequence[Tool]) -> bool:
        self.tools = tools or self.tools
        return isinstance(self.conversation, ToolUser) and self.conversation.offer(tools)

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """A paid reply is given only to the same messages at the same request of the same conversation."""
        offered = [tool.schema() for tool in self.tools]
        paid, number, digest = self.owner.paid, self.number, derive(json.dumps([*messages, *offered]))
        self.number += 1
        paid_digest, paid_reply = paid.kept.get((self.seed, number), (None, None)) if paid else (None, None)
        if paid_reply is not None and paid_digest == digest:
            if hasattr(self.conversation, "asked"):  # the endpoint derives each request's seed from its number
                self.conversation.asked += 1
            return paid_reply
        reply = await self.conversation.reply(messages, sampling)
        self.owner.on_reply(reply.prompt_tokens, reply.completion_tokens)
        if paid is not None:
            paid.keep(self.seed, number, digest, reply)
        return reply
