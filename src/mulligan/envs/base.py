"""The environment protocol: rules, observation, parser; and what several environments share.

An environment is any class with `__init__(task)`, `rules`, `reset` and `step`. Everything else is optional and looked
up by name: ``docs/own-env.md`` lists the class attributes and the methods.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from mulligan.errors import MissingExtra, ParameterError, UnknownName
from mulligan.types import ParamValue, Step, Task

Choice = TypeVar("Choice")
ORDER = ("", "first", "second")
"""Seat -> when it moves."""
LONGEST_REPLY = 100_000
"""Characters; a longer reply is an invalid turn and is not searched for an action."""


@runtime_checkable
class Env(Protocol):
    """One live world, built from a task."""

    task: Task

    def __init__(self, task: Task) -> None: ...

    def rules(self) -> str:
        """The game in words, with its action grammar. Says nothing that only the answer would tell."""

    def reset(self, chance: int = 0) -> str:
        """Start the task again and return the first observation.

        `chance` numbers the draw of luck (cards, an opponent's dice): the same number repeats it exactly, another one
        redraws it. What the task hides (a board, an opponent's habits) stays. A world without luck ignores it.
        """

    def step(self, reply: str) -> Step:
        """Play one reply. Never raises, whatever the reply; an invalid one changes nothing."""


class Player(Protocol):
    """A scripted player sitting beside one live world, for a whole trial.

    It may also have `reflect(episode) -> str | Completion`: the reflection that a demonstration shows after an episode.
    A `Completion` that is `mistaken` is shown in a warm start and not imitated.
    """

    def act(self) -> str:
        """The next reply, from what the world shows now."""

    def see(self, step: Step) -> None:
        """What the last reply led to. `step.done` is true at the last turn of an episode, also at the turn limit."""


_ACTION = re.compile(r"<action>([^<>]*)</action>", re.IGNORECASE)
_TAG = re.compile(r"</?action>", re.IGNORECASE)


def action_text(reply: str) -> str | None:
    """What stands between ``<action>`` and ``</action>``; None when that is missing or not one answer.

    Text around it is allowed, and text before the last ``</think>`` is not searched. The same action said twice is one
    answer; two different ones, nested tags or an unclosed tag are none.
    """
    if len(reply) > LONGEST_REPLY:
        return None
    thought_end = max(reply.rfind("</think>"), reply.rfind("</thinking>"))
    if thought_end >= 0:
        reply = reply[thought_end:]
    actions: list[str] = _ACTION.findall(reply)
    if not actions or len(_TAG.findall(reply)) != 2 * len(actions):
        return None
    if len(actions) > 1 and len({" ".join(action.split()).lower() for action in actions}) > 1:
        return None
    return actions[0].strip()


def tagged(reply: str) -> str:
    """A reply that was valid, with the tags that it may lack (style "bare")."""
    return reply if "<action>" in reply.lower() else f"<action>{reply}</action>"


def reflection_text(**fields: str) -> str:
    """A demonstrated reflection in parts, one a line (the fields of `mulligan.trial.reflection`)."""
    lines = "\n".join(f"{name}: {value}" for name, value in fields.items())
    return f"<reflection>\n{lines}\n</reflection>"


def least_image(cols: int, cells: str) -> str:
    """The canonical form of a board: the least of its eight images, as ``COLUMNS:CELLS``.

    `cells` are one character each, row by row. The four corners of a 2x2 board with one mine are one world:
    ``least_image(2, "*...") == least_image(2, "...*") == "2:*..."``.
    """
    rows = [cells[start : start + cols] for start in range(0, len(cells), cols)]
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    images = []
    for lines in (rows, columns):
        plain, mirrored = "".join(lines), "".join(line[::-1] for line in lines)
        images += [(len(lines[0]), image) for image in (plain, mirrored, plain[::-1], mirrored[::-1])]
    width, least = min(images)
    return f"{width}:{least}"


def library(module: str, env: str, extra: str | None = None) -> Any:
    """The library `module`, imported only now; `env` needs it, and `extra` (or the extra of its name) brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(env, extra or module) from None


def check_choices(env: str, params: Mapping[str, ParamValue], choices: Mapping[str, Collection[str]]) -> None:
    """Raise unless each of these parameters has one of its values."""
    for name, values in choices.items():
        if params[name] not in values:
            raise UnknownName(f"{env} {name}", str(params[name]), values)


def check_range(env: str, params: Mapping[str, ParamValue], name: str, least: int, most: int) -> None:
    """Raise unless a parameter is a number within these bounds."""
    if not least <= int(params[name]) <= most:
        allowed = f"{least} to {most}" if least < most else least
        raise ParameterError(f"{env}: {name} must be {allowed} (got {params[name]})")


def check_turns_of(env: str, params: Mapping[str, ParamValue], name: str, needed: int, turns: int) -> None:
    """Raise if there are other turns than the parameter `name` leads to."""
    if turns != needed:
        raise ParameterError(f"{env}: turns must be {needed} with {name}={params[name]} (got {turns}); leave it out")


def settle_seat(env: str, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
    """`params` with a concrete seat: 0 becomes 1 for an even seed and 2 for an odd one."""
    seat = int(params["seat"])
    if seat not in (0, 1, 2):
        raise ParameterError(f"{env}: seat must be 1 or 2, or 0 to let the seed decide (got {seat})")
    return {**params, "seat": seat or 1 + seed % 2}


def draw(rng: random.Random, chances: Sequence[float]) -> int:
    """An index, drawn with these chances.

    `draw` and `pick` use `random()` alone: Python promises not to change that stream.
    """
    remaining = rng.random() * sum(chances)
    for index, chance in enumerate(chances):
        remaining -= chance
        if remaining < 0.0:
            return index
    return max(index for index, chance in enumerate(chances) if chance > 0.0)  # rounding ate the last sliver


def pick(rng: random.Random, options: Sequence[Choice]) -> Choice:
    """One of the options, all with equal chances."""
    return options[int(rng.random() * len(options))]
