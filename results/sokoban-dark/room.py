"""How much a memory is worth in Sokoban in the dark, by size and sight, and how many tokens it takes (a table).

Each player plays three attempts at every validation level: without memory, and with a perfect memory of what its
earlier attempts have seen. Tokens are SmolLM2's: of an observation with its chat template, and of the longest sequence,
with two earlier attempts in memory as digests or as reflections.

    python results/sokoban-dark/room.py > results/sokoban-dark/room.md          (about ten minutes of one core)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from mulligan import run_trial_sync
from mulligan.eval.passk import pass_at
from mulligan.models.load import load_without_weights
from mulligan.models.renderer import Renderer
from mulligan.models.smollm2 import model_folder
from mulligan.policy.local import Demonstrated
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout.tasksets import tasks_of
from mulligan.trial import prompts
from mulligan.types import Memory, Task, Trial

SETTINGS: list[dict[str, int]] = [
    {"rows": rows, "cols": rows, "boxes": boxes, "solution": solution, "turns": turns, "sight": sight}
    for rows, boxes, solution, turns, sight in (
        (6, 2, 15, 7, 0),
        (6, 2, 15, 7, 1),
        (6, 2, 15, 8, 1),
        (7, 2, 18, 8, 1),
        (7, 2, 18, 10, 1),
        (7, 2, 18, 8, 2),
    )
]
SHARED = {"view": "cells", "lost": "hopeless", "moves": 3, "advice": "none"}
PLAYERS = [("hasty", 0.3), ("expert", 0.6), ("expert", 1.0)]


def shares(tasks: Sequence[Task], kind: str, skill: float, recall: float) -> list[float]:
    """p@1..p@3."""
    policy = ExpertPolicy(skill, recall, kind=kind)
    memory: Memory = "history" if recall else "none"
    trials = [run_trial_sync(task, policy, episodes=3, memory=memory, seed=task.seed) for task in tasks]
    return pass_at(trials, 3)


def tokens(tasks: Sequence[Task], renderer: Renderer) -> tuple[float, list[int]]:
    """Of an observation, on average; of the longest sequence with digests in memory, and with reflections."""
    style = prompts.style("note")
    policy = Demonstrated(ExpertPolicy(0.3, 0.3, kind="hasty"), renderer, style.demonstrated)
    observations, longest = list[int](), list[int]()
    modes: tuple[Memory, ...] = ("history", "reflection")
    for memory in modes:
        trials = [
            run_trial_sync(task, policy, episodes=3, memory=memory, style="note", stop="never", seed=task.seed)
            for task in tasks
        ]
        later = [turn.reply for trial in trials for episode in trial.episodes for turn in episode.turns[1:]]
        observations += [len(reply.prompt_ids or ()) for reply in later]
        longest.append(max(map(length, trials)))
    return sum(observations) / len(observations), longest


def length(trial: Trial) -> int:
    """Tokens of the trial's longest sequence."""
    replies = [
        reply
        for episode in trial.episodes
        for reply in (
            *(turn.reply for turn in episode.turns),
            episode.reflection.completion if episode.reflection else None,
        )
        if reply is not None
    ]
    return max(reply.offset + len(reply.prompt_ids or ()) + len(reply.ids or ()) for reply in replies)


def written(values: Sequence[float]) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in values)


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    count = parser.parse_args().tasks
    renderer = load_without_weights(str(model_folder())).renderer
    names = [f"{kind}:{skill:g}" for kind, skill in PLAYERS]
    write(f"{count} validation levels; p@1 / p@2 / p@3 in percent, without memory → with a perfect memory.\n")
    write(f"| size | boxes | sight | turns | observation | longest | {' | '.join(names)} | omniscient |")
    write("|---" * (7 + len(names)) + "|")
    for setting in SETTINGS:
        params: dict[str, Any] = {**SHARED, **setting}
        tasks = tasks_of("sokoban", count, "validation", params)
        seen, longest = tokens(tasks[:40], renderer)
        cells = [f"{setting['rows']}x{setting['cols']}", *(str(setting[name]) for name in ("boxes", "sight", "turns"))]
        cells += [f"{seen:.0f}", " / ".join(map(str, longest))]
        for kind, skill in PLAYERS:
            cells.append(" → ".join(written(shares(tasks, kind, skill, recall)) for recall in (0.0, 1.0)))
        cells.append(written(shares(tasks, "omniscient", 1.0, 0.0)[:1]))
        write(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
