"""Replies that a limit ended: their own token limit, or the end of the context. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Trial

WARN_FROM = 0.05
"""Share of cut replies from which on there is a warning."""


@dataclass(frozen=True, slots=True)
class CutReplies:
    """How many replies, reflections included, did not come to their end."""

    replies: int = 0
    by_limit: int = 0
    """Turns cut at `max_tokens`."""
    by_reflection_limit: int = 0
    """Reflections cut at `reflection_tokens`."""
    by_context: int = 0
    """Replies cut because the context was full."""

    @property
    def count(self) -> int:
        return self.by_limit + self.by_reflection_limit + self.by_context

    @property
    def share(self) -> float:
        return self.count / self.replies if self.replies else 0.0

    def warning(self) -> str | None:
        """How many were cut and what to change; None where few were."""
        if self.share < WARN_FROM:
            return None
        causes = {
            "max_tokens": self.by_limit,
            "reflection_tokens": self.by_reflection_limit,
            "engine.context": self.by_context,
        }
        raised = ", ".join(f"{name} ({count:,})" for name, count in causes.items() if count)
        return f"{self.count:,} of {self.replies:,} replies were cut ({100 * self.share:.1f} %); raise {raised}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for result files."""
        return {**asdict(self), "share": self.share, "warning": self.warning()}


def is_cut(reply: Completion) -> bool:
    """Whether a limit ended the reply. A reply of one token is complete: where answers are words, it is the answer."""
    return reply.finish == "length" and reply.completion_tokens != 1


def cut_replies(trials: Sequence[Trial], settings: TrialSettings) -> CutReplies:
    """The cut replies of trials that were played with `settings`, by what cut them."""
    turns = [turn.reply for trial in trials for episode in trial.episodes for turn in episode.turns]
    written = [episode.reflection for trial in trials for episode in trial.episodes if episode.reflection is not None]
    notes = [note.completion for note in written if note.completion is not None]
    at_limit, early = _by_cause(turns, settings.sampling.max_tokens)
    at_reflection_limit, early_notes = _by_cause(notes, settings.reflection_tokens)
    return CutReplies(len(turns) + len(notes), at_limit, at_reflection_limit, early + early_notes)


def _by_cause(replies: Sequence[Completion], limit: int) -> tuple[int, int]:
    """How many replies were cut at their limit, and how many before it. Replies without a token count: at it."""
    cut = [reply for reply in replies if is_cut(reply)]
    early = sum(0 < reply.completion_tokens < limit for reply in cut)
    return len(cut) - early, early
