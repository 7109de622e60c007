"""A model in this process as a policy: messages become tokens, and an engine samples the reply's tokens.

`Demonstrated` writes the tokens of a scripted play in the same form, so that warm start and reinforcement learning
train on sequences built by the same code.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mulligan.engine.base import Pair
from mulligan.errors import ContextFull
from mulligan.policy.base import Conversation, Policy, assistant_message
from mulligan.text import storable
from mulligan.types import Completion, Message, Sampling, Task, Tool, ToolCall

if TYPE_CHECKING:
    from mulligan.engine.base import Stream, StreamEngine
    from mulligan.models.renderer import Renderer


_LONGEST_TOKEN = 64
"""Characters of a token, at most on average: a message that is too long for a context by this is not tokenized."""


class Transcript:
    """The tokens of a conversation, append-only within a sequence of messages."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.messages: list[Message] = []
        self.length = 0
        self.last: tuple[int, ...] = ()

    def prompt(self, messages: Sequence[Message]) -> tuple[list[int], int]:
        """The tokens to append for `messages`, and how many come before them; 0 begins a new sequence."""
        if self.messages and len(messages) == len(self.messages) + 1 and list(messages[:-1]) == self.messages:
            ids = self.renderer.following(self.last, messages[-1])
        else:
            self.length = 0
            ids = self.renderer.opening(messages)
        offset = self.length
        self.messages = list(messages)
        self.length += len(ids)
        return ids, offset

    def replied(self, ids: tuple[int, ...], message: Message) -> None:
        self.messages.append(message)
        self.length += len(ids)
        self.last = ids


class LocalPolicy:
    """Samples from an engine over a local model."""

    gamma_traj: float = 1.0
    """The discount from episode to episode that it was trained with."""

    def __init__(self, engine: StreamEngine, renderer: Renderer, name: str = "local") -> None:
        self.engine, self.renderer, self.name = engine, renderer, name

    def start(self, task: Task, seed: int) -> Conversation:
        return _LocalConversation(self.engine, self.renderer, random.Random(seed))

    def reply_chances(
        self, prompts: Sequence[Sequence[Message]], replies: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[list[float]]:
        """How likely each reply is, in its usual tokens; 0 for those that `max_tokens` or the context would cut.

        A text that other tokens spell too, or that another token ends, is a little likelier than this.
        """
        asked: list[list[Pair | None]] = []
        for messages, texts in zip(prompts, replies, strict=True):
            prompt = tuple(self._tokens(messages))
            endings = [tuple(self.renderer.encode_reply(text)) for text in texts]
            # Where the limit cuts off only the token that ends a reply, the text is complete.
            fitting = [ids[: sampling.max_tokens] if self._fits(prompt, ids, sampling) else None for ids in endings]
            asked.append([None if ids is None else Pair(prompt, ids) for ids in fitting])
        pairs = [pair for of_prompt in asked for pair in of_prompt if pair is not None]
        chances = self.engine.reply_chances(pairs, sampling)
        return [[0.0 if pair is None else chances[pair] for pair in of_prompt] for of_prompt in asked]

    def _fits(self, prompt: Sequence[int], ids: Sequence[int], sampling: Sampling) -> bool:
        return len(ids) - 1 <= min(sampling.max_tokens, self.engine.context - len(prompt))

    def _tokens(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt as `reply` builds it, turn by turn."""
        roles = [message["role"] for message in messages]
        begun = roles.index("assistant") if "assistant" in roles else len(roles)
        ids = list(self.renderer.opening(messages[:begun]))
        for reply, message in zip(messages[begun::2], messages[begun + 1 :: 2], strict=True):
            reply_ids = self.renderer.encode_reply(reply["content"])
            ids += [*reply_ids, *self.renderer.following(reply_ids, message)]
        return ids


class _LocalConversation:
    def __init__(self, engine: StreamEngine, renderer: Renderer, rng: random.Random) -> None:
        self.engine, self.renderer, self.rng = engine, renderer, rng
        self.transcript = Transcript(renderer)
        self.stream: Stream | None = None
        self.context = engine.context
        self.longest_text = _LONGEST_TOKEN * engine.context
        self.may_call = False

    def offer(self, tools: Sequence[Tool]) -> bool:
        """A template that takes tools tells of them where a sequence begins: those offered there stay in it."""
        self.may_call = False
        if tools and (renderer := self.renderer.offering([tool.schema() for tool in tools])) is not None:
            self.may_call = True
            if renderer is not self.transcript.renderer:
                self.transcript = Transcript(renderer)
        return self.may_call

    def count_tokens(self, text: str) -> int:
        return len(text) if len(text) > self.longest_text else self.renderer.count(text)

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if (longest := max(len(message["content"]) for message in messages)) > self.longest_text:
            raise ContextFull(f"a message of {longest:,} characters does not fit a context of {self.context:,} tokens")
        if self.stream is None:
            self.stream = await self.engine.open()
        ids, offset = self.transcript.prompt(messages)
        if offset == 0:
            self.stream.restart()
        sampled = await self.stream.extend(ids, sampling, self.renderer.stop_ids, self.rng)
        text = self.renderer.decode_reply(sampled.ids)
        reply = Completion(
            text=text,
            finish=sampled.finish,
            ids=sampled.ids,
            logprobs=sampled.logprobs,
            prompt_tokens=offset + len(ids),
            completion_tokens=len(sampled.ids),
            prompt_ids=tuple(ids),
            offset=offset,
            tool_calls=calls_in(text) if self.may_call else (),
        )
        self.transcript.replied(sampled.ids, assistant_message(reply, calls_tools=self.may_call))
        return reply

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


_TAGGED_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def calls_in(text: str) -> tuple[ToolCall, ...]:
    """The calls that a model wrote: JSON in tags, as Qwen and Hermes do, or a reply that is nothing else (Llama 3).

    What is tagged as a call and is none has no name.
    """
    text = text[max(text.rfind("</think>"), 0) :].removeprefix("</think>").strip()
    tagged = _TAGGED_CALL.findall(text)
    calls = [_call(number, written) for number, written in enumerate(tagged or [text])]
    return tuple(call for call in calls if tagged or call.name)


def _call(number: int, text: str) -> ToolCall:
    call: object = None
    with suppress(ValueError, RecursionError):
        call = json.loads(text)
    if not isinstance(call, dict) or not isinstance(name := call.get("name"), str):
        return ToolCall(f"call-{number}", "", storable(text))
    arguments = call.get("arguments", call.get("parameters", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(f"call-{number}", storable(name), storable(written))


class Demonstrated:
    """A scripted player whose replies, as `write` gives them, come with the tokens a model should have sampled."""

    def __init__(
        self, policy: Policy, renderer: Renderer, write: Callable[[str], str], context: int | None = None
    ) -> None:
        """context: of the model that the replies stand beside; None where they stand alone."""
        self.policy, self.renderer, self.write, self.context = policy, renderer, write, context
        self.name = policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _DemonstratedConversation(self.policy.start(task, seed), self.renderer, self.write, self.context)


class _DemonstratedConversation:
    def __init__(self, player: Any, renderer: Renderer, write: Callable[[str], str], context: int | None) -> None:
        self.player, self.renderer, self.write, self.context = player, renderer, write, context
        self.transcript = Transcript(renderer)
        self.count_tokens = renderer.count
        self.watch, self.see, self.ended, self.close = player.watch, player.see, player.ended, player.close

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        played = await self.player.reply(messages, sampling)
        text = self.write(played.text)
        prompt, offset = self.transcript.prompt(messages)
        ids = tuple(self.renderer.encode_reply(text))
        before = offset + len(prompt)
        if self.context is not None and before + len(ids) > self.context:
            raise ContextFull(f"a reply after {before:,} tokens does not fit a context of {self.context:,}")
        self.transcript.replied(ids, {"role": "assistant", "content": text})
        return Completion(
            text,
            ids=ids,
            prompt_ids=tuple(prompt),
            offset=offset,
            prompt_tokens=0 if self.context is None else before,
            completion_tokens=len(ids),
            mistaken=played.mistaken,
        )
