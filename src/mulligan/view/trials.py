"""A trial as a page shows it: attempt by attempt, what the agent saw, wrote and got, with the pictures that its
environment draws of what was seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.envs import registry
from mulligan.envs.drawing import KINDS, Drawing
from mulligan.errors import MulliganError, RunFolderError
from mulligan.report.run import trial_from_dict
from mulligan.types import Completion, Episode, Task, Trial, Turn
from mulligan.view.index import TrialIndex, task_key
from mulligan.view.query import neighbours, same_task

_HEADING = re.compile(r"\AWhat you remember of [^\n]*:\n")
_BEGINS = re.compile(r"(?:\A|\n)Episode \d+ of \d+ begins\.\n?")
_ACTION = re.compile(r"<action>((?:(?!</?action>).)*)</action>", re.IGNORECASE | re.DOTALL)
"""What an action says may hold < and >, as the buttons of a shop do."""
_THOUGHT_ENDS = re.compile(r".*</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_LONGEST = 200_000
"""Characters of one text; what is beyond is cut, and said to be."""
_LONGEST_CELL = 300
"""Characters of a cell: a title in a shop has 240."""


def trial_page(index: TrialIndex, arm: str, place: int) -> dict[str, Any]:
    """One trial with its neighbours in the list, and the trials of the same task in other arms of the run."""
    data = index.read(arm, place)
    try:
        trial = trial_from_dict(data)
        page = as_page(trial)
        before, after = neighbours(index, arm, place)
        same = same_task(index, task_key(data["task"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = f"{index.folder.parent}, {arm}, task {place + 1}"
        raise RunFolderError(f"{name} is no trial: {type(error).__name__}: {error}") from error
    return {"arm": arm, "place": place, "before": before, "after": after, "same": same, **page}


def as_page(trial: Trial) -> dict[str, Any]:
    """The trial alone."""
    task = trial.task
    draw = drawer(task)
    return {
        "env": task.env,
        "class": task.task_class,
        "seed": task.seed,
        "turns": task.turns,
        "opponent": task.opponent,
        "memory": trial.memory,
        "params": [[key, str(value)] for key, value in task.params],
        "hasTokens": any(turn.reply.logprobs for episode in trial.episodes for turn in episode.turns),
        "solved": None if trial.solved_at is None else trial.solved_at + 1,
        "episodes": [_episode(episode, draw) for episode in trial.episodes],
    }


class Drawer:
    """Draws with the environment of a task, or not at all."""

    def __init__(self, task: Task, draw: Any = None) -> None:
        self.task, self._draw = task, draw

    def __call__(self, seen: Sequence[str]) -> dict[str, Any] | None:
        if self._draw is None:
            return None
        try:
            drawing = self._draw(self.task, seen)
            return _plain(drawing) if isinstance(drawing, Drawing) else None
        except Exception:  # of whoever wrote the environment, on text that may be anything: the text is shown instead
            return None


def drawer(task: Task) -> Drawer:
    """With the environment's own `draw`; not where its code would have to be imported from a file nobody named."""
    if task.env.partition(":")[0] in registry.ADAPTERS:
        return Drawer(task)
    try:
        return Drawer(task, getattr(registry.spec(task.env).build, "draw", None))
    except MulliganError:
        return Drawer(task)


def _plain(drawing: Drawing) -> dict[str, Any]:
    rows = [
        [
            [cell.kind if cell.kind in KINDS else "open", cell.text[:_LONGEST_CELL], cell.name[:_LONGEST_CELL]]
            for cell in row
        ]
        for row in drawing.rows
    ]
    return {"rows": rows, "words": drawing.words[:500], "board": drawing.is_board}


def _episode(episode: Episode, draw: Drawer) -> dict[str, Any]:
    observations = [turn.observation for turn in episode.turns] + [episode.final]
    first = observations[0]
    opening = [{"role": each["role"], "text": cut(each["content"])} for each in episode.opening]
    note = episode.reflection
    return {
        "number": episode.index + 1,
        "stop": episode.stop.value.replace("_", " "),
        "won": episode.won,
        "failed": episode.stop.is_infrastructure,
        "reward": episode.reward,
        "standIn": episode.by_stand_in,
        "error": episode.error,
        "remembered": _remembered(episode, first),
        "opening": opening,
        "turns": [
            _turn(turn, observations[number + 1], draw(observations[: number + 1]))
            for number, turn in enumerate(episode.turns)
        ],
        "final": cut(episode.final),
        "finalDrawing": draw(observations),
        "note": None if note is None else {"text": cut(note.text), "valid": note.valid, **_beside(note.completion)},
    }


def _turn(turn: Turn, after: str, drawing: dict[str, Any] | None) -> dict[str, Any]:
    actions = _ACTION.findall(_THOUGHT_ENDS.sub("", turn.reply.text))
    return {
        "seen": cut(turn.observation),
        "drawing": drawing,
        "wrote": cut(turn.reply.text),
        "action": cut((actions[-1] if actions else turn.reply.text).strip()[:300]),
        **_beside(turn.reply),
        "valid": turn.valid,
        "fault": turn.fault.value.replace("_", " ") if turn.fault else "",
        "feedback": cut(turn.feedback),
        "reward": turn.reward,
        "got": cut(after),
    }


def _beside(reply: Completion | None) -> dict[str, Any]:
    """What a reply holds beside its text."""
    if reply is None:
        return {}
    parts: Mapping[str, Any] = {
        "reasoning": cut(reply.reasoning),
        "refusal": cut(reply.refusal),
        "calls": [cut(str(call)) for call in reply.tool_calls],
        "cutOff": reply.finish == "length",
    }
    return {name: value for name, value in parts.items() if value}


def _remembered(episode: Episode, first: str) -> str:
    """What an episode was given of earlier ones: its first message without what introduces the first observation."""
    if not episode.index or not episode.opening:
        return ""
    text = episode.opening[-1]["content"].removesuffix(first)
    return cut(_HEADING.sub("", _BEGINS.sub("", text)).strip())


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"
