"""The policy protocol: conversations, because a KV cache needs an owner and a release.

A policy starts a conversation for each trial, which answers message lists and is closed at the end. A plain function
``f(messages) -> str`` (or ``async def``) is a policy too.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast, runtime_checkable

from mulligan.errors import UsageError
from mulligan.policy.threads import call_in_thread
from mulligan.text import storable
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Tool

ReplyFunction = Callable[[list[Message]], str | Awaitable[str]]


class Conversation(Protocol):
    """One trial's exchange with the policy."""

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """The next reply; raises `RequestFailed` or `ContextFull` when there will be none.

        Within a sequence `messages` only grows; a list that begins differently starts a new sequence.
        """

    def close(self) -> None:
        """Free what the conversation holds. Called exactly once, on cancellation too."""


@runtime_checkable
class ToolUser(Protocol):
    """A conversation whose replies may call the environment's tools."""

    def offer(self, tools: Sequence[Tool]) -> bool:
        """The tools that replies may call from now on; none: no longer those offered before.

        False where the model cannot call them; it is then told in words what to write.
        """


def assistant_message(reply: Completion, *, calls_tools: bool = False) -> Message:
    """A reply as the conversation goes on with it. Arguments that are no JSON object, which servers would refuse to
    read again, are left out."""
    message: Message = {"role": "assistant", "content": reply.text}
    if calls_tools and reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _sendable(call.arguments)}}
            for call in reply.tool_calls
        ]
    return message


def _sendable(arguments: str) -> str:
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(arguments), dict):
            return arguments
    return "{}"


class Policy(Protocol):
    """An agent."""

    name: str

    def start(self, task: Task, seed: int) -> Conversation:
        """Begin a trial; all randomness of its replies comes from `seed`."""


class Player(Protocol):
    """A scripted player as an environment offers it."""

    def act(self) -> str: ...

    def see(self, step: Step) -> None: ...


class World(Protocol):
    """What a scripted or human player may ask of the live world."""

    def legal(self) -> Sequence[str]: ...

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player: ...


@runtime_checkable
class WeighsReplies(Protocol):
    """A policy that knows how likely its replies are: evaluations then compute what hands of poker are worth."""

    def reply_chances(
        self, prompts: Sequence[Sequence[Message]], replies: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[list[float]]:
        """For each list of messages, how likely each of these texts is as the whole reply."""


@runtime_checkable
class Spectator(Protocol):
    """A conversation that sits beside the world instead of reading about it: scripted and human players.

    With a true attribute `retypes`, what is mistyped is shown and costs no turn.
    """

    def watch(self, world: World) -> None:
        """Called once, before the first episode."""

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        """Called after every step; with the `timeout_reward` where the turn limit ends the episode."""

    def ended(self, episode: Episode) -> None:
        """Called before a reflection on `episode` is asked for: the next reply is the reflection."""


def estimate_tokens(*texts: str) -> int:
    """About four characters a token: used where nobody counts tokens."""
    return (sum(map(len, texts)) + 3) // 4


class FunctionPolicy:
    """A plain function as a policy, and as every conversation with it.

    An ``async def`` runs on the event loop. Any other function runs in a thread for each call, so that as many calls
    overlap as trials are played at a time; one that is not thread-safe needs ``concurrency=1``.
    """

    pays = True
    """Its replies may cost something, and depend on the messages alone: a resumed evaluation does not repeat them."""

    def __init__(self, function: ReplyFunction) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        callables = (function, type(function).__call__)  # an object may have ``async def __call__``
        self.is_async = any(map(inspect.iscoroutinefunction, callables))

    def start(self, task: Task, seed: int) -> Conversation:
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.is_async:
            answer = self.function(list(messages))
        else:
            answer = await call_in_thread(self.function, list(messages))
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str):
            raise UsageError(f"the policy function must return a string (got {type(answer).__name__})")
        text = storable(answer)
        prompt_tokens = estimate_tokens(*(message["content"] for message in messages))
        return Completion(text, prompt_tokens=prompt_tokens, completion_tokens=estimate_tokens(text))

    def close(self) -> None:
        pass


def as_policy(policy: Policy | ReplyFunction) -> Policy:
    if hasattr(policy, "start"):
        if not hasattr(policy, "name"):
            cast(Any, policy).name = type(policy).__name__
        return cast(Policy, policy)
    if callable(policy):
        return FunctionPolicy(cast(Any, policy))
    raise UsageError(f"{policy!r} is not a policy: it needs start(task, seed), or to be a function of the messages")
