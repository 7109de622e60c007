"""The journal beside other memories: the same tasks, the same frozen player, the same writer of lessons.

Two kinds of stream. In the first, classes have four strategies with unknown chances; the best differs from class to
class and changes half-way. In one class more the notes only distract: with any, whatever they say, most of the chance
of success is lost. In the second kind, games of this package are played (`memory_games.py`): the same worlds come
again (controlled), or each comes once (naive).

The player is a script. It counts votes: each line of what it is shown speaks for what it calls good, and against what
it calls bad; a line whose own record is bad counts for nothing. It overlooks every tenth boundary, and one choice in
twenty is a slip. Without votes it takes anything. So nothing here says how well a language model reads.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from journal_tables import Rows, write
from memory_forms import LastTranscripts, Lesson, Memory, Nothing, OurJournal, Playbook, ReasoningBank, Reflexion
from memory_games import GAMES, play

from mulligan.eval.intervals import student
from mulligan.journal.budget import Budget
from mulligan.journal.note_store import class_totals
from mulligan.policy.base import estimate_tokens

SEEDS, EPISODES, CHANGE = 20, 160, 80
CLASSES, DISTRACTING = ("refund", "invoice"), "distracting"
STRATEGIES = ("ask", "look", "wait", "escalate")
GOOD, POOR = 0.8, 0.3
DISTRACTED = 0.6
"""What any notes cost in the distracting class, where every strategy is good for 0.75."""
WORLDS, TIMES = 8, 3
FORMS: dict[str, Callable[[Path], Memory]] = {
    "nothing": lambda folder: Nothing(),
    "last transcripts": lambda folder: LastTranscripts(),
    "Reflexion-style": lambda folder: Reflexion(),
    "ReasoningBank-style": lambda folder: ReasoningBank(),
    "ACE-style": lambda folder: Playbook(),
    "journal": OurJournal,
    "journal, and ep.choose": partial(OurJournal, chooses=True, budget=Budget(remembers=100)),
}
_FOR, _AGAINST = re.compile(r"use (\w+)|(\w+) was good"), re.compile(r"not (\w+)|(\w+) was bad")
_RECORD = re.compile(r"mean reward ([\d.e-]+) in \d+ with it; ([\d.e-]+) without|helpful (\d+), harmful (\d+)")


def picked(text: str, told: str, place: str, options: Sequence[str], rng: np.random.Generator) -> str:
    """What the player does: see above. `place` is what boundaries are compared with."""
    votes = dict.fromkeys(options, 0)
    for line in text.splitlines():
        boundary = re.search(r"applies: (\w+ \w+)", line)
        overlooks = rng.random() < 0.1
        if (boundary and boundary[1] != place and not overlooks) or _failed(line):
            continue
        for pattern, weight in ((_FOR, 1), (_AGAINST, -1)):
            for names in pattern.findall(line):
                for name in filter(None, names):
                    votes[name] = votes.get(name, 0) + weight * _times(line)
    most = max(votes[name] for name in options)
    best = [name for name in options if votes[name] == most]
    choice = told if told in options else best[rng.integers(len(best))]
    return options[rng.integers(len(options))] if rng.random() < 0.05 else choice


def _times(line: str) -> int:
    """How often a line says that it was noted."""
    noted = re.search(r"noted (\d+) times", line)
    return int(noted[1]) if noted else 1


def _failed(line: str) -> bool:
    """Whether a line's own record says that it did harm."""
    if (record := _RECORD.search(line)) is None:
        return False
    with_it, without, helped, harmed = record.groups()
    return float(with_it) < float(without) if with_it else int(harmed) > int(helped)


def chances(seed: int, number: int) -> list[list[float]]:
    """Of each strategy of a class, before and after the change."""
    before = np.random.default_rng([seed, number]).permutation([GOOD, POOR, POOR, POOR])
    return [before.tolist(), np.roll(before, 1 + number).tolist()]


def _means(kind: str, seed: int, number: int, episode: int) -> dict[str, float]:
    """The chance of success of each strategy."""
    if kind == DISTRACTING:
        return dict.fromkeys(STRATEGIES, 0.75)
    return dict(zip(STRATEGIES, chances(seed, number)[episode >= CHANGE], strict=True))


def strategies(memory: Memory, seed: int) -> dict[str, Any]:
    """One seed of the first kind of stream: regret by class and half, tokens, when what happened."""
    regret: dict[str, float] = defaultdict(float)
    tokens: list[int] = []
    events: dict[str, Any] = {}
    chooses = isinstance(memory, OurJournal) and memory.chooses
    classes = CLASSES if chooses else (*CLASSES, DISTRACTING)
    for episode in range(EPISODES):
        for number, kind in enumerate(classes):
            rng = np.random.default_rng([seed, episode, number])
            text, told = memory.read(f"{kind} {episode}", kind, STRATEGIES)
            means = _means(kind, seed, number, episode)
            name = picked(text, told, "", STRATEGIES, rng)
            chance = means[name] - DISTRACTED * (kind == DISTRACTING and text != "")
            reward = float(rng.random() < chance)
            half = f"half {1 + (episode >= CHANGE)}" if kind in CLASSES else kind
            regret[half] += max(means.values()) - chance
            tokens.append(estimate_tokens(text) if text else 0)
            word = "good" if reward else "bad"
            advice = "use" if reward else "not"
            memory.write(f"{kind} {episode}", kind, Lesson(f"{advice} {name}", f"{name} was {word}", "", reward))
        if isinstance(memory, OurJournal) and episode % 10 == 9:
            _note_events(memory, episode + 1, events)
    return {**regret, "tokens": fmean(tokens), **events}


def _note_events(memory: OurJournal, episode: int, events: dict[str, Any]) -> None:
    """Remember when a class was switched off, and when its alarm fired."""
    with memory.journal.reading() as scope:
        for kind in (*CLASSES, DISTRACTING):
            totals = class_totals(scope, kind)
            if not totals["journal_on"]:
                events.setdefault(f"off {kind}", episode)
            if totals["alarm"] and kind in CLASSES:
                events.setdefault(f"{'false ' if episode <= CHANGE else ''}alarm {kind}", episode)


def games(memory: Memory, seed: int, env: str, controlled: bool) -> float:
    """The mean reward of one seed of the second kind of stream."""
    order = np.random.default_rng([seed, 7]).permutation(WORLDS * TIMES)
    rewards = []
    for number, place in enumerate(order.tolist()):
        world = place % WORLDS if controlled else place
        rng = np.random.default_rng([seed, number, 8])
        name = f"board {world}"
        rewards.append(play(memory, env, seed * 1_000 + world, name, partial(_chosen, name, rng)))
    return fmean(rewards)


def _chosen(place: str, rng: np.random.Generator, text: str, options: Sequence[str]) -> str:
    return picked(text, "", place, options, rng)


def one(form: str, seed: int) -> dict[str, Any]:
    """Everything of one memory and one seed."""
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None  # what the journal writes is not what is measured
    found: dict[str, Any] = {}
    with TemporaryDirectory(dir=fast) as folder:
        memory = FORMS[form](Path(folder))
        found |= strategies(memory, seed)
        _close(memory)
    for env in GAMES if form != "journal, and ep.choose" else ():
        for controlled in (True, False):
            with TemporaryDirectory(dir=fast) as folder:
                memory = FORMS[form](Path(folder))
                found[f"{env}, {'controlled' if controlled else 'naive'}"] = games(memory, seed, env, controlled)
                _close(memory)
    return found


def _close(memory: Memory) -> None:
    with suppress(AttributeError):
        memory.journal.close()  # type: ignore[attr-defined]


def interval(values: Sequence[float], digits: int = 0, scale: float = 1.0) -> str:
    """Mean over seeds with its 95 % interval (Student's t)."""
    array = scale * np.asarray(values)
    half = student(len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array))
    return f"{array.mean():.{digits}f} ({array.mean() - half:.{digits}f} – {array.mean() + half:.{digits}f})"


def tables(found: dict[str, list[dict[str, Any]]], seeds: int) -> dict[str, Rows]:
    columns = {"first half": "half 1", "second half": "half 2", DISTRACTING: DISTRACTING}
    regrets: Rows = [{"memory": "oracle", **dict.fromkeys(columns, "0"), "tokens": "–"}]
    scores: Rows = []
    watched: Rows = []
    for form, runs in found.items():
        row = {name: interval([run[key] for run in runs]) if key in runs[0] else "–" for name, key in columns.items()}
        regrets.append({"memory": form, **row, "tokens": f"{fmean(run['tokens'] for run in runs):.0f}"})
        streams = [key for key in runs[0] if "controlled" in key or "naive" in key]
        if streams:
            scores.append({"memory": form, **{key: interval([r[key] for r in runs], 1, 100) for key in streams}})
        if form.startswith("journal"):
            watched.append({"memory": form, **_watched(runs)})
    games_ = f"Games won, in %: {WORLDS * TIMES} episodes, {WORLDS} worlds {TIMES} times each, or {WORLDS * TIMES} once"
    title = f"{EPISODES} episodes a class, changed after {CHANGE}; mean and 95 % interval over {seeds} seeds"
    return {f"Regret: {title}": regrets, games_: scores, f"What the journal noticed, {seeds} seeds": watched}


def _watched(runs: list[dict[str, Any]]) -> dict[str, str]:
    offs = [run.get(f"off {DISTRACTING}", math.inf) for run in runs]
    others = [f"off {kind}" in run for run in runs for kind in CLASSES]
    alarms = [run.get(f"alarm {kind}", math.inf) - CHANGE for run in runs for kind in CLASSES]
    false = sum(f"false alarm {kind}" in run for run in runs for kind in CLASSES)
    return {
        "distracting class off": _often(offs, "median episode"),
        "others off": f"{sum(others)} of {len(others)}",
        "alarm after the change": _often(alarms, "median episodes later"),
        "alarm before it": f"{false} of {len(alarms)}",
    }


def _often(episodes: Sequence[float], words: str) -> str:
    """In how many cases something happened, and when, where it happened in most."""
    middle = float(np.median(episodes))
    return f"{sum(map(math.isfinite, episodes))} of {len(episodes)}" + (
        f", {words} {middle:g}" if middle < math.inf else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.processes) as pool:
        runs = {(seed, form): pool.submit(one, form, seed) for seed in range(options.seeds) for form in FORMS}
        found = {form: [runs[seed, form].result() for seed in range(options.seeds)] for form in FORMS}
    write(__file__, "PYTHONPATH=src python results/journal/memories.py", tables(found, options.seeds))


if __name__ == "__main__":
    main()
