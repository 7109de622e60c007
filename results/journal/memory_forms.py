"""Memories to compare the journal with, in a few lines each: ours, after the papers' descriptions, without their code.

All are given the same: after an episode its task, its class, what was done, the lesson and the reward; before an
episode they give text of at most `BUDGET` tokens. Lessons come from one scripted writer, so that the memories differ
in what they keep and show, and in nothing else.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mulligan.journal.budget import Budget
from mulligan.journal.episode import JournalEpisode
from mulligan.journal.journal import Journal
from mulligan.policy.base import estimate_tokens

BUDGET = 300


class Lesson(NamedTuple):
    """What the writer says after an episode, in a form that every memory can keep."""

    advice: str
    """Such as ``use b3; not c1``."""
    done: str
    """What was done, as a transcript has it: ``b3 was good; c1 was bad``."""
    applies: str
    """Where the lesson ends, such as ``board 7``; empty if it is for the whole class."""
    reward: float


class Memory(Protocol):
    """What crosses from one episode to the next."""

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        """The text for this episode, and the strategy that it is told to take, if it is told one."""
        ...

    def write(self, task: str, kind: str, lesson: Lesson) -> None: ...


def within(lines: Sequence[str]) -> str:
    """The first lines that fit into the budget."""
    kept: list[str] = []
    for line in lines:
        if estimate_tokens("\n".join([*kept, line])) > BUDGET:
            break
        kept.append(line)
    return "\n".join(kept)


class Nothing:
    """No memory."""

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        return "", ""

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        pass


class LastTranscripts(Nothing):
    """The latest transcripts of the class, the newest first, as many as fit: long context."""

    def __init__(self) -> None:
        self.past: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=50))

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        return within(self.past[kind]), ""

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        self.past[kind].appendleft(f"task: {task} | {lesson.done} | reward {lesson.reward:g}{_boundary(lesson)}")


class Reflexion(Nothing):
    """After Reflexion (2303.11366): a reflection after each failure; the last three of the class are shown."""

    def __init__(self) -> None:
        self.past: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=3))

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        return within(self.past[kind]), ""

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        if lesson.reward < 0.5:
            self.past[kind].append(f"I failed. Next time: {lesson.advice}{_boundary(lesson)}")


class ReasoningBank(Nothing):
    """After ReasoningBank (2509.25140): an item for each success and each failure, none is ever removed; those whose
    task is most like this one are shown. The paper retrieves by embeddings; here words are counted."""

    most = 5

    def __init__(self) -> None:
        self.items: dict[str, list[tuple[Counter[str], str]]] = defaultdict(list)

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        asked = Counter(task.split())
        newest_first = self.items[kind][::-1]
        nearest = sorted(newest_first, key=lambda item: -(asked & item[0]).total())[: self.most]
        return within([line for _, line in nearest]), ""

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        title = "a strategy that worked" if lesson.reward >= 0.5 else "a pitfall"
        line = f"{title} | from: {task} | {lesson.advice}{_boundary(lesson)}"
        self.items[kind].append((Counter(task.split()), line))


class Playbook(Nothing):
    """After ACE (2510.04618): bullets with counts of how often they helped and harmed, changed by small deltas. Of the
    bullets that were shown, those whose advice was followed are counted by the outcome; the worst ones are dropped."""

    def __init__(self) -> None:
        self.bullets: dict[str, dict[str, list[int]]] = defaultdict(dict)
        self.shown: list[str] = []

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        bullets = self.bullets[kind]
        self.shown = sorted(bullets, key=lambda text: bullets[text][1] - bullets[text][0])
        text = within([f"{each} (helpful {bullets[each][0]}, harmful {bullets[each][1]})" for each in self.shown])
        self.shown = self.shown[: len(text.splitlines())]
        return text, ""

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        bullets, did = self.bullets[kind], set(re.findall(r"(\S+) was (?:good|bad)", lesson.done))
        for text in self.shown:
            if did & set(re.findall(r"use ([^;\s]+)", text)):
                bullets[text][lesson.reward < 0.5] += 1
        bullets.setdefault(f"{lesson.advice}{_boundary(lesson)}", [0, 0])
        for text in [text for text, (helped, harmed) in bullets.items() if harmed > helped + 2]:
            del bullets[text]


class OurJournal(Nothing):
    """The journal as it is: its hold-out, its do-no-harm and all. With `chooses`, `ep.choose` names the strategy."""

    def __init__(self, folder: Path, *, chooses: bool = False, budget: Budget = Budget()) -> None:
        self.journal = Journal(folder / "agent.db", budget=budget)
        self.chooses = chooses
        self.episode: JournalEpisode | None = None
        self.count = 0

    def read(self, task: str, kind: str, options: Sequence[str]) -> tuple[str, str]:
        self.count += 1  # the id decides who is held out: the same ones in every run of the script
        self.episode = self.journal.episode(task, kind, id=f"{self.journal.namespace}-{self.count}")
        strategy = self.episode.choose(options) if self.chooses else ""
        return self.episode.context(BUDGET), strategy

    def write(self, task: str, kind: str, lesson: Lesson) -> None:
        assert self.episode is not None
        boundary = {"applies": lesson.applies} if lesson.applies else {}
        self.episode.finish(lesson.reward, transcript=[lesson.done], reflection={"plan": lesson.advice, **boundary})


def _boundary(lesson: Lesson) -> str:
    return f" | applies: {lesson.applies}" if lesson.applies else ""
