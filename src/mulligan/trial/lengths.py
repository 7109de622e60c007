"""The longest sequence of a trial, from token limits and the lengths of a played sample.

An episode is one sequence. At its longest it holds::

    opening + memory + turns x (observation + reply) + reflection request + reflection

With a window it holds only the last turns. Memory holds the digests and reflections of earlier episodes, or their
transcripts where the environment has no digest; never more than `memory_tokens`. A trial that goes on in one sequence
keeps to the same budget, so that the formula holds for it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mulligan.trial.memory import shows_history, shows_reflection
from mulligan.trial.settings import MAX_REFLECTIONS, TrialSettings

MARGIN = 1.25
"""Measured lengths are multiplied by this: other worlds may have longer texts than those of the sample."""
WORDS = 32
"""Tokens of the words around what is remembered of one episode."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of what an environment says, chat template included: the longest of a sample."""

    turns: int
    """Turns that an episode may take."""
    opening: int = 0
    """Rules and first observation."""
    observation: int = 0
    """Between two replies."""
    request: int = 0
    """The request for a reflection, with how the episode ended."""
    digest: int | None = None
    """Of one episode; None where history is its transcript."""

    def with_margin(self) -> Lengths:
        """The lengths to plan with."""
        digest = None if self.digest is None else _more(self.digest)
        return Lengths(self.turns, _more(self.opening), _more(self.observation), _more(self.request), digest)


@dataclass(frozen=True, slots=True)
class Need:
    """The parts of the longest sequence, in tokens."""

    opening: int
    memory: int
    turns: int
    """Turns in the sequence."""
    observation: int
    reply: int
    request: int
    reflection: int

    @property
    def replies(self) -> int:
        """Without memory, which is shortened to the room that is left."""
        return self.opening + self.turns * (self.observation + self.reply) + self.request + self.reflection

    @property
    def total(self) -> int:
        return self.replies + self.memory

    def __str__(self) -> str:
        """The arithmetic, as messages show it."""
        parts = [f"rules and first observation {self.opening:,}"]
        parts += [f"memory {self.memory:,}"] if self.memory else []
        parts.append(f"{self.turns} turns x (observation {self.observation:,} + reply {self.reply:,})")
        if self.reflection:
            parts.append(f"reflection {self.request:,} + {self.reflection:,}")
        return f"{' + '.join(parts)} = {self.total:,} tokens"


def needed(settings: TrialSettings, lengths: Lengths) -> Need:
    """The longest sequence of a trial that is played with `settings`, where replies use up their limits."""
    lengths = lengths.with_margin()
    turns = lengths.turns if settings.window is None else min(lengths.turns, settings.window)
    reflects = settings.episodes > 1 and shows_reflection(settings.memory_mode)
    return Need(
        opening=lengths.opening,
        memory=_memory(settings, lengths),
        turns=turns,
        observation=lengths.observation,
        reply=settings.sampling.max_tokens,
        request=lengths.request if reflects else 0,
        reflection=settings.reflection_tokens if reflects else 0,
    )


def _memory(settings: TrialSettings, lengths: Lengths) -> int:
    """Tokens of memory before the last episode."""
    earlier, mode = settings.episodes - 1, settings.memory_mode
    history = reflections = 0
    if shows_history(mode):
        transcript = lengths.opening + lengths.turns * (lengths.observation + settings.sampling.max_tokens)
        history = earlier * (transcript if lengths.digest is None else lengths.digest)
    if shows_reflection(mode):
        reflections = min(earlier, MAX_REFLECTIONS) * settings.reflection_tokens
    if not history + reflections:
        return 0
    return min(settings.memory_tokens, history + reflections + earlier * WORDS) + WORDS


def _more(measured: int) -> int:
    return math.ceil(measured * MARGIN)
