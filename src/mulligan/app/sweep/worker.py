"""One arm in a process of its own: train or go on training, evaluate, write ``arm.json``.

``python -m mulligan.app.sweep.worker FOLDER`` reads ``FOLDER/order.json`` and reports progress as JSON lines on its
standard output. A line on standard input asks it to leave: it saves what it has trained first. When standard input
ends, the scheduler is gone, and the worker exits at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.app.sweep.arms import ORDER, RESULT, UNTRAINED, changed_trial, further_name, played_env
from mulligan.errors import MemoryFull, MulliganError, RunFolderError, lacks_memory

if TYPE_CHECKING:
    from mulligan.eval.run import EvalResult
    from mulligan.policy.base import Policy
    from mulligan.training.config import Config

SPENT = "spent.json"
"""Seconds that a run has been trained, in its folder."""
EVALUATING = "evaluation"
"""The stage in which others can start from the weights."""
LEFT = 75
"""Exit code of a worker that was asked to leave before it was done."""
MEMORY_FULL = 73
"""Exit code of a worker that found too little memory free: it may fit when others have ended."""
CONCURRENCY = 256
"""Trials of an evaluation under way at a time."""
Report = Callable[[Mapping[str, Any]], object]
"""Passes progress on: stage, done, total."""


def main() -> None:
    # Both reach all processes of a terminal or a job, and the scheduler decides. The processes that this one starts
    # inherit what is ignored, and must end on SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    order = json.loads((Path(sys.argv[1]) / ORDER).read_text(encoding="utf-8"))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever an environment prints goes to the log, not between the lines of progress
    import torch  # noqa: F401  (on Windows, loading it while another thread reads standard input never ends)

    leaving = threading.Event()

    def listen() -> None:
        while os.read(0, 1):  # not through sys.stdin: its lock would be held when this process ends by itself
            leaving.set()
        os._exit(1)

    def report(progress: Mapping[str, Any]) -> None:
        out.write(json.dumps(progress) + "\n")
        out.flush()
        if leaving.is_set() and progress["stage"] == EVALUATING:  # which has kept every trial
            sys.exit(LEFT)

    threading.Thread(target=listen, daemon=True).start()
    try:
        work(order, report, leaving.is_set)
    except (MulliganError, RuntimeError) as error:
        traceback.print_exc()
        sys.exit(exit_code(error))
    if leaving.is_set():
        sys.exit(LEFT)


def exit_code(error: Exception) -> int:
    """Memory may also run out in every trial, in a step of the optimiser, or in CUDA's first call."""
    return MEMORY_FULL if isinstance(error, MemoryFull) or lacks_memory(str(error)) else 1


def work(order: Mapping[str, Any], report: Report, stop: Callable[[], bool] = lambda: False) -> None:
    """Train and evaluate one arm; what earlier processes got done is not done again. `stop` ends it after an update."""
    from mulligan.report.files import read_json
    from mulligan.report.run import RunFolder, to_json
    from mulligan.training.metrics import MetricsFile
    from mulligan.training.resolve import resolve

    folder = Path(order["folder"])
    config = resolve(order["preset"], None, order["settings"])
    if config.population.agents:
        from mulligan.population.loop import train
    else:
        from mulligan.training.loop import train
    is_begun = (folder / "config.toml").is_file()
    if stop():
        return
    spent = folder / SPENT
    advice = "delete it: only the time that training took begins anew"
    earlier = read_json(spent.read_bytes(), spent, advice) if spent.is_file() else {"seconds": 0.0}
    try:
        began = time.perf_counter() - earlier["seconds"]
    except (LookupError, TypeError) as error:
        raise RunFolderError(f"{spent} holds no seconds; {advice}") from error

    def on_update(metrics: Mapping[str, Any]) -> None:
        if "update" in metrics:
            report({"stage": "training", "done": metrics["update"], "total": metrics["updates"]})
        elif "demonstrations" in metrics:
            report({"stage": "demonstrations", "done": metrics["demonstrated"], "total": metrics["demonstrations"]})
        else:
            report({"stage": "warm start", "done": metrics["warmstart"], "total": metrics["steps"]})

    try:
        train(None if is_begun else config, folder, resume=is_begun, on_update=on_update, stop=stop)
    finally:
        trained = time.perf_counter()
        if folder.is_dir():
            RunFolder(folder).write_text(SPENT, json.dumps({"seconds": trained - began}) + "\n")
    if stop():
        return
    lines = MetricsFile(folder / "metrics.jsonl").read()
    result = {
        **{name: order[name] for name in ("name", "settings", "preset", "evaluation")},
        "seed": config.run.seed,
        "updates": config.run.updates,
        "curve": [point for line in lines if (point := _point(line))],
        "seconds": trained - began,
        **_evaluate(config, folder, order["evaluation"], report),
        "evaluation_seconds": time.perf_counter() - trained,
    }
    RunFolder(folder).write_text(RESULT, to_json(result))


def _evaluate(config: Config, folder: Path, protocol: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The arm on frozen tasks: as it was trained, with the sweep's episodes, and the controls; then the further
    evaluations."""
    from mulligan.eval.plan import EvalPlan, create_folder, open_folder
    from mulligan.eval.run import run_plan
    from mulligan.players import Plays, advised_by, as_trained, player_from, writer_from
    from mulligan.report.run import RunFolder
    from mulligan.training.checkpoint import find_start
    from mulligan.training.resolve import from_run

    engine = from_run(RunFolder.open(folder)).engine  # with the context that the run was trained with
    player = player_from(str(folder), device=config.model.device, **asdict(engine))
    evaluations = {"": {"controls": protocol["controls"]}, **protocol.get("also", {})}
    plans: dict[str, EvalPlan] = {}
    for name, changes in evaluations.items():
        env = played_env(config, changes, protocol.get("env", ""))
        as_in_training, trained_params = as_trained(config, env)
        as_compared = replace(as_in_training, episodes=protocol.get("episodes", as_in_training.episodes))
        settings, params = changed_trial(as_compared, changes)
        plans[name] = EvalPlan(
            env=env,
            params={**trained_params, **params},
            tasks=protocol["tasks"],
            seed_set=protocol["seed_set"],
            seed=protocol["seed"],
            settings=settings,
            controls=tuple(changes.get("controls", ())),
            room=False,
            related=config.task.related,
        )
    total = sum(plan.tasks * len(plan.arms()) for plan in plans.values())
    counts: dict[tuple[str, str], int] = {}
    report({"stage": EVALUATING, "done": 0, "total": total})

    def advised(plan: EvalPlan, writer: str) -> Policy:
        """The player with other notes; where the writer is a model, its engine lives as long as the evaluation."""
        if writer == UNTRAINED:
            writer = str(find_start(config.model.name, folder) or config.model.name)
        plays = Plays(plan.env, plan.params, plan.settings)
        notes = writer_from(writer, device=config.model.device, plays=plays, **asdict(engine))
        return advised_by(player, notes, plan.settings)

    def play(name: str, plan: EvalPlan) -> EvalResult:
        def progress(arm: str, done: int, of: int) -> None:
            counts[name, arm] = done
            if sum(counts.values()) % 32 == 0:
                report({"stage": EVALUATING, "done": sum(counts.values()), "total": total})

        run = folder / (f"evaluation-{further_name(name)}" if name else "evaluation")
        is_begun = (run / "config.toml").is_file()
        writer = evaluations[name].get("writer")
        called = f"{folder}, advised by {writer}" if writer else str(folder)
        into = open_folder(plan, called, run) if is_begun else partial(create_folder, plan, called, run)
        policy = advised(plan, writer) if writer else player
        result = run_plan(plan, policy, into, CONCURRENCY, progress=progress)
        for summary in (result.main, *result.controls.values()):
            if lacks_memory(summary.failure):  # no result; the trials that did not fail are kept
                raise MemoryFull(f"memory ran out in {summary.failed} of {summary.trials} trials ({summary.failure})")
        return result

    results = {name: play(name, plan) for name, plan in plans.items()}
    main = results.pop("")
    summaries = {**_summaries(main), "memory": main.plan.settings.memory_mode, "seed_set": protocol["seed_set"]}
    if results:
        summaries["also"] = {name: _summaries(result) for name, result in results.items()}
    return summaries


def _summaries(result: EvalResult) -> dict[str, Any]:
    controls = {name: asdict(summary) for name, summary in result.controls.items()}
    classes = {name: asdict(summary) for name, summary in result.by_class.items()}
    main = {**asdict(result.main), "optimum": result.optimum}
    if result.ceilings is not None:
        main |= {"ceilings": result.ceilings, "by_opponent": result.by_opponent}
    return {"kind": result.kind, "main": main, "controls": controls, "by_class": classes}


def _point(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """A point of the learning curve: p@1 … on validation tasks, and how diverse play is where that was measured."""
    point = {"update": line["update"], "p": [line[name] for name in line if name.startswith("validation/p@")]}
    if "validation/diversity" in line:
        point["diversity"] = line["validation/diversity"]
    return point if point["p"] else None


if __name__ == "__main__":
    main()
