"""Notes: what an episode taught, as short typed fields; what may stand in them; and when one is trusted or retired.

Stored text is data that somebody may have planted. Filters of text alone do not hold (arXiv 2605.08442: 88 % of the
attacks still succeed), so a note has four walls: short typed fields, no URLs, code or role markers, a source, and a
state that only outcomes or a person change:

quarantined  new, from an agent: at most one is shown at a time, never to the person whose episode it came from, nor to
             an untrusted episode; one from an untrusted source is not shown at all
confirmed    written or confirmed by a person, or an episode that was shown it ended no worse than those without it
retired      it preceded failures, or a person retired it; never shown
superseded   another note took its place; never shown
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mulligan.errors import ParameterError, UnknownName
from mulligan.text import storable
from mulligan.trial.reflection import BOUNDARIES, ERROR_CATEGORIES, FIELDS
from mulligan.types import Reflection

State = Literal["quarantined", "confirmed", "retired", "superseded"]
Source = Literal["person", "agent", "untrusted", "import"]
NOTE_FIELDS = {**FIELDS, **BOUNDARIES}
"""The parts of a note, with what each should say."""
LONGEST = {"plan": 400, "strategy": 300, "reward": 40, "error_category": 20}
"""Characters of a field; what is longer is cut."""
LONGEST_OTHERWISE = 200
_LESSON = ("strategy", "failed_at", "plan", "applies", "not_when")
"""The parts that make two notes the same; how an episode went differs from one to the next."""

FAILURES = 3
"""Outcomes without a confirmation after which a quarantined note is retired."""
FEWEST = 5
"""Outcomes with a confirmed note before it can be retired."""
CERTAINTY = 2.0
"""Standard errors by which the mean with a note must lie below the mean without it, to retire it."""

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)
_WORD = re.compile(r"[^\W_]+")
_FORBIDDEN = {
    "urls": re.compile(
        r"(?:h[tx]{2}ps?|ftp|file|data|javascript|mailto)\s*:\s*\S|\bwww\.|\S@\S+\.\w"
        r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
        r"|\b[\w-]+\s?(?:\.|\[\.\]|\(\.\)|[\[(\s]dot[\])\s])\s?"
        r"(?:com|net|org|io|ai|app|dev|co|ru|cn|xyz|info|biz|me|sh|ly|site|online|top|link|click|example|test|eu|de|uk)\b"
        r"|\b[\w-]+\.[a-z]{2,}/\S",
        re.IGNORECASE,
    ),
    "code": re.compile(
        r"[`{}\\]|\$\(|\$\{|&&|\|\||=>|[;|]\s*\w+\s+-\w|<\s*/?\s*[a-z!?][^>]*>|!\[|\]\("
        r"|\b(?:rm|sudo|curl|wget|chmod|nc|bash|sh|powershell)\s+(?:-\w|[./~]|\S*/)"
        r"|\b(?:eval|exec|system|open|import|__\w+__|print|require|fetch)\s*\("
        r"|\bimport\s+\w+\s*;|\b(?:select\s.+\sfrom|drop\s+table|insert\s+into|delete\s+from|union\s+select)\b"
        r"|[A-Za-z0-9+/=_-]{40,}|(?:[0-9a-f]{2}[\s:]){8,}|(?:\\?x[0-9a-f]{2}){4,}",
        re.IGNORECASE,
    ),
    "roles": re.compile(
        r"<\|.*?\|>|\[/?\s*(?:inst|sys|system|assistant|user|tool)\s*\]|<<\s*/?sys\s*>>"
        r"|(?:^|[.!?\n#*\-\s])(?:system|assistant|user|human|developer|tool|ai)\s*(?:message|prompt|role|note|override)?\s*:"
        r"|#{2,}|-{3,}|={3,}|\bend of (?:notes|journal|data|context)\b|</?\s*(?:notes|journal|system|assistant|user)",
        re.IGNORECASE,
    ),
}
ALLOWABLE = tuple(_FORBIDDEN)
"""What `Journal(allow=…)` may let into notes."""


class Refused(ValueError):
    """A note that may not be stored; says which field holds what."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note with its record."""

    id: str
    task_class: str
    task: str
    """Task of the episode it was first written after; empty of a person's note."""
    fields: Mapping[str, str]
    """Its parts by name: see `NOTE_FIELDS`."""
    source: Source
    state: State
    reason: str
    """Why it is in this state."""
    superseded_by: str
    written: float
    """Seconds since 1970."""
    seen: int
    """How often it was written: duplicates are merged."""
    shown: int
    """Episodes it was shown to."""
    outcomes: int
    """Outcomes of episodes it was shown to."""
    mean_with: float | None
    """Their mean reward; None without any."""
    outcomes_without: int
    """Outcomes of the class since it was written, in episodes that it was not shown to."""
    mean_without: float | None

    @property
    def text(self) -> str:
        """The note in one line."""
        return " | ".join(f"{name.replace('_', ' ')}: {text}" for name, text in self.fields.items())


def note_from(row: Mapping[str, Any], class_outcomes: int, class_sum: float) -> Note:
    """A stored row as a note; the class's totals now, less those when it was written, give what happened without it."""
    outcomes, outcomes_without = row["outcomes"], class_outcomes - row["class_outcomes"] - row["outcomes"]
    sum_without = class_sum - row["class_sum"] - row["reward_sum"]
    copied = ("id", "task_class", "task", "source", "state", "reason", "superseded_by", "written", "seen", "shown")
    return Note(
        **{name: row[name] for name in copied},
        fields=row["fields"],
        outcomes=outcomes,
        mean_with=row["reward_sum"] / outcomes if outcomes else None,
        outcomes_without=outcomes_without,
        mean_without=sum_without / outcomes_without if outcomes_without > 0 else None,
    )


def fields_of(reflection: str | Mapping[str, str] | Reflection) -> dict[str, str]:
    """The parts of a reflection; text without parts is a plan."""
    if isinstance(reflection, Reflection):
        return dict(reflection.fields) or {"plan": reflection.text}
    return {"plan": reflection} if isinstance(reflection, str) else dict(reflection)


def cleaned(fields: Mapping[str, str], allow: Collection[str] = ()) -> dict[str, str]:
    """Fields fit to be stored: one line each, cut to their length; raises `Refused` where something may not stand."""
    kept: dict[str, str] = {}
    for name in NOTE_FIELDS:
        text = _cut(plain_line(fields.get(name, "")), LONGEST.get(name, LONGEST_OTHERWISE))
        for kind, pattern in _FORBIDDEN.items():
            if kind not in allow and pattern.search(text):
                raise Refused(f"{name} holds {_DESCRIBED[kind]}; allow it with Journal(allow=({kind!r},))")
        if name == "error_category" and text not in ERROR_CATEGORIES:
            text = "other" if text else ""
        if text:
            kept[name] = text
    if not kept:
        raise Refused("it is empty")
    return kept


_DESCRIBED = {"urls": "an address", "code": "code", "roles": "a role marker"}


def check_fields(fields: Mapping[str, str]) -> None:
    """Raise where a person names a part that notes do not have."""
    for name, text in fields.items():
        if name not in NOTE_FIELDS:
            raise UnknownName("part of a note", name, NOTE_FIELDS)
        if not isinstance(text, str):
            raise ParameterError(f"{name} must be a string (got {type(text).__name__})")


def plain_line(text: str) -> str:
    """Text as one line of visible characters, in the one spelling that Unicode has for look-alike forms."""
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKC", storable(str(text))))
    spaced = "".join(" " if unicodedata.category(character).startswith("C") else character for character in visible)
    line = " ".join(spaced.split())
    return (
        f"{line[:-3]}…" if line.endswith("...") else line
    )  # as `_cut` ends a line, which is read again when it is loaded


def lesson_of(fields: Mapping[str, str]) -> dict[str, str]:
    """The parts that duplicates of a note share; all of them where it has no others."""
    return {name: fields[name] for name in _LESSON if name in fields} or dict(fields)


def text_key(fields: Mapping[str, str]) -> str:
    """Equal for notes that teach the same in the same words, whatever their case, spaces and punctuation."""
    lesson = lesson_of(fields)
    words = [" ".join([name, *_WORD.findall(text.casefold())]) for name, text in sorted(lesson.items())]
    return hashlib.blake2b("\n".join(words).encode(), digest_size=16).hexdigest()


def judged(note: Note, reward: float, baseline: float, spread: float, lowest: float) -> tuple[State, str]:
    """State and reason of a note after an episode that was shown it; its record already holds the reward.

    baseline, spread  mean and standard deviation of the class's rewards without the note
    lowest            the lowest reward there is: it confirms nothing, also where nothing else was ever reached
    """
    if note.state == "quarantined":
        if reward >= baseline and reward > lowest:
            return "confirmed", f"an episode that was shown it got {reward:g}; without it the mean was {baseline:.3g}"
        if note.outcomes >= FAILURES:
            return "retired", f"{note.outcomes} episodes were shown it, and none did better than those without it"
    if note.state == "confirmed" and note.outcomes >= FEWEST and note.mean_with is not None:
        highest = note.mean_with + CERTAINTY * spread / math.sqrt(note.outcomes)
        if highest < baseline:
            means = f"mean reward {note.mean_with:.3g} in {note.outcomes} episodes with it, {baseline:.3g} without"
            return "retired", means
    return note.state, note.reason


def _cut(text: str, longest: int) -> str:
    """The beginning of `text`, to the end of a word where there is one."""
    if len(text) <= longest:
        return text
    beginning = text[: longest - 1]
    return (beginning.rpartition(" ")[0] or beginning) + "…"
