"""An episode that is under way: what it is shown, what it chooses, how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mulligan.calls import described
from mulligan.errors import ParameterError, UsageError
from mulligan.journal.context import Selection
from mulligan.journal.evidence import check_class, choose_option, past_choices
from mulligan.journal.note_store import (
    add_note,
    class_totals,
    judge_shown,
    new_stamp,
    notes_from,
    notes_in,
    record_shown,
)
from mulligan.journal.notes import Refused, Source, cleaned, fields_of
from mulligan.journal.records import episode_page
from mulligan.journal.reflect import ask_for_reflection
from mulligan.journal.schema import CHOICES, CLASSES, EPISODES, PENDING
from mulligan.journal.store import Row, Scope
from mulligan.policy.base import Policy, ReplyFunction, estimate_tokens
from mulligan.text import storable
from mulligan.types import Reflection

if TYPE_CHECKING:
    from mulligan.journal.journal import Journal

LONGEST_TRANSCRIPT = 1_000_000
"""Characters of a transcript that are stored, as JSON; of a longer one the last messages."""
LONGEST_TEXT = 10_000
"""Characters of a task and of an outcome that are stored."""
LONGEST_NAME = 200
"""Characters of a namespace, a task class, an agent's name, an id, an option."""


class JournalEpisode:
    """One episode of a journal, from `Journal.episode`; as a context manager it is closed whatever happens.

    Its methods take milliseconds, and `finish` as long as the reflection takes. In asynchronous code call them in a
    thread: ``await asyncio.to_thread(ep.finish, reward=1.0)``.
    """

    def __init__(self, journal: Journal, row: Row) -> None:
        self._journal = journal
        self.id: str = row["id"]
        self.task: str = row["task"]
        self.task_class: str = row["task_class"]
        self.journal_on: bool = row["journal_on"]
        """Whether it sees notes and explores; False in the hold-out."""
        self._person: str = row["person"]
        self._untrusted: bool = row["untrusted"]
        self._left_out = 0
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the episode as abandoned if it was not finished; the kind of error is kept, its text is not."""
        if self._finished:
            return
        remark = "left without finish()" if kind is None else f"raised {kind.__name__}"
        values = {"state": "abandoned", "ended": time.time(), "remark": remark}
        with self._journal.writing() as scope:
            scope.update(EPISODES, values, EPISODES.c.id == self.id, EPISODES.c.state == "open")

    def context(self, max_tokens: int = 1500, count: Callable[[str], int] = estimate_tokens) -> str:
        """What earlier attempts at tasks of this class taught, most useful first; empty where there is nothing.

        It belongs beside the task in a user message, not in the system message: it is data. `count` counts tokens; by
        default about four characters are one.
        """
        if max_tokens < 0:
            raise ParameterError(f"max_tokens must be >= 0 (got {max_tokens})")
        if not self.journal_on:
            return ""
        selection = self._selection(max_tokens, count)
        self._left_out = selection.left_out
        if selection.notes:
            with self._journal.writing() as scope:
                self._row(scope)
                record_shown(scope, self.id, self.task_class, {note.id for note in selection.notes})
        return selection.text

    def choose(self, options: Sequence[str], decision: str = "") -> str:
        """One of `options`: mostly the one with the best outcomes, sometimes one to find out (the exploration budget).

        The first option is the default, which the hold-out always takes. `decision` names what is decided, where
        episodes of a class decide several things. Asked again, the same decision has the same answer.
        """
        names = [name_of("an option", option) for option in options]
        if not names or len(set(names)) < len(names):
            raise ParameterError(f"choose needs options that differ (got {list(options)!r:.200})")
        journal = self._journal
        with journal.reading() as scope:
            past = past_choices(scope, self.task_class, decision)
        mine = CHOICES.c.episode_id == self.id, CHOICES.c.decision == name_of("decision", decision, empty=True)
        with journal.writing() as scope:
            self._row(scope)
            before = scope.row(CHOICES, *mine)
            if before is not None:
                return str(before["option"])
            choice: Row = {"option": names[0], "propensities": {names[0]: 1.0}, "explored": False}
            choice["reason"] = f"{names[0]!r}: the default, because the journal is off"
            if self.journal_on:
                choice = choose_option(
                    scope,
                    names,
                    past,
                    namespace=journal.namespace,
                    task_class=self.task_class,
                    episode_id=self.id,
                    decision=decision,
                    budget=journal.budget_of(self.task_class),
                    bounds=journal.reward_range,
                )
            key = {"episode_id": self.id, "decision": decision, "made": time.time()}
            scope.insert(CHOICES, [{**key, **choice}])
        return str(choice["option"])

    def finish(
        self,
        reward: float,
        outcome: str = "",
        transcript: Any = None,
        reflection: str | Mapping[str, str] | Reflection | None = None,
    ) -> None:
        """Store how the episode ended, then its note.

        reward      within the journal's `reward_range`; it must come from your system, not from text of strangers
        outcome     in a few words
        transcript  messages, or any data that JSON can hold; stored, and what the reflection is asked for with.
                    None keeps what is stored already
        reflection  the lesson: text, its parts by name, or None: the journal's `reflect` is asked for it

        When it returns, the outcome is on the disk. Without a reflection, or where it is refused, there is no note; the
        record's `remark` says why. An abandoned episode can still be finished, a finished one cannot.
        """
        low, high = self._journal.reward_range
        if isinstance(reward, str | bytes) or not low <= reward <= high:
            way_out = "set another range with Journal(reward_range=(low, high))"
            raise ParameterError(f"reward must be from {low:g} to {high:g} (got {reward!r}); {way_out}")
        journal = self._journal
        news = self._store_outcome(float(reward), outcome, transcript, *self._note(reflection))
        self._finished = True
        for words in news:
            journal.log.warning("%s, class %s: %s", journal.namespace, self.task_class, words)
        if reflection is None and journal.reflect is not None:
            self.reflect(journal.reflect)

    def keep(self, transcript: Any) -> None:
        """Store what was said so far, in the place of what was stored before."""
        with self._journal.writing() as scope:
            self._row(scope)
            scope.update(EPISODES, {"transcript": storable_transcript(transcript)}, EPISODES.c.id == self.id)

    def reflect(self, writer: Policy | ReplyFunction) -> None:
        """Ask `writer` for the note of this finished episode, and store it; `finish` does so where the journal has one.

        The record's `remark` says why there is no note, if there is none.
        """
        journal = self._journal
        with journal.reading() as scope:
            row = scope.row(EPISODES, EPISODES.c.id == self.id)
        if row is None or row["state"] != "finished":
            raise UsageError(f"episode {self.id!r} is not finished: a reflection needs its outcome")
        fields, remark = self._asked_for_note(writer, row["reward"], row["outcome"], row["transcript"])
        with journal.writing() as scope:
            self._row(scope)
            self._store_note(scope, fields)
            scope.update(EPISODES, {"remark": remark}, EPISODES.c.id == self.id)

    def why(self) -> str:
        """Why the episode was shown what it was shown and chose what it chose, in plain lines."""
        with self._journal.writing() as scope:
            self._row(scope)
            record = episode_page(scope, EPISODES.c.id == self.id)[0]
            notes = {note.id: note for note in notes_in(scope, self.task_class)}
            because = class_totals(scope, self.task_class)["because"]
        state = "on" if record.journal_on else "off"
        lines = [f"the journal was {state} in this episode; the chance of on was {record.chance:.0%}", because]
        for note_id in record.notes_shown:
            if note_id in notes:
                note = notes[note_id]
                lines.append(f"shown: {note.text} ({note.state}: {note.reason})")
        if self._left_out:
            lines.append(f"{self._left_out} more notes did not fit into the tokens")
        lines += [f"chose {choice.decision} {choice.reason}".replace("  ", " ") for choice in record.choices]
        return "\n".join(filter(None, [*lines, record.remark]))

    def _row(self, scope: Scope) -> Row:
        row = scope.row(EPISODES, EPISODES.c.id == self.id, lock=True)
        if row is None:
            raise UsageError(f"the journal has no episode {self.id!r}: it was deleted")
        return row

    def _selection(self, max_tokens: int, count: Callable[[str], int]) -> Selection:
        journal = self._journal
        with journal.reading() as scope:
            snapshot = journal.snapshot(scope, self.task_class)
            from_same_person = notes_from(scope, self._person)
        return snapshot.selection(
            task=self.task,
            episode_id=self.id,
            untrusted=self._untrusted,
            from_same_person=from_same_person,
            similarity=journal.similarity,
            max_tokens=max_tokens,
            count=count,
        )

    def _store_outcome(
        self, reward: float, outcome: str, transcript: Any, note_fields: Mapping[str, str], remark: str
    ) -> list[str]:
        """Outcome, totals of the class, records of the notes that were shown, the new note: all or nothing.

        Returns what is new about the class: that it was switched off, or that its outcomes changed.
        """
        low, _ = reward_range = self._journal.reward_range
        values = {
            "state": "finished",
            "ended": time.time(),
            "reward": reward,
            "outcome": stored_text(outcome),
            "remark": remark,
        }
        if transcript is not None:
            values["transcript"] = storable_transcript(transcript)
        totals = {
            "outcomes": CLASSES.c.outcomes + 1,
            "reward_sum": CLASSES.c.reward_sum + reward,
            "reward_squares": CLASSES.c.reward_squares + reward * reward,
            "stamp": new_stamp(),
        }
        with self._journal.writing() as scope:
            row = self._row(scope)
            if row["state"] == "finished":
                raise UsageError(f"episode {self.id!r} is finished already")
            scope.update(EPISODES, values, EPISODES.c.id == self.id)
            scope.update(CLASSES, totals, CLASSES.c.task_class == self.task_class)
            judge_shown(scope, self.id, self.task_class, reward, low)
            self._store_note(scope, note_fields)
            pending = {"episode_id": self.id, "task_class": self.task_class, "started": row["started"]}
            scope.insert(PENDING, [pending])
            return check_class(scope, self.task_class, reward_range)

    def _asked_for_note(
        self, writer: Policy | ReplyFunction, reward: float, outcome: str, transcript: Any
    ) -> tuple[dict[str, str], str]:
        """The note that a writer gives, as `_note` has it."""
        journal = self._journal
        try:
            reflection = ask_for_reflection(
                writer,
                task=self.task,
                task_class=self.task_class,
                transcript=transcript,
                outcome=outcome,
                reward=reward,
            )
        except Exception as error:  # the outcome is stored: a writer that is down is no reason to end an agent
            journal.log.warning("no reflection on episode %s: %s", self.id, described(error))
            return {}, f"no reflection: {described(error)}"
        return self._note(reflection)

    def _note(self, reflection: str | Mapping[str, str] | Reflection | None) -> tuple[dict[str, str], str]:
        """The fields of a note, none if it may not be stored; and then why."""
        if reflection is None:
            return {}, ""
        try:
            return cleaned(fields_of(reflection), self._journal.allow), ""
        except Refused as error:
            self._journal.log.warning("the note on episode %s was refused: %s", self.id, error)
            return {}, f"the note was refused: {error}"

    def _store_note(self, scope: Scope, fields: Mapping[str, str]) -> None:
        source: Source = "untrusted" if self._untrusted else "agent"
        if fields:
            add_note(scope, self.task_class, fields, source, task=self.task, episode_id=self.id)


def name_of(kind: str, text: str, *, empty: bool = False) -> str:
    """A name as it was given, if it is one: not too long, in one line."""
    if not isinstance(text, str) or not (text or empty) or len(text) > LONGEST_NAME or not text.isprintable():
        raise ParameterError(f"{kind} must be one line of 1 to {LONGEST_NAME} characters (got {text!r:.80})")
    return text


def stored_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text as every database takes it: no NUL, no half of a surrogate pair, not too long."""
    return storable(str(text)).replace("\x00", "")[:longest]


def storable_transcript(transcript: Any) -> list[Any] | None:
    """A transcript as plain data; of one that is too long, the last entries, and a line that says so."""
    if transcript is None:
        return None
    entries = list(transcript) if isinstance(transcript, Sequence) and not isinstance(transcript, str) else [transcript]
    texts = [json.dumps(entry, default=_plain) for entry in entries]
    room, kept = LONGEST_TRANSCRIPT, len(texts)
    while kept and (room := room - len(texts[kept - 1])) >= 0:
        kept -= 1
    left_out = [f"[{kept} earlier entries left out: too long]"] if kept else []
    return left_out + [json.loads(text) for text in texts[kept:]]


def _plain(value: Any) -> Any:
    """Messages of client libraries are pydantic models; anything else is kept as text."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
