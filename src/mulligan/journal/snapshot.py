"""What retrieval reads of a class, kept in memory until somebody changes it: the store is asked for its stamp alone.

Every transaction that changes what is shown of a class gives it a new stamp (`note_store.new_stamp`), in whichever
process it runs. So a snapshot with the class's stamp is the class as it is now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from mulligan.journal.context import Records, Selection, Similarity, ranked, selected, shown_now, words_of
from mulligan.journal.note_store import MOST_NOTES, class_totals, mean_and_spread, notes_in
from mulligan.journal.notes import Note
from mulligan.journal.proof import Bounds
from mulligan.journal.store import Scope


@dataclass(frozen=True, slots=True)
class ClassSnapshot:
    """A class at one moment."""

    task_class: str
    stamp: int
    journal_on: bool
    """False where it was switched off because it hurt."""
    mean: float
    """Of the class's rewards, as `spread`."""
    spread: float
    notes: tuple[Note, ...]
    """Those that may be shown, the newest first."""
    records: Records
    words: Mapping[str, str]
    """Id of a note -> how an agent reads it."""

    def selection(
        self,
        *,
        task: str,
        episode_id: str,
        untrusted: bool,
        from_same_person: Collection[str],
        similarity: Similarity | None,
        max_tokens: int,
        count: Callable[[str], int],
    ) -> Selection:
        """What an episode is shown; `from_same_person` are ids of notes that episodes of its person wrote."""
        order = ranked(
            self.notes,
            task=task,
            episode_id=episode_id,
            now=time.time(),
            mean=self.mean,
            spread=self.spread,
            similarity=similarity,
            records=self.records,
        )
        # Whoever wrote a note could confirm it with an episode that ends well.
        may_be_shown = shown_now(order, lambda note: not untrusted and note.id not in from_same_person)
        return selected(may_be_shown, self.task_class, max_tokens, count, lambda note: self.words[note.id])


def snapshot_of(scope: Scope, task_class: str, bounds: Bounds, before: ClassSnapshot | None = None) -> ClassSnapshot:
    """The class as it is now; `before`, if nothing has changed since."""
    totals = class_totals(scope, task_class)  # first: what is written meanwhile then has another stamp
    if before is not None and before.stamp == totals["stamp"]:
        return before
    sums = totals["outcomes"], totals["reward_sum"], totals["reward_squares"]
    mean, spread = mean_and_spread(*sums, sum(bounds) / 2)
    notes = notes_in(scope, task_class, ("confirmed", "quarantined"), MOST_NOTES, totals=totals)
    words = {note.id: words_of(note) for note in notes}
    return ClassSnapshot(
        task_class, totals["stamp"], totals["journal_on"], mean, spread, tuple(notes), Records.of(notes, mean), words
    )
