"""Faulty environments: an episode ends, is counted and told; training, evaluation and every resume go on."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import mulligan  # noqa: E402
from faulty_worlds import (  # noqa: E402
    ERRORS,
    HARMLESS,
    MEDDLING,
    METHODS,
    RETURNED,
    SETTINGS,
    Fair,
    faulty,
    of_settings,
)
from mulligan.app.cli import main  # noqa: E402
from small_runs import weights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default::mulligan.errors.FaultyWorld")

EVAL = ["--policy", "random", "--tasks", "6", "--episodes", "2", "--memory", "history", "--stop", "never"]
TINY = [
    *("--preset", "cpu", "--model.name", "nano:hidden=32,layers=1", "--model.device", "cpu", "--warmstart.steps", "0"),
    *("--run.threads", "1", "--run.tasks", "3", "--run.group", "3", "--run.validate-every", "0"),
    *("--run.save-trials-every", "1", "--engine.slots", "16", "--engine.context", "256", "--trial.style", "bare"),
    *("--trial.memory", "history", "--trial.max-tokens", "1", "--trial.episodes", "2", "--trial.stop", "never"),
    *("--optim.epochs", "1", "--optim.minibatches", "1"),
]


class Ended(NamedTuple):
    """How a command ended."""

    code: int | str
    """Its exit code, or the traceback that it ended with."""
    out: str
    err: str

    @property
    def is_refusal(self) -> bool:
        """One plain line, and exit code 2."""
        return self.code == 2 and self.err.count("mulligan: ") == 1 and "Traceback" not in self.err


def call(*words: str) -> Ended:
    code: int | str = "no exit code"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(list(words))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else f"exit code {ended.code!r}"
        except BaseException:
            code = traceback.format_exc(limit=-3)[-1_000:]
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Undoes what a world has done to this process."""
    folder = os.getcwd()
    with warnings.catch_warnings(), np.errstate():
        yield
    os.chdir(folder)
    torch.set_grad_enabled(True)


class Outcome(NamedTuple):
    """What a run shows, and what it cost."""

    failed: int
    """Episodes that the environment ended."""
    figures: Any
    """All else that was measured, but for times and names."""


def evaluated(world: type, run: str) -> Outcome | str:
    """An evaluation that was resumed, shown and compared; or what went wrong."""
    for words in (
        ["eval", world.__name__, *EVAL, "--controls", "off", "--run", run],
        ["eval", "--resume", run],
        ["show", run],
        ["show", run, "--json"],
        ["compare", run],
    ):
        ended = call(*words)
        if ended.code != 0 or "Traceback" in ended.err:
            return f"{words[0]}: {ended.code} {ended.err[-300:]}"
    result = json.loads(Path(run, "result.json").read_text(encoding="utf-8"))
    numbers = {name: result[name] for name in ("p", "returns", "played", "turns", "valid", "failed")}
    if result["failed"] and not result["failure"]:
        return "failures without a reason"
    return Outcome(result["stop_reasons"].get("env_raised", 0), numbers)


def trained(world: type, run: str) -> Outcome | str:
    """A run of one update that was resumed for another, shown and evaluated; or what went wrong."""
    for words in (
        ["train", world.__name__, *TINY, "--run.updates", "1", "--run", run],
        ["train", "--resume", run, "--run.updates", "2"],
        ["show", run],
    ):
        ended = call(*words)
        if ended.code != 0 or "Traceback" in ended.err:
            return f"{words[0]}: {ended.code} {ended.err[-300:]}"
    lines = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    if [line["update"] for line in lines] != [1, 2]:
        return f"other updates: {lines}"
    numbers = [value for line in lines for value in line.values() if isinstance(value, float)]
    if not (all(map(math.isfinite, numbers)) and torch.isfinite(weights(Path(run))).all()):
        return "weights or metrics that are not finite"
    failed = sum(count for line in lines for name, count in line.items() if name.startswith("failures/"))
    return Outcome(failed, [{n: v for n, v in line.items() if not n.startswith("time/")} for line in lines])


RUNS: list[Callable[[type, str], Outcome | str]] = [evaluated, trained]


@pytest.mark.parametrize("run", RUNS)
def test_whatever_a_world_returns_ends_the_episode(row, run):
    attack = row("Environments", f"what the methods of a world return, {run.__name__}")
    for number, (what, (method, fault)) in enumerate(RETURNED.items()):
        outcome = run(faulty(method, fault), f"run{number}")
        attack.told() if isinstance(outcome, Outcome) and outcome.failed else attack.lost(f"{what}: {outcome}")


@pytest.mark.parametrize("run", RUNS)
def test_whatever_a_world_raises_ends_the_episode(row, run):
    attack = row("Environments", f"what a step raises, {run.__name__}")
    for number, (what, fault) in enumerate(ERRORS.items()):
        outcome = run(faulty("step", fault), f"run{number}")
        attack.told() if isinstance(outcome, Outcome) and outcome.failed else attack.lost(f"{what}: {outcome}")


@pytest.mark.parametrize("run", RUNS)
def test_every_method_may_raise(row, run):
    """Worlds that cannot be built or named belong to no set of tasks: they are left out."""
    attack = row("Environments", f"what other methods of a world raise, {run.__name__}")
    unasked = ("__init__", "world_key") if run is evaluated else ("__init__", "world_key", "legal")
    for method in METHODS:
        for what in ("an error", "the end of the program"):
            outcome = run(faulty(method, ERRORS[what]), f"{method}-{what.split()[-1]}")
            if method == "legal" and run is evaluated:  # the random player needs it: the request fails
                is_told = isinstance(outcome, Outcome) and outcome.figures["failed"] > 0
            else:
                is_told = isinstance(outcome, Outcome) and bool(outcome.failed) == (method not in unasked)
            attack.told() if is_told else attack.lost(f"{method}, {what}: {outcome}")


@pytest.mark.parametrize("run", RUNS)
def test_what_is_odd_and_can_be_played_is_played(row, run):
    attack = row("Environments", f"odd worlds that can be played, {run.__name__}")
    fair = run(mulligan.register(Fair), "fair")
    assert isinstance(fair, Outcome), fair
    for number, (what, (method, fault)) in enumerate(HARMLESS.items()):
        outcome = run(faulty(method, fault), f"run{number}")
        # What a model reads it may answer otherwise.
        is_same = outcome == fair or ("observation" in what and isinstance(outcome, Outcome) and not outcome.failed)
        attack.unharmed() if is_same else attack.lost(f"{what}: {outcome}, not {fair}")


@pytest.mark.parametrize("run", RUNS)
def test_what_a_world_does_to_the_process_changes_no_result(row, run):
    attack = row("Environments", f"worlds that meddle with the process, {run.__name__}")
    fair = run(mulligan.register(Fair), "fair")
    for number, (what, fault) in enumerate(MEDDLING.items()):
        with mended():
            outcome = run(faulty("step", fault), f"run{number}")
        attack.unharmed() if outcome == fair else attack.lost(f"{what}: {outcome}, not {fair}")


def test_a_world_that_prints_does_not_spoil_json(row):
    attack = row("Environments", "printing where a program reads the output")
    world = faulty("step", MEDDLING["printing"])
    for words in (
        ["eval", world.__name__, *EVAL, "--run", "e"],
        ["train", world.__name__, *TINY, "--run.updates", "1"],
    ):
        ended = call(*words, "--json")
        try:
            json.loads(ended.out)
            attack.unharmed()
        except ValueError:
            attack.lost(f"{words[0]}: {ended}")


ALWAYS = {
    **{
        what: RETURNED[what]
        for what in RETURNED
        if what.startswith(("observation", "first", "rules", "digest", "done"))
    },
    **{f"{method} raises": (method, ERRORS["an error"]) for method in (*METHODS, "step")},
    **{f"{method} ends the program": (method, ERRORS["the end of the program"]) for method in (*METHODS, "step")},
    "an error whose text is an error": ("step", ERRORS["an error whose text is an error"]),
}


def test_where_nothing_can_be_played_one_line_says_so(row):
    attack = row("Environments", "every world faulty, from the first episode on")
    for number, (what, (method, fault)) in enumerate(ALWAYS.items()):
        world = faulty(method, fault, always=True)
        ended = call("eval", world.__name__, *EVAL, "--controls", "off", "--run", f"eval{number}")
        is_told = ended.code in (0, 1) if method == "digest" else ended.code == 1 or ended.is_refusal
        attack.told() if is_told and "Traceback" not in ended.err else attack.lost(f"eval, {what}: {ended}")
        ended = call("train", world.__name__, *TINY, "--run.updates", "1", "--run", f"train{number}")
        is_told = ended.is_refusal or (method == "legal" and ended.code == 0)
        attack.told() if is_told else attack.lost(f"train, {what}: {ended}")


def test_check_and_play_tell_of_faults(row):
    checked = row("Environments", "faulty worlds in check")
    played = row("Environments", "faulty worlds in play")
    tables = {**RETURNED, **{f"step: {what}": ("step", fault) for what, fault in ERRORS.items()}, **ALWAYS}
    for what, (method, fault) in tables.items():
        world = faulty(method, fault, always=True)
        ended = call("check", world.__name__)
        # Neither is asked for a digest, and what is too long or half a pair is refused by the runner alone.
        unseen = method == "digest" or "surrogate" in what or "too long" in what or "largest" in what
        is_told = ended.is_refusal or (unseen and ended.code == 0)
        checked.told() if is_told else checked.lost(f"{what}: {ended.code} {ended.err[-300:]}")
        ended = call("play", world.__name__, "--policy", "random", "--memory", "history", "--stop", "never")
        is_told = ended.is_refusal or (
            ended.code == 0 and ("env raised" in ended.out or method in ("legal", "world_key"))
        )
        played.told() if is_told else played.lost(f"{what}: {ended}")


def test_settings_that_cannot_be_are_refused(row):
    attack = row("Environments", "class attributes that no environment can have")
    for what, attributes in SETTINGS.items():
        world = of_settings(**attributes)
        for number, action in enumerate(
            (
                mulligan.check_env,
                lambda world: mulligan.evaluate(world, "random", tasks=2),
                lambda world: mulligan.train(world, run="never"),
            )
        ):
            try:
                action(world)
                attack.lost(f"{what}: accepted")
            except mulligan.errors.MulliganError as error:
                is_line = "\n" not in str(error) and not Path("never").exists()
                attack.told() if is_line else attack.lost(f"{what}: {error}")
            except Exception as error:
                attack.lost(f"{what}, {number}: {error!r}")


LONG_WORLDS: dict[str, tuple[str, str]] = {
    "observations": ("observation", "word "),
    "observations of blank lines": ("observation", "\n"),
    "state keys": ("state_key", "k"),
    "state keys of other alphabets": ("state_key", "\U0001f600"),
}


@pytest.mark.parametrize("run", RUNS)
def test_long_texts_within_the_limit_are_played(row, run):
    attack = row("Environments", f"very long texts within the limit, {run.__name__}")
    size = 990_000 if run is evaluated else 60_000  # which a tokenizer needs seconds for
    for number, (what, (name, text)) in enumerate(LONG_WORLDS.items()):
        value = text * (size // len(text))
        outcome = run(
            faulty("step", lambda step, name=name, value=value: step._replace(**{name: value})), f"run{number}"
        )
        is_kept = isinstance(outcome, Outcome) and not outcome.failed
        attack.unharmed() if is_kept else attack.lost(f"{what}: {outcome}")
