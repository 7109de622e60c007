"""One arm in a process of its own: train or go on training, evaluate, write ``arm.json``.

``python -m mulligan.sweep.worker`` reads what to do as a JSON line from standard input and says how far it is, a JSON
line each, on standard output. Another line on standard input asks it to leave: it saves what it has trained first, and
ends at once while demonstrations are played. When standard input ends, whoever started it is gone, and it goes at once.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.errors import DeviceLost, MemoryFull, MulliganError, lacks_memory

if TYPE_CHECKING:
    from mulligan.train.config import Config

RESULT, SPENT = "arm.json", "spent.json"
WARMING, TRAINING, EVALUATING = "warm start", "training", "evaluation"
LEFT = 75
"""Exit code of a worker that was asked to leave before it was done."""
DEVICE_LOST = 74
"""Exit code of a worker whose GPU failed: from what it saved, it can be begun again."""
MEMORY_FULL = 73
"""Exit code of a worker that found too little memory free: it may fit when others have ended."""
_PATIENCE = 10.0
"""Seconds in which the main thread has to come to an end."""
Say = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Do what standard input says."""
    leaving = _Leaving()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; one of them decides
    signal.signal(signal.SIGTERM, leaving.on_signal)  # so may this, which schedulers send
    order = json.loads(_first_line())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever an environment prints goes to the log, not between the lines of progress
    import torch  # noqa: F401  (on Windows, loading it while another thread reads standard input never ends)

    threading.Thread(target=leaving.listen, daemon=True).start()

    def say(progress: Mapping[str, Any]) -> None:
        leaving.note(progress)  # first: who reads the line may ask to leave at once
        out.write(json.dumps(progress) + "\n")
        out.flush()
        leaving.look(progress)

    try:
        work(order, say, leaving.asked.is_set)
    except (MulliganError, RuntimeError) as error:
        traceback.print_exc()
        sys.exit(_code(error))
    if leaving.asked.is_set():
        sys.exit(LEFT)


def _code(error: Exception) -> int:
    """What to exit with. Memory that runs out is not always said by `MemoryFull`: every trial may have failed for it, a
    step of the optimiser, or CUDA's first call of all."""
    if isinstance(error, MemoryFull) or lacks_memory(str(error)):
        return MEMORY_FULL
    return DEVICE_LOST if isinstance(error, DeviceLost) else 1


class _Leaving:
    """Whether this process was asked to leave, and whether it has anything to save."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.has_nothing = self.at_once = False

    def note(self, progress: Mapping[str, Any]) -> None:
        self.has_nothing = progress["stage"] == WARMING and not progress.get("begun")

    def look(self, progress: Mapping[str, Any]) -> None:
        """Leave here where that was asked for and nothing is lost: evaluations keep every trial."""
        self.note(progress)
        is_warming = progress["stage"] == WARMING
        if self.asked.is_set() and (self.has_nothing or not (is_warming or progress["stage"] == TRAINING)):
            sys.exit(LEFT)

    def listen(self) -> None:
        while os.read(0, 1):  # not through sys.stdin: its lock would be held when this process ends by itself
            self.asked.set()
            if self.has_nothing:
                self._end()
        os._exit(1)

    def on_signal(self, *_: object) -> None:
        if self.at_once:
            sys.exit(LEFT)

    def _end(self) -> None:
        """End the main thread, wherever it is: it then ends the processes that play demonstrations for it."""
        self.at_once = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(_PATIENCE)
        os._exit(LEFT)


def work(order: Mapping[str, Any], say: Say, stop: Callable[[], bool] = lambda: False) -> None:
    """Train and evaluate one arm; what earlier processes got done is not done again. `stop` ends it after an update."""
    from mulligan.errors import UsageError
    from mulligan.report.run import RunFolder, to_json
    from mulligan.train.checkpoint import newest
    from mulligan.train.loop import train
    from mulligan.train.metrics import MetricsFile
    from mulligan.train.resolve import resolve
    from mulligan.train.start import starting_from

    folder, start = Path(order["folder"]), order.get("after")
    config = resolve(order["preset"], None, order["settings"])
    config = config if start is None else starting_from(config, start)  # where it lies now
    begun = (folder / "config.toml").is_file()
    if begun and not _is_begun_with(config, folder, start):
        raise UsageError(f"{folder} holds a run with other settings; choose another folder")
    if stop():
        return
    began = time.perf_counter() - _spent(folder)

    def on_update(metrics: Mapping[str, Any]) -> None:
        if "update" in metrics:
            say({"stage": TRAINING, "done": metrics["update"], "total": metrics["updates"]})
        else:
            own = {} if "demonstrations" in metrics else {"begun": True}
            say({"stage": WARMING, "done": metrics["warmstart"], "total": metrics["steps"], **own})

    if config.warmstart.steps and newest(folder) is None:
        say({"stage": WARMING, "done": 0, "total": config.warmstart.steps})
    try:
        train(config, folder, resume=begun, on_update=on_update, stop=stop)
    finally:
        trained = time.perf_counter()
        if folder.is_dir():
            RunFolder(folder).write_text(SPENT, json.dumps({"seconds": trained - began}) + "\n")
    if stop():
        return
    lines = MetricsFile(folder / "metrics.jsonl").read()
    found = {
        "name": order["name"],
        "seed": config.run.seed,
        "settings": dict(order["settings"]),
        "preset": order["preset"],
        "evaluation": dict(order["evaluation"]),
        "updates": config.run.updates,
        "curve": [point for line in lines if (point := _point(line))],
        "seconds": trained - began,
        **_evaluate(config.task.env, config, folder, order["evaluation"], say),
        "evaluation_seconds": time.perf_counter() - trained,
    }
    RunFolder(folder).write_text(RESULT, to_json(found))


def _is_begun_with(config: Config, folder: Path, start: str | None) -> bool:
    """Whether the run in `folder` was begun with these settings; where what it started from lay then does not count."""
    from mulligan.report.run import RunFolder
    from mulligan.sweep.warm import warm_parts
    from mulligan.train.resolve import from_run
    from mulligan.train.start import as_kept, starting_from

    found = from_run(RunFolder.open(folder))
    if not config.engine.context:  # left open: the run has fixed it
        config = replace(config, engine=replace(config.engine, context=found.engine.context))
    if not config.run.updates and not found.run.updates:  # warm starts: other settings do not concern them
        return warm_parts(found) in (warm_parts(config), warm_parts(as_kept(config, folder)))
    if start is not None and Path(found.model.name).name == Path(start).name:
        found = starting_from(found, config.model.name)
    return found in (config, as_kept(config, folder))


def _evaluate(env: str, config: Any, folder: Path, wanted: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The arm on frozen tasks: as it was trained, three episodes, and the controls; then the further evaluations."""
    from mulligan.api import evaluate
    from mulligan.eval.plan import EvalPlan
    from mulligan.players import as_trained, player_from
    from mulligan.report.run import RunFolder
    from mulligan.sweep.arms import TASKS, further_name, split_changes
    from mulligan.train.resolve import from_run

    settings, params = as_trained(config, env)
    kept = from_run(RunFolder.open(folder)).engine  # with the context that the run was trained with
    player = player_from(str(folder), device=config.model.device, **asdict(kept))
    parts = {"": {"controls": wanted["controls"]}, **wanted.get("also", {})}
    plays = {name: split_changes(changes) for name, changes in parts.items()}
    sizes = {name: changes.get(TASKS, wanted["tasks"]) for name, changes in parts.items()}
    arms = {
        name: EvalPlan(env, settings=replace(settings, **own), controls=controls).arms()
        for name, (own, _, controls) in plays.items()
    }
    total = sum(sizes[name] * len(arms[name]) for name in plays)
    counts: dict[tuple[str, str], int] = {}
    say({"stage": EVALUATING, "done": 0, "total": total})  # what starts from these weights may begin

    def play(name: str) -> Any:
        own, more, controls = plays[name]

        def progress(arm: str, done: int, of: int) -> None:
            counts[name, arm] = done
            if sum(counts.values()) % 32 == 0:
                say({"stage": EVALUATING, "done": sum(counts.values()), "total": total})

        run = folder / (f"evaluation-{further_name(name)}" if name else "evaluation")
        played = evaluate(
            env,
            player,
            params={**params, **more},
            settings=replace(settings, **own),
            tasks=sizes[name],
            seed_set=wanted["seed_set"],
            seed=wanted["seed"],
            controls=controls,
            room=False,
            related=config.trial.tasks == "related",
            concurrency=256,
            run=run,
            resume=(run / "config.toml").is_file(),
            progress=progress,
        )
        _need_all(played)
        return played

    found = {name: play(name) for name in plays}
    main = found.pop("")
    also = {name: _summaries(result) for name, result in found.items()}
    return {
        **_summaries(main),
        "memory": main.settings.memory_mode,
        "seed_set": wanted["seed_set"],
        **({"also": also} if also else {}),
    }


def _need_all(played: Any) -> None:
    """Trials that failed because memory ran out are no result; those that did not are kept."""
    for summary in (played.main, *played.controls.values()):
        if lacks_memory(summary.failure):
            raise MemoryFull(f"memory ran out in {summary.failed} of {summary.trials} trials ({summary.failure})")


def _summaries(result: Any) -> dict[str, Any]:
    controls = {name: asdict(summary) for name, summary in result.controls.items()}
    classes = {name: asdict(summary) for name, summary in result.by_class.items()}
    return {"kind": result.kind, "main": asdict(result.main), "controls": controls, "by_class": classes}


def _point(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where a learning curve passes: p@1 … on validation tasks, and how diverse play is where that was looked at."""
    names = [name for name in line if name.startswith("validation/p@")]
    if not names:
        return None
    more = {"diversity": line["validation/diversity"]} if "validation/diversity" in line else {}
    return {"update": line["update"], "p": [line[name] for name in names], **more}


def _spent(folder: Path) -> float:
    """Seconds that earlier processes have trained here; 0 where that cannot be understood."""
    path = folder / SPENT
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["seconds"]) if path.is_file() else 0.0
    except (ValueError, LookupError, TypeError):  # written by halves, as on a full disk
        return 0.0


def _first_line() -> bytes:
    """Of standard input, and no byte more: what follows is for the thread that listens."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line


if __name__ == "__main__":
    main()
