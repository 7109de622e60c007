"""The part of earlier episodes that the next one sees, within a budget of tokens.

The newest comes last. The oldest is dropped first, and the text says how many were dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mulligan.policy.base import estimate_tokens
from mulligan.trial.settings import MAX_REFLECTIONS
from mulligan.types import Episode, Memory

CountTokens = Callable[[str], int]
Headline = Callable[[Episode], str]


class Recollection(NamedTuple):
    """One earlier episode as memory may show it; its history is a digest or its transcript."""

    episode: Episode
    history: str


def shows_history(memory: Memory) -> bool:
    return memory in ("history", "both")


def shows_reflection(memory: Memory) -> bool:
    return memory in ("reflection", "both")


def transcript(episode: Episode) -> str:
    """An episode as the agent saw it, in plain text: the history of an environment without a digest."""
    lines: list[str] = []
    for turn in episode.turns:
        lines += [turn.observation, f"You answered: {turn.reply.written.strip()}"]
        if turn.feedback:
            lines.append(turn.feedback)
    return "\n".join([*lines, episode.final])


def recall(
    past: Sequence[Recollection],
    memory: Memory,
    budget: int,
    headline: Headline | None,
    count: CountTokens = estimate_tokens,
    most: int = MAX_REFLECTIONS,
) -> str:
    """The memory section of the next episode's prompt, with the newest `most` reflections; empty if it shows nothing.

    `headline` names an episode and how it ended; None leaves out all but the memory itself.
    """
    if memory == "none":
        return ""
    blocks: list[str] = []
    tokens_left, dropped, separator = budget, 0, "\n" if headline is None else "\n\n"
    for index in range(len(past) - 1, -1, -1):
        block = _block(past[index], memory, headline, with_reflection=index >= len(past) - most)
        if not block:
            dropped += 1
            continue
        size = count(separator + block if blocks else block)
        if size > tokens_left:
            # If not even the newest fits, its end is kept.
            end = "" if blocks else _shortened(block, tokens_left, count, headed=headline is not None)
            blocks += [end] if end else []
            dropped += index + (not end)
            break
        blocks.append(block)
        tokens_left -= size
    if dropped and headline is not None:
        blocks.append(left_out(dropped))
    return separator.join(reversed(blocks))


def left_out(episodes: int) -> str:
    return f"[{episodes} earlier episode{'s' if episodes > 1 else ''} left out]"


def _block(past: Recollection, memory: Memory, headline: Headline | None, *, with_reflection: bool) -> str:
    parts = []
    if shows_history(memory) and past.history:
        parts.append(past.history)
    reflection = past.episode.reflection
    if shows_reflection(memory) and with_reflection and reflection is not None and reflection.text:
        parts.append(f"Your reflection: {reflection.text}" if shows_history(memory) and headline else reflection.text)
    if headline is None:
        return "\n".join(parts)
    if shows_reflection(memory) and not with_reflection:
        if not shows_history(memory):
            return ""  # too old to be shown at all
        parts.append("[your reflection is left out]")
    return "\n".join([headline(past.episode), *parts])


def _shortened(block: str, budget: int, count: CountTokens, *, headed: bool) -> str:
    """The end of a block that is too long, below its headline; the headline alone, or nothing, if no more fits."""
    if not headed:
        return _keep_end(block, "", budget, count)
    head, _, rest = block.partition("\n")
    note = "[the beginning is left out for lack of room]\n"
    end = _keep_end(rest, note, budget - count(f"{head}\n"), count)
    return "" if count(head) > budget else f"{head}\n{end}" if end else head


def _keep_end(text: str, note: str, budget: int, count: CountTokens) -> str:
    """The longest tail of whole words that fits, found by halving, with `note` in front; empty if no word fits."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count(note + text[middle:]) <= budget:
            high = middle
        else:
            low = middle + 1
    tail = text[low:]
    if tail and low and not (text[low - 1].isspace() or tail[0].isspace()):
        tail = "".join(tail.split(None, 1)[1:])
    return note + tail if tail.strip() else ""
