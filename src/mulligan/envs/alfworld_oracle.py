"""TextWorld playing an ALFWorld game: what the native engine is measured against (extra ``alfworld-oracle``).

Its domain and grammar come from the installed ``alfworld`` package, so that nothing of theirs is kept here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.errors import MissingExtra

_OPEN_TASK = "UNKNOWN GOAL."
"""Stands in the package's grammar where the task goes."""


class Answer(NamedTuple):
    """What a game shows after a command."""

    text: str
    commands: list[str]
    """The admissible commands, sorted."""
    won: bool


class Oracle:
    """One game in TextWorld."""

    def __init__(self, problem: str, task: str) -> None:
        if not installed():
            raise MissingExtra("playing ALFWorld in TextWorld", "alfworld-oracle")
        words = list(sys.argv)  # the translator overwrites them
        try:
            textworld = importlib.import_module("textworld")
            engine = importlib.import_module("textworld.envs.pddl").PddlEnv
            stack = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
            wanted = textworld.EnvInfos(won=True, admissible_commands=True)
            self.env: Any = stack.AlfredDemangler(stack.AlfredInfos(engine(wanted)))
            self.env.load(game_file(problem, task))
        finally:
            sys.argv[:] = words

    def reset(self) -> Answer:
        words = list(sys.argv)
        try:
            return _answer(self.env.reset())
        finally:
            sys.argv[:] = words

    def step(self, command: str) -> Answer:
        return _answer(self.env.step(command)[0])

    def close(self) -> None:
        self.env.close()


def installed() -> bool:
    """Whether TextWorld, its planner and ALFWorld can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("textworld", "fast_downward", "alfworld"))


def game_file(problem: str, task: str) -> dict[str, object]:
    """A game as a ``game.tw-pddl`` file holds it, with the package's domain and grammar."""
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("writing a game for TextWorld", "alfworld-oracle")
    folder = Path(found.submodule_search_locations[0]) / "data"
    grammar = (folder / "alfred.twl2").read_text().replace(_OPEN_TASK, task)
    domain = (folder / "alfred.pddl").read_text()
    return {"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem, "solvable": True}


def _answer(state: Any) -> Answer:
    return Answer(str(state.feedback), list(state.admissible_commands), bool(state.won))
