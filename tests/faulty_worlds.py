"""A fair little world, and ways in which somebody's own world may be faulty."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

import mulligan
from mulligan.types import Episode, Step, Task


class Fair:
    """Say a letter twice; the second must be in the first half of the alphabet."""

    turns: ClassVar[int] = 2

    def __init__(self, task: Task) -> None:
        self.task = task

    def rules(self) -> str:
        return "Say a letter."

    def reset(self, chance: int = 0) -> str:
        self.taken = 0
        return f"{self.task.seed % 7}"

    def step(self, reply: str) -> Step:
        letter = reply.removeprefix("<action>")[:1].lower()
        self.taken += 1
        won = self.taken == 2 and "a" <= letter <= "m"
        return Step(f"{self.taken}", float(won), self.taken == 2, won, state_key=f"{self.taken}")

    def legal(self) -> list[str]:
        return ["<action>a</action>", "<action>z</action>"]

    def digest(self, episode: Episode) -> str:
        return f"{len(episode.turns)}"

    def world_key(self) -> str:
        return f"{self.task.seed}"


def faulty(method: str, fault: Callable[[Any], Any], *, always: bool = False, base: type = Fair) -> type[Fair]:
    """A world whose `method` gives what `fault` makes of its result: in every second world, or always."""
    plain_method = getattr(base, method)

    def damaged(self: Fair, *arguments: Any) -> Any:
        result = plain_method(self, *arguments)
        is_hit = always or self.task.seed % 2 == 0
        return fault(result) if is_hit else result

    name = f"Faulty{next(_NUMBERS)}"
    world: type[Fair] = type(name, (base,), {method: damaged})
    return mulligan.register(world)


_NUMBERS = iter(range(1_000_000))


def raising(error: BaseException | type[BaseException]) -> Callable[[Any], NoReturn]:
    def fault(result: Any) -> NoReturn:
        raise error

    return fault


def with_field(name: str, value: Any) -> Callable[[Step], Step]:
    return lambda step: step._replace(**{name: value})


class Unspeakable(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Touchy(str):
    """Text that fails whoever looks at it."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __str__(self) -> str:
        raise RuntimeError("do not print")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    def __len__(self) -> int:
        raise RuntimeError("do not measure")

    def encode(self, *arguments: Any) -> bytes:
        raise RuntimeError("do not encode")


class OwnEnd(BaseException):
    """Not an Exception."""


def endless() -> Any:
    while True:
        yield "again"


def recursive(result: Any) -> Any:
    return recursive(result)


LONG = "x" * 30_000_000

RETURNED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "observation None": ("step", with_field("observation", None)),
    "observation bytes": ("step", with_field("observation", b"1")),
    "observation half a surrogate pair": ("step", with_field("observation", "\ud800")),
    "observation too long": ("step", with_field("observation", LONG)),
    "observation endless": ("step", with_field("observation", endless())),
    "observation a number": ("step", with_field("observation", 7)),
    "state key a list": ("step", with_field("state_key", ["a"])),
    "state key None": ("step", with_field("state_key", None)),
    "state key half a surrogate pair": ("step", with_field("state_key", "a\udfff")),
    "feedback a dictionary": ("step", with_field("feedback", {})),
    "feedback too long": ("step", with_field("feedback", LONG)),
    "reward not a number": ("step", with_field("reward", float("nan"))),
    "reward infinite": ("step", with_field("reward", float("-inf"))),
    "reward complex": ("step", with_field("reward", 1j)),
    "reward text": ("step", with_field("reward", "1.5")),
    "reward None": ("step", with_field("reward", None)),
    "reward a list": ("step", with_field("reward", [1.0])),
    "reward of many digits": ("step", with_field("reward", 10**400)),
    "reward near the largest number": ("step", with_field("reward", 1e308)),
    "shaping not a number": ("step", with_field("shaping", float("nan"))),
    "shaping an array": ("step", with_field("shaping", np.zeros(3))),
    "done a text": ("step", with_field("done", "False")),
    "done an array": ("step", with_field("done", np.array([True, False]))),
    "won not a number": ("step", with_field("won", float("nan"))),
    "won a text": ("step", with_field("won", "no")),
    "valid a text": ("step", with_field("valid", "no")),
    "a step of too few parts": ("step", lambda step: ("1", 0.0)),
    "a step of too many parts": ("step", lambda step: (*step, 1, 2)),
    "no step": ("step", lambda step: None),
    "a step as a dictionary": ("step", lambda step: step._asdict()),
    "a step that is awaited": ("step", lambda step: asyncio.Future),
    "a generator of steps": ("step", lambda step: endless()),
    "first observation None": ("reset", lambda text: None),
    "first observation and facts": ("reset", lambda text: (text, {})),
    "first observation half a surrogate pair": ("reset", lambda text: "\ud800"),
    "first observation too long": ("reset", lambda text: LONG),
    "rules None": ("rules", lambda text: None),
    "rules half a surrogate pair": ("rules", lambda text: "\ud800"),
    "digest a number": ("digest", lambda text: 5),
    "digest None": ("digest", lambda text: None),
    "digest half a surrogate pair": ("digest", lambda text: "\ud800"),
    "digest too long": ("digest", lambda text: LONG),
}
"""Fault -> the method, and what it gives instead."""

HARMLESS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "observation with control characters": ("step", with_field("observation", "\x00\x1b[2J")),
    "observation that fails who looks at it": ("step", with_field("observation", Touchy("1"))),
    "state key that fails who looks at it": ("step", with_field("state_key", Touchy("1"))),
    "reward a truth value": ("step", lambda step: step._replace(reward=bool(step.reward))),
    "reward of numpy": ("step", lambda step: step._replace(reward=np.float32(step.reward))),
    "reward of torch": ("step", lambda step: step._replace(reward=torch.tensor(step.reward))),
    "done of numpy": ("step", lambda step: step._replace(done=np.bool_(step.done), won=np.int64(step.won))),
    "first observation empty": ("reset", lambda text: ""),
    "rules empty": ("rules", lambda text: ""),
}
"""Odd, and playable."""

ERRORS: dict[str, Callable[[Any], Any]] = {
    "an error": raising(RuntimeError("the world fell apart")),
    "an error of many lines": raising(ValueError("line\n" * 50_000)),
    "an error whose text is an error": raising(Unspeakable()),
    "an error with half a surrogate pair": raising(ValueError("\ud800")),
    "an assertion": raising(AssertionError()),
    "a recursion without end": recursive,
    "no memory": raising(MemoryError()),
    "the end of an iterator": raising(StopIteration()),
    "the end of an asynchronous iterator": raising(StopAsyncIteration()),
    "the end of the program": lambda result: sys.exit(3),
    "the end of the program with a text": lambda result: sys.exit("bye"),
    "the end of a generator": raising(GeneratorExit()),
    "a cancelled task": raising(asyncio.CancelledError()),
    "a broken pipe": raising(BrokenPipeError(32, "Broken pipe")),
    "an error that is no Exception": raising(OwnEnd("over")),
    "a warning as an error": raising(UserWarning("deprecated")),
}
"""Raised by `step`."""


METHODS = ("__init__", "rules", "reset", "digest", "world_key", "legal")
"""All but `step`: each raises an error, and ends the program."""


def seeds_everything(result: Any) -> Any:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    return result


def without_gradients(result: Any) -> Any:
    torch.set_grad_enabled(False)
    return result


def strict_numpy(result: Any) -> Any:
    np.seterr(all="raise")
    return result


def strict_warnings(result: Any) -> Any:
    warnings.simplefilter("error")
    return result


def changes_folder(result: Any) -> Any:
    os.chdir("/")
    return result


def prints(result: Any) -> Any:
    sys.stdout.write("a world that talks\n")
    return result


def leaves_thread(result: Any) -> Any:
    threading.Thread(target=time.sleep, args=(1.0,), daemon=True).start()
    return result


MEDDLING: dict[str, Callable[[Any], Any]] = {
    "another folder": changes_folder,
    "other seeds": seeds_everything,
    "no gradients": without_gradients,
    "numpy that raises": strict_numpy,
    "warnings that raise": strict_warnings,
    "printing": prints,
    "a thread left behind": leaves_thread,
}
"""What a world may do to the process that plays it; the trials themselves are fair."""


def of_settings(**attributes: Any) -> type[Fair]:
    """A fair world with class attributes that cannot be."""
    return type(f"Odd{next(_NUMBERS)}", (Fair,), attributes)


SETTINGS: dict[str, dict[str, Any]] = {
    "no turns": {"turns": 0},
    "fewer turns than none": {"turns": -3},
    "turns in words": {"turns": "two"},
    "turns without end": {"turns": float("inf")},
    "a parameter called seed": {"defaults": {"seed": 1}},
    "a parameter called turns": {"defaults": {"turns": 1}},
    "a parameter that is a list": {"defaults": {"cards": [1, 2]}},
    "parameters as a list": {"defaults": [1]},
    "a setting of a near name": {"max_turns": 5},
    "an unknown kind": {"kind": "race"},
    "a reward in words": {"timeout_reward": "much"},
    "settle gives nothing": {"settle": staticmethod(lambda params, seed: None)},
    "settle gives a list": {"settle": staticmethod(lambda params, seed: {"cards": []})},
    "settle raises": {"settle": staticmethod(lambda params, seed: 1 / 0)},
    "settle ends the program": {"settle": staticmethod(lambda params, seed: sys.exit(3))},
    "a class of tasks that is a number": {"task_class": staticmethod(lambda params: 3)},
    "a class of tasks that cannot be stored": {"task_class": staticmethod(lambda params: "\ud800")},
    "no step": {"step": None},
}
"""Class attributes that no environment can have."""
