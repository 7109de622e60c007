"""Trials as rows of tokens: what the model saw and sampled, in order, with the spans that carry loss.

A row is one append-only sequence: an episode, or a whole trial where episodes go on in one context, or a single turn
where a window cuts the context. Nothing is tokenised again: the ids are those that were sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mulligan.algo.build import own_reflection
from mulligan.errors import UsageError
from mulligan.seeding import generator
from mulligan.types import Completion, Trial

SETTLING_ROWS, SETTLING_ROW, SETTLING_ALIKE = 7, 157, 37
"""Rows that code is compiled on, the tokens of each, and how many of them are the same in all. No product or sum of
them is a size of a usual model: sizes that happen to be equal are compiled as one, and other rows compile again."""


@dataclass(slots=True)
class Span:
    """Sampled tokens of one turn or reflection within a row."""

    start: int
    """Position of the first sampled token in the row."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """The sampler's; None for demonstrations."""
    step: int
    """Number of the turn or reflection, in order of play over all trials: the index in a `StepBatch`."""
    trial: int
    reflects: bool
    old: Sequence[float] | None = None
    """The trainer's own log-probabilities before the update, where they are used instead of the sampler's."""
    reference: Sequence[float] | None = None
    """Those of the policy that training started from, where KL to it is used."""


@dataclass(slots=True)
class Row:
    """One sequence of tokens."""

    ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def steps_of(trial: Trial) -> Iterator[tuple[Completion, bool]]:
    """The replies of a trial in order of play, each with whether it is a reflection."""
    for n, episode in enumerate(trial.episodes):
        for turn in episode.turns:
            yield turn.reply, False
        reflection = own_reflection(trial, n)
        if reflection is not None and reflection.completion is not None:
            yield reflection.completion, True


def rows_of(trials: Sequence[Trial], *, reflections_alone: bool = False) -> tuple[list[Row], int]:
    """The rows of `trials`, and how many steps they hold; a reply that is mistaken on purpose is no span of its row.

    With `reflections_alone` steps and rows are those of the reflections: somebody else played.
    """
    rows: list[Row] = []
    step = 0
    for number, trial in enumerate(trials):
        for reply, reflects in steps_of(trial):
            if reflections_alone and not reflects:
                continue
            if reply.ids is None or reply.prompt_ids is None:
                raise UsageError(f"a reply of {trial.task.env} came without tokens; only local models can be trained")
            if reply.offset == 0:
                rows.append(Row())
            row = rows[-1]
            if reply.offset != len(row.ids):
                raise UsageError(f"tokens are missing: a reply stands at {reply.offset} of a row of {len(row.ids)}")
            row.ids += reply.prompt_ids
            if not reply.mistaken:
                row.spans.append(Span(len(row.ids), reply.ids, reply.logprobs, step, number, reflects))
            row.ids += reply.ids
            step += 1
    return rows, step


def dealt(rows: Sequence[Row], count: int, seed: int, update: int) -> list[list[Row]]:
    """The rows of each of `count` optimiser steps: trials are dealt out, and their rows stay together."""
    if count == 1:
        return [list(rows)]
    trials = sorted({row.spans[0].trial for row in rows})
    generator(seed, "minibatches", update).shuffle(trials)
    step_of = {trial: number % count for number, trial in enumerate(trials)}
    return [[row for row in rows if step_of[row.spans[0].trial] == step] for step in range(count)]


def settling_rows(count_alike: int) -> list[Row]:
    """Rows of fixed tokens, the first `count_alike` of which are the same in all."""
    rows = []
    for number in range(SETTLING_ROWS):
        ids = [0] * count_alike + [1 + number % 2] * (SETTLING_ROW - count_alike)
        sampled = tuple(ids[count_alike + 1 :])
        rows.append(Row(ids, [Span(count_alike + 1, sampled, (0.0,) * len(sampled), number, number, reflects=False)]))
    return rows
