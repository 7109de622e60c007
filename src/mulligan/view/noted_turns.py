"""What the note changed, for pages without a server: computed beforehand, for the turns where a memory counts most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mulligan.errors import MulliganError
from mulligan.view.library import Library

TRIALS = 4
"""Trials of a run that are weighed: those that were lost first and solved with a memory come first."""
RUNS = 16
"""Runs of which some are weighed; each has a model to load."""
_TURNS = 8
"""Turns of a trial, from the first one of the attempt on."""
_TRIED = 12
"""Trials of a run that are tried: an attempt may have remembered nothing, or its model may lie elsewhere."""


def notes_of(library: Library, rows: Sequence[Mapping[str, Any]], run: str, most: int) -> Iterator[dict[str, Any]]:
    """The answers to ``noted`` for the turns of one later attempt of each of at most `most` trials.

    rows: the trials to choose from, as a page lists them. Models are loaded by the same rules as on a live page.
    """
    later = [row for row in rows if len(row["outcomes"]) > 1]
    later.sort(key=lambda row: not row["solved"] or row["solved"] < 2)  # the order of the list holds otherwise
    weighed = 0
    for row in later[: _TRIED if most else 0]:
        attempt = max(2, row["solved"] or 2)
        answers = list(_turns_of(library, {"run": run, "arm": row["arm"], "place": row["place"], "episode": attempt}))
        shown = [answer["turn"] for answer in answers]
        yield from ({**answer, "shown": shown} for answer in answers)
        weighed += bool(answers)
        if weighed == most:
            return


def _turns_of(library: Library, where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for turn in range(1, _TURNS + 1):
        try:
            answer = library.answer("noted", {name: str(value) for name, value in {**where, "turn": turn}.items()})
        except MulliganError:  # nothing was remembered, or no model of this folder played, or the attempt is over
            return
        yield answer
