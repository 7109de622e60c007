"""A whole update of meta-RL against one of RL, at equal numbers of episodes: trials, then training.

All episodes are played (no trial stops early). RL plays 24 single episodes of each task, meta-RL 8 trials of 3
episodes. "Slots full" has as many trials under way as the engine has slots; the papers' size is 16 tasks. |Δlogp| is
the mean difference between the sampler's and the trainer's log-probabilities of the same tokens, before the first step.
On a GPU the model is SmolLM2, on a CPU nano, which is asked for its reflections in one word; SmolLM2 is asked for eight
parts (reflection) or for a note.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from mulligan.app.bench import Cell, Report, free_gpu, gpu_seconds, peak_gigabytes
from mulligan.app.bench.engine import subject
from mulligan.app.bench.update import SHAPES, Way, random_model
from mulligan.errors import UnknownName, UsageError
from mulligan.models.load import Loaded
from mulligan.report.run import RunFolder
from mulligan.training.loop import Trainer
from mulligan.training.resolve import resolve, to_tree

Settings = Mapping[str, str]
RL = {"trial.episodes": "1", "run.group": "24"}
META = {"trial.episodes": "3", "run.group": "8", "trial.memory": "history"}
_ALWAYS = {"trial.stop": "never", "run.updates": "99", "run.save_trials_every": "0", "warmstart.steps": "0"}
_FULL_LENGTH = {**_ALWAYS, "run.updates": "1", "run.validate_every": "0"}
_GPU = {
    "task.env": "minesweeper",
    "model.name": "smollm2",
    "model.device": "cuda",
    "engine.slots": "512",
    "engine.context": "2048",
    "trial.max_tokens": "24",
    "trial.reflection_tokens": "64",
    "optim.epochs": "1",
    "optim.lr": "1e-6",
    **_ALWAYS,
}
_CPU = {"engine.slots": "64", "trial.reflection_tokens": "12", **_ALWAYS}
_FULL_GPU, _FULL_CPU, _PAPERS = 64, 8, 16
"""Tasks of an update: those that fill the slots with meta-RL's trials, and those of the papers' size."""


def run(shape: str = "", preset: str = "", **sizes: Any) -> Report:
    """The comparison; or one update of a preset with a model of a shape, `sizes` as of `at_full_length`."""
    if preset:
        return at_full_length(shape, preset, **sizes)
    if shape:
        raise UsageError("bench step: --shape needs --preset")
    gpu = torch.cuda.is_available()
    common, full, base = (_GPU, _FULL_GPU, None) if gpu else (_CPU, _FULL_CPU, "cpu")
    reflecting = {**META, "trial.memory": "reflection"}
    arms: dict[str, Settings] = {"RL": RL, "meta-RL, history": META, "meta-RL, reflection": reflecting}
    if gpu:
        arms["meta-RL, note"] = {**reflecting, "trial.style": "note"}
    comparisons = [("slots full", full, arms)]
    for staleness in ("0", "1") if gpu else ():
        late = {"run.staleness": staleness}
        pair: dict[str, Settings] = {"RL": {**RL, **late}, "meta-RL, history": {**META, **late}}
        comparisons.append((f"{_PAPERS} tasks, staleness {staleness}", _PAPERS, pair))
    with _trainer(resolve(base, None, {**common, **META, "run.tasks": "1"})) as trainer:
        trainer.concurrency = 4096
        if hasattr(trainer.engine, "device"):
            trainer.engine.device.warm_up()
        gc.collect()
        gc.freeze()
        rows: list[dict[str, Cell]] = []
        for label, tasks, compared in comparisons:
            sized = {**common, "run.tasks": str(tasks)}
            configs = {name: resolve(base, None, {**sized, **settings}) for name, settings in compared.items()}
            # Small updates vary: of them the mean of four after two that are not counted.
            uncounted, counted = (1, 2) if tasks >= full else (2, 4)
            rows += _compare(trainer, label, configs, uncounted, counted)
        gc.unfreeze()
    return Report(f"Updates, {common.get('model.name', 'nano')}; tokens in thousands", rows)


def _compare(
    trainer: Any, label: str, configs: Mapping[str, Any], uncounted: int, counted: int
) -> list[dict[str, Cell]]:
    """A row for each configuration; the first one is RL."""
    rows: list[dict[str, Cell]] = []
    first = None
    for name, config in configs.items():
        trainer.config = trainer.learner.config = config
        trainer.playing.clear()
        measured = [_update(trainer, number) for number in range(uncounted + counted)][uncounted:]
        for playing in trainer.playing.values():
            playing.task.cancel()
        means = {key: sum(numbers[key] for numbers in measured) / counted for key in measured[0]}
        total = means["rollout"] + means["training"]
        per_token = total / means["sampled"]
        first = first or (total, per_token)
        rows.append(
            {
                "update": f"{name}: {label}",
                "episodes": config.run.tasks * config.run.group * config.trial.episodes,
                "sampled": means["sampled"] / 1000,
                "read": means["read"] / 1000,
                "rollout s": means["rollout"],
                "training s": means["training"],
                "in all": total,
                "to RL": f"{total / first[0]:.2f}",
                "to RL, a token": f"{per_token / first[1]:.2f}",
                "|Δlogp|": f"{means['mismatch']:.4f}",
            }
        )
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def _update(trainer: Any, number: int) -> dict[str, float]:
    tokens_before = trainer.engine.tokens
    metrics: dict[str, Any] = {}
    spent = gpu_seconds(lambda: metrics.update(trainer._update(number)))
    return {
        "sampled": metrics["tokens/sampled"],
        "read": trainer.engine.tokens - tokens_before - metrics["tokens/sampled"],
        "rollout": metrics["time/rollout"],
        "training": spent - metrics["time/rollout"],
        "mismatch": metrics["loss/sampler/mismatch"],
    }


def at_full_length(
    shape: str, preset: str, *, env: str = "", tasks: int = 0, group: int = 0, episodes: int = 0
) -> Report:
    """One real update of a preset: trials whose replies reach their limits, then training on them.

    Weights drawn at random hardly ever stop by themselves. Fewer tasks, trials or episodes than the preset has (0: as
    many) take less time and leave every sequence as long as it is; the title says so. Compiling is not timed: the
    trainer does it when it is made.
    """
    counts = {"run.tasks": tasks, "run.group": group, "trial.episodes": episodes}
    flags = {**({"task.env": env} if env else {}), **_FULL_LENGTH}
    config = resolve(preset, None, {**flags, **{name: str(count) for name, count in counts.items() if count}})
    metrics: dict[str, Any] = {}
    with _trainer(config, _drawn_at_random(shape, config)) as trainer:
        if config.algo.kl_weight:
            trainer.learner.reference = trainer.learner.reference_weights()
        spent = gpu_seconds(lambda: metrics.update(trainer._update(0)))
        context, slots = trainer.engine.context, trainer.engine.slots
    row: dict[str, Cell] = {
        "preset": preset,
        "trials": config.run.tasks * config.run.group,
        "context": context,
        "slots": slots,
        "replies": metrics["replies"],
        "cut": f"{100 * metrics['replies/cut']:.0f} %",
        "sampled": metrics["tokens/sampled"],
        "longest row": metrics["tokens/longest_row"],
        "rollout s": metrics["time/rollout"],
        "training s": spent - metrics["time/rollout"],
        "in all": spent,
        "peak of memory (GB)": peak_gigabytes(),
    }
    published, measured = _sizes(resolve(preset, None, {"task.env": config.task.env})), _sizes(config)
    less = [f"{n} {name} instead of {published[name]}" for name, n in measured.items() if n != published[name]]
    note = f"; less than the preset: {', '.join(less)}" if less else ""
    return Report(f"One update of {preset} on {config.task.env}, {shape} drawn at random{note}", [row])


def _sizes(config: Any) -> dict[str, int]:
    return {"tasks": config.run.tasks, "trials a task": config.run.group, "episodes": config.trial.episodes}


def _drawn_at_random(shape: str, config: Any) -> Any:
    """A model of a shape with random weights, and the tokenizer of the model that is usually measured."""
    if shape not in SHAPES:
        raise UnknownName("shape", shape, SHAPES)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    texts, _ = subject(device.type)
    tokenizer, renderer = texts.tokenizer, texts.renderer
    del texts
    free_gpu()
    way = Way("", False, config.model.gradient_checkpointing, config.model.lora_rank)
    return Loaded(random_model(SHAPES[shape], way, device), tokenizer, renderer)


@contextmanager
def _trainer(config: Any, loaded: Any = None) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder.create(Path(folder) / "run", {"kind": "train", **to_tree(config)})
        trainer = Trainer(config, run_folder, lambda _: None, loaded=loaded)
        try:
            yield trainer
        finally:
            trainer.loop.close()
