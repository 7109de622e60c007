"""The evaluations of `run.evaluate`: when a run has done its updates, on frozen tasks, into folders of its own."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.app.progress import trial_progress
from mulligan.eval.plan import EvalPlan, create_folder, open_folder
from mulligan.eval.run import run_plan
from mulligan.players import as_trained, player_from
from mulligan.report.run import RunFolder, to_json
from mulligan.training.config import evaluated_params
from mulligan.training.resolve import from_run

if TYPE_CHECKING:
    from mulligan.training.config import Config

CONTROLS = ("independent", "foreign")
TASKS = 512


def evaluate_at_end(config: Config, folder: Path, *, quiet: bool) -> dict[str, dict[str, Any]]:
    """Each evaluation by the parameters that differ, as data; trials that an earlier process played are not played
    again."""
    evaluated = evaluated_params(config)
    if not evaluated:
        return {}
    env = config.task.env
    settings, trained_params = as_trained(config, env)
    engine = from_run(RunFolder.open(folder)).engine  # with the context that the run was trained with
    player = player_from(str(folder), device=config.model.device, **asdict(engine))
    results = {}
    for name, params in evaluated.items():
        plan = EvalPlan(
            env=env,
            params={**trained_params, **params},
            tasks=TASKS,
            seed=config.run.seed,
            settings=settings,
            controls=CONTROLS,
            room=False,
            related=config.task.related,
        )
        path = folder / f"evaluation-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"
        updates = config.run.updates
        if _is_begun(path) and RunFolder.open(path).config().get("updates") != updates:  # of a shorter run
            path = path.with_name(f"{path.name}-update-{updates}")
        create = partial(create_folder, plan, player.name, path, updates=updates)
        into = open_folder(plan, player.name, path) if _is_begun(path) else create
        with trial_progress(quiet=quiet) as progress:
            results[name] = run_plan(plan, player, into, progress=progress).to_dict()
        RunFolder(path).write_text("result.json", to_json(results[name]))
    return results


def _is_begun(path: Path) -> bool:
    return (path / "config.toml").is_file()
