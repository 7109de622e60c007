"""The environment protocol: rules, observation, parser; nothing about trials, memory or prompts.

An environment is any class with `__init__(task)`, `rules`, `reset` and `step`. Everything else is optional and looked
up by name: see `EnvSpec` for the class attributes and `Offers` for the methods.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mulligan.types import Episode, Step, Task

LONGEST_REPLY = 100_000
"""Characters; a longer reply is an invalid turn and is not searched for an action."""


@runtime_checkable
class Env(Protocol):
    """One live world, built from a task."""

    task: Task

    def __init__(self, task: Task) -> None: ...

    def rules(self) -> str:
        """The game in words, with its action grammar. Says nothing that only the answer would tell."""
        ...

    def reset(self, chance: int = 0) -> str:
        """Start the task again and return the first observation.

        `chance` numbers the draw of luck (cards, an opponent's dice): the same number repeats it exactly, another one
        redraws it. What the task hides (a board, an opponent's habits) stays. A world without luck ignores it.
        """
        ...

    def step(self, reply: str) -> Step:
        """Play one reply. Never raises, whatever the reply; an invalid one changes nothing."""
        ...


class Player(Protocol):
    """A scripted player sitting beside one live world, for a whole trial."""

    def act(self) -> str:
        """The next reply, from what the world shows now."""
        ...

    def see(self, step: Step) -> None:
        """What the last reply led to."""
        ...


class Offers(Protocol):
    """What an environment may offer beyond `Env`; each method on its own."""

    def legal(self) -> Sequence[str]:
        """Replies that are legal now, in a fixed order. Needed by the random player and by hints for people."""
        ...

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        """A scripted player of this world.

        kind    "expert" sees what an agent sees; "omniscient" sees everything and gives the ceiling. An environment
                that has others names all it has in a class variable `players`, and in `room_players` those that an
                evaluation shows beside the expert.
        skill   share of its own moves; the rest are random legal ones.
        recall  share of its moves that use what earlier episodes of the trial showed.
        A player with a `reflect(episode)` of its own is asked for it instead of the world; it may answer with a
        `Completion` that is `mistaken`, which a warm start shows and does not imitate.
        """
        ...

    def digest(self, episode: Episode) -> str:
        """The facts of an episode worth carrying into the next, for `history` memory."""
        ...

    def world_key(self) -> str:
        """Names the hidden world in canonical form: worlds that are the same but for a symmetry, a distractor or where
        the player starts have one key. Training, validation and evaluation share no key."""
        ...

    def task_key(self) -> str:
        """Names the task exactly, where several tasks share one `world_key` (a board and its mirror image, two options
        of one product): a list of tasks holds each once. Without it, a list holds each `world_key` once."""
        ...

    def seed_set(self) -> str | None:
        """The set of tasks ("train", "validation", "eval") that the world is for, where those who made it have split
        their worlds; None leaves that to `world_key`."""
        ...

    def reflect(self, episode: Episode) -> str:
        """A truthful reflection on an episode, as a scripted demonstrator writes it."""
        ...


_ACTION = re.compile(r"<action>([^<>]*)</action>", re.IGNORECASE)
_TAG = re.compile(r"</?action>", re.IGNORECASE)


def action_text(reply: str) -> str | None:
    """What stands between ``<action>`` and ``</action>``; None when that is missing or not one answer.

    Text around it is allowed, and what comes before the last ``</think>`` is not searched. The same action said twice
    is one answer; two different ones, nested tags or an unclosed tag are none.
    """
    if len(reply) > LONGEST_REPLY:
        return None
    thought = max(reply.rfind("</think>"), reply.rfind("</thinking>"))
    if thought >= 0:
        reply = reply[thought:]
    found: list[str] = _ACTION.findall(reply)
    if not found or len(_TAG.findall(reply)) != 2 * len(found):
        return None
    if len(found) > 1 and len({" ".join(text.split()).lower() for text in found}) > 1:
        return None
    return found[0].strip()
