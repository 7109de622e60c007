"""One real update of a preset at full length: trials whose replies reach their limits, then training on them.

The model has the shape of the preset's own and weights drawn at random, which hardly ever stop by themselves. Fewer
tasks, trials or episodes than the preset has take less time and leave every sequence as long as it is; the title says
so. The time includes compiling.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mulligan.bench import Report
from mulligan.errors import UnknownName

COLUMNS = (
    "preset",
    "trials",
    "context",
    "slots",
    "replies",
    "cut",
    "sampled",
    "longest row",
    "rollout s",
    "training s",
    "in all",
    "peak of memory (GB)",
)


def run(
    shape: str,
    preset: str,
    *,
    env: str = "",
    tasks: int = 0,
    group: int = 0,
    episodes: int = 0,
    changes: Mapping[str, str] | None = None,
) -> Report:
    """tasks, group, episodes: 0 for the preset's own. changes: other settings, for tests."""
    import torch

    from mulligan.bench.update import SHAPES
    from mulligan.train.resolve import resolve

    if shape not in SHAPES:
        raise UnknownName("shape", shape, SHAPES)
    sizes = {"run.tasks": tasks, "run.group": group, "trial.episodes": episodes}
    flags = {**({"task.env": env} if env else {}), **_ALWAYS, **(changes or {})}
    config = resolve(preset, None, {**flags, **{name: str(count) for name, count in sizes.items() if count}})
    published = resolve(preset, None, {"task.env": config.task.env})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        row = _measured(shape, preset, config, device, Path(folder))
    then, now = _sizes(published), _sizes(config)
    less = [f"{count} {name} instead of {then[name]}" for name, count in now.items() if count != then[name]]
    note = f"; less than the preset: {', '.join(less)}" if less else ""
    return Report(f"One update of {preset} on {config.task.env}, {shape} drawn at random{note}", COLUMNS, (row,))


_ALWAYS = {
    "trial.stop": "never",
    "run.updates": "1",
    "run.validate_every": "0",
    "run.save_trials_every": "0",
    "warmstart.steps": "0",
}


def _sizes(config: Any) -> dict[str, int]:
    return {"tasks": config.run.tasks, "trials a task": config.run.group, "episodes": config.trial.episodes}


def _measured(shape: str, preset: str, config: Any, device: Any, folder: Path) -> tuple[str | float, ...]:
    import torch

    from mulligan.bench.engine import subject
    from mulligan.bench.update import SHAPES, Way, random_model
    from mulligan.models.load import Loaded
    from mulligan.report.run import RunFolder
    from mulligan.train.loop import Trainer
    from mulligan.train.resolve import to_tree

    texts, _ = subject(device.type)
    way = Way("", checkpointing=config.model.gradient_checkpointing, lora=config.model.lora_rank)
    loaded = Loaded(random_model(SHAPES[shape], way, device), texts.tokenizer, texts.renderer, shape)
    del texts
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    run_folder = RunFolder.create(folder / "run", {"kind": "train", **to_tree(config)})
    trainer = Trainer(config, run_folder, lambda _: None, loaded=loaded)
    try:
        if config.algo.kl_weight:
            trainer.learner.keep_reference()
        began = time.perf_counter()
        metrics = trainer._update(0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - began
    finally:
        trainer.loop.close()
    peak = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else "-"
    return (
        preset,
        config.run.tasks * config.run.group,
        trainer.engine.context,
        trainer.engine.slots,
        metrics["replies"],
        f"{100 * metrics['replies/cut']:.0f} %",
        metrics["tokens/sampled"],
        metrics["tokens/longest_row"],
        metrics["time/rollout"],
        spent - metrics["time/rollout"],
        spent,
        peak,
    )
