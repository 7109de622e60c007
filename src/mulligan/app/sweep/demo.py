"""The demonstration: RL and meta-RL from one warm start, on boards neither has seen; then on doors with a sign.

RL plays 24 episodes a board and update, meta-RL 8 trials of at most 3: never more, and fewer where a trial is solved
early. Both train for as many updates, each under the settings that were best for it on validation boards (presets
``cpu-rl`` and ``cpu``: RL keeps its entropy bonus to the end). Beside them stands what could explain the gap away:

meta-RL, gamma_traj 0  the myopic arm: it plays with memory, but no episode earns anything for the next
independent retries    the same agents without memory: what three tries are worth by luck alone
demonstrator           whom the warm start imitated, memory included
RL, 2x updates         on request: RL with twice the updates, from the same warm start

The second act is `expedition`'s signpost. A lost board shows its mine for free; here finding out
costs an attempt, and is learned only where later attempts give credit to earlier ones. The arms have equal settings,
and the rows below them are exact: the best for each attempt by itself, and for all of them (`mulligan.eval.optimum`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mulligan.api import evaluate
from mulligan.app.sweep.arms import WARM_START, Arm, Sweep, Work
from mulligan.eval.intervals import difference, over_seeds
from mulligan.players import as_trained
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import load_trials
from mulligan.report.tables import optimum_name
from mulligan.training.config import Config
from mulligan.training.resolve import resolve
from mulligan.types import Episode, Trial

RL, META, MYOPIC, LONGER = "RL", "meta-RL", "meta-RL, gamma_traj 0", "RL, 2x updates"
READABLE = 24
"""The report shows the trials of so many tasks of every arm; those that the pages point to are among them."""
_AS_RL = {"trial.episodes": "1", "run.group": "24", "algo.entropy_end": "0.03"}
"""What preset cpu-rl changes of preset cpu."""
SENTENCE = "Memory is learned by training with memory; exploring is learned by credit across attempts."
SIGNPOST_ABOUT = (
    "All three agents start from one warm start. It imitated a player that reads the sign or opens a door, by the toss "
    "of a coin, and goes to the right door once it knows it. An update has 64 tasks: RL plays 12 single attempts at "
    "each, meta-RL 4 trials of 3. The optima are exact: the most that any agent can expect of all attempts, and "
    "(at γ_traj 0) of each attempt by itself."
)
_SIGNPOST = {
    "run.updates": "8",
    "run.tasks": "64",  # many tasks with few trials each: in few with many, luck with a door is learned
    "run.group": "4",
    "run.save_trials_every": "0",
    "run.validate_every": "1",
    "run.validation_tasks": "100",
    "warmstart.steps": "70",
    "warmstart.trials": "1000",
    "warmstart.batch": "192",
    "algo.entropy_weight": "0.03",
    "algo.invalid_penalty": "0.5",
}
"""A quarter of preset nano-expedition-signpost's time: results/demo/README.md."""


def demo_sweep(seed: int, *, recall: float = 0.2, updates: int = 80, tasks: int = 512, longer: bool = False) -> Sweep:
    """The arms; with `longer`, also RL at twice the updates."""
    arms = [Arm(RL, _AS_RL), Arm(META), Arm(MYOPIC, {"algo.gamma_traj": "0"})]
    if longer:
        arms.append(Arm(LONGER, {**_AS_RL, "run.updates": str(2 * updates)}))
    settings = {
        "task.env": "minesweeper",
        "run.updates": str(updates),
        "warmstart.recall": str(recall),
        "run.validate_every": str(max(1, updates // 10)),
        "run.validation_tasks": "100",
        "run.save_trials_every": "0",
        "run.checkpoint_every": "20",
    }
    title = "MineSweeper 4x5 with 3 mines, 10 turns"
    return Sweep(arms, title, "cpu", (seed,), tasks, "eval", settings=settings)


def signpost_sweep(seed: int, tasks: int) -> Sweep:
    """The second act: a minute on two cores."""
    arms = [Arm(RL, {"trial.episodes": "1", "run.group": "12"}), Arm(MYOPIC, {"algo.gamma_traj": "0"}), Arm(META)]
    title, preset = "Signpost, 8 doors and a sign that takes an attempt to read", "nano-expedition-signpost"
    return Sweep(arms, title, preset, (seed,), tasks, "eval", controls=(), settings=_SIGNPOST)


def gather(sweep: Sweep, work: Sequence[Work], results: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything the demonstration shows, as plain data: for ``--json``, for the table and for the page."""
    folders = {each.name: each.folder for each in work}
    rows = {}
    for each in work:
        result = results[each.folder]
        rows[each.name] = _row(each.name, result["main"], result["updates"])
        label = f"{each.name}, independent retries"
        rows[label] = _row(label, result["controls"]["independent"], result["updates"])
    config = resolve(sweep.preset, None, sweep.settings)
    scripted, ceiling = _scripted(sweep, config)
    order = [WARM_START, RL, f"{RL}, independent retries", LONGER, MYOPIC, META, f"{META}, independent retries"]
    trials = {name: load_trials(folders[name] / "evaluation") for name in (RL, META, MYOPIC)}
    solved = {name: [float(trial.solved_at is not None) for trial in each] for name, each in trials.items()}
    worlds = results[folders[META]]["main"]["worlds"]
    return {
        "title": sweep.title,
        "seed": sweep.seeds[0],
        "recall": config.warmstart.recall,
        "updates": config.run.updates,
        "tasks": sweep.tasks,
        "episodes": len(rows[RL]["p"]),
        "ceiling": ceiling,
        "rows": [scripted, *(rows[name] for name in order if name in rows)],
        "gap": _gap(solved[META], solved[RL], worlds),
        "gap_to_myopic": _gap(solved[META], solved[MYOPIC], worlds),
        "only_meta": sum(meta > rl for meta, rl in zip(solved[META], solved[RL], strict=True)),
        "only_rl": sum(rl > meta for meta, rl in zip(solved[META], solved[RL], strict=True)),
        "validation_tasks": config.run.validation_tasks,
        "curves": {name: results[folders[name]]["curve"] for name in (RL, META, MYOPIC)},
        "training_minutes": sum(results[each.folder]["seconds"] for each in work) / 60,
        "pairs": pairs("board", (RL, META), (trials[RL], trials[META]), folders),
        "about": [text.format(tasks=sweep.tasks) for text in ABOUT],
    }


def _row(name: str, summary: Mapping[str, Any], updates: int) -> dict[str, Any]:
    """A line of the table, from the summary of an evaluation; the interval is over the boards' worlds."""
    row = {"method": name, "p": summary["p"], "ci": over_seeds([summary]), "tasks": summary["trials"]}
    return {**row, "valid": summary["valid"], "updates": updates}


ABOUT = [
    "All agents are the same tiny language model (0.39 million parameters). It first imitates a mediocre player; "
    "from those weights RL and meta-RL train for as many updates, RL with 24 episodes a board and update, meta-RL with "
    "8 trials of at most 3 (fewer episodes where a trial is solved early). Each has the settings that were best for it "
    "on validation boards; the boards in the table were never trained on.",
    "RL trains on single episodes and is evaluated with the same memory as everybody. Meta-RL trains on trials of "
    "three episodes, in which later episodes see what earlier ones found.",
    "Independent retries are the same agents without memory: what they gain from three attempts is luck. With "
    "gamma_traj 0 the agent learns to use its memory, but not to gather anything for later.",
    "The intervals say how well {tasks} boards measure these agents. Other training seeds give other agents, and "
    "figures move by several points. The curves are sampled at temperature 1, the table at 0.7.",
]


def _scripted(sweep: Sweep, config: Config) -> tuple[dict[str, Any], float]:
    """The demonstrator on the same boards, and what a player who sees the mines reaches."""
    env, warm = config.task.env, config.warmstart
    settings, params = as_trained(config, env)
    options: dict[str, Any] = {"params": params, "tasks": sweep.tasks, "seed_set": sweep.seed_set, "room": False}
    options |= {"controls": (), "settings": settings, "concurrency": 1, "seed": sweep.seeds[0]}
    summary = evaluate(env, ExpertPolicy(warm.skill, warm.recall), **options).main
    name = f"demonstrator, memory on {warm.recall:.0%} of its moves"
    ceiling = evaluate(env, ExpertPolicy(omniscient=True), **options, episodes=1).main.p[0]
    return {**_row(name, asdict(summary), 0), "ci": summary.ci}, ceiling


def _gap(first: Sequence[float], second: Sequence[float], worlds: Sequence[int] | None) -> dict[str, Any]:
    """Points between two agents in boards solved, with the interval over the boards' worlds."""
    gap, interval = difference(np.array([first]), np.array([second]), worlds)
    return {"points": 100 * gap, "ci": [100 * bound for bound in interval]}


def pairs(
    noun: str, names: tuple[str, str], trials: tuple[Sequence[Trial], Sequence[Trial]], folders: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """Tasks to watch both agents at: up to four that the second one alone solved, after a failure, and up to two that
    the first one alone solved; of the first `READABLE` tasks."""
    chosen: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for place, (first, second) in enumerate(zip(*(each[:READABLE] for each in trials), strict=True)):
        solved = first.solved_at, second.solved_at
        if (solved[0] is None) == (solved[1] is None) or solved[1] == 0:
            continue
        outcomes = (
            f"{name} {'does not solve it' if at is None else f'solves it at attempt {at + 1}'}"
            for name, at in zip(names, solved, strict=True)
        )
        runs = [f"{folders[name].name}/evaluation" for name in names]
        pair = {"place": place, "runs": runs, "text": f"{noun} {place + 1}: {', '.join(outcomes)}"}
        chosen[solved[0] is None].append(pair)
    return [*chosen[True][:4], *chosen[False][:2]]


def gather_signpost(sweep: Sweep, work: Sequence[Work], results: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the second act shows, as plain data."""
    by_name = {each.name: results[each.folder] for each in work}
    trials = {each.name: load_trials(each.folder / "evaluation") for each in work}
    solved = {name: [float(trial.solved_at is not None) for trial in each] for name, each in trials.items()}
    worlds = by_name[META]["main"]["worlds"]
    optima = by_name[MYOPIC]["main"]["optimum"]  # for gamma_traj 1, then for the arm's own
    return {
        "title": sweep.title,
        "seed": sweep.seeds[0],
        "updates": by_name[META]["updates"],
        "tasks": sweep.tasks,
        "episodes": len(by_name[META]["main"]["p"]),
        "rows": [
            *(_row(name, result["main"], result["updates"]) for name, result in by_name.items()),
            *({"method": optimum_name(optimum), "p": optimum["p"]} for optimum in reversed(optima)),
        ],
        "gap": _gap(solved[META], solved[RL], worlds),
        "gap_to_myopic": _gap(solved[META], solved[MYOPIC], worlds),
        "validation_tasks": int(sweep.settings["run.validation_tasks"]),
        "curves": {name: by_name[name]["curve"] for name in (RL, MYOPIC, META)},
        "reads_first": {
            name: sum(_reads_sign(trial.episodes[0]) for trial in trials[name]) / sweep.tasks
            for name in (RL, MYOPIC, META)
        },
        "pairs": pairs(
            "world", (MYOPIC, META), (trials[MYOPIC], trials[META]), {each.name: each.folder for each in work}
        ),
        "sentence": SENTENCE,
        "about": SIGNPOST_ABOUT,
    }


def _reads_sign(episode: Episode) -> bool:
    return episode.final.endswith("=ok")  # the compact view's word for what was shown
