"""The engine protocol: tokens in; tokens, log-probabilities and the reason for stopping out.

A `TokenStream` is one append-only sequence whose past stays cached: extend it with new prompt tokens, and it samples a
reply that becomes part of it. Streams are independent of each other and of the clock.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mulligan.types import Sampling


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was drawn."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the sampling distribution, after temperature."""
    finish: Literal["stop", "length"]
    """"stop": the last token is one of the stop tokens; "length": the limit came first."""


class TokenStream(Protocol):
    """One sequence of tokens."""

    @property
    def length(self) -> int:
        """Tokens in the sequence so far, replies included."""
        ...

    async def extend(
        self, ids: Sequence[int], sampling: Sampling, stop: Collection[int], rng: random.Random
    ) -> Sampled:
        """Append `ids`, then sample until a stop token or the limit."""
        ...

    def restart(self) -> None:
        """Forget the sequence and begin an empty one in the same place."""
        ...

    def close(self) -> None:
        """Free the place at once."""
        ...


class Engine(Protocol):
    """Samples from one model for many streams at once."""

    context: int
    """The longest sequence."""

    async def open(self) -> TokenStream:
        """A new stream; waits, in the order of asking, where all places are taken."""
        ...
