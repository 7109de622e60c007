"""Every question that a page asks about the runs of a folder, by name: the server, the files of an export and a report
give the same answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.report.run import trial_from_dict
from mulligan.types import Trial
from mulligan.view.curves import curves
from mulligan.view.details import compared, detail, shared_tasks
from mulligan.view.folder import inside
from mulligan.view.index import TrialIndex
from mulligan.view.models import Models
from mulligan.view.noted import noted
from mulligan.view.play import Games
from mulligan.view.population import population
from mulligan.view.query import Wanted, followed, glance, page
from mulligan.view.runs import card, run_cards, version
from mulligan.view.tags import set_tags, tags_of
from mulligan.view.tokens import tokens
from mulligan.view.trials import trial_page

if TYPE_CHECKING:
    from mulligan.view.journals import JournalPages

Params = Mapping[str, str]
PATIENCE = 0.5
"""Seconds that a question waits for the index; a thread goes on with it, and pages say how far it is."""
_MOST_RUNS = 12
"""Runs in one comparison."""
_BETWEEN = "\n"
"""Between the names of several runs: a name may hold anything else."""


class Answering(Protocol):
    """What pages ask: a folder of runs, or a journal alone."""

    def answer(self, question: str, params: Params) -> Any:
        """The answer as plain data; raises `MulliganError` where there is none."""

    def change(self, change: str, given: Params) -> Any:
        """What came of a change that somebody asked for."""


class Library:
    """The runs of one folder, and a journal beside them."""

    def __init__(self, root: Path, patience: float = PATIENCE, journal: JournalPages | None = None) -> None:
        self.root, self.patience = root.absolute(), patience
        if not self.root.is_dir():
            raise UsageError(f"there is no folder {root}")
        self._indexes: dict[str, TrialIndex] = {}
        self._models = Models(self.root)
        self._lock = threading.Lock()
        self._answers: Mapping[str, Callable[[Params], Any]] = {
            "runs": lambda params: {
                "root": self.root.name,
                "runs": run_cards(self.root),
                "hasJournal": journal is not None,
            },
            "run": self._run,
            "population": lambda params: population(self.root, _given(params, "run")),
            "curves": lambda params: curves(self.root, _given(params, "run")),
            "trials": self._trials,
            "trial": self._trial,
            "noted": self._noted,
            "tokens": self._tokens,
            "compare": lambda params: compared(self.root, _several(params)),
            "shared": self._shared,
            "version": lambda params: {"version": version(self.root, _several(params))},
            **(journal.answers if journal is not None else {}),
        }
        games = Games()
        self._changes: Mapping[str, Callable[[Params], Any]] = {
            "begin": lambda given: games.begin(self._stored(given)),
            "move": lambda given: games.move(_given(given, "game"), _given(given, "text")),
            "tag": lambda given: {"tags": set_tags(self.root, _given(given, "run"), given.get("tags", ""))},
            "next": lambda given: games.go_on(_given(given, "game")),
        }

    def answer(self, question: str, params: Params) -> Any:
        """The answer as plain data; raises `MulliganError` where there is none."""
        return self._called(self._answers, question, params)

    def change(self, change: str, given: Params) -> Any:
        """Do what a person asked for: what came of it; raises `MulliganError` where it cannot be done."""
        return self._called(self._changes, change, given)

    def _called(self, known: Mapping[str, Callable[[Params], Any]], question: str, params: Params) -> Any:
        if question not in known:
            raise UnknownName("question", question, known)
        try:
            return known[question](params)
        except MulliganError:
            raise
        except Exception as error:  # of files that may be anybody's: whatever fails is told on the page
            raise UsageError(
                f"{params.get('run', question)} cannot be read: {type(error).__name__}: {error}"
            ) from error

    def knows_model(self, name: str) -> bool:
        """Whether a model of this folder played the run."""
        return self._models.knows(name)

    def index(self, name: str, first: str | None = None) -> TrialIndex:
        """The index of a run, brought up to date."""
        path = inside(self.root, name)
        with self._lock:
            index = self._indexes.setdefault(name, TrialIndex(path))
        index.refresh(self.patience, first)
        return index

    def _run(self, params: Params) -> Any:
        name = _given(params, "run")
        index = self.index(name)
        about = detail(self.root, name, index)
        arms = [each["name"] for each in about["trials"]["arms"]]
        validations = [arm for arm in arms if arm.startswith("validation-")]
        about["followed"] = None
        if len(validations) > 1:
            place = followed(index, validations[0], validations[-1])
            about["followed"] = {"arm": validations[0], "place": place, "validations": len(validations)}
        return {**about, "glance": glance(index, usual_arm(arms)), "tags": tags_of(self.root).get(name, [])}

    def _trials(self, params: Params) -> Any:
        name, wanted = _given(params, "run"), Wanted.of(params)
        index = self.index(name, wanted.arm)
        return {"card": card(self.root, name), "state": index.state(), **page(index, wanted)}

    def _trial(self, params: Params) -> Any:
        name, arm = _given(params, "run"), _given(params, "arm")
        index = self.index(name, arm)
        about = {"card": card(self.root, name), "isBehind": index.is_behind, "isLocal": self.knows_model(name)}
        return {**about, **trial_page(index, arm, _number(params, "place"))}

    def _stored(self, given: Params) -> Trial:
        """The trial that is named."""
        index, arm = self.index(_given(given, "run"), _given(given, "arm")), _given(given, "arm")
        return trial_from_dict(index.read(arm, _number(given, "place")))

    def _noted(self, params: Params) -> Any:
        name, arm = _given(params, "run"), _given(params, "arm")
        at = (_number(params, "episode") - 1, _number(params, "turn") - 1)
        index = self.index(name, arm)
        return {"card": card(self.root, name), **noted(self._models, index, name, arm, _number(params, "place"), at)}

    def _tokens(self, params: Params) -> Any:
        name, arm = _given(params, "run"), _given(params, "arm")
        return tokens(self._models, self.index(name, arm), name, arm, _number(params, "place"))

    def _shared(self, params: Params) -> Any:
        first, second = self._arm(params, ""), self._arm(params, "2")
        return {
            "runs": [card(self.root, first[0]), card(self.root, second[0])],
            "arms": [first[1], second[1]],
            "choices": [[each["name"] for each in index.state()["arms"]] for _, _, index in (first, second)],
            "tasks": shared_tasks(first[2], first[1], second[2], second[1]),
        }

    def _arm(self, params: Params, number: str) -> tuple[str, str, TrialIndex]:
        """The run, its arm and its index; the arm is by default main, or the last validation."""
        name = _given(params, f"run{number}")
        arm = params.get(f"arm{number}", "")
        index = self.index(name, arm or "main")
        return name, arm or usual_arm([each["name"] for each in index.state()["arms"]]), index


def usual_arm(arms: list[str]) -> str:
    """The arm to look at first: main, or of a training run its last validation, or its last update."""
    validations = [arm for arm in arms if arm.startswith("validation-")]
    return "main" if "main" in arms else (validations or arms or [""])[-1]


def _given(params: Params, name: str) -> str:
    if not params.get(name):
        raise ParameterError(f"{name} must be given")
    return params[name]


def _several(params: Params) -> list[str]:
    names = _given(params, "runs").split(_BETWEEN)
    if len(names) > _MOST_RUNS:
        raise ParameterError(f"at most {_MOST_RUNS} runs can be compared (got {len(names)})")
    return names


def _number(params: Params, name: str) -> int:
    text = _given(params, name)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ParameterError(f"{name} must be a whole number (got {text!r})")
    return int(text)
